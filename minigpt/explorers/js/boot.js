// Mounts every figure of a static page: `<div class="nt-explorer" data-explorer=NAME>` with its state as JSON inside.
// No import and no fetch: the book opens from a double click.
(function (root) {
  const ns = (root.nextToken ??= {});
  const HERE = document.currentScript.src;

  // A stand-in for the widget model of a notebook: the same methods, and nobody at the other end.
  class StaticModel {
    constructor(state) {
      this.state = state;
      this.handlers = {};
    }
    get(key) { return this.state[key]; }
    set(key, value) {
      if (this.state[key] === value) return;
      this.state[key] = value;
      this.emit(`change:${key}`);
    }
    on(event, handler) { (this.handlers[event] ??= new Set()).add(handler); }
    off(event, handler) { this.handlers[event]?.delete(handler); }
    emit(event, ...args) { [...(this.handlers[event] ?? [])].forEach((handler) => handler(...args)); }
    save_changes() {}
    send(message) {
      const weights = message.kind === "weights";
      const file = new URL(weights ? `${message.model}.js` : "distributions.js", HERE);
      const bytes = (base64) => [new DataView(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)).buffer)];
      load(file).then(
        () => {
          if (weights) {
            const { weights: values, ...facts } = ns.models[message.model];
            return this.emit("msg:custom", { ...message, facts }, bytes(values));
          }
          const { logits, tokens, prompts } = ns.distributions, { source } = message;
          this.emit("msg:custom", { ...message, tokens, ids: prompts[source] }, bytes(logits[source]));
        },
        () => this.emit("msg:custom", { ...message, error: `${file.pathname} could not be read` }),
      );
    }
  }

  const loading = new Map(); // address -> promise of a script, loaded once a page
  function load(file) {
    if (!loading.has(file.href)) {
      loading.set(file.href, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = file;
        script.onload = resolve;
        script.onerror = () => { loading.delete(file.href); reject(); };
        document.head.append(script);
      }));
    }
    return loading.get(file.href);
  }

  function mount(figure) {
    const state = JSON.parse(figure.querySelector('script[type="application/json"]')?.textContent || "{}");
    const place = figure.appendChild(document.createElement("div"));
    ns.explorers[figure.dataset.explorer].render({ model: new StaticModel(state), el: place });
  }

  for (const figure of document.querySelectorAll(".nt-explorer")) {
    try {
      mount(figure);
    } catch (error) {
      console.error(`figure ${figure.dataset.explorer}:`, error); // one broken figure must not take the others along
    }
  }
  ns.StaticModel = StaticModel;
})(globalThis);
