// Chapter 08: the attention grid, pass by pass, without a cache and with one: what is new, done again, read, kept.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { thousands, fixed } = ns.chart;
  const MOST = 12, LONGEST = 100000, PAUSE_MS = 1100;
  const END = "P\u00a0+\u00a0N\u00a0−\u00a01";
  const START = { prompt: 6, new_tokens: 6, window: null, chunk: null, step: 4 };
  const some = (n, one) => `${thousands(n)} ${one}${n === 1 ? "" : "s"}`;
  const times = (a, b) => `${fixed(a / b, 1)} times as many`;
  const stretch = (from, to) => (from + 1 === to ? `token ${to}` : `tokens ${from + 1} to ${to}`);
  const TEXT = {
    presets: "Try",
    examples: [
      ["a step in the middle", {}],
      ["the prefill saves nothing", { prompt: 12, new_tokens: 1, step: 1 }],
      ["the last token", { step: 6 }],
      ["short prompt, long answer", { prompt: 1, new_tokens: 12, step: 12 }],
      ["a window of 4", { prompt: 5, new_tokens: 8, window: 4, step: 6 }],
      ["the prompt in chunks", { prompt: 12, new_tokens: 4, chunk: 4, step: 2 }],
    ],
    prompt: "prompt P",
    new_tokens: "new tokens N",
    window: "window W",
    chunk: "prefill chunk",
    off: "off",
    steps: {
      step: "pass",
      of: (step, last) => `${step} of ${last}`,
      first: "First pass",
      previous: "One pass back",
      next: "One pass on",
      last: "Last pass",
    },
    grids: "Grids of queries (down) and keys (across); the arrow keys go from pass to pass",
    sides: { naive: "Without a cache", cached: "With a cache" },
    now: (work) => (work ? `${some(work.tokens, "token")} in this pass` : "waits for the last chunk"),
    picture: (side, n, pairs) => `${side}: a grid of ${n} queries and keys; ${some(pairs, "pair")} in this pass`,
    rows: {
      "nt-work": (token) => `Query of token ${token}: new work`,
      "nt-again": (token) => `Query of token ${token}: done before, done again`,
      "nt-past": (token) => `Query of token ${token}: done in an earlier pass`,
    },
    gives: (token) => `→ ${token}`,
    unfed: "never fed back",
    key: [["nt-work", "new work"], ["nt-again", "done before, done again: waste"], ["nt-read", "K and V read from the cache"],
      ["nt-past", "done earlier; its Q is not stored"], ["nt-decides", "chooses the next token"], ["", "bold numbers: new tokens"]],
    columns: ["one layer, one head", "this pass", "so far", "in all"],
    counts: { tokens: "tokens through the model", pairs: "query–key pairs, causal", vectors: "K and V vectors computed", kept: "K and V vectors kept" },
    formulas: {
      naive: { tokens: "P·N + N(N − 1)/2", pairs: `Σ n(n + 1)/2 for n = P … ${END}`, vectors: "2 · tokens", kept: "none" },
      cached: { tokens: `${END}`, pairs: `M(M + 1)/2 with M = ${END}`, vectors: "2 · tokens", kept: "2 · tokens so far" },
    },
    windowed: {
      naive: { pairs: `Σ Σ min(i, W) for i ≤ n = P … ${END}` },
      cached: { pairs: `Σ min(i, W) for i ≤ ${END}`, kept: "2 · min(tokens so far, W)" },
    },
    longer: { title: "The same for other lengths", prompt: "prompt", new_tokens: "new tokens" },
    long: (P, N, W, naive, cached) =>
      `A prompt of ${thousands(P)} and ${some(N, "new token")}${W ? `, window ${W}` : ""}: without a cache ${some(naive.tokens, "token")} ` +
      `through the model, with one ${thousands(cached.tokens)}: ${times(naive.tokens, cached.tokens)}. ` +
      `Pairs: ${thousands(naive.pairs)} and ${thousands(cached.pairs)}: ${times(naive.pairs, cached.pairs)}.`,
    table: "Every pass, one layer and one head",
    head: ["pass", "gives new token", "no cache: tokens", "done again", "no cache: pairs", "done again", "no cache: K and V computed",
      "cache: tokens", "cache: pairs", "cache: K and V computed", "read", "kept"],
    total: "in all",
    range: (name, value, most) => `${name}=${value} is not a whole number from 1 to ${most}`,
    chunk_: (s, from, to, pairs) =>
      `Pass ${s}: ${stretch(from, to)} of the prompt, one chunk: ${some(pairs, "pair")}, and no new token yet. ` +
      "Without a cache a prompt cannot be cut, as nothing is kept for the next chunk: that side waits for the last one.",
    lastChunk: (s, from, to, pairs, all) =>
      `Pass ${s}: ${stretch(from, to)}, the last chunk of the prompt: ${some(pairs, "pair")}, and new token 1 comes out. ` +
      `Without a cache all ${to} tokens go through at once: ${some(all, "pair")}. So far both sides have done the same work.`,
    prefill: (s, P, pairs) =>
      `Pass ${s}, the prefill: on both sides the prompt (${some(P, "token")}) goes through the model, ${some(pairs, "pair")}, ` +
      "and new token 1 comes out. So far a cache has saved nothing.",
    decode: (s, gives, naive, cached) =>
      `Pass ${s} gives new token ${gives}. Without a cache ${some(naive.tokens, "token")} go through the model, ${thousands(naive.again)} of them ` +
      `once again: ${some(naive.pairs, "pair")}, ${thousands(naive.pairsAgain)} of them done before. With a cache 1 token goes through; its query ` +
      `meets its own key${cached.read ? ` and ${thousands(cached.read)} read from the cache` : " alone"}: ${some(cached.pairs, "pair")}.`,
    evicted: (n, W) => ` ${some(n, "older token")} ${n === 1 ? "is" : "are"} outside the window of ${W}.`,
    sofar: (naive, cached) => ` So far ${some(naive, "token")} against ${thousands(cached)}: ${times(naive, cached)}.`,
    end: (N, M) => ` New token ${N} is the last one and never fed back: ${END}\u00a0=\u00a0${some(M, "token")} through the cached model.`,
  };

  const defaults = { ...START, long_prompt: 183, long_new: 64 };
  ns.define("cache", defaults, ({ root, state }) => {
    const { h, slider, presets, table, readout } = ns.chart;
    let view = null;
    const steps = ns.stepper({ root, state, labels: TEXT.steps, wait: PAUSE_MS, first: 1, last: () => view.list.length, at: () => view.at });
    const set = (changes) => { steps.pause(); state.set(changes); };
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...START, ...changes }]), { get: state.get, set });
    const sizes = ["prompt", "new_tokens"].map((name) => [name, slider({ label: TEXT[name], onInput: (value) => set({ [name]: value }) })]);
    const options = ["window", "chunk"].map((name) => [name, slider({ label: TEXT[name], onInput: (value) => set({ [name]: value > MOST ? null : value }) })]);
    const panels = Object.keys(TEXT.sides).map(panel), words = readout(), lengths = longer(state);
    const key = h("p", { class: "nt-key" }, TEXT.key.map(([kind, name]) => h("span", null, kind && h("i", { class: `nt-cell-key ${kind}` }), name)));
    const numbers = table(TEXT.table, () => [TEXT.head, ...lines(view.list)]);
    root.append(
      examples.node,
      h("div", { class: "nt-controls" }, [...sizes, ...options].map(([, { node }]) => node)),
      steps.node,
      h("div", { class: "nt-sides", tabindex: 0, role: "group", "aria-label": TEXT.grids }, panels.map(({ node }) => node)),
      key, ...words.nodes, lengths.node,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      view = look(state);
      examples.update();
      const stops = Array.from({ length: MOST + 1 }, (_, i) => i + 1);
      for (const [name, control] of sizes) control.set(view[name], { stops: stops.slice(0, MOST), home: START[name], format: String });
      for (const [name, control] of options) control.set(view[name] ?? MOST + 1, { stops, home: MOST + 1, format: (n) => (n > MOST ? TEXT.off : String(n)) });
      steps.update();
      panels.forEach((one) => one.draw(view));
      words.say(sentence(view), steps.patience());
      lengths.update(view.window);
      numbers.update();
    }
    return { update, dispose() { steps.pause(); words.stop(); } };
  });

  function whole(state, name, most, optional) {
    const value = state.get(name);
    if (optional && value == null) return null;
    if (!Number.isInteger(value) || value < 1 || value > most) throw new RangeError(TEXT.range(name, value, most));
    return value;
  }

  // All that is shown at one pass; `step` beyond the last pass is the last.
  function look(state) {
    const settings = { prompt: whole(state, "prompt", MOST), new_tokens: whole(state, "new_tokens", MOST),
      window: whole(state, "window", MOST, true), chunk: whole(state, "chunk", MOST, true) };
    const list = ns.cacheWork.passes(settings), at = Math.min(whole(state, "step", Infinity), list.length);
    return { ...settings, list, at, pass: list[at - 1], done: list.slice(0, at), size: settings.prompt + settings.new_tokens };
  }

  function sentence({ prompt, new_tokens, window, list, at, pass, done }) {
    const { naive, cached, gives } = pass, { from, to, pairs } = cached;
    if (!gives) return TEXT.chunk_(at, from, to, pairs);
    const sofar = ["naive", "cached"].map((side) => ns.cacheWork.sums(done, side).tokens);
    const end = at === list.length ? TEXT.end(new_tokens, prompt + new_tokens - 1) : "";
    if (gives === 1) return (from ? TEXT.lastChunk(at, from, to, pairs, naive.pairs) : TEXT.prefill(at, prompt, pairs)) + end;
    return TEXT.decode(at, gives, naive, cached) + (cached.oldest ? TEXT.evicted(cached.oldest, window) : "") + TEXT.sofar(...sofar) + end;
  }

  function lines(list) {
    const of = (one, keys) => keys.map((name) => one?.[name] ?? 0);
    const left = ["tokens", "again", "pairs", "pairsAgain", "vectors"], right = ["tokens", "pairs", "vectors"];
    const total = (side, keys) => keys.map((name) => list.reduce((sum, pass) => sum + (pass[side]?.[name] ?? 0), 0));
    const read = list.reduce((sum, { cached }) => sum + 2 * cached.read, 0);
    return [
      ...list.map(({ gives, naive, cached }, i) =>
        [i + 1, gives || "", ...of(naive, left), ...of(cached, right), 2 * cached.read, cached.kept]),
      [TEXT.total, "", ...total("naive", left), ...total("cached", right), read, list.at(-1).cached.kept],
    ];
  }

  // Two numbers of any size, for which no grid is drawn.
  function longer(state) {
    const { h } = ns.chart, answer = h("output");
    const input = ([name, text]) => {
      const node = h("input", { type: "number", min: 1, max: LONGEST, step: 1, change: () => {
        const value = Number(node.value);
        if (Number.isInteger(value) && value >= 1 && value <= LONGEST) state.set({ [name]: value });
        else node.value = state.get(name);
      } });
      return [name, node, h("label", null, text, node)];
    };
    const { title, prompt, new_tokens } = TEXT.longer, inputs = Object.entries({ long_prompt: prompt, long_new: new_tokens }).map(input);
    return {
      node: h("div", { class: "nt-longer" }, h("div", { class: "nt-draws" }, h("span", null, title), inputs.map(([, , label]) => label)), answer),
      update(window) {
        const [P, N] = inputs.map(([name]) => whole(state, name, LONGEST));
        inputs.forEach(([name, node]) => { node.value = state.get(name); });
        const { naive, cached } = ns.cacheWork.totals({ prompt: P, new_tokens: N, window });
        answer.textContent = TEXT.long(P, N, window, naive, cached);
      },
    };
  }

  // --- One side: its heading, grid and counters.
  const WIDTH = 360, LEFT = 19, TOP = 14, RIGHT = 27, CELL = 26, STRIP = 15, GAP = 6;

  function panel(side) {
    const { h, svg } = ns.chart, hatch = `nt-cache-hatch-${(ns.serial = (ns.serial ?? 0) + 1)}`;
    const now = h("span"), picture = svg("svg", { class: "nt-grid-picture", role: "img" }), counts = h("table", { class: "nt-counts" });
    const text = (x, y, content, kind, anchor = "middle") => svg("text", { x, y, class: kind, "text-anchor": anchor }, content);

    // What became of key or query j: done now, done now once again, read from the cache, done earlier, or not yet.
    function fate(work, j) {
      if (!work || j >= work.to) return null;
      if (j >= work.from) return "nt-work";
      return side === "naive" ? "nt-again" : "nt-past";
    }
    const keyFate = (work, j) => (side === "cached" && j < work.from && j >= work.oldest ? "nt-read" : fate(work, j));
    const cell = (kind, x, y, width, height, data) => svg("rect", { class: `nt-cell ${kind}`, x: x + 0.75, y: y + 0.75, width: width - 1.5, height: height - 1.5,
      rx: kind === "nt-read" ? height / 2 : 1.5, fill: kind === "nt-again" ? `url(#${hatch})` : null, ...data });

    function draw({ prompt, window, pass, size, list, at }) {
      const work = pass[side], c = Math.min(CELL, (WIDTH - LEFT - STRIP - GAP - RIGHT) / size);
      const x0 = LEFT + STRIP + GAP, y0 = TOP + 2 * STRIP + GAP, X = (j) => x0 + j * c, Y = (i) => y0 + i * c;
      const rows = Array.from({ length: size }, (_, i) => i), there = prompt + Math.max(0, pass.gives - 1);
      const label = (j) => `${j < there ? "" : "nt-axis"} ${j < prompt ? "" : "nt-made"}`;
      const marks = [
        text(LEFT + STRIP / 2, TOP + 2 * STRIP + 1, "Q", "nt-axis"), text(LEFT - 3, TOP + STRIP - 4, "K", "nt-axis", "end"), text(LEFT - 3, TOP + 2 * STRIP - 4, "V", "nt-axis", "end"),
        ...rows.filter((j) => c > 15 || j % 2).map((j) => text(X(j) + c / 2, TOP - 4, j + 1, label(j))),
        ...rows.map((i) => text(LEFT - 3, Y(i) + c / 2 + 3.5, i + 1, label(i), "end")),
        svg("path", { class: "nt-seam-line", d: `M${X(prompt)} ${TOP}V${Y(prompt)}M${LEFT} ${Y(prompt)}H${X(prompt)}` }),
      ];
      const strips = rows.flatMap((j) => {
        const kind = work && keyFate(work, j), query = fate(work, j);
        return [kind && [0, 1].map((v) => cell(kind, X(j), TOP + v * STRIP, c, STRIP, { "data-strip": "KV"[v], "data-token": j })),
          query && cell(query, LEFT, Y(j), STRIP, c, { "data-strip": "Q", "data-token": j })].flat().filter(Boolean);
      });
      const grid = rows.filter((i) => fate(work, i)).map((i) => {
        const kind = fate(work, i), first = Math.max(0, i + 1 - (window ?? size)), keys = rows.slice(first, i + 1);
        return svg("g", null, svg("title", null, TEXT.rows[kind](i + 1)),
          keys.map((j) => cell(kind, X(j), Y(i), c, c, { "data-query": i, "data-key": j })));
      });
      const ends = [];
      if (work && pass.gives) {
        const row = work.to - 1;
        ends.push(svg("rect", { class: "nt-decides", x: LEFT - 0.5, y: Y(row) - 0.5, width: X(row + 1) - LEFT + 1, height: c + 1, rx: 2 }),
          text(X(row + 1) + 4, Y(row) + c / 2 + 3.5, TEXT.gives(row + 2), "nt-gives", "start"));
      }
      if (at === list.length) {
        ends.push(svg("rect", { class: "nt-unfed", x: LEFT, y: Y(size - 1) + 1, width: X(size) - LEFT, height: c - 2, rx: 2 }),
          text(LEFT + 5, Y(size - 1) + c / 2 + 3.5, TEXT.unfed, "nt-ghost", "start"));
      }
      const pattern = svg("pattern", { id: hatch, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 1.2, height: 4, class: "nt-waste-line" }));
      picture.setAttribute("viewBox", `0 0 ${WIDTH} ${Y(size) + 2}`);
      picture.setAttribute("aria-label", TEXT.picture(TEXT.sides[side], size, work?.pairs ?? 0));
      picture.replaceChildren(svg("defs", null, pattern), ...strips, ...grid, ...marks, ...ends);
      now.textContent = TEXT.now(work);
      count(list, at, work, window);
    }

    function count(list, at, work, window) {
      const sofar = ns.cacheWork.sums(list.slice(0, at), side), all = ns.cacheWork.sums(list, side);
      const formulas = { ...TEXT.formulas[side], ...(window ? TEXT.windowed[side] : {}) };
      const cells = (name) => [work?.[name] ?? 0, name === "kept" ? "" : sofar[name], all[name]].map((n) => (n === "" ? n : thousands(n)));
      counts.replaceChildren(
        h("thead", null, h("tr", null, TEXT.columns.map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, Object.entries(TEXT.counts).map(([name, title]) => h("tr", { "data-count": name },
          h("th", { scope: "row" }, title, h("small", null, formulas[name])), cells(name).map((cell) => h("td", null, cell))))));
    }

    return { node: h("div", { class: "nt-side-panel", "data-side": side }, h("p", { class: "nt-side-name" }, h("b", null, TEXT.sides[side]), now), picture, counts), draw };
  }
})(globalThis);
