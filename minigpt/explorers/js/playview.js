// What the playground shows beside the text: the characters that may come next, and what the text has cost.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, thousands } = ns.chart;
  const TEXT = {
    picture: "Bars: probability of the likeliest next characters, kept or cut; the one that Step writes is outlined",
    columns: { token: "next", logit: "logit", share: "p" },
    rest: (n) => `${thousands(n)} others`,
    key: ["kept", "cut", "before the rules", "what Step writes"],
    pick: "Pick the next one yourself",
    picked: (token, p) => `${token}, ${p}`,
    spoken: { "\n": "the line end", " ": "a space" },
    quoted: (character) => `“${character}”`,
    table: "The likeliest next characters",
    head: ["character", "logit", "probability", "probability after the rules"],
    counted: "Work with a cache and without",
    counts: ["with a cache", "without"],
    written: "characters",
    tokens: "tokens through the model",
    formula: "by the formula",
    ms: "time",
    time: (ms) => `${thousands(ms)} ms`,
    rate: "characters / s",
    undone: "taken back or read again",
  };

  // A character in a sentence.
  ns.said = (character) => TEXT.spoken[character] ?? TEXT.quoted(character);

  // Bars of the `count` likeliest next characters, and a button for each: `pick(id)` is to write it.
  ns.playNext = ({ count, pick }) => {
    const { h, button, rows, barKey, table } = ns.chart, { token, logit, share } = TEXT.columns;
    const bars = rows(TEXT.picture, [[token, "nt-token"], [logit, "nt-number"], ["", "nt-track"], [share, "nt-number"]]);
    let shown = []; // { id, token, z, p before the rules, q after }
    const buttons = Array.from({ length: count }, (_, i) => button("", () => pick(shown[i].id)));
    const offer = h("div", { hidden: true }, h("p", { class: "nt-hint" }, TEXT.pick),
      h("div", { class: "nt-buttons nt-vocabulary", role: "group", "aria-label": TEXT.pick }, buttons));
    const numbers = table(TEXT.table, () => [TEXT.head, ...shown.map(({ token, z, p, q }) => [token, z, p, q])]);

    function list(items, hidden) {
      bars.draw(items, 1);
      offer.hidden = hidden;
      numbers.update();
    }
    return {
      nodes: [bars.node, barKey(TEXT.key)], offer, numbers,
      busy: (value) => bars.node.setAttribute("aria-busy", value),
      // `before` and `after`: states of the sampler; `next`: the id that Step writes, or null.
      draw({ before, after }, next, tokenizer) {
        const p = ns.sampler.softmax(before), q = ns.sampler.softmax(after), kept = new Map(Array.from(after.ids, (id, i) => [id, q[i]]));
        const top = Array.from(before.ids.subarray(0, count));
        shown = top.map((id, i) => ({ id, token: tokenizer.tokenText(id), z: before.z[id], p: p[i], q: kept.get(id) ?? 0 }));
        const items = shown.map(({ id, token, z, p, q }) => ({
          kind: `${kept.has(id) ? "" : "nt-cut"} ${id === next ? "nt-chosen" : ""}`,
          cells: [token, fixed(z), null, percent(q)], bar: kept.has(id) ? q : p, tick: p,
        }));
        const left = after.ids.reduce((sum, id, i) => (top.includes(id) ? sum : sum + q[i]), 0);
        const kind = next === null || top.includes(next) ? "nt-rest" : "nt-rest nt-chosen";
        items.push({ kind, cells: [TEXT.rest(before.ids.length - top.length), "", null, percent(left)], bar: left });
        buttons.forEach((node, i) => {
          node.textContent = shown[i].token;
          node.setAttribute("aria-label", TEXT.picked(ns.said(tokenizer.characters[shown[i].id]), percent(shown[i].p)));
        });
        list(items, false);
      },
      clear() {
        shown = [];
        list([], true);
      },
    };
  };

  // Two columns, with a cache and without: what was counted in the last text of one prompt with the same settings.
  ns.playCounts = ({ undone: withUndone }) => {
    const { h } = ns.chart, node = h("div");
    let runs = {}, about; // by cache on or off: { n, tokens, ms }; of what
    return {
      node,
      // Forget what was counted of another prompt or with other settings.
      keep(what) {
        if (what !== about) runs = {};
        about = what;
      },
      draw(session) {
        const { cached, newTokens: n } = session, { tokens, ms, undone } = session.counts;
        runs[cached] = { n, tokens, ms };
        const cells = (cell) => [true, false].map((cached) => (runs[cached] ? cell(runs[cached]) : ""));
        const lines = [
          [TEXT.written, ...cells((run) => thousands(run.n))],
          [TEXT.tokens, ...cells((run) => thousands(run.tokens))],
          [TEXT.formula, ...[true, false].map((cached) => thousands(session.predicted(cached, runs[cached]?.n)))],
          [TEXT.ms, ...cells((run) => TEXT.time(run.ms))],
          [TEXT.rate, ...cells((run) => (run.n ? fixed((1000 * run.n) / run.ms, 1) : ""))],
        ];
        if (undone && withUndone) lines.push([TEXT.undone, ...[true, false].map((column) => (column === cached ? thousands(undone) : ""))]);
        node.replaceChildren(h("table", { class: "nt-counts", "aria-label": TEXT.counted },
          h("thead", null, h("tr", null, h("td"), TEXT.counts.map((cell) => h("th", { scope: "col" }, cell)))),
          h("tbody", null, lines.map(([name, ...cells]) => h("tr", null, h("th", { scope: "row" }, name),
            cells.map((cell, i) => h("td", { class: cached === (i === 0) ? "nt-now" : null }, cell)))))));
      },
      clear: () => node.replaceChildren(),
    };
  };
})(globalThis);
