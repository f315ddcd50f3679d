// The playground: a play model that runs in this page, with the settings of Part I and a switch for the KV cache.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { percent, thousands } = ns.chart;
  const SLICE = 12, REDRAW = 60; // milliseconds of work at a time, and between two pictures while it runs
  const RUN = 600; // characters that Run writes, unless it is stopped
  const WINDOW = 20, LATELY = 200, SOON = 40; // a loop shows in windows of so many characters, in the last so many, if there are so many
  const WHOLE = "playground.html"; // the page of the whole figure, beside that of a small one
  const FIRST = 3, FEW = 2; // knobs beside the text, the others under "more"; knobs of a small figure
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
    models: { shakespeare: "Shakespeare", "shakespeare-early": "Shakespeare, early" },
    loading: "Loading the model, 2 MB …",
    more: (n) => `More rules (${n ? `${n} on` : "all off"})`,
    order: "order of the rules",
    seed: "Seed",
    badSeed: "A seed is a whole number from 0 to 4,294,967,295.",
    cache: "KV cache",
    caches: [["on", "cache on"], ["off", "cache off"]],
    limit: "at the end of the context",
    limits: [["slide", "go on from its last half"], ["stop", "stop there"]],
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
    look: "show",
    looks: (L, H) => [["p", "how likely each character was"], ...Array.from({ length: L * H }, (_, i) =>
      [String(i), `attention, layer ${Math.floor(i / H)}, head ${i % H}`])],
    warmth: "Warmth is now the attention that the last character read gives to each; the darkest has most.",
    said: (n, next) => `${thousands(n)} new ${n === 1 ? "character" : "characters"}. ${next}`,
    next: (character, p, kept, V) => `Next comes ${character}, which the model gives ${p}; ${kept} of ${V} characters can come.`,
    full: "The context is full.",
    stuck: "The rules leave no character that can come: switch one off, or go back.",
    loop: (share, n, size) => ` It loops: of the last ${n} characters ${share} end a stretch of ${size} that stood in the text before.`,
    work: (n, cached, other) => ` ${thousands(n)} ${n === 1 ? "token" : "tokens"} went through the model ` +
      `${cached ? "with a cache; without" : "without a cache; with"} one it would be ${thousands(other)}.`,
  };

  ns.define("playground", { ...ns.play.defaults, small: false }, ({ root, state, model: widget, arrived }) => {
    const { h, slider, select, chips, button, presets, copier, readout } = ns.chart, { play } = ns;
    const small = state.get("small"), only = (...nodes) => (small ? [] : nodes); // what a small figure goes without
    let lm = null, session = null, made = {}, look = "p", gone = false; // made: what the session is of
    let running = false, until = 0, picks = []; // until: new characters where Run stops; picks: what is written as soon as it can be
    let replay = null; // a text that is written once more, whatever the settings now say: { ids, own: steps of the reader's own }
    let timer = null, drawn = 0, cancel = () => {}; // drawn: when; cancel: takes the question for a model back
    const linked = () => state.set(play.fromLink());
    if (!small) {
      linked();
      addEventListener("hashchange", linked);
    }

    // Controls
    const list = TEXT.examples.map(([name, changes]) => [name, { ...play.off, order: "huggingface", ...changes }]);
    const examples = presets(TEXT.presets, list, {
      get: state.get,
      set(changes) {
        state.set(lm && !session ? { ...changes, prompt: play.defaults.prompt } : changes);
        halt();
        update(); // now, so that it is the new settings that run
        rewind(0);
        go();
      },
    });
    const area = h("textarea", { rows: small ? 1 : 2, spellcheck: "false", input: () => state.set({ prompt: area.value }) });
    const which = select({ label: TEXT.model, options: play.models.map((name) => [name, TEXT.models[name]]), onInput: (model) => state.set({ model }) });
    const knobs = play.knobs.map(({ name, label, stops, off, format }) => {
      const { node, set } = slider({ label, onInput: (value) => state.set({ [name]: value }) });
      return { name, off, node, set: () => set(state.get(name), { stops, home: off, format, lacking: play.lacking(state, name) }) };
    });
    const order = select({ label: TEXT.order, options: ns.catalogue.orders.map(({ name, label }) => [name, label]), onInput: (order) => state.set({ order }) });
    const seed = h("input", {
      type: "number", min: 0, max: 2 ** 32 - 1, step: 1,
      input: () => {
        const good = play.legal.seed(seed.valueAsNumber);
        seed.setAttribute("aria-invalid", !good);
        if (good) state.set({ seed: seed.valueAsNumber });
        showNote();
      },
      blur: () => {
        seed.value = state.get("seed");
        seed.setAttribute("aria-invalid", false);
        showNote();
      },
    });
    const cache = chips({ label: TEXT.cache, options: TEXT.caches, onInput: (value) => state.set({ cached: value === "on" }) });
    const limit = chips({ label: TEXT.limit, options: TEXT.limits, onInput: (value) => state.set({ slide: value === "slide" }) });
    const run = button(TEXT.run, () => (running ? halt() : go()), { class: "nt-button nt-run" });
    const step = button(TEXT.step, () => { halt(); advance(); });
    const back = button(TEXT.back, () => { halt(); rewind(session.newTokens - 1); });
    const again = button(TEXT.again, () => { halt(); rewind(0); });
    const link = copier(() => location.href.split("#")[0] + play.toLink(state), {}, TEXT.link);
    const whole = h("a", null, TEXT.whole);

    // Picture
    const note = h("p", { class: "nt-notice", role: "status" });
    const text = ns.playText({
      back(n) { halt(); text.release(); rewind(n); },
      branch(n, id) { halt(); text.release(); rewind(n); advance(id); },
    });
    const next = ns.playNext({ count: small ? 5 : 10, pick: (id) => { halt(); advance(id); } });
    const counts = ns.playCounts({ undone: !small }), words = readout();
    const views = h("div"), warmth = h("p", { class: "nt-hint", hidden: true }, TEXT.warmth); // the choice is made once the model's sizes are known
    const ends = h("div", null, h("span", { class: "nt-legend" }, TEXT.limit), limit.node);
    const summary = h("summary"), nodes = knobs.map(({ node }) => node);
    root.classList.toggle("nt-small", small);
    root.append(
      examples.node,
      h("div", { class: "nt-play-top" }, h("label", { class: "nt-prompt-box" }, TEXT.prompt, area), ...only(which.node)),
      h("div", { class: "nt-buttons nt-play-buttons" }, run, step, ...only(back), again,
        ...(small ? [cache.node] : [h("label", { class: "nt-seed" }, TEXT.seed, seed), link])),
      ...text.nodes, note,
      h("div", { class: "nt-controls" }, nodes.slice(0, small ? FEW : FIRST)),
      h("div", { class: "nt-body" },
        h("div", null, ...next.nodes, ...only(next.offer)),
        h("div", { class: "nt-side" }, counts.node, ...only(cache.node, ends, views, warmth))),
      ...words.nodes,
      ...(small ? [h("p", { class: "nt-whole" }, whole)] : []),
      ...only(h("details", { class: "nt-more" }, summary, h("div", { class: "nt-controls" }, nodes.slice(FIRST), order.node)),
        h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, next.numbers.buttons)), next.numbers.body),
    );

    // Work: in slices, so that the page stays alive.
    function pump() {
      clearTimeout(timer);
      if (gone || !session) return;
      if (!session.work(SLICE)) {
        next.busy(true); // until the distribution is there
        timer = setTimeout(pump, 0);
      } else if (picks.length && !session.finished) {
        const { id } = picks.shift();
        if (performance.now() - drawn > REDRAW) draw();
        if (id !== undefined || !session.stuck) write(id, id !== undefined);
        pump();
      } else {
        picks = [];
        draw();
      }
    }
    // The character that these settings choose, or another one; `own`: the reader's.
    function write(id, own = false) {
      const { before, after } = session.distribution(), chosen = id ?? session.choose();
      const p = ns.sampler.softmax(before), q = ns.sampler.softmax(after);
      const fact = (id) => ({ id, token: lm.tokenizer.tokenText(id), p: p[before.ids.indexOf(id)] });
      const others = Array.from(before.ids.subarray(0, 5)).filter((other) => other !== chosen).slice(0, 4).map(fact);
      text.tell(session.newTokens, {
        id: chosen, name: ns.said(lm.tokenizer.characters[chosen]), own, others,
        p: p[before.ids.indexOf(chosen)], q: q[after.ids.indexOf(chosen)] ?? 0,
      });
      session.step(chosen);
    }
    function advance(id) {
      replay = null;
      picks.push({ id });
      pump();
    }
    function go() {
      if (lm && !session) return;
      start((session?.newTokens ?? 0) + RUN);
      if (lm) tick();
      else update(); // asks for the model once more, if it could not be read
    }
    function start(end) {
      text.release();
      until = end;
      running = true;
      run.textContent = TEXT.stop;
    }
    function tick() {
      clearTimeout(timer);
      if (gone || !session) return;
      const end = performance.now() + SLICE;
      do {
        if (!session.work(end - performance.now())) break;
        const n = session.newTokens, id = replay?.ids[n];
        if (id === undefined) replay = null;
        if (session.finished || n >= until || (!replay && session.stuck)) return halt();
        if (performance.now() - drawn > REDRAW) draw();
        write(id, replay?.own.has(n));
      } while (performance.now() < end);
      timer = setTimeout(tick, 0);
    }
    function halt() {
      if (!running) return;
      running = false;
      run.textContent = TEXT.run;
      draw(); // what was written stands there at once, its distribution when it is ready
      pump();
    }
    function rewind(n) {
      if (!session || n < 0) return;
      replay = null;
      picks = [];
      session.rewind(n);
      pump();
    }

    function showControls() {
      examples.update();
      if (area.value !== state.get("prompt")) area.value = state.get("prompt");
      which.set(state.get("model"));
      order.set(state.get("order"));
      if (document.activeElement !== seed) seed.value = state.get("seed");
      cache.set(state.get("cached") ? "on" : "off");
      limit.set(state.get("slide") ? "slide" : "stop");
      knobs.forEach((knob) => knob.set());
      summary.textContent = TEXT.more(knobs.slice(FIRST).filter(({ name, off }) => state.get(name) !== off && !play.lacking(state, name)).length);
      whole.href = WHOLE + play.toLink(state);
    }
    function showNote() {
      const { unknown = [] } = lm?.tokenizer.encode(state.get("prompt")) ?? {};
      note.textContent = [lm && !session && TEXT.nothing, unknown.length && TEXT.unknown(unknown.join(" ")),
        session?.cut && TEXT.cut(session.cut), seed.ariaInvalid === "true" && TEXT.badSeed].filter(Boolean).join(" ");
    }

    function update() {
      lm = ns.playModel(state.get("model"));
      showControls();
      cancel();
      if (!lm) {
        session = null;
        made = {};
        text.clear(TEXT.loading);
        for (const node of [step, back, again]) node.disabled = true;
        run.disabled = false;
        next.busy(true);
        showNote();
        cancel = ns.fetchModel(widget, state.get("model"), (error) => {
          if (error) halt();
          arrived(error);
        });
        return false;
      }
      const { ids } = lm.tokenizer.encode(state.get("prompt")), settings = play.settings(state), order = play.engine(state).rules;
      const what = JSON.stringify([ids, state.get("model")]), rules = JSON.stringify([settings, order]), slide = state.get("slide");
      counts.keep(what + rules);
      if (what !== made.what) begin(ids);
      else if (session) {
        if (rules !== made.rules) {
          session.change(settings, order);
          replay = null;
        }
        if (session.cached !== state.get("cached") || (session.slide && !slide && session.text.length > session.context)) writeAnew(ids);
        else if (session.slide !== slide) {
          session.slide = slide;
          session.rewind(session.newTokens); // at the limit it can now go on
        }
      }
      made = { what, rules };
      showNote();
      if (!views.childNodes.length) {
        const { n_layers: L, n_heads: H } = lm.model.config;
        views.append(select({ label: TEXT.look, options: TEXT.looks(L, H), onInput: (value) => { look = value; draw(); } }).node);
      }
      for (const node of [step, run, back, again]) node.disabled = !session;
      if (!session) {
        halt();
        counts.clear();
        next.clear();
        words.say("");
      } else if (running) tick(); // with the new settings
      else pump();
      return true;
    }
    // A new session; what ran goes on running.
    function begin(ids) {
      replay = null;
      picks = [];
      text.clear();
      session = ids.length ? new ns.Session(lm, ids, {
        settings: play.settings(state), order: play.engine(state).rules, cached: state.get("cached"), slide: state.get("slide"),
      }) : null;
      if (running) until = RUN;
    }
    // The same text once more, in another way: every character of it, whichever settings or hand it came from.
    function writeAnew(ids) {
      const { text: all, prompt, newTokens: n } = session, end = running ? until : n;
      const before = replay ?? { ids: all.slice(prompt), own: new Set(all.slice(prompt).flatMap((_, i) => (text.told(i)?.own ? [i] : []))) };
      begin(ids);
      replay = before;
      if (replay.ids.length) start(Math.max(end, replay.ids.length));
    }

    function draw() {
      if (gone || !session) return;
      drawn = performance.now();
      const { newTokens: n, cached } = session, loops = ns.repeats(session.text.slice(-ns.playText.SHOWN), WINDOW);
      drawText(loops);
      counts.draw(session);
      const found = session.distribution(), over = session.finished || session.stuck;
      if (over && [step, run].includes(document.activeElement)) again.focus(); // those two are about to be disabled
      step.disabled = run.disabled = over;
      if (found) next.draw(found, session.stuck ? null : session.choose(), lm.tokenizer);
      else if (over) next.clear();
      if (found || over) next.busy(false); // else the last bars stand a little longer
      words.say(TEXT.said(n, coming(found)) + looping(loops, Math.min(n, LATELY)) +
        TEXT.work(session.counts.tokens, cached, session.predicted(!cached)), running ? 5000 : 700);
    }
    // What Step writes, and what the model gives it.
    function coming(found) {
      if (!found) return session.finished ? TEXT.full : "";
      if (session.stuck) return TEXT.stuck;
      const { before, after } = found, id = session.choose(), p = ns.sampler.softmax(before)[before.ids.indexOf(id)];
      return TEXT.next(ns.said(lm.tokenizer.characters[id]), percent(p), after.ids.length, lm.model.config.vocab_size);
    }
    function looping({ ends }, n) {
      const share = ends.slice(-n).reduce((sum, end) => sum + end, 0) / n;
      return n >= SOON && share > 0.5 ? TEXT.loop(percent(share, 0), n, WINDOW) : "";
    }
    // Each new character tinted by how likely it was, or all by the attention that the last one read gave them.
    function drawText({ marked }) {
      const { text: ids, prompt: promptLength, recent, newTokens: n, spent } = session, { characters } = lm.tokenizer;
      const last = recent.has(n) ? n : n - 1, start = spent.start[last];
      const weights = look === "p" ? null : recent.get(last)?.attention[look];
      const peak = weights ? Math.max(...weights) : 1, unlikely = (step) => 1 - (text.told(step)?.p ?? 1);
      const tint = (at) => (weights ? (weights[at - start] ?? 0) / peak : look === "p" ? unlikely(at - promptLength) : 0);
      warmth.hidden = look === "p";
      text.draw({ ids, promptLength, characters, tint, marked });
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
