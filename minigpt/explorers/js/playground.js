// The playground: a play model that runs in this page, with the settings of Part I and a switch for the KV cache.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, short, thousands } = ns.chart;
  const LIKELIEST = { true: 5, false: 10 }; // rows of bars, small or not
  const SLICE = 12, REDRAW = 60; // milliseconds of work at a time, and between two pictures while it runs
  const RUN = 600; // characters that Run writes, unless it is stopped
  const WHOLE = "playground.html"; // the page of the whole figure, beside that of a small one
  const TEXT = {
    presets: "Try",
    examples: [
      ["a loop", { model: "shakespeare-early", temperature: 0 }],
      ["broken by temperature", { model: "shakespeare-early", temperature: 0.8 }],
      ["broken by a penalty", { model: "shakespeare-early", temperature: 0, frequency_penalty: 0.1 }],
      ["the finished model", { model: "shakespeare", temperature: 0.8, top_p: 0.95 }],
    ],
    prompt: "Prompt",
    model: "model",
    models: [["shakespeare", "Shakespeare"], ["shakespeare-early", "Shakespeare, early"]],
    knobs: { temperature: "temperature T", top_k: "top-k", top_p: "top-p", min_p: "min-p", typical_p: "typical τ", epsilon: "epsilon ε",
      eta: "eta ε", top_n_sigma: "top-nσ", repetition_penalty: "repetition θ", frequency_penalty: "frequency f",
      presence_penalty: "presence r", no_repeat_ngram_size: "no-repeat n-gram" },
    off: "off",
    greedy: "0, greedy",
    more: (n) => `More rules (${n ? `${n} on` : "all off"})`,
    lacking: (engine) => `not in ${engine}`,
    order: "order of the rules",
    seed: "Seed",
    cache: "KV cache",
    caches: [["on", "cache on"], ["off", "cache off"]],
    limit: "at the end of the context",
    limits: [["slide", "go on from its last half"], ["stop", "stop at 256 characters"]],
    run: "Run",
    stop: "Stop",
    step: "Step",
    back: "Back one",
    again: "From the prompt",
    link: "Copy link",
    whole: "Every rule, seeds, branches and attention: the playground, with these settings →",
    unknown: (list) => `Left out of the prompt, since the model does not know them: ${list}`,
    cut: (n) => `The prompt is longer than the context: its first ${thousands(n)} characters are not read.`,
    nothing: "The prompt is empty: write at least one character that the model knows.",
    picture: "Bars: probability of the likeliest next characters, kept or cut; the one that Step writes is outlined",
    columns: { token: "next", logit: "logit", share: "p" },
    rest: (n) => `${thousands(n)} others`,
    key: ["kept", "cut", "before the rules", "what Step writes"],
    pick: "Pick the next one yourself",
    look: "show",
    looks: (L, H) => [["p", "how likely each character was"], ...Array.from({ length: L * H }, (_, i) =>
      [String(i), `attention, layer ${Math.floor(i / H)}, head ${i % H}`])],
    counts: ["for this text", "here", "formula"],
    tokens: "tokens through the model",
    other: (cached) => (cached ? "without a cache" : "with a cache"),
    ms: "time",
    rate: "characters a second",
    undone: "taken back",
    table: "The likeliest next characters",
    head: ["character", "logit", "probability", "probability after the rules"],
    said: (n, next) => `${n} new characters. ${next}`,
    next: (token, p, kept, V) => `Next comes ${token}, with ${p} from the model; ${kept} of ${V} characters can come.`,
    full: "The context is full.",
    loop: (share) => ` It loops: ${share} of its windows of 20 stood there before.`,
    work: (tokens, cached, other) => ` ${tokens} tokens went through the model ${cached ? "with" : "without"} a cache; ` +
      `${cached ? "without" : "with"} one it takes ${other}.`,
  };
  const range = (low, high, parts) => Array.from({ length: Math.round((high - low) * parts) + 1 }, (_, i) => low + i / parts);
  const stops = (setting) => ns.stops(ns.catalogue.methods.find((method) => method.setting === setting));
  const number = (off, format) => (v) => (v === off ? TEXT.off : format(v));
  const one = (v) => fixed(v, 1), two = (v) => fixed(v, 2);
  const KNOBS = { // stops, what is off, how it reads
    temperature: [ns.temperatures, 1, (v) => (v === 0 ? TEXT.greedy : fixed(v))],
    frequency_penalty: [range(-2, 2, 10), 0, number(0, one)],
    top_p: [stops("top_p"), 1, number(1, short)],
    repetition_penalty: [range(0.5, 2, 20), 1, number(1, two)],
    presence_penalty: [range(-2, 2, 10), 0, number(0, one)],
    no_repeat_ngram_size: [range(0, 10, 1), 0, number(0, String)],
    top_k: [range(0, 75, 1), 0, number(0, String)],
    min_p: [[0, ...range(0.01, 0.5, 100)], 0, number(0, two)],
    typical_p: [stops("typical_p"), 1, number(1, short)],
    epsilon: [[0, ...stops("epsilon")], 0, number(0, short)],
    eta: [[0, ...stops("eta")], 0, number(0, short)],
    top_n_sigma: [[0, ...stops("top_n_sigma")], 0, number(0, one)],
  };
  const FIRST = 3, FEW = 2; // knobs above the text, the others under "more"; knobs of a small figure
  const OFF = Object.fromEntries(Object.entries(KNOBS).map(([name, [, off]]) => [name, off]));
  const start = { ...OFF, order: "huggingface", prompt: "ROMEO:\n", seed: 1, cached: true, slide: true };
  const DEFAULTS = { ...start, model: "shakespeare-early", temperature: 0, small: false };

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
  const toLink = (state) => HASH + encodeURIComponent(JSON.stringify(Object.fromEntries(Object.keys(legal).map((key) => [key, state.get(key)]))));
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
    const { h, slider, select, chips, button, presets, rows, table, copier, readout } = ns.chart;
    const small = state.get("small");
    let session = null, made = "", left = 0, timer = null, lm = null, look = "p", gone = false; // left: characters that Run still writes
    let drawn = 0, picked = null, cancel = () => {}; // when; what is written once it can be; what takes the question for a model back
    const visible = (id) => ({ "\n": "↵", " ": "␣" })[lm.tokenizer.characters[id]] ?? lm.tokenizer.characters[id];
    const linked = () => state.set(small ? {} : fromLink());
    linked();
    addEventListener("hashchange", linked);

    // Controls
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...OFF, order: "huggingface", ...changes }]), {
      get: state.get,
      set(changes) {
        state.set(changes);
        update(); // now, so that it is the new settings that run
        rewind(0);
        go();
      },
    });
    const area = h("textarea", { rows: small ? 1 : 2, spellcheck: "false", input: () => state.set({ prompt: area.value }) });
    const which = select({ label: TEXT.model, options: TEXT.models, onInput: (name) => state.set({ model: name }) });
    const knobs = Object.entries(KNOBS).map(([name, [stops, off, format]]) => {
      const knob = slider({ label: TEXT.knobs[name], onInput: (value) => state.set({ [name]: value }) });
      return { node: knob.node, set: (engine) => knob.set(state.get(name), { stops, home: off, format,
        lacking: engine.rules.includes(name) ? null : TEXT.lacking(engine.label) }) };
    });
    const order = select({ label: TEXT.order, options: ns.catalogue.orders.map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ order: name }) });
    const seed = h("input", { type: "number", min: 0, max: 2 ** 32 - 1, step: 1, input: () => {
      if (legal.seed(seed.valueAsNumber)) state.set({ seed: seed.valueAsNumber });
    } });
    const cache = chips({ label: TEXT.cache, options: TEXT.caches, onInput: (value) => state.set({ cached: value === "on" }) });
    const limit = chips({ label: TEXT.limit, options: TEXT.limits, onInput: (value) => state.set({ slide: value === "slide" }) });
    const run = button(TEXT.run, () => (running() ? halt() : go()), { class: "nt-button nt-run" });
    const running = () => run.textContent === TEXT.stop;
    const step = button(TEXT.step, () => { halt(); advance(); });
    const back = button(TEXT.back, () => { halt(); rewind(session.newTokens - 1); });
    const again = button(TEXT.again, () => { halt(); rewind(0); });
    const link = copier(() => (root.dataset.link = location.href.split("#")[0] + toLink(state)), {}, TEXT.link);
    const whole = h("a", null, TEXT.whole);

    // Picture
    const note = h("p", { class: "nt-notice", role: "status" });
    const text = ns.playText({
      back(n) { halt(); text.release(); rewind(n); },
      branch(n, id) { halt(); text.release(); rewind(n); advance(id); },
    });
    const bars = rows(TEXT.picture, [[TEXT.columns.token, "nt-token"], [TEXT.columns.logit, "nt-number"], ["", "nt-track"], [TEXT.columns.share, "nt-number"]]);
    const key = h("p", { class: "nt-key" }, [["nt-bar", ""], ["nt-bar", "nt-cut"], ["nt-tick", ""], ["nt-chosen-key", ""]].map(([kind, row], i) =>
      h("span", { class: row }, h("i", { class: kind }), TEXT.key[i])));
    const offer = h("div", { class: "nt-buttons nt-vocabulary", role: "group", "aria-label": TEXT.pick });
    const views = h("div"); // the choice of what the text shows, made once the model's sizes are known
    const counts = h("div"), words = readout();
    let likeliest = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...likeliest]);
    const summary = h("summary");
    const more = h("details", { class: "nt-more" }, summary, h("div", { class: "nt-controls" }, knobs.slice(FIRST).map(({ node }) => node), order.node));
    const only = (...nodes) => (small ? [] : nodes); // what a small figure goes without
    const first = h("div", { class: "nt-controls" }, knobs.slice(0, small ? FEW : FIRST).map(({ node }) => node), small ? cache.node : null);
    root.classList.toggle("nt-small", small);
    root.append(
      examples.node,
      h("div", { class: "nt-play-top" }, h("label", { class: "nt-prompt-box" }, TEXT.prompt, area), ...only(which.node)),
      h("div", { class: "nt-buttons nt-play-buttons" }, run, step, ...only(back), again, ...only(h("label", { class: "nt-seed" }, TEXT.seed, seed), link)),
      first, note, ...text.nodes,
      h("div", { class: "nt-body" },
        h("div", null, bars.node, ...only(key, h("p", { class: "nt-hint" }, TEXT.pick), offer)),
        h("div", { class: "nt-side" }, counts, ...only(cache.node, limit.node, views))),
      ...words.nodes,
      ...(small ? [h("p", { class: "nt-whole" }, whole)] : []),
      ...only(more, h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body),
    );

    // Work: in slices, so that the page stays alive.
    function pump() {
      clearTimeout(timer);
      timer = null;
      if (gone || !session) return;
      if (!session.work(SLICE)) {
        bars.node.setAttribute("aria-busy", true); // until the distribution is there
        timer = setTimeout(pump, 0);
      } else if (picked === null) draw();
      else {
        write(picked.id);
        picked = null;
        pump();
      }
    }
    function write(id) {
      const { before, after } = session.distribution(), chosen = id ?? session.choose();
      const [p, q] = [before, after].map((state) => (id) => ns.sampler.softmax(state)[state.ids.indexOf(id)] ?? 0);
      const fact = (id) => ({ id, token: visible(id), p: p(id) });
      const others = Array.from(before.ids.subarray(0, 5)).filter((other) => other !== chosen).slice(0, 4).map(fact);
      text.tell(session.newTokens, { ...fact(chosen), q: q(chosen), own: id !== undefined, others });
      session.step(chosen);
    }
    function advance(id) {
      if (!session.finished) picked = { id };
      pump();
    }
    function go() {
      if (lm && !session) return;
      text.release();
      left = RUN;
      run.textContent = TEXT.stop;
      tick();
    }
    function tick() {
      clearTimeout(timer);
      if (gone || !session) return;
      const until = performance.now() + SLICE;
      do {
        if (!session.work(until - performance.now())) break;
        if (session.finished || !left) return halt();
        if (performance.now() - drawn > REDRAW) draw();
        write();
        left--;
      } while (performance.now() < until);
      timer = setTimeout(tick, 0);
    }
    function halt() {
      if (!running()) return;
      left = 0;
      run.textContent = TEXT.run;
      draw(); // what was written stands there at once, its distribution when it is ready
      pump();
    }
    function rewind(n) {
      if (!session || n < 0) return;
      picked = null;
      session.rewind(n);
      pump();
    }

    // A setting that is off is none at all; a rule that the chosen engine lacks is greyed and left out.
    const engine = () => ns.catalogue.orders.find(({ name }) => name === state.get("order"));
    const settings = () => ({ seed: state.get("seed"), ...Object.fromEntries(Object.keys(KNOBS).map((name) => {
      const value = state.get(name);
      return [name, value === OFF[name] && name !== "temperature" ? null : value];
    })) });

    function showControls() {
      examples.update();
      if (area.value !== state.get("prompt")) area.value = state.get("prompt");
      which.set(state.get("model"));
      order.set(state.get("order"));
      if (seed.valueAsNumber !== state.get("seed")) seed.value = state.get("seed");
      cache.set(state.get("cached") ? "on" : "off");
      limit.set(state.get("slide") ? "slide" : "stop");
      knobs.forEach((knob) => knob.set(engine()));
      summary.textContent = TEXT.more(Object.keys(KNOBS).slice(FIRST).filter((name) => state.get(name) !== OFF[name]).length);
      whole.href = WHOLE + toLink(state);
    }

    function update() {
      lm = ns.playModel(state.get("model"));
      showControls();
      cancel();
      if (!lm) {
        session = null;
        made = "";
        cancel = ns.fetchModel(widget, state.get("model"), arrived);
        return false;
      }
      const { ids, unknown } = lm.tokenizer.encode(state.get("prompt"));
      const how = { settings: settings(), order: engine().rules, cached: state.get("cached"), slide: state.get("slide") };
      const wanted = JSON.stringify([ids, state.get("model"), how.cached, how.slide]);
      if (wanted !== made) {
        made = wanted;
        picked = null;
        text.clear();
        session = ids.length ? new ns.Session(lm, ids, how) : null;
      } else session?.change(how.settings, how.order);
      note.textContent = [!session && TEXT.nothing, unknown.length && TEXT.unknown(unknown.join(" ")), session?.cut && TEXT.cut(session.cut)]
        .filter(Boolean).join(" ");
      if (!views.childNodes.length) {
        const { n_layers: L, n_heads: H } = lm.model.config;
        views.append(select({ label: TEXT.look, options: TEXT.looks(L, H), onInput: (value) => { look = value; draw(); } }).node);
      }
      for (const node of [step, run, back, again]) node.disabled = !session;
      if (!session) {
        halt();
        counts.replaceChildren();
        clearRows();
        words.say(TEXT.nothing);
      } else if (running()) tick(); // with the new settings
      else pump();
      return true;
    }

    function draw() {
      if (gone || !session) return;
      drawn = performance.now();
      const { cached, newTokens: n } = session, loops = ns.repeats(session.text.slice(-ns.playText.SHOWN));
      drawText(loops);
      drawCounts(cached);
      step.disabled = session.finished;
      const found = session.distribution(), { tokens } = session.counts, V = lm.model.config.vocab_size;
      if (found) drawRows(found);
      else if (session.finished) clearRows();
      if (found || session.finished) bars.node.setAttribute("aria-busy", false); // else the last bars stand a little longer
      const next = found ? TEXT.next(...comes(found), found.after.ids.length, V) : session.finished ? TEXT.full : "";
      words.say(TEXT.said(thousands(n), next) + (loops.share > 0.5 ? TEXT.loop(percent(loops.share, 0)) : "") +
        TEXT.work(thousands(tokens), cached, thousands(session.predicted(!cached))), running() ? 5000 : 700);
    }

    // What Step writes, and what the model gives it.
    function comes({ before }) {
      const id = session.choose();
      return [visible(id), percent(ns.sampler.softmax(before)[before.ids.indexOf(id)])];
    }
    function clearRows() {
      bars.draw([], 1);
      offer.replaceChildren();
      likeliest = [];
      numbers.update();
    }
    function drawRows({ before, after }) {
      const p = ns.sampler.softmax(before), q = ns.sampler.softmax(after), kept = new Map(Array.from(after.ids, (id, i) => [id, q[i]]));
      const top = Array.from(before.ids.subarray(0, LIKELIEST[small])), rest = before.ids.length - top.length, next = session.choose();
      const items = top.map((id, i) => ({
        kind: `${kept.has(id) ? "" : "nt-cut"} ${id === next ? "nt-chosen" : ""}`,
        cells: [visible(id), fixed(before.z[id]), null, percent(kept.get(id) ?? 0)],
        bar: kept.get(id) ?? p[i], tick: p[i],
      }));
      const others = Math.max(0, top.reduce((sum, id) => sum - (kept.get(id) ?? 0), 1));
      items.push({ kind: `nt-rest ${top.includes(next) ? "" : "nt-chosen"}`, cells: [TEXT.rest(rest), "", null, percent(others)], bar: others });
      bars.draw(items, 1);
      offer.replaceChildren(...top.map((id) => button(visible(id), () => { halt(); advance(id); })));
      likeliest = top.map((id, i) => [visible(id), before.z[id], p[i], kept.get(id) ?? 0]);
      numbers.update();
    }

    // Prompt muted, each new character tinted by how likely it was, or each one by the attention that the last gave it.
    function drawText({ marked }) {
      const { text: ids, prompt: promptLength, start } = session, weights = look === "p" ? null : session.pass?.attention?.[look];
      const peak = weights ? Math.max(...weights) : 1, p = (step) => text.told(step)?.p;
      const tint = (at) => (weights ? (at >= start ? weights[at - start] / peak : 0) : look === "p" ? 1 - (p(at - promptLength) ?? 1) : 0);
      text.draw({ ids, promptLength, characters: lm.tokenizer.characters, tint, marked });
    }

    function drawCounts(cached) {
      const { tokens, ms, undone } = session.counts, n = session.newTokens;
      const lines = [[TEXT.tokens, thousands(tokens), thousands(session.predicted())],
        [TEXT.other(cached), "", thousands(session.predicted(!cached))], [TEXT.ms, `${thousands(ms)} ms`, ""],
        [TEXT.rate, n && ms ? thousands((1000 * n) / ms) : "", ""]];
      if (undone) lines.push([TEXT.undone, thousands(undone), ""]);
      counts.replaceChildren(h("table", { class: "nt-counts" },
        h("thead", null, h("tr", null, TEXT.counts.map((cell) => h("th", { scope: "col" }, cell)))),
        h("tbody", null, lines.map(([name, ...cells]) => h("tr", null, h("th", { scope: "row" }, name), cells.map((cell) => h("td", null, cell)))))));
    }

    function dispose() {
      gone = true;
      cancel();
      halt();
      clearTimeout(timer);
      words.stop();
      removeEventListener("hashchange", linked);
    }
    return { update, dispose };
  });
})(globalThis);
