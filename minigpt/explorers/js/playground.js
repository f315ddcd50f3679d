// The playground: a play model that runs in this page, with the settings of Part I and a switch for the KV cache.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, thousands } = ns.chart;
  const LIKELIEST = 10, SHOWN = 1000; // characters of the text that are shown
  const SLICE = 12, REDRAW = 60; // milliseconds of work at a time, and between two pictures while it runs
  const TEXT = {
    presets: "Try",
    examples: [
      ["a loop", { model: "shakespeare-early", temperature: 0 }],
      ["broken by temperature", { model: "shakespeare-early", temperature: 0.8 }],
      ["broken by a penalty", { model: "shakespeare-early", temperature: 0, frequency_penalty: 0.5 }],
      ["the finished model", { model: "shakespeare", temperature: 0.8, top_p: 0.95 }],
    ],
    prompt: "Prompt",
    model: "model",
    models: [["shakespeare", "Shakespeare"], ["shakespeare-early", "Shakespeare, early"]],
    knobs: { temperature: "temperature T", top_k: "top-k", top_p: "top-p", min_p: "min-p", repetition_penalty: "repetition θ",
      frequency_penalty: "frequency f", presence_penalty: "presence r" },
    off: "off",
    greedy: "0, greedy",
    order: "order of the rules",
    seed: "Seed",
    cache: "KV cache",
    caches: [["on", "cache on"], ["off", "cache off"]],
    limit: "at the end of the context",
    limits: [["slide", "go on from its last half"], ["stop", "stop at 256 characters"]],
    step: "Step",
    run: "Run",
    stop: "Stop",
    back: "Back one",
    again: "From the prompt",
    link: "Copy link",
    copied: "Copied",
    text: "The text: prompt, then what the model wrote. Press a character to go back to it.",
    earlier: (n) => `… ${thousands(n)} earlier characters\n`,
    character: (token, p, others) => `${token}, ${p}; instead: ${others}`,
    own: (token, p) => `${token}, ${p}, picked by you`,
    unknown: (list) => `Left out of the prompt, since the model does not know them: ${list}`,
    cut: (n) => `The prompt is longer than the context: its first ${thousands(n)} characters are not read.`,
    nothing: "The prompt is empty: write at least one character that the model knows.",
    picture: "Bars: probability of the likeliest next characters",
    columns: { token: "next", logit: "logit", share: "p" },
    rest: (n) => `${thousands(n)} others`,
    pick: "Pick the next one yourself",
    look: "show",
    looks: (L, H) => [["p", "how likely each character was"], ...Array.from({ length: L * H }, (_, i) =>
      [String(i), `attention, layer ${Math.floor(i / H)}, head ${i % H}`])],
    counts: ["for this text", "here", "formula"],
    tokens: "tokens through the model",
    other: (cached) => (cached ? "without a cache" : "with a cache"),
    ms: "time",
    undone: "taken back",
    table: "The likeliest next characters",
    head: ["character", "logit", "probability", "probability after the rules"],
    said: (n, window) => `${n} new characters. ${window}`,
    next: (token, p, kept) => `Next, ${token} is the likeliest with ${p}; ${kept} of 75 characters can come.`,
    full: "The context is full.",
    loop: (share) => ` It loops: ${share} of its windows of 20 stood there before.`,
    work: (tokens, formula, cached) => ` ${tokens} tokens went through the model ${cached ? "with" : "without"} a cache; the formula says ${formula}.`,
  };
  const range = (low, high, parts) => Array.from({ length: Math.round((high - low) * parts) + 1 }, (_, i) => low + i / parts);
  const number = (off, digits) => (v) => (v === off ? TEXT.off : fixed(v, digits));
  const KNOBS = { // stops, what is off, how it reads
    temperature: [ns.temperatures, 1, (v) => (v === 0 ? TEXT.greedy : fixed(v))],
    top_k: [range(0, 75, 1), 0, number(0, 0)],
    top_p: [[...range(0.01, 0.99, 100), 0.995, 1], 1, (v) => (v === 1 ? TEXT.off : String(Number(v.toFixed(3))))],
    min_p: [[0, ...range(0.01, 0.5, 100)], 0, number(0, 2)],
    repetition_penalty: [range(0.5, 2, 20), 1, number(1, 2)],
    frequency_penalty: [range(-2, 2, 10), 0, number(0, 1)],
    presence_penalty: [range(-2, 2, 10), 0, number(0, 1)],
  };
  const OFF = Object.fromEntries(Object.entries(KNOBS).map(([name, [, off]]) => [name, off]));
  const start = { ...OFF, order: "huggingface", prompt: "ROMEO:\n", seed: 1, cached: true, slide: true };
  const DEFAULTS = { ...start, model: "shakespeare-early", temperature: 0 };

  // What a link may set, and to what: anything else in it is passed over.
  const legal = {
    ...Object.fromEntries(Object.keys(KNOBS).map((name) => [name, (v) =>
      typeof v === "number" && (v === OFF[name] || ns.sampler.legal[name](v))])),
    prompt: (v) => typeof v === "string" && v.length <= 5000,
    model: (v) => TEXT.models.some(([name]) => name === v),
    order: (v) => ns.catalogue.orders.some(({ name }) => name === v),
    seed: (v) => Number.isInteger(v) && v >= 0 && v < 2 ** 32,
    cached: (v) => typeof v === "boolean",
    slide: (v) => typeof v === "boolean",
  };
  const HASH = "#play=";
  function fromLink() {
    if (!location.hash.startsWith(HASH)) return {};
    try {
      const given = Object.entries(JSON.parse(decodeURIComponent(location.hash.slice(HASH.length))));
      return Object.fromEntries(given.filter(([key, value]) => Object.hasOwn(legal, key) && legal[key](value)));
    } catch {
      return {};
    }
  }

  ns.define("playground", DEFAULTS, ({ root, state, model: widget, arrived }) => {
    const { h, slider, select, chips, button, presets, rows, table, readout, token } = ns.chart;
    let session = null, made = "", running = false, timer = null, lm = null, look = "p", gone = false;
    let drawn = 0, cancel = () => {}; // when; what takes the question for a model back
    let told = []; // of each new character still shown: { p, title }
    const visible = (id) => ({ "\n": "↵", " ": "␣" })[lm.tokenizer.characters[id]] ?? lm.tokenizer.characters[id];

    const linked = fromLink();
    if (Object.keys(linked).length) state.set(linked);

    // Controls
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...OFF, order: "huggingface", ...changes }]), state);
    examples.node.addEventListener("click", () => { halt(); rewind(0); });
    const area = h("textarea", { id: "nt-prompt", rows: 2, spellcheck: "false", input: () => state.set({ prompt: area.value }) });
    const which = select({ label: TEXT.model, options: TEXT.models, onInput: (name) => state.set({ model: name }) });
    const knobs = Object.entries(KNOBS).map(([name, [stops, off, format]]) => {
      const knob = slider({ label: TEXT.knobs[name], onInput: (value) => state.set({ [name]: value }) });
      return { name, node: knob.node, set: () => knob.set(state.get(name), { stops, home: off, format }) };
    });
    const order = select({ label: TEXT.order, options: ns.catalogue.orders.map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ order: name }) });
    const seed = h("input", { type: "number", min: 0, max: 2 ** 32 - 1, step: 1, input: () => {
      if (legal.seed(seed.valueAsNumber)) state.set({ seed: seed.valueAsNumber });
    } });
    const cache = chips({ label: TEXT.cache, options: TEXT.caches, onInput: (value) => state.set({ cached: value === "on" }) });
    const limit = chips({ label: TEXT.limit, options: TEXT.limits, onInput: (value) => state.set({ slide: value === "slide" }) });
    const step = button(TEXT.step, () => { halt(); advance(1); });
    const run = button(TEXT.run, () => (running ? halt() : go()));
    const back = button(TEXT.back, () => { halt(); rewind(session.newTokens - 1); });
    const again = button(TEXT.again, () => { halt(); rewind(0); });
    const link = button(TEXT.link, share);

    // Picture
    const note = h("p", { class: "nt-notice", role: "status" });
    const text = h("div", { class: "nt-text nt-play", role: "group", tabindex: 0, "aria-label": TEXT.text, click: press, keydown: press });
    const bars = rows(TEXT.picture, [[TEXT.columns.token, "nt-token"], [TEXT.columns.logit, "nt-number"], ["", "nt-track"], [TEXT.columns.share, "nt-number"]]);
    const offer = h("div", { class: "nt-buttons nt-vocabulary", role: "group", "aria-label": TEXT.pick });
    const views = h("div"); // the choice of what the text shows, made once the model's sizes are known
    const counts = h("div"), words = readout();
    let likeliest = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...likeliest]);
    root.append(
      examples.node,
      h("div", { class: "nt-prompt-box" }, h("label", { for: "nt-prompt" }, TEXT.prompt), area),
      h("div", { class: "nt-buttons nt-play-buttons" }, step, run, back, again, h("label", { class: "nt-seed" }, TEXT.seed, seed), link),
      note, text,
      h("div", { class: "nt-body" },
        h("div", null, bars.node, h("p", { class: "nt-hint" }, TEXT.pick), offer),
        h("div", { class: "nt-side" }, counts, cache.node, limit.node, views)),
      ...words.nodes,
      h("div", { class: "nt-controls" }, which.node, knobs.map(({ node }) => node), order.node),
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    // Work: in slices, so that the page stays alive.
    function pump() {
      clearTimeout(timer);
      timer = null;
      if (gone || !session) return;
      if (session.work(SLICE)) draw();
      else {
        step.disabled = true; // until the distribution is there
        timer = setTimeout(pump, 0);
      }
    }
    function write(id) {
      const { before, after } = session.distribution(), own = id !== undefined, chosen = id ?? session.choose();
      const p = ns.sampler.softmax(before), at = before.ids.indexOf(chosen);
      const others = Array.from(before.ids.subarray(0, 4)).filter((other) => other !== chosen).slice(0, 3)
        .map((other) => `${visible(other)} ${percent(p[before.ids.indexOf(other)])}`).join(", ");
      const name = visible(chosen), mine = percent(p[at]);
      told[session.newTokens] = { p: p[at], title: own ? TEXT.own(name, mine) : TEXT.character(name, mine, others), kept: after.ids.length };
      delete told[session.newTokens - SHOWN];
      session.step(chosen);
    }
    function advance(n, id) {
      if (!session?.pass) return;
      for (let i = 0; i < n; i++) write(id);
      pump();
    }
    function go() {
      running = true;
      run.textContent = TEXT.stop;
      tick();
    }
    function tick() {
      clearTimeout(timer);
      if (!running || gone || !session) return;
      const until = performance.now() + SLICE;
      do {
        if (!session.work(until - performance.now())) break;
        if (session.finished) { halt(); break; }
        write();
      } while (performance.now() < until);
      if (!running) return;
      if (performance.now() - drawn > REDRAW) draw();
      timer = setTimeout(tick, 0);
    }
    function halt() {
      if (!running) return;
      running = false;
      run.textContent = TEXT.run;
      pump();
    }
    function rewind(n) {
      if (!session || n < 0) return;
      session.rewind(n);
      told.length = Math.min(told.length, n);
      pump();
    }
    function press(event) {
      if (event.type === "keydown" && event.key !== "Enter") return;
      const at = event.target.dataset.step;
      if (at !== undefined) { halt(); rewind(Number(at)); }
    }
    function share() {
      const shown = Object.fromEntries(Object.keys(legal).map((key) => [key, state.get(key)]));
      const address = location.href.split("#")[0] + HASH + encodeURIComponent(JSON.stringify(shown));
      root.dataset.link = address;
      navigator.clipboard?.writeText(address);
      link.textContent = TEXT.copied;
      setTimeout(() => { link.textContent = TEXT.link; }, 1500);
    }

    // A setting that is off is none at all; a rule that the chosen engine lacks is greyed and left out.
    const rulesOf = () => ns.catalogue.orders.find(({ name }) => name === state.get("order")).rules;
    const settings = () => ({ seed: state.get("seed"), ...Object.fromEntries(Object.keys(KNOBS).map((name) => {
      const value = state.get(name);
      return [name, value === OFF[name] && name !== "temperature" ? null : value];
    })) });

    function update() {
      lm = ns.playModel(state.get("model"));
      examples.update();
      if (area.value !== state.get("prompt")) area.value = state.get("prompt");
      which.set(state.get("model"));
      order.set(state.get("order"));
      if (seed.valueAsNumber !== state.get("seed")) seed.value = state.get("seed");
      cache.set(state.get("cached") ? "on" : "off");
      limit.set(state.get("slide") ? "slide" : "stop");
      knobs.forEach((knob) => knob.set());
      cancel();
      if (!lm) {
        cancel = ns.fetchModel(widget, state.get("model"), arrived);
        return false;
      }
      const { ids, unknown } = lm.tokenizer.encode(state.get("prompt"));
      const how = { settings: settings(), order: rulesOf(), cached: state.get("cached"), slide: state.get("slide") };
      const wanted = JSON.stringify([ids, state.get("model"), how.cached, how.slide]);
      if (wanted !== made || !session) {
        halt();
        made = wanted;
        told = [];
        session = ids.length ? new ns.Session(lm, ids, how) : null;
      } else session.change(how.settings, how.order);
      note.textContent = [!ids.length && TEXT.nothing, unknown.length && TEXT.unknown(unknown.join(" ")), session?.cut && TEXT.cut(session.cut)]
        .filter(Boolean).join(" ");
      if (!views.childNodes.length) {
        const { n_layers: L, n_heads: H } = lm.model.config;
        views.append(select({ label: TEXT.look, options: TEXT.looks(L, H), onInput: (value) => { look = value; draw(); } }).node);
      }
      for (const node of [step, run, back, again]) node.disabled = !session;
      if (session) pump();
      else { text.replaceChildren(); offer.replaceChildren(); counts.replaceChildren(); bars.draw([], 1); words.say(TEXT.nothing); }
      return true;
    }
    function draw() {
      if (gone || !session) return;
      drawn = performance.now();
      const { cached } = session, n = session.newTokens, loops = ns.repeats(session.text.slice(-SHOWN));
      drawText(loops);
      drawCounts(cached);
      step.disabled = !session.pass;
      back.disabled = again.disabled = n === 0;
      const found = session.distribution();
      likeliest = found ? drawRows(found) : (bars.draw([], 1), offer.replaceChildren(), []);
      numbers.update();
      const { tokens } = session.counts;
      const window = found ? TEXT.next(likeliest[0][0], percent(likeliest[0][2]), found.after.ids.length) : session.finished ? TEXT.full : "";
      words.say(TEXT.said(thousands(n), window) + (loops.share > 0.5 ? TEXT.loop(percent(loops.share, 0)) : "") +
        TEXT.work(thousands(tokens), thousands(session.predicted()), cached), running ? 5000 : 700);
    }

    function drawRows({ before, after }) {
      const p = ns.sampler.softmax(before), q = ns.sampler.softmax(after), kept = new Map(Array.from(after.ids, (id, i) => [id, q[i]]));
      const top = Array.from(before.ids.subarray(0, LIKELIEST)), rest = before.ids.length - top.length;
      const items = top.map((id, i) => ({
        kind: kept.has(id) ? "" : "nt-cut",
        cells: [visible(id), fixed(before.z[id]), null, percent(kept.get(id) ?? 0)],
        bar: kept.get(id) ?? p[i], tick: p[i],
      }));
      const left = Math.max(0, top.reduce((sum, id) => sum - (kept.get(id) ?? 0), 1));
      items.push({ kind: "nt-rest", cells: [TEXT.rest(rest), "", null, percent(left)], bar: left });
      bars.draw(items, 1);
      offer.replaceChildren(...top.map((id) => button(visible(id), () => { halt(); advance(1, id); })));
      return top.map((id, i) => [visible(id), before.z[id], p[i], kept.get(id) ?? 0]);
    }

    // Prompt muted, each new character tinted by how likely it was, or each one by the attention that the last gave it.
    function drawText({ marked }) {
      const { text: ids, prompt, start } = session, from = Math.max(0, ids.length - SHOWN);
      const weights = look === "p" ? null : session.pass?.attention?.[look];
      const peak = weights ? Math.max(...weights) : 1;
      const nodes = ids.slice(from).map((id, i) => {
        const at = from + i, info = told[at - prompt], character = lm.tokenizer.characters[id];
        const share = weights ? (at >= start ? weights[at - start] / peak : 0) : look === "p" && info ? 1 - info.p : 0;
        const kind = [at < prompt ? "nt-prompt" : "", marked[i] && "nt-loop", at === ids.length - 1 && at >= prompt && "nt-new"].filter(Boolean).join(" ");
        const set = { class: kind, style: share ? `--nt-share: ${share.toFixed(3)}` : null };
        if (at >= prompt) Object.assign(set, { "data-step": at - prompt, title: info?.title });
        return h("span", set, character === "\n" ? [h("span", { class: "nt-blank" }, "↵"), "\n"] : character);
      });
      text.replaceChildren(...(from ? [TEXT.earlier(from)] : []), ...nodes);
      text.scrollTop = text.scrollHeight;
    }

    function drawCounts(cached) {
      const { tokens, ms, undone } = session.counts;
      const lines = [[TEXT.tokens, thousands(tokens), thousands(session.predicted())],
        [TEXT.other(cached), "", thousands(session.predicted(!cached))], [TEXT.ms, `${thousands(ms)} ms`, ""]];
      if (undone) lines.push([TEXT.undone, thousands(undone), ""]);
      counts.replaceChildren(h("table", { class: "nt-counts" },
        h("thead", null, h("tr", null, TEXT.counts.map((cell) => h("th", { scope: "col" }, cell)))),
        h("tbody", null, lines.map(([name, ...cells]) => h("tr", null, h("th", { scope: "row" }, name), cells.map((cell) => h("td", null, cell)))))));
    }

    return { update, dispose() { gone = true; cancel(); halt(); clearTimeout(timer); words.stop(); } };
  });
})(globalThis);
