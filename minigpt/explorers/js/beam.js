// Chapter 06: beam search on a tree, step by step: beams, candidates, what is pruned, what has ended, which text wins.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed } = ns.chart;
  const MOST = 6, PAUSE_MS = 1100;
  const TEXT = {
    tree: "tree",
    width: "width (beams)",
    alpha: "penalty α",
    form: "form of the penalty",
    forms: [["power", "sum ÷ tᵅ"], ["gnmt", "sum ÷ ((5+t)/6)ᵅ (GNMT)"]],
    stop: "stop",
    stops: [["false", "when no beam's score now can win"], ["true", "when as many texts as beams ended"], ["never", "when no beam could ever win"]],
    presets: "Try",
    steps: {
      step: "step",
      of: (step, last) => `${step} of ${last}`,
      first: "Before the first step",
      previous: "One step back",
      next: "One step on",
      last: "To the end",
    },
    picture: "Tree of the search; the sentence and the table below say the same in words and numbers",
    start: "start",
    place: (step) => (step ? `step ${step}` : ""),
    key: [["nt-kept", "kept as a beam"], ["nt-pruned", "pruned"], ["nt-ended", "ended"], ["nt-winner", "the winner"], ["", "■ greedy"], ["", "★ best of all"]],
    texts: "Texts that ended",
    none: "none yet",
    columns: ["text", "t", "sum of log p", "score", "note"],
    greedy: "greedy",
    best: "best of all",
    table: "Every candidate up to this step",
    head: ["step", "text so far", "token", "id", "log-probability", "sum of log p", "fate", "t", "score"],
    fates: { kept: "kept", ended: "ended", cut: "cut off", pruned: "pruned" },
    empty: "no tree was recorded for it",
    root: (n) => `Before the first step there is one beam: the prompt. Step 1 looks at its ${n} likeliest candidates.`,
    step_: (step, beams, seen, kept, pruned) =>
      `Step ${step}: ${beams === 1 ? "one beam offers its" : `${beams} beams offer their`} candidates; of the ${seen} likeliest, ` +
      `${kept} ${kept === 1 ? "is" : "are"} kept and ${pruned} pruned.`,
    ended: (n) => ` ${n} ${n === 1 ? "text" : "texts"} ended so far.`,
    lost: (text, what) => ` Pruned here: the beginning of “${text}”, ${what}.`,
    lostGreedy: "which greedy takes",
    lostBest: "the best text of all",
    won: (width, text, sum, t, score) =>
      `Width ${width} ends with “${text}”: sum ${sum}, t = ${t}, score ${score}.`,
    greedyToo: " Greedy takes the same.",
    greedyElse: (text, sum, score) => ` Greedy takes “${text}”: sum ${sum}, score ${score}.`,
    bestToo: " No text of the tree scores higher.",
    bestElse: (text, sum, score) => ` The best text of the tree is “${text}”: sum ${sum}, score ${score}.`,
    sign: { 1: " Sums are negative, so dividing by a power of the length lifts long texts.",
      0: " With α = 0 the score is the sum itself.", "-1": " With α < 0 long texts are pushed down." },
    blank: "(empty)",
  };

  const key = (ids) => ids.join(" ");
  const { search, lengthPenalty, greedy, exact, begins } = ns.beams;

  const defaults = { trees: [], tree: 0, width: 2, alpha: 1, form: "power", early_stopping: false, step: 99 };
  ns.define("beam", defaults, ({ root, state }) => {
    const { h, slider, select, table, readout } = ns.chart;
    const picture = drawing(), words = readout();
    const set = (changes) => { steps.pause(); state.set(changes); };
    const settings = () => ({ width: state.get("width"), form: state.get("form"), alpha: state.get("alpha"), stopping: String(state.get("early_stopping")) });
    let view = null, offered = null, tries = null, pick = null;
    const steps = ns.stepper({ root, state, labels: TEXT.steps, wait: PAUSE_MS, last: () => view.steps.length, at: () => view.at });
    const beams = slider({ label: TEXT.width, onInput: (width) => set({ width }) });
    const alpha = slider({ label: TEXT.alpha, onInput: (value) => set({ alpha: value }) });
    const form = select({ label: TEXT.form, options: TEXT.forms, onInput: (value) => set({ form: value }) });
    const stop = select({ label: TEXT.stop, options: TEXT.stops, onInput: (value) => set({ early_stopping: value === "never" ? value : value === "true" }) });
    const legend = h("p", { class: "nt-key" }, TEXT.key.map(([kind, name]) => h("span", null, kind && h("i", { class: `nt-node-key ${kind}` }), name)));
    const texts = h("table"), ended = h("div", { class: "nt-texts", tabindex: 0, role: "group", "aria-label": TEXT.texts }, texts);
    const numbers = table(TEXT.table, () => [TEXT.head, ...lines(view)]);
    const head = h("div"), where = h("div", { class: "nt-which" });
    root.append(
      head,
      h("div", { class: "nt-controls" }, where, beams.node, alpha.node, form.node, stop.node),
      steps.node,
      picture.node, legend, ended,
      ...words.nodes,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    // The list of trees and their presets; both hang on the trees, which live code may change.
    function offer(trees) {
      offered = trees;
      pick = select({ label: TEXT.tree, options: trees.map(({ name }, i) => [i, name]), onInput: (i) => set({ tree: Number(i), step: 99 }) });
      const list = trees.flatMap((tree, i) => (tree.presets ?? []).map(([name, changes]) => [name, { tree: i, alpha: 1, form: "power", early_stopping: false, step: 99, ...changes }]));
      tries = ns.chart.presets(TEXT.presets, list, { get: state.get, set });
      head.replaceChildren(...(list.length ? [tries.node] : []));
      where.replaceChildren(pick.node);
    }

    function update() {
      const trees = state.get("trees"), tree = trees[state.get("tree")];
      if (!tree) throw new RangeError(TEXT.empty);
      if (offered !== trees) offer(trees);
      view = look(tree, settings(), state.get("step"));
      pick.set(state.get("tree"));
      tries.update();
      beams.set(state.get("width"), { stops: Array.from({ length: MOST }, (_, i) => i + 1), home: 2, format: String });
      alpha.set(state.get("alpha"), { stops: Array.from({ length: 31 }, (_, i) => (i - 10) / 10), home: 1, format: (a) => fixed(a, 1) });
      form.set(state.get("form"));
      stop.set(String(state.get("early_stopping")));
      steps.update();
      picture.draw(view);
      drawTexts(texts, view);
      words.say(sentence(view), steps.patience());
      numbers.update();
    }
    return { update, dispose() { steps.pause(); words.stop(); } };
  });

  // All that is shown at one step.
  function look(tree, settings, step) {
    const steps = search(tree, settings), at = Math.min(step, steps.length), penalty = lengthPenalty(settings);
    const score = (text) => ({ ...text, score: text.sum / penalty(text.ids.length) });
    const read = (ids) => ids.filter((id) => id !== tree.eos).map((id) => tree.tokens[id].replaceAll("␣", " ")).join(spaced(tree)).trim() || TEXT.blank;
    const finished = at ? steps[at - 1].finished : [], over = at === steps.length;
    return { tree, settings, steps, at, over, finished, winner: over ? finished[0] : null, greedy: score(greedy(tree)),
      best: tree.complete ? exact(tree, settings) : null, read };
  }
  // Tokens of a model bring their own blanks; the toys' words do not.
  const spaced = (tree) => (tree.complete ? " " : "");
  const same = (a, b) => Boolean(a && b) && key(a.ids) === key(b.ids);

  function drawTexts(node, { finished, winner, greedy, best, read, over }) {
    const { h } = ns.chart;
    const rows = [...finished];
    if (over) [greedy, best].forEach((one) => { if (one && !rows.some((row) => same(row, one))) rows.push(one); });
    const marks = (one) => [same(one, greedy) && over && TEXT.greedy, same(one, best) && over && TEXT.best].filter(Boolean).join(", ");
    const cells = (one) => [read(one.ids), one.ids.length, fixed(one.sum), fixed(one.score, 3), marks(one)];
    node.replaceChildren(h("caption", null, rows.length ? TEXT.texts : `${TEXT.texts}: ${TEXT.none}`),
      ...(rows.length ? [h("thead", null, h("tr", null, TEXT.columns.map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, rows.map((one) => h("tr", { class: one === winner ? "nt-won" : finished.includes(one) ? "" : "nt-other" },
          cells(one).map((cell) => h("td", null, String(cell))))))] : []));
  }

  function lines({ tree, steps, at, read }) {
    return steps.slice(0, at).flatMap(({ candidates }, s) => candidates.map((one) => [s + 1, read(one.ids.slice(0, -1)),
      tree.tokens[one.id], one.id, one.logProb, one.sum, TEXT.fates[one.fate], one.ids.length,
      one.fate === "ended" || one.fate === "cut" ? one.score : ""]));
  }

  function sentence(view) {
    const { tree, settings, steps, at, finished, winner, greedy, best, read } = view;
    if (at === 0) return TEXT.root(steps[0].candidates.length);
    if (winner) {
      const { ids, sum, score } = winner, sign = TEXT.sign[Math.sign(settings.alpha)];
      const other = (one, alike, unlike) => (same(one, winner) ? alike : unlike(read(one.ids), fixed(one.sum), fixed(one.score, 3)));
      return TEXT.won(settings.width, read(ids), fixed(sum), ids.length, fixed(score, 3)) + other(greedy, TEXT.greedyToo, TEXT.greedyElse) +
        (best ? other(best, TEXT.bestToo, TEXT.bestElse) : "") + sign;
    }
    const { beams, candidates } = steps[at - 1], count = (fate) => candidates.filter((one) => one.fate === fate).length;
    const lost = (text, what) => (text && candidates.some((one) => one.fate === "pruned" && begins(text, one.ids)) ? TEXT.lost(read(text.ids), what) : "");
    return TEXT.step_(at, beams.length, candidates.length, count("kept"), count("pruned")) + TEXT.ended(finished.length) +
      lost(greedy, TEXT.lostGreedy) + lost(best, TEXT.lostBest);
  }

  // --- The tree: one column a step, in it the candidates in the order of their parents; what is older stays on the left.
  const COLUMN = 152, NODE = 128, ROW = 27, TOP = 20, HEIGHT = 22, LONGEST = 9;

  function drawing() {
    const { h, svg } = ns.chart, hatch = `nt-beam-hatch-${(ns.serial = (ns.serial ?? 0) + 1)}`;
    const node = h("div", { class: "nt-tree", tabindex: 0, role: "group", "aria-label": TEXT.picture });
    const text = (x, y, content, kind, anchor = "start") => svg("text", { x, y, class: kind, "text-anchor": anchor }, content);
    const short = (word) => (word.length > LONGEST ? `${word.slice(0, LONGEST - 1)}…` : word);

    function box(one, view) {
      const { x, y, token, fate } = one, on = (path) => one.from && begins(path, one.ids);
      const marks = `${on(view.greedy) ? "■" : ""}${on(view.best) ? "★" : ""}`;
      const kind = `nt-node nt-${fate} ${begins(view.winner, one.ids) ? "nt-winner" : ""}`;
      return svg("g", { class: kind, "data-ids": key(one.ids) }, svg("title", null, `${view.read(one.ids)} (${TEXT.fates[fate] ?? TEXT.start})`),
        svg("rect", { x, y: y - HEIGHT / 2, width: NODE, height: HEIGHT, fill: fate === "pruned" ? `url(#${hatch})` : null, rx: fate === "ended" || fate === "cut" ? 0 : 5 }),
        text(x + 6, y + 4, short(token), "nt-word"), text(x + NODE - 5, y + 4, fixed(one.sum), "nt-sum", "end"),
        text(x + NODE - 45, y + 4, marks, "nt-marks", "end"));
    }
    const edge = (from, one, view) => svg("path", {
      d: `M${from.x + NODE} ${from.y}C${from.x + NODE + 14} ${from.y} ${one.x - 14} ${one.y} ${one.x} ${one.y}`,
      class: `nt-edge nt-${one.fate} ${begins(view.winner, one.ids) ? "nt-winner" : ""}`,
    });

    return {
      node,
      draw(view) {
        const columns = placed(view), width = COLUMN * columns.length - COLUMN + NODE + 20;
        const rows = Math.max(...columns.map((column) => column.length)), height = TOP + rows * ROW + 2;
        const pattern = svg("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
          svg("rect", { width: 1, height: 5, class: "nt-hatch-line" }));
        const all = columns.flat(), chosen = (one) => begins(view.winner, one.ids), ordered = [...all].sort((a, b) => chosen(a) - chosen(b));
        node.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": TEXT.picture },
          svg("defs", null, pattern), columns.map((_, i) => text(i * COLUMN + NODE / 2, 11, TEXT.place(i), "nt-axis", "middle")),
          ordered.filter(({ from }) => from).map((one) => edge(one.from, one, view)), ordered.map((one) => box(one, view))));
        const end = all.find(({ ids }) => view.winner && key(ids) === key(view.winner.ids)); // the end of a short winner stays in sight
        node.scrollLeft = Math.min(width - node.clientWidth, end ? end.x - COLUMN : Infinity);
      },
    };
  }

  // Columns of nodes with places: the prompt, then each step's candidates, parents' order first, then the larger sum.
  function placed({ tree, steps, at }) {
    let parents = [{ ids: [], token: TEXT.start, sum: 0, fate: "kept", place: 0 }];
    const columns = [parents];
    for (const { candidates } of steps.slice(0, at)) {
      const column = candidates.map((one) => ({ ...one, token: tree.tokens[one.id], from: parents[one.parent] }));
      parents = column.filter(({ fate }) => fate === "kept"); // by rank, as the next step counts them
      column.sort((a, b) => a.from.place - b.from.place || b.sum - a.sum).forEach((one, place) => { one.place = place; });
      columns.push(column);
    }
    const rows = Math.max(...columns.map((column) => column.length));
    columns.forEach((column, step) => column.forEach((one) => {
      one.x = step * COLUMN;
      one.y = TOP + ROW * ((rows - column.length) / 2 + one.place + 0.5);
    }));
    return columns;
  }
})(globalThis);
