// Chapter 05: the order lab. The same rules on the same logits in the order of three engines and in the reader's own.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, short, percent, thousands } = ns.chart;
  const ROWS = 15, FEWEST = 10, LIKELIEST = 5; // rows of tokens: at most, at least, and those shown in any case
  const TEXT = {
    presets: "Try",
    examples: [
      ["one token or two", { source: "toy-three", settings: { temperature: 0.5, top_p: 0.8 } }],
      ["eleven or one", { source: "toy-sure", settings: { temperature: 2, min_p: 0.05 } }],
      ["the common recipe", { source: "once", settings: { temperature: 0.8, top_k: 50, top_p: 0.95 } }],
      ["hot, with three cuts", { source: "capital", settings: { temperature: 1.5, top_k: 50, top_p: 0.9, min_p: 0.05 } }],
      ["a rule one lacks", { source: "chat", settings: { temperature: 1, top_k: 50, typical_p: 0.6 } }],
    ],
    source: "distribution",
    shown: "The cards show the order of",
    yours: "your order",
    cards: "Rules in their order: drag a card by its name, or focus the name and press the arrow keys",
    hint: "Drag a card by its name, or press the arrow keys on it.",
    names: { repetition_penalty: "repetition", temperature: "temperature" },
    short: { temperature: "T" },
    symbols: { repetition_penalty: "θ", temperature: "T", min_p: "min" },
    handle: (rule, place, places) => `${rule}, place ${place} of ${places}; arrow keys move it`,
    use: (rule) => `use ${rule}`,
    value: (rule, symbol) => `${rule} ${symbol}`,
    off: "off",
    lacking: (engine) => `not in ${engine}`,
    moved: (rule, place, places, before, after) => `${rule} is now at place ${place} of ${places}` +
      `${before ? `, after ${before}` : ""}${after ? `, before ${after}` : ""}. This is your order.`,
    lanes: "Tokens alive after each rule",
    none: (rule) => `no ${rule}`,
    end: (kept, mass) => `${kept} kept, ${mass}`,
    note: "Mass is what the kept tokens had before any rule. A cell shows a token's probability afterwards, or −∞ if it is cut.",
    noText: " The toy has no text before it, so the repetition penalty has nothing to do.",
    token: "token",
    before: "before",
    rest: (n) => `${thousands(n)} others`,
    restKept: (n) => (n ? `${thousands(n)} ✓` : ""),
    cut: "−∞",
    reset: "Reset",
    table: "Tokens under the four orders",
    head: ["token", "id", "probability before"],
    tableCut: "cut",
    kept: "tokens kept",
    mass: "their mass before",
    keeps: (names, n, V) => `${names} keeps ${thousands(n)} of ${thousands(V)} tokens`,
    also: (name, n) => `${name} ${thousands(n)}`,
    same: (n, V) => `All four orders keep the same ${thousands(n)} of ${thousands(V)} tokens.`,
    differ: (n, token) => `; ${n === 1 ? "1 token is" : `${thousands(n)} tokens are`} kept by some and cut by others, ` +
      `the likeliest “${token}”.`,
    lack: (engine, rules) => ` ${engine} has no ${rules.join(", no ")}: ${rules.length > 1 ? "they are" : "it is"} left out there.`,
    greedy: (token) => `At T = 0 every order takes “${token}”: truncation is skipped.`,
  };
  const METHODS = Object.fromEntries(ns.catalogue.methods.map((method) => [method.setting, method]));
  const RULES = ["repetition_penalty", "temperature", ...Object.keys(METHODS)];
  const HOME = { repetition_penalty: 1.1, temperature: 1 };
  const nameOf = (rule) => TEXT.names[rule] ?? METHODS[rule].label;
  const homeOf = (rule) => HOME[rule] ?? METHODS[rule].start;
  const engines = ns.catalogue.orders.map((engine) => ({ ...engine, rules: engine.rules.filter((rule) => RULES.includes(rule)) }));
  // Every rule once: those named first, then the others.
  const complete = (order) => [...new Set([...order.filter((rule) => RULES.includes(rule)), ...RULES])];
  // The legal settings, always in the same order, so that two can be compared as text.
  const legal = (rule, value) => value != null && ns.sampler.legal[rule](value);
  const clean = (settings) => Object.fromEntries(RULES.filter((rule) => legal(rule, settings[rule])).map((rule) => [rule, settings[rule]]));

  const amount = (rule, value) => (rule === "top_k" ? thousands(value) : short(value));

  function stopsOf(rule, V) {
    if (rule === "temperature") return ns.temperatures;
    if (rule === "repetition_penalty") return Array.from({ length: 21 }, (_, i) => (20 + i) / 20);
    return ns.stops(rule === "top_k" ? { ...METHODS[rule], high: V } : METHODS[rule]);
  }

  const defaults = { source: "capital", settings: TEXT.examples[3][1].settings, order: engines[0].rules, shown: "yours" };
  ns.define("order", defaults, ({ root, state, source }) => {
    const { h, select, chips, button, presets, table, readout } = ns.chart;
    const settings = () => clean(state.get("settings")), own = () => complete(state.get("order"));
    const engine = () => engines.find(({ name }) => name === state.get("shown"));
    const order = () => complete(engine()?.rules ?? own()); // of the cards
    const start = Object.fromEntries(Object.keys(defaults).map((key) => [key, state.get(key)]));
    const remembered = {}; // the value a rule had before it was switched off
    const named = TEXT.examples.map(([name, { source, settings }]) => [name, { source, settings: JSON.stringify(clean(settings)) }]);
    const examples = presets(TEXT.presets, named, { // settings are compared as text
      get: (key) => (key === "settings" ? JSON.stringify(settings()) : state.get(key)),
      set: ({ source, settings }) => state.set({ source, settings: JSON.parse(settings) }),
    });
    const options = (list) => list.map(({ name, label }) => [name, label]);
    const pick = select({ label: TEXT.source, options: options(ns.catalogue.sources), onInput: (name) => state.set({ source: name }) });
    const show = chips({
      label: TEXT.shown, options: [...options(engines), ["yours", TEXT.yours]], onInput: (shown) => state.set({ shown }),
    });
    const give = (rule, value) => state.set({ settings: clean({ ...settings(), [rule]: value }) });

    // --- The cards. Moving one makes the order on show the reader's own.
    const spoken = h("div", { class: "nt-spoken", "aria-live": "assertive" });
    let dragged = null;
    function move(rule, place) {
      const now = order(), from = now.indexOf(rule), to = Math.max(0, Math.min(place, RULES.length - 1));
      if (from === to) return;
      now.splice(to, 0, ...now.splice(from, 1));
      state.set({ order: now, shown: "yours" });
      const [before, after] = [now[to - 1], now[to + 1]].map((rule) => rule && nameOf(rule));
      spoken.textContent = TEXT.moved(nameOf(rule), to + 1, now.length, before, after);
    }
    function pressed(event, rule) {
      const at = order().indexOf(rule), { key } = event;
      const place = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: RULES.length - 1 }[key];
      if (place === undefined) return;
      event.preventDefault();
      move(rule, place);
    }
    function pulled({ clientX: x, clientY: y }, rule) {
      if (dragged !== rule) return;
      const inside = ({ left, right, top, bottom }) => x >= left && x <= right && y >= top && y <= bottom;
      const over = RULES.find((other) => inside(cards[other].node.getBoundingClientRect()));
      if (over && over !== rule) move(rule, order().indexOf(over));
    }
    function card(rule) {
      const name = nameOf(rule), symbol = TEXT.symbols[rule] ?? METHODS[rule].symbol;
      const drop = () => { dragged = null; node.classList.remove("nt-dragged"); };
      const place = h("span", { class: "nt-place" });
      const handle = h("button", {
        type: "button", class: "nt-handle", keydown: (event) => pressed(event, rule),
        pointerdown: (event) => {
          if (event.button) return;
          event.target.closest("button").setPointerCapture(event.pointerId);
          dragged = rule;
          node.classList.add("nt-dragged");
        },
        pointermove: (event) => pulled(event, rule), pointerup: drop, pointercancel: drop, lostpointercapture: drop,
      }, place, name);
      const toggle = h("input", {
        type: "checkbox", "aria-label": TEXT.use(name),
        change: () => give(rule, toggle.checked ? (remembered[rule] ?? homeOf(rule)) : null),
      });
      const knob = ns.chart.slider({ label: symbol, onInput: (value) => give(rule, value) });
      knob.node.querySelector("input").setAttribute("aria-label", TEXT.value(name, symbol));
      const note = h("p", { class: "nt-note" });
      const node = h("li", { class: "nt-card" }, handle, toggle, knob.node, note);
      function set(at, value, V) {
        const has = !engine() || engine().rules.includes(rule);
        if (value != null) remembered[rule] = value;
        place.textContent = at + 1;
        handle.setAttribute("aria-label", TEXT.handle(name, at + 1, RULES.length));
        toggle.checked = value != null;
        node.classList.toggle("nt-off", value == null || !has);
        knob.node.hidden = value == null || !has;
        note.hidden = !knob.node.hidden;
        note.textContent = has ? TEXT.off : TEXT.lacking(engine().label);
        if (value == null) return;
        const stops = stopsOf(rule, V);
        knob.set(value, { stops, home: Math.min(homeOf(rule), stops.at(-1)), format: (v) => amount(rule, v) });
      }
      return { node, set };
    }
    const cards = Object.fromEntries(RULES.map((rule) => [rule, card(rule)]));
    const row = h("ol", { class: "nt-cards", "aria-label": TEXT.cards }, RULES.map((rule) => cards[rule].node));
    // The card in use stays in the document, or it would lose the focus and the pointer; the others move around it.
    function arrange(now) {
      if (now.every((rule, i) => row.children[i] === cards[rule].node)) return;
      const held = now.find((rule) => rule === dragged || cards[rule].node.contains(document.activeElement)) ?? now[0];
      const { node } = cards[held], at = now.indexOf(held);
      now.forEach((rule, i) => {
        if (i < at) row.insertBefore(cards[rule].node, node);
        else if (i > at) row.append(cards[rule].node);
      });
    }

    const lanes = h("div", { class: "nt-lanes", role: "group", "aria-label": TEXT.lanes });
    const grid = h("table", { class: "nt-orders" });
    const words = readout();
    let lines = [];
    const numbers = table(TEXT.table, () => lines);
    root.append(
      examples.node,
      h("div", { class: "nt-controls" }, pick.node, h("div", null, h("span", { class: "nt-legend" }, TEXT.shown), show.node)),
      h("p", { class: "nt-hint" }, TEXT.hint), row, lanes, grid, h("p", { class: "nt-key" }, TEXT.note),
      ...words.nodes, spoken,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, button(TEXT.reset, () => state.set(start)), numbers.buttons)),
      numbers.body,
    );

    function update() {
      const now = order(), on = settings();
      examples.update();
      pick.set(state.get("source"));
      show.set(engine()?.name ?? "yours");
      const from = source(state.get("source"));
      arrange(now);
      now.forEach((rule, at) => cards[rule].set(at, on[rule], from?.V ?? 49152));
      if (!from) return false;
      const view = at(from, on, [...engines, { name: "yours", label: TEXT.yours, rules: own() }]);
      drawLanes(lanes, view, engine()?.name ?? "yours");
      drawGrid(grid, view);
      words.say(sentence(view, on));
      lines = tableOf(view);
      numbers.update();
    }
    return { update, dispose: words.stop };
  });

  function tableOf({ columns, rows }) {
    return [
      [...TEXT.head, ...columns.map(({ label }) => label)],
      ...rows.map(({ token, id, before, cells }) => [token, id ?? "", before, ...cells.map(({ kept, p }) => (kept ? p : TEXT.tableCut))]),
      [TEXT.kept, "", "", ...columns.map(({ final }) => final.ids.length)],
      [TEXT.mass, "", "", ...columns.map(({ mass }) => mass)],
    ];
  }

  // What each order makes of the distribution, and the rows to show: the likeliest tokens, and those that orders disagree about.
  function at(from, settings, orders) {
    const { sampler } = ns, text = { ids: from.ids, promptLength: from.ids.length }, known = new Map();
    const before = sampler.softmax(from.state), votes = new Uint8Array(from.V);
    const columns = orders.map(({ name, label, rules }) => {
      let now = from.state, path = "";
      const stages = sampler.steps(settings, rules).map(([rule, value]) => {
        path += `${rule} ${value} `;
        if (!known.has(path)) known.set(path, sampler.run(now, [[rule, value]], text)); // orders share their beginnings
        const alive = now.ids.length;
        now = known.get(path);
        return { rule, value, count: now.ids.length, same: now.ids.length === alive };
      });
      const p = sampler.softmax(now), after = new Float64Array(from.V), kept = new Uint8Array(from.V);
      now.ids.forEach((id, rank) => { after[id] = p[rank]; kept[id] = 1; votes[id] += 1; });
      const mass = from.state.ids.reduce((sum, id, rank) => sum + (kept[id] ? before[rank] : 0), 0);
      const lacks = RULES.filter((rule) => settings[rule] != null && !rules.includes(rule));
      return { name, label, stages, final: now, after, kept, mass, lacks };
    });
    const differ = (id) => votes[id] > 0 && votes[id] < columns.length;
    const ranks = [...from.state.ids.keys()], open = ranks.filter((rank) => differ(from.state.ids[rank]));
    const chosen = new Set([...ranks.slice(0, LIKELIEST), ...open.slice(0, ROWS - LIKELIEST)]);
    for (const rank of ranks) if (chosen.size >= FEWEST) break; else chosen.add(rank);
    const rows = [...chosen].sort((a, b) => a - b).map((rank) => {
      const id = from.state.ids[rank];
      const cells = columns.map(({ kept, after }) => ({ kept: kept[id] === 1, p: after[id] }));
      return { id, token: from.tokens[id], before: before[rank], differs: differ(id), cells };
    });
    if (from.V > rows.length) rows.push(others(from.V, rows, columns));
    return { from, columns, rows, open: open.map((rank) => from.tokens[from.state.ids[rank]]) };
  }

  function others(V, rows, columns) {
    const left = (value) => Math.max(0, rows.reduce((sum, row) => sum - value(row), 1));
    const cells = columns.map(({ final }, c) => {
      const count = rows.reduce((sum, row) => sum - row.cells[c].kept, final.ids.length);
      return { kept: count > 0, count, p: count ? left((row) => row.cells[c].p) : 0 };
    });
    return { token: TEXT.rest(V - rows.length), before: left((row) => row.before), differs: false, cells };
  }

  function drawLanes(node, { from, columns }, shown) {
    const { h } = ns.chart, say = (rule, value) => `${TEXT.short[rule] ?? nameOf(rule)} ${amount(rule, value)}`;
    const stage = (name, count, kind) => h("li", { class: kind }, h("span", null, name), count == null ? null : h("b", null, thousands(count)));
    const lane = ({ name, label, stages, final, mass, lacks }) => h("div", { class: name === shown ? "nt-shown" : null },
      h("span", { class: "nt-lane" }, label),
      h("ol", null, stages.map(({ rule, value, count, same }) => stage(say(rule, value), count, same ? "nt-same" : null)),
        lacks.map((rule) => stage(TEXT.none(nameOf(rule)), null, "nt-lack"))),
      h("span", { class: "nt-end" }, TEXT.end(thousands(final.ids.length), percent(mass, 1))));
    node.replaceChildren(...columns.map(lane));
  }

  function drawGrid(node, { columns, rows }) {
    const { h, token, scaleFor } = ns.chart, named = rows.filter((row) => row.id !== undefined);
    const scale = scaleFor(Math.max(...named.flatMap((row) => row.cells.map(({ p }) => p))));
    const title = (text) => h("th", { scope: "col" }, text);
    const share = (p) => `--nt-share: ${Math.min(1, p / scale)}`;
    const cell = ({ kept, p, count }) => h("td", { class: kept ? "nt-in" : "nt-out", style: kept ? share(p) : null },
      h("span", null, kept ? percent(p) : TEXT.cut), count ? h("small", null, TEXT.restKept(count)) : null);
    const line = (row) => h("tr", { class: row.differs ? "nt-differs" : row.id === undefined ? "nt-rest" : null },
      h("th", { scope: "row" }, row.id === undefined ? row.token : token(row.token)), h("td", null, percent(row.before)),
      row.cells.map(cell));
    node.replaceChildren(
      h("thead", null, h("tr", null, title(TEXT.token), title(TEXT.before), columns.map(({ label }) => title(label)))),
      h("tbody", null, rows.map(line)),
    );
  }

  function sentence({ from, columns, open }, settings) {
    if (settings.temperature === 0) return TEXT.greedy(from.tokens[columns[0].final.ids[0]]);
    const [first, ...rest] = columns, n = first.final.ids.length;
    const others = rest.map(({ label, final }) => TEXT.also(label, final.ids.length));
    const kept = !open.length ? TEXT.same(n, from.V)
      : [TEXT.keeps(first.label, n, from.V), ...others].join(", ") + TEXT.differ(open.length, open[0]);
    const lacks = columns.filter(({ lacks }) => lacks.length).map(({ label, lacks }) => TEXT.lack(label, lacks.map(nameOf)));
    return kept + lacks.join("") + (settings.repetition_penalty != null && !from.ids.length ? TEXT.noText : "");
  }
})(globalThis);
