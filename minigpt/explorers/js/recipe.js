// Chapter 07: what the usual settings of a task do to several real distributions, and knobs to move away from them.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, short, percent, thousands, count } = ns.chart;
  const ROWS = 5;
  const TEXT = {
    recipe: "task",
    presets: "Try",
    examples: [
      ["chat, far too hot", "chat", { temperature: 1.8, top_p: null }],
      ["a story without the cut", "creative", { top_p: null }],
      ["k in place of p", "creative", { top_k: 50, top_p: null }],
      ["sixteen beams", "translation", { num_beams: 16 }],
    ],
    knobs: {
      temperature: "temperature T", top_k: "top-k", top_p: "top-p", min_p: "min-p", repetition_penalty: "repetition",
      presence_penalty: "presence", num_beams: "beams", alpha: "length penalty α",
    },
    off: "off",
    back: "Back to the recipe",
    card: { range: "Usual range", reason: "Why", source: "Says who", tested: "On SmolLM2" },
    untested: "No: nothing on this page measures it.",
    schema: " A schema that bans every token that would break the form does more than any of these settings; it is not shown here.",
    lines: { python: "Python", shell: "Command line" },
    copy: { python: "Copy the line of Python", shell: "Copy the command line" },
    picture: (label) => `Bars: probability of the likeliest tokens after “${label}”, kept or cut`,
    key: ["kept", "cut", "the model's own probability"],
    rest: (n) => `${thousands(n)} others`,
    panel: (kept, mass, bits, choices) => `${kept} kept, ${mass} of the mass; entropy ${bits[0]} → ${bits[1]} bits, choices ${choices[0]} → ${choices[1]}`,
    beamPanel: (kept, mass) => `${kept} go on, ${mass} of the mass`,
    table: "Probabilities, prompt by prompt",
    head: ["prompt", "token", "id", "before", "kept", "after"],
    yes: "kept",
    no: "cut",
    all: "all tokens: mass kept",
    entropy: "entropy, bits",
    choices: "effective choices",
    sampled: (V, few, many, label, from, to) =>
      `Of ${V} tokens these settings keep ${few === many ? `${few} after every prompt` : `from ${few} to ${many}, depending on the prompt`}; ` +
      `after “${label}” the effective choices go from ${from} to ${to}.`,
    greedy: (V, low, high) =>
      `At T = 0 the likeliest of ${V} tokens is taken every time; the model's own probability of it is between ${low} and ${high} here.`,
    beams: (n, V, low, high, alpha) =>
      `Beam search draws nothing: its first step goes on with the ${n} likeliest of ${V} tokens, which hold between ${low} and ${high} of the mass here. ` +
      `The text with the largest sum of log-probabilities over the length penalty, α = ${alpha}, wins.`,
    first: " Presence counts the tokens of the answer, and these are first tokens: it does nothing yet.",
    moved: (list) => ` Off the recipe: ${list}.`,
    instead: (name, value, recipe) => `${name} ${value} instead of ${recipe}`,
  };
  const tenths = (from, to) => Array.from({ length: Math.round((to - from) * 10) + 1 }, (_, i) => (from * 10 + i) / 10);
  const numbers = (x) => (Number.isInteger(x) ? thousands(x) : short(x));
  // Of each knob: its stops, the one that means "off" if there is one, how a value is written.
  const KNOBS = {
    temperature: { stops: ns.temperatures, format: (T) => fixed(T) },
    top_k: { stops: ns.stops({ scale: "count", high: 49152 }), neutral: 49152, format: numbers },
    top_p: { stops: ns.stops({ scale: "share" }), neutral: 1, format: numbers },
    min_p: { stops: [0, ...ns.stops({ scale: "log", low: 0.001, high: 1 })], neutral: 0, format: numbers },
    repetition_penalty: { stops: Array.from({ length: 21 }, (_, i) => 1 + i / 20), neutral: 1, format: (r) => fixed(r) },
    presence_penalty: { stops: tenths(0, 2), neutral: 0, format: (r) => fixed(r, 1) },
    num_beams: { stops: Array.from({ length: 16 }, (_, i) => i + 1), format: numbers },
    alpha: { stops: tenths(0, 2), format: (a) => fixed(a, 1) },
  };
  const SAMPLING = Object.keys(KNOBS).slice(0, 6), BEAMS = ["num_beams", "alpha"];
  const recipeOf = (name) => {
    const recipe = ns.recipes.find((recipe) => recipe.name === name);
    if (!recipe) throw new RangeError(`no recipe named ${name}`);
    return recipe;
  };
  const written = (name, value) => (value == null ? TEXT.off : KNOBS[name].format(value));

  // The same settings for a program and for a shell.
  const python = (s) => {
    const list = (names) => names.filter((name) => s[name] != null).map((name) => `${name}=${s[name]}`).join(", ");
    return s.num_beams == null ? `SamplingParams(${list(SAMPLING)})`
      : `beam_search(model, token_ids, max_new_tokens=64, num_beams=${s.num_beams}, length_penalty=gnmt(${s.alpha}))`;
  };
  const shell = (s) => {
    const flags = (names) => names.filter((name) => s[name] != null).map((name) => ` --${name.replaceAll("_", "-")} ${s[name]}`).join("");
    return `python -m minigpt "PROMPT" --model smollm2${s.num_beams == null ? flags(SAMPLING) : ` --num-beams ${s.num_beams} --length-penalty gnmt:${s.alpha}`}`;
  };

  const defaults = { recipe: "chat", changes: {}, sources: ["capital", "once", "sum", "json", "code", "chat"], tested: {} };
  ns.define("recipe", defaults, ({ root, state, source }) => {
    const { h, slider, chips, button, presets, barKey, table, copier, readout } = ns.chart;
    const settings = () => ({ ...recipeOf(state.get("recipe")).settings, ...state.get("changes") });
    function turn(name, value) {
      const changes = { ...state.get("changes"), [name]: value === KNOBS[name].neutral ? null : value };
      if (changes[name] === (recipeOf(state.get("recipe")).settings[name] ?? null)) delete changes[name];
      state.set({ changes });
    }
    const task = chips({
      label: TEXT.recipe,
      options: ns.recipes.map(({ name, label }) => [name, label]),
      onInput: (recipe) => state.set({ recipe, changes: {} }),
    });
    // A preset is known by its recipe and changes as one string.
    const named = (recipe, changes) => JSON.stringify([recipe, Object.entries(changes).sort()]);
    const examples = presets(TEXT.presets, TEXT.examples.map(([text, recipe, changes]) => [text, { now: named(recipe, changes) }]), {
      get: () => named(state.get("recipe"), state.get("changes")),
      set: ({ now }) => { const [recipe, changes] = JSON.parse(now); state.set({ recipe, changes: Object.fromEntries(changes) }); },
    });
    const knobs = Object.fromEntries(Object.keys(KNOBS).map((name) =>
      [name, slider({ label: TEXT.knobs[name], onInput: (value) => turn(name, value) })]));
    const back = button(TEXT.back, () => state.set({ changes: {} }));
    const card = Object.fromEntries(Object.keys(TEXT.card).map((key) => [key, h("dd")]));
    const lines = Object.fromEntries(Object.keys(TEXT.lines).map((key) => [key, h("code", { tabindex: 0 })]));
    const body = h("div", { class: "nt-recipe-panels" });
    const panels = new Map(); // source name -> panel
    const key = barKey(TEXT.key);
    const words = readout();
    let shown = [];
    const numberTable = table(TEXT.table, () => [TEXT.head, ...shown]);
    root.append(
      task.node, examples.node,
      h("dl", { class: "nt-recipe-facts" }, Object.entries(TEXT.card).map(([name, title]) => h("div", null, h("dt", null, title), card[name]))),
      h("div", { class: "nt-controls" }, Object.values(knobs).map(({ node }) => node)),
      body, key, ...words.nodes,
      ...Object.entries(TEXT.lines).map(([name, title]) => h("div", { class: "nt-recipe-line" }, h("span", null, title), lines[name],
        copier(() => lines[name].textContent, { "aria-label": TEXT.copy[name] }))),
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, back), h("div", { class: "nt-buttons" }, numberTable.buttons)), numberTable.body,
    );

    function showSettings(recipe, now) {
      const beams = now.num_beams != null, changes = state.get("changes");
      task.set(recipe.name);
      examples.update();
      back.disabled = !Object.keys(changes).length;
      for (const [name, { stops, neutral }] of Object.entries(KNOBS)) {
        const legal = (value) => value ?? neutral ?? stops[0];
        knobs[name].node.hidden = (beams ? SAMPLING : BEAMS).includes(name);
        knobs[name].set(legal(now[name]), {
          stops, home: legal(recipe.settings[name]), format: (value) => written(name, value === neutral ? null : value),
        });
      }
      card.range.textContent = recipe.range;
      card.reason.textContent = recipe.reason;
      card.source.textContent = recipe.source;
      card.tested.textContent = (state.get("tested")[recipe.name] ?? TEXT.untested) + (recipe.schema ? TEXT.schema : "");
      for (const [name, text] of [["python", python(now)], ["shell", shell(now)]]) // a line breaks between words only
        lines[name].replaceChildren(...text.split(/(?<= )/).map((word) => h("span", null, word)));
    }

    function update() {
      const recipe = recipeOf(state.get("recipe")), now = settings(), sources = state.get("sources");
      showSettings(recipe, now);
      const found = sources.map(source); // all are asked for at once
      if (found.some((from) => !from)) return false;
      const views = found.map((from) => at(from, now));
      body.replaceChildren(...views.map((view) => draw(panels, view)));
      words.say(sentence(views, now) + moved(recipe, state.get("changes")));
      shown = views.flatMap(tableLines);
      numberTable.update();
    }
    return { update, dispose: words.stop };
  });

  // What these settings make of one distribution. Rows are the model's likeliest tokens; the last stands for all others.
  function at(from, settings) {
    const { sampler } = ns, beams = settings.num_beams, text = { ids: from.ids, promptLength: from.ids.length };
    const own = sampler.softmax(from.state), ranks = from.state.ids;
    const final = beams == null ? sampler.run(from.state, sampler.steps(settings), text)
      : sampler.run(from.state, [["top_k", beams]]);
    const p = sampler.softmax(final), after = new Map();
    const kept = new Uint8Array(from.V);
    for (const id of final.ids) kept[id] = 1;
    let mass = 0;
    ranks.forEach((id, rank) => { if (kept[id]) mass += own[rank]; });
    const wanted = new Set(ranks.subarray(0, ROWS));
    final.ids.forEach((id, i) => { if (wanted.has(id)) after.set(id, p[i]); });
    const rows = Array.from(ranks.subarray(0, ROWS), (id, rank) => ({
      id, token: from.tokens[id], before: own[rank], kept: kept[id] === 1, after: (beams == null ? after.get(id) : kept[id] && own[rank]) ?? 0,
    }));
    const rest = (key, whole) => Math.max(0, rows.reduce((sum, row) => sum - row[key], whole));
    const others = final.ids.length - rows.filter((row) => row.kept).length;
    if (from.V > rows.length) {
      rows.push({ token: TEXT.rest(from.V - rows.length), before: rest("before", 1), kept: others > 0, others,
        after: others ? rest("after", beams == null ? 1 : mass) : 0 });
    }
    return { from, beams, rows, mass, count: final.ids.length, before: sampler.summary(own), after: sampler.summary(p) };
  }

  function draw(panels, view) {
    const { from: { name, label }, rows, beams, before, after } = view, { h } = ns.chart;
    if (!panels.has(name)) {
      const bars = ns.chart.rows(TEXT.picture(label), [["", "nt-token"], ["", "nt-track"], ["", "nt-number"]]);
      const words = h("p", { class: "nt-recipe-words" });
      panels.set(name, { bars, words, node: h("div", { class: "nt-recipe-panel" }, h("p", { class: "nt-recipe-name" }, label), bars.node, words) });
    }
    const { bars, words, node } = panels.get(name);
    const named = rows.filter((row) => row.id !== undefined);
    bars.draw(rows.map((row) => ({
      kind: `${row.id === undefined ? "nt-rest" : ""} ${row.kept ? "" : "nt-cut"}`,
      cells: [row.token, null, row.kept ? percent(row.after, 1) : "0"],
      bar: row.kept ? row.after : row.before, tick: row.before,
    })), ns.chart.scaleFor(Math.max(...named.map((row) => Math.max(row.before, row.after)))));
    words.textContent = beams == null
      ? TEXT.panel(thousands(view.count), percent(view.mass, 1), [before, after].map((s) => fixed(s.bits)), [before, after].map((s) => count(s.effective)))
      : TEXT.beamPanel(thousands(view.count), percent(view.mass, 1));
    return node;
  }

  function tableLines({ from: { label }, rows, beams, mass, count, before, after }) {
    const list = rows.map((row) => [label, row.token, row.id ?? "", row.before, row.others ?? (row.kept ? TEXT.yes : TEXT.no), row.after]);
    const sums = [["", TEXT.all, "", 1, count, mass]];
    if (beams == null) sums.push(["", TEXT.entropy, "", before.bits, "", after.bits], ["", TEXT.choices, "", before.effective, "", after.effective]);
    return [...list, ...sums.map((line) => [label, ...line.slice(1)])];
  }

  function sentence(views, settings) {
    const V = thousands(views[0].from.V), ends = (key) => [Math.min, Math.max].map((end) => end(...views.map(key)));
    if (settings.num_beams != null) {
      return TEXT.beams(settings.num_beams, V, ...ends((view) => view.mass).map((p) => percent(p, 1)), written("alpha", settings.alpha));
    }
    if (settings.temperature === 0) return TEXT.greedy(V, ...ends((view) => view.mass).map((p) => percent(p, 1)));
    const open = views.reduce((a, b) => (b.before.effective > a.before.effective ? b : a));
    return TEXT.sampled(V, ...ends((view) => view.count).map(thousands), open.from.label, count(open.before.effective), count(open.after.effective)) +
      (settings.presence_penalty ? TEXT.first : "");
  }

  function moved({ settings }, changes) {
    const list = Object.entries(changes).map(([name, value]) =>
      TEXT.instead(TEXT.knobs[name], written(name, value), written(name, settings[name])));
    return list.length ? TEXT.moved(list.join(", ")) : "";
  }
})(globalThis);
