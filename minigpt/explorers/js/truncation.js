// Chapter 03: which tokens a rule keeps and which it cuts, over the whole vocabulary.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, short, percent, thousands, count } = ns.chart;
  const ROWS = 16, MOST_ROWS = 60;
  const TEXT = {
    source: "distribution",
    method: "rule",
    temperature: "temperature T",
    presets: "Try",
    examples: [
      ["a sure thing", { source: "capital", method: "top-p", value: 0.9, temperature: 1 }],
      ["an open story", { source: "once", method: "top-p", value: 0.9, temperature: 1 }],
      ["k where one would do", { source: "sum", method: "top-k", value: 40, temperature: 1 }],
      ["the favourite is cut", { source: "once", method: "typical", value: 0.3, temperature: 1 }],
    ],
    picture: "Bars: probability of the likeliest tokens, kept or cut",
    columns: { token: "token", logit: "logit", scaled: "÷ T", share: "p" },
    kept: "✓",
    cut: "−∞",
    rest: (n) => `${thousands(n)} others`,
    restKept: (n) => (n ? `${thousands(n)} ✓` : "−∞"),
    key: ["kept", "cut", "before the cut"],
    curve: { label: "Probability against rank, with the cut", x: "rank of the token", y: "probability before the cut" },
    mass: {
      label: "Cumulative mass, with the threshold",
      y: "cumulative mass",
      x: "tokens taken, likeliest first",
      typical: "tokens taken, most typical first",
    },
    table: "Stages of the rule, token by token",
    head: ["token", "id", "logit", "logit ÷ T", "probability before", "kept", "probability after"],
    yes: "kept",
    no: "cut",
    sentence: (rule, kept, V, mass, bits, effective) =>
      `${rule} keeps ${kept} of ${V} tokens, ${mass} of the mass; entropy ${bits} bits, effective choices ${effective}.`,
    favourite: (token) => ` The likeliest token, “${token}”, is not among them.`,
    greedy: (token, V) => `At T = 0 only the likeliest of ${V} tokens, “${token}”, is left: the rule has nothing to cut.`,
  };
  const methodOf = (name) => {
    const method = ns.catalogue.methods.find((method) => method.name === name);
    if (!method) throw new RangeError(`no rule named ${name}`);
    return method;
  };
  // A value left over from another rule does not count.
  const legal = ({ setting, start }, value) => (value != null && ns.sampler.legal[setting](value) ? value : start);

  const defaults = { source: "capital", method: "top-p", value: null, temperature: 1, rows: ROWS };
  ns.define("truncation", defaults, ({ root, state, source }) => {
    const { h, slider, select, chips, presets, rows, barKey, plot, table, readout } = ns.chart;
    const remembered = {}; // the value last used with each rule
    const pick = select({
      label: TEXT.source,
      options: ns.catalogue.sources.map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ source: name }),
    });
    const rule = chips({
      label: TEXT.method,
      options: ns.catalogue.methods.map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ method: name, value: remembered[name] ?? methodOf(name).start }),
    });
    const knob = slider({ label: TEXT.method, onInput: (value) => state.set({ value }) });
    const heat = slider({ label: TEXT.temperature, onInput: (temperature) => state.set({ temperature }) });
    const setting = () => legal(methodOf(state.get("method")), state.get("value"));
    const examples = presets(TEXT.presets, TEXT.examples,
      { set: state.set, get: (name) => (name === "value" ? setting() : state.get(name)) });
    const { columns } = TEXT, heading = h("span");
    const bars = rows(TEXT.picture, [[columns.token, "nt-token"], [columns.logit, "nt-number"], [columns.scaled, "nt-number"],
      [heading, "nt-mark"], ["", "nt-track"], [columns.share, "nt-number"]]);
    const key = barKey(TEXT.key);
    const curve = plot(TEXT.curve.label), mass = plot(TEXT.mass.label);
    const words = readout();
    let shown = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...shown]);
    root.append(
      examples.node,
      rule.node,
      h("div", { class: "nt-controls" }, pick.node, knob.node, heat.node),
      h("div", { class: "nt-body" }, h("div", null, bars.node, key), h("div", { class: "nt-side" }, mass.node, curve.node)),
      ...words.nodes,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      const name = state.get("source"), method = methodOf(state.get("method")), T = state.get("temperature");
      const value = setting();
      remembered[method.name] = value;
      examples.update();
      pick.set(name);
      rule.set(method.name);
      heat.set(T, { stops: ns.temperatures, home: 1, format: (t) => fixed(t) });
      heading.textContent = method.label;
      const from = source(name);
      const high = method.scale === "count" && from ? from.V : method.high; // k above V acts as V
      knob.set(value, {
        stops: ns.stops({ ...method, high }), home: Math.min(method.start, high),
        format: (v) => `${method.scale === "count" ? thousands(v) : short(v)} ${method.unit}`.trim(),
        label: method.knob,
      });
      if (!from) return false;
      const view = at(from, method, value, T, Math.min(state.get("rows"), MOST_ROWS));
      drawRows(bars, view);
      drawMass(mass, view);
      drawCurve(curve, view);
      words.say(sentence(view));
      shown = view.rows.map((row) => [row.token, row.id ?? "", row.logit, row.scaled, row.before,
        row.id === undefined ? row.keptCount : row.kept ? TEXT.yes : TEXT.no, row.after]);
      numbers.update();
    }
    return { update, dispose: words.stop };
  });

  // All that is shown for one setting. Rows are the likeliest tokens; the last stands for all others.
  function at(from, method, value, T, rowCount) {
    const { sampler } = ns, scaled = sampler.run(from.state, [["temperature", T]]);
    const final = T === 0 ? scaled : sampler.run(scaled, [[method.setting, value]]);
    const before = sampler.softmax(scaled), after = sampler.softmax(final);
    const kept = new Uint8Array(from.V), ranks = new Uint8Array(before.length);
    for (const id of final.ids) kept[id] = 1;
    let mass = 0;
    for (let rank = 0; rank < before.length; rank++) if ((ranks[rank] = kept[scaled.ids[rank]])) mass += before[rank];
    const ids = scaled.ids.length < rowCount ? from.state.ids : scaled.ids; // what T sent to -inf still has a row
    const rows = Array.from(ids.subarray(0, rowCount), (id, rank) => {
      const p = rank < before.length ? before[rank] : 0;
      return {
        id, token: from.tokens[id], logit: from.state.z[id], before: p, kept: kept[id] === 1, after: kept[id] ? p / mass : 0,
        scaled: T ? from.state.z[id] / T : rank ? -Infinity : from.state.z[id],
      };
    });
    const left = from.V - rows.length, rest = (key) => Math.max(0, rows.reduce((sum, row) => sum - row[key], 1));
    const keptCount = rows.reduce((sum, row) => sum - row.kept, final.ids.length);
    if (left) {
      rows.push({ token: TEXT.rest(left), logit: "", scaled: "", before: rest("before"), kept: keptCount > 0, keptCount,
        after: keptCount ? rest("after") : 0 });
    }
    return { from, method, value, T, scaled, final, before, ranks, mass, rows, ...sampler.summary(after) };
  }

  function drawRows(bars, { rows }) {
    const number = (x) => (x === "" ? "" : fixed(x));
    const items = rows.map((row) => {
      const rest = row.id === undefined;
      return {
        kind: `${rest ? "nt-rest" : ""} ${row.kept ? "" : "nt-cut"}`,
        cells: [row.token, number(row.logit), number(row.scaled),
          rest ? TEXT.restKept(row.keptCount) : row.kept ? TEXT.kept : TEXT.cut, null, row.kept ? percent(row.after) : "0"],
        bar: row.kept ? row.after : row.before, tick: row.before,
      };
    });
    bars.draw(items, ns.chart.scaleFor(Math.max(...rows.filter((row) => row.id !== undefined).map((row) => Math.max(row.before, row.after)))));
  }

  // Cumulative mass in the order in which the rule takes tokens.
  function drawMass(plot, { from, method, value, T, scaled, final, before, mass }) {
    const isTypical = method.name === "typical" && T > 0;
    const order = isTypical ? ns.sampler.typicalOrder(scaled, before) : null;
    const points = [];
    let sum = 0, taken = 0;
    for (const rank of ns.ranks(before.length)) {
      for (; taken < rank; taken++) sum += before[order ? order[taken] : taken];
      points.push([rank, Math.min(1, sum)]);
    }
    const n = final.ids.length, split = [n, mass], threshold = ["top-p", "typical"].includes(method.name) && T > 0;
    plot.draw({
      x: ns.rankAxis(from.V, isTypical ? TEXT.mass.typical : TEXT.mass.x),
      y: { low: 0, high: 1.04, title: TEXT.mass.y, ticks: [[0, "0"], [0.5, "0.5"], [1, "1"]] },
      marks: (pen) => [
        pen.area([...points.filter(([rank]) => rank < n), split], "nt-kept"),
        pen.area([split, ...points.filter(([rank]) => rank > n)], "nt-cut"),
        pen.line(points),
        threshold && [pen.across(value), pen.note(from.V, value, `${method.symbol} = ${short(value)}`, value > 0.25 ? 13 : -6)],
        pen.down(n, "nt-guide"),
        pen.dot(...split),
        pen.note(n, mass, thousands(n), mass > 0.8 ? 16 : -8),
      ],
    });
  }

  // The floor under the probability that a rule sets, if it sets one.
  function floorOf({ method, value, T, scaled, before }) {
    if (T === 0) return null;
    if (method.name === "min-p") return before[0] * value;
    if (method.name === "epsilon") return value;
    if (method.name === "eta") return ns.sampler.etaFloor(before, value);
    return method.name === "top-n-sigma" ? before[0] * Math.exp(-value * ns.sampler.sigma(scaled)) : null;
  }

  function drawCurve(plot, view) {
    const { from, before, ranks: kept } = view, low = from.V < 10 ? -3 : -10, floor = floorOf(view);
    const points = ns.ranks(from.V).filter((rank) => before[rank - 1] >= 10 ** low).map((rank) => [rank, before[rank - 1]]);
    const first = kept.indexOf(1) + 1, last = kept.lastIndexOf(1) + 1, edge = (rank) => [rank, before[rank - 1]];
    plot.draw({
      x: ns.rankAxis(from.V, TEXT.curve.x),
      y: { low: 10 ** low, high: 1, log: true, title: TEXT.curve.y, ticks: ns.chart.powers(low, 0) },
      marks: (pen) => [
        pen.area([...points.filter(([rank]) => rank < first), edge(first)], "nt-cut"),
        pen.area([edge(first), ...points.filter(([rank]) => rank > first && rank < last), edge(last)], "nt-kept"),
        pen.area([edge(last), ...points.filter(([rank]) => rank > last)], "nt-cut"),
        pen.line(points),
        floor && floor >= 10 ** low && [pen.across(floor), pen.note(from.V, floor, floor < 0.001 ? floor.toExponential(1).replace("-", "−") : short(floor))],
        first > 1 && pen.down(first, "nt-guide"),
        pen.down(last, "nt-guide"),
        pen.dot(...edge(last)),
      ],
    });
  }

  function sentence({ from, method, value, T, final, mass, bits, effective, rows }) {
    const V = thousands(from.V);
    if (T === 0) return TEXT.greedy(rows[0].token, V);
    const amount = method.scale === "count" ? thousands(value) : short(value);
    return TEXT.sentence(`${method.label} ${amount}`, thousands(final.ids.length), V, percent(mass, 1), fixed(bits), count(effective)) +
      (rows[0].kept ? "" : TEXT.favourite(rows[0].token));
  }
})(globalThis);
