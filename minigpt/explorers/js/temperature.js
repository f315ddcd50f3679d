// Chapter 02: a distribution under a temperature slider, and draws from it beside the theory.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, thousands, count } = ns.chart;
  const ROWS = 14;
  const TEXT = {
    source: "distribution",
    temperature: "temperature T",
    seed: "with seed",
    draw: "Draw 100",
    clear: "Clear",
    presets: "Try",
    examples: [
      ["one good answer", { source: "capital", temperature: 0.5 }],
      ["many good answers", { source: "once", temperature: 1 }],
      ["too hot", { source: "capital", temperature: 1.6 }],
    ],
    picture: "Bars: probability of the likeliest tokens at this temperature",
    columns: { token: "token", logit: "logit", scaled: "÷ T", share: "p", drawn: "drawn" },
    rest: (n) => `${thousands(n)} others`,
    key: ["at T = 1", "share of the draws"],
    entropy: { label: "Entropy against temperature", x: "temperature T", y: "entropy, bits", most: "log₂ V" },
    curve: { label: "Probability against rank", x: "rank of the token", y: "probability", now: (T) => `T = ${T}`, one: "T = 1" },
    table: "Probabilities, token by token",
    head: ["token", "id", "logit", "logit ÷ T", "probability at T = 1", "probability", "drawn"],
    greedy: (token) => `At T = 0 the likeliest token, “${token}”, is taken every time: entropy 0 bits, effectively 1 token. This is greedy decoding.`,
    sentence: (T, bits, effective, token, top) =>
      `At T = ${T} the entropy is ${bits} bits: as open as a fair choice among ${effective} tokens. The likeliest, “${token}”, has ${top}.`,
    draws: (n, seed, token, hits) => ` Of ${n} draws with seed ${seed}, “${token}” came ${hits} times.`,
  };

  ns.define("temperature", { source: "capital", temperature: 1, draws: 0, seed: 0 }, ({ root, state, source }) => {
    const { h, slider, select, button, presets, rows, plot, table, readout } = ns.chart;
    const pick = select({
      label: TEXT.source,
      options: ns.catalogue.sources.map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ source: name }),
    });
    const heat = slider({ label: TEXT.temperature, onInput: (temperature) => state.set({ temperature }) });
    const seed = h("input", { type: "number", min: 0, max: 2 ** 32 - 1, step: 1, change: () => {
      if (seed.checkValidity() && seed.value) state.set({ seed: Number(seed.value) });
      else seed.value = state.get("seed");
    } });
    const clear = button(TEXT.clear, () => state.set({ draws: 0 }));
    const draws = h("div", { class: "nt-draws" },
      button(TEXT.draw, () => state.set({ draws: state.get("draws") + 100 })), h("label", null, TEXT.seed, seed), clear);
    const examples = presets(TEXT.presets, TEXT.examples, state);
    const { columns } = TEXT;
    const bars = rows(TEXT.picture, [[columns.token, "nt-token"], [columns.logit, "nt-number"], [columns.scaled, "nt-number"],
      ["", "nt-track"], [columns.share, "nt-number"], [columns.drawn, "nt-number nt-count"]]);
    const key = h("p", { class: "nt-key" }, h("i", { class: "nt-tick" }), TEXT.key[0],
      h("span", null, h("i", { class: "nt-drawn" }), TEXT.key[1]));
    const openness = plot(TEXT.entropy.label), curve = plot(TEXT.curve.label);
    const words = readout();
    let shown = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...shown]);
    root.append(
      examples.node,
      h("div", { class: "nt-controls" }, pick.node, heat.node),
      h("div", { class: "nt-body" }, h("div", null, bars.node, key), h("div", { class: "nt-side" }, openness.node, curve.node)),
      ...words.nodes,
      h("div", { class: "nt-foot" }, draws, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      const [name, T, n] = [state.get("source"), state.get("temperature"), state.get("draws")];
      examples.update();
      pick.set(name);
      heat.set(T, { stops: ns.temperatures, home: 1, format: (value) => fixed(value) });
      seed.value = state.get("seed");
      clear.disabled = n === 0;
      const from = source(name);
      if (!from) return false;
      const view = at(from, T, n, state.get("seed"));
      root.classList.toggle("nt-with-draws", n > 0);
      drawRows(bars, view);
      drawOpenness(openness, view);
      drawCurve(curve, view);
      words.say(sentence(view));
      shown = view.rows.map((row) => [row.token, row.id ?? "", row.logit, row.scaled, row.one, row.p, row.hits]);
      numbers.update();
    }
    return { update, dispose: words.stop };
  });

  // All that is shown at temperature T after n draws. Rows are the likeliest tokens; the last stands for all others.
  function at(from, T, n, seed) {
    const { sampler } = ns, state = sampler.run(from.state, [["temperature", T]]);
    const p = sampler.softmax(state), one = reference(from).p, drawn = new Map();
    const draw = n ? sampler.drawer(state) : null;
    for (const u of ns.uniforms(seed, n)) {
      const id = draw(u);
      drawn.set(id, (drawn.get(id) ?? 0) + 1);
    }
    const alive = new Map(Array.from(state.ids.subarray(0, 2 * ROWS), (id, rank) => [id, p[rank]]));
    const rows = Array.from(from.state.ids.subarray(0, ROWS), (id, rank) => ({
      id, token: from.tokens[id], logit: from.state.z[id], one: one[rank], p: alive.get(id) ?? 0,
      scaled: T ? from.state.z[id] / T : rank ? -Infinity : from.state.z[id], hits: drawn.get(id) ?? 0,
    }));
    const left = from.V - rows.length, rest = (key, whole) => Math.max(0, rows.reduce((sum, row) => sum - row[key], whole));
    if (left) rows.push({ token: TEXT.rest(left), logit: "", scaled: "", one: rest("one", 1), p: rest("p", 1), hits: rest("hits", n) });
    return { from, T, n, seed, p, one, rows, ...sampler.summary(p) };
  }

  // What does not change with the slider, worked out once a distribution: probabilities and entropies.
  const references = new WeakMap();
  function reference(from) {
    if (!references.has(from)) {
      const entropies = ns.temperatures.map((T) => [T, T ? bitsAt(from.state, T) : 0]);
      references.set(from, { p: ns.sampler.softmax(from.state), entropies });
    }
    return references.get(from);
  }
  // Entropy in one pass, as log Z - E[z / T]: exact enough for a curve.
  function bitsAt({ z, ids }, T) {
    let total = 0, dot = 0;
    for (const id of ids) {
      const scaled = (z[id] - z[ids[0]]) / T, weight = Math.exp(scaled);
      total += weight;
      dot += weight * scaled;
    }
    return (Math.log(total) - dot / total) / Math.LN2;
  }

  function drawRows(bars, { rows, n }) {
    const number = (x) => (x === "" ? "" : fixed(x));
    const items = rows.map((row) => ({
      kind: row.id === undefined ? "nt-rest" : "",
      cells: [row.token, number(row.logit), number(row.scaled), null, percent(row.p), n ? thousands(row.hits) : ""],
      bar: row.p, tick: row.one, drawn: n ? row.hits / n : null,
    }));
    const named = rows.filter((row) => row.id !== undefined);
    bars.draw(items, ns.chart.scaleFor(Math.max(...named.map((row) => Math.max(row.p, n ? row.hits / n : 0)))));
  }

  function drawOpenness(plot, { from, T, bits }) {
    const most = Math.log2(from.V), { x, y, most: name } = TEXT.entropy;
    plot.draw({
      x: { low: 0, high: 2, title: x, ticks: [0, 0.5, 1, 1.5, 2].map((t) => [t, String(t)]) },
      y: { low: 0, high: most * 1.08, title: y, ticks: [[0, "0"], [most / 2, fixed(most / 2, 1)], [most, fixed(most, 1)]] },
      marks: (pen) => [pen.across(most), pen.note(0, most, name, 12), pen.line(reference(from).entropies), pen.down(T, "nt-guide"),
        pen.dot(T, bits), pen.note(T, bits, fixed(bits), bits > most / 2 ? 16 : -8)],
    });
  }

  function drawCurve(plot, { from, T, p, one }) {
    const { x, y, now, one: before } = TEXT.curve, ranks = ns.ranks(from.V), low = from.V < 10 ? -3 : -10;
    const points = (values) => ranks.filter((rank) => values[rank - 1] >= 10 ** low).map((rank) => [rank, values[rank - 1]]);
    plot.draw({
      x: ns.rankAxis(from.V, x),
      y: { low: 10 ** low, high: 1, log: true, title: y, ticks: ns.chart.powers(low, 0) },
      marks: (pen) => {
        const line = points(p);
        return [pen.area(line, "nt-kept"), pen.line(points(one), "nt-before"), pen.line(line), line.length === 1 && pen.dot(...line[0])];
      },
    });
  }

  function sentence({ T, n, seed, bits, effective, rows: [first] }) {
    const said = T ? TEXT.sentence(fixed(T), fixed(bits), count(effective), first.token, percent(first.p)) : TEXT.greedy(first.token);
    return said + (n ? TEXT.draws(thousands(n), seed, first.token, first.hits) : "");
  }
})(globalThis);
