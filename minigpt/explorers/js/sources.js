// Distributions by name. Toys stand in the catalogue; real ones are asked for once: the widget model answers, with
// Python's binary message in a notebook and with distributions.js in the static page (see boot.js).
(function (root) {
  const ns = (root.nextToken ??= {});
  const ready = (ns.ready ??= {}); // name -> { name, label, V, tokens, ids, state }; shared by all figures of a page
  const shared = (ns.shared ??= { tokens: null }); // how each of the real tokens reads

  // `ids` are those of the prompt; a toy has none.
  function keep(entry, tokens, logits, ids = []) {
    ready[entry.name] = { ...entry, V: logits.length, tokens, ids, state: ns.sampler.distribution(logits) };
  }

  // The distribution, or null while it is on its way: then `arrived` is called, with an error message if there is one.
  ns.source = (model, name, arrived) => {
    if (ready[name]) return ready[name];
    const entry = ns.catalogue.sources.find((source) => source.name === name);
    if (!entry) throw new RangeError(`no distribution named ${name}`);
    if (entry.logits) keep(entry, entry.tokens, entry.logits);
    else ask(model, entry, arrived);
    return ready[name] ?? null;
  };

  function ask(model, entry, arrived) {
    function answer(message, buffers) {
      if (message.kind !== "distribution" || message.source !== entry.name) return;
      model.off("msg:custom", answer);
      if (message.error) return arrived(message.error);
      if (message.tokens) shared.tokens = message.tokens;
      const { buffer, byteOffset, byteLength } = buffers[0];
      if (!ready[entry.name]) keep(entry, shared.tokens, new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength)), message.ids);
      arrived();
    }
    model.on("msg:custom", answer);
    model.send({ kind: "distribution", source: entry.name, tokens: !shared.tokens });
  }
})(globalThis);
