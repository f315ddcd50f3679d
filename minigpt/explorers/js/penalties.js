// Chapter 04: a text whose tokens can be edited, and what each penalty makes of the next-token distribution because of it.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, thousands } = ns.chart;
  const LIKELIEST = 9, MOST_WORDS = 12;
  const TEXT = {
    source: "text and distribution",
    repetition: "repetition θ",
    frequency: "frequency f",
    presence: "presence r",
    ngram: "no-repeat n-gram n",
    prompt: "prompt, tokens",
    off: "off",
    sign: "negative logits under θ",
    signs: [["by-sign", "× θ, as engines do"], ["divide", "÷ θ, as CTRL's code"]],
    presets: "Try",
    examples: [
      ["a loop, broken", { source: "loop", repetition_penalty: 1.2 }],
      ["a dialogue, broken", { source: "script", no_repeat_ngram_size: 3 }],
      ["JSON, broken", { source: "records", repetition_penalty: 1.3 }],
      ["repetition counts the prompt", { source: "toy-loop", prompt_length: 9, repetition_penalty: 2 }],
      ["frequency does not", { source: "toy-loop", prompt_length: 9, frequency_penalty: 2 }],
      ["the wrong sign", { source: "toy-loop", repetition_penalty: 2, sign: "divide" }],
    ],
    history: "Text so far: tokens of the prompt, then of the answer",
    hint: "The logits are the model's after the first text shown. Editing changes what the penalties count, not the logits.",
    chip: (token, n, total, inPrompt) => `${token}, token ${n} of ${total}, ${inPrompt ? "prompt" : "answer"}`,
    seam: "the prompt ends here",
    earlier: "← earlier",
    later: "later →",
    remove: "Remove",
    add: "Add",
    restore: "First text",
    empty: "(no token)",
    picture: "Bars: probability of the likeliest tokens after the penalties, with a tick where it was before",
    columns: { token: "token", seen: "seen", logit: "logit", after: "after", share: "p" },
    seen: (prompt, answer) => (prompt || answer ? `${prompt} + ${answer}` : ""),
    rest: (n) => `${thousands(n)} others`,
    restBanned: (n) => (n ? `${thousands(n)} −∞` : ""),
    key: ["after", "banned", "before the penalties"],
    seenKey: "seen: times in the prompt + in the answer",
    curve: { label: "Penalised logit against logit, for the tokens shown", x: "logit", y: "penalised logit", same: "no change" },
    table: "Penalties, token by token",
    head: ["token", "id", "in prompt", "in answer", "logit", "penalised logit", "probability before", "probability after"],
    likeliest: (token, p) => `“${token}” is the likeliest next token with ${p}`,
    none: (likeliest) => `No logit changes: ${likeliest}.`,
    touched: (n, V, banned) => `${n} of ${V} logits ${n === "1" ? "changes" : "change"}${banned === "0" ? "" : `, ${banned} to −∞`}. `,
    stays: (token, p, q) => `“${token}” stays the likeliest next token: ${p} before, ${q} now.`,
    falls: (token, p, q, other, r) => `“${token}” goes from ${p} to ${q}; now “${other}” is the likeliest with ${r}.`,
    nothing: "Every token is banned: a generation would stop here with an error.",
  };
  const OFF = { repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0, no_repeat_ngram_size: null };
  const range = (low, high, parts) => Array.from({ length: (high - low) * parts + 1 }, (_, i) => low + i / parts);
  const KNOBS = [
    ["repetition_penalty", TEXT.repetition, range(0.5, 2, 20), (v) => (v === 1 ? TEXT.off : fixed(v))],
    ["frequency_penalty", TEXT.frequency, range(-2, 2, 10), (v) => (v === 0 ? TEXT.off : fixed(v, 1))],
    ["presence_penalty", TEXT.presence, range(-2, 2, 10), (v) => (v === 0 ? TEXT.off : fixed(v, 1))],
    ["no_repeat_ngram_size", TEXT.ngram, range(0, 10, 1), (v) => (v ? String(v) : TEXT.off)],
  ];
  const start = { ...OFF, history: null, prompt_length: null, sign: "by-sign" };

  ns.define("penalties", { ...start, source: "loop", repetition_penalty: 1.2 }, ({ root, state, source }) => {
    const { h, slider, select, chips, button, presets, rows, barKey, plot, table, readout } = ns.chart;
    let text = { ids: [], promptLength: 0 }, from = null, chosen = 0, drawn;
    const edit = (ids, promptLength) => state.set({ history: ids, prompt_length: Math.min(promptLength, ids.length) });

    const pick = select({
      label: TEXT.source,
      options: ns.catalogue.sources.filter((s) => s.prompt_length).map(({ name, label }) => [name, label]),
      onInput: (name) => state.set({ source: name, history: null, prompt_length: null }),
    });
    const knobs = KNOBS.map(([name, label, stops, format]) => {
      const knob = slider({ label, onInput: (value) => state.set({ [name]: name === "no_repeat_ngram_size" ? value || null : value }) });
      return { node: knob.node, set: () => knob.set(state.get(name) ?? 0, { stops, home: OFF[name] ?? 0, format }) };
    });
    const seam = slider({ label: TEXT.prompt, onInput: (n) => state.set({ prompt_length: n }) });
    const sign = chips({ label: TEXT.sign, options: TEXT.signs, onInput: (value) => state.set({ sign: value }) });
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...start, ...changes }]), state);
    const { columns } = TEXT;
    const bars = rows(TEXT.picture, [[columns.token, "nt-token"], [columns.seen, "nt-number"], [columns.logit, "nt-number"],
      [columns.after, "nt-number nt-count"], ["", "nt-track"], [columns.share, "nt-number"]]);
    const key = barKey(TEXT.key, h("span", null, TEXT.seenKey));
    const curve = plot(TEXT.curve.label), words = readout();

    // The text as chips: one of them takes the focus, arrows go on, Shift + arrow moves the token, Delete takes it out.
    const line = h("div", { class: "nt-history", role: "group", "aria-label": TEXT.history, keydown: onKey });
    const tools = [[TEXT.earlier, () => move(-1)], [TEXT.later, () => move(1)], [TEXT.remove, remove]].map(([name, click]) => button(name, click));
    const restore = button(TEXT.restore, () => state.set({ history: null, prompt_length: null }));
    const offer = h("div", { class: "nt-buttons nt-vocabulary", role: "group", "aria-label": TEXT.add });
    let shown = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...shown]);
    root.append(
      examples.node,
      h("div", { class: "nt-controls" }, pick.node, seam.node, knobs.map(({ node }) => node)),
      sign.node,
      line,
      h("div", { class: "nt-buttons nt-editing" }, tools, restore, offer),
      h("p", { class: "nt-notice" }, TEXT.hint),
      h("div", { class: "nt-body" }, h("div", null, bars.node, key), h("div", { class: "nt-side" }, curve.node)),
      ...words.nodes,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function move(by) {
      const to = chosen + by, ids = [...text.ids];
      if (to < 0 || to >= ids.length) return;
      [ids[chosen], ids[to]] = [ids[to], ids[chosen]];
      chosen = to;
      edit(ids, text.promptLength);
    }
    function remove() {
      if (!text.ids.length) return;
      const ids = text.ids.toSpliced(chosen, 1);
      edit(ids, text.promptLength - (chosen < text.promptLength));
    }
    function add(id) {
      chosen = text.ids.length;
      edit([...text.ids, id], text.promptLength);
    }
    function choose(index) {
      chosen = Math.max(0, Math.min(text.ids.length - 1, index));
      drawChips();
      line.querySelector('[aria-pressed="true"]')?.focus();
    }
    function onKey(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], end = { Home: 0, End: text.ids.length - 1 }[event.key];
      if (by && event.shiftKey) move(by);
      else if (by) choose(chosen + by);
      else if (end !== undefined) choose(end);
      else if (event.key === "Delete" || event.key === "Backspace") remove();
      else return;
      event.preventDefault();
    }

    function drawChips() {
      const { ids, promptLength } = text, focused = line.contains(document.activeElement);
      chosen = Math.max(0, Math.min(ids.length - 1, chosen));
      restore.disabled = state.get("history") == null && state.get("prompt_length") == null;
      const key = [from.name, promptLength, chosen, ...ids].join();
      if (key === drawn) return; // a penalty moved, not the text
      drawn = key;
      const nodes = ids.map((id, i) => h("button", {
        type: "button", class: i < promptLength ? "nt-prompt" : "nt-answer", tabindex: i === chosen ? 0 : -1, "aria-pressed": String(i === chosen),
        "aria-label": TEXT.chip(from.tokens[id], i + 1, ids.length, i < promptLength), click: () => choose(i),
      }, ns.chart.token(from.tokens[id])));
      nodes.splice(promptLength, 0, h("span", { class: "nt-seam", title: TEXT.seam }));
      line.replaceChildren(...nodes, ...(ids.length ? [] : [TEXT.empty]));
      const now = line.querySelector('[aria-pressed="true"]');
      if (now) line.scrollTop = now.offsetTop - line.offsetTop - line.clientHeight / 2;
      if (focused) now?.focus({ preventScroll: true });
      tools[0].disabled = !chosen;
      tools[1].disabled = chosen >= ids.length - 1;
      tools[2].disabled = !ids.length;
    }

    function update() {
      const name = state.get("source");
      examples.update();
      pick.set(name);
      sign.set(state.get("sign"));
      knobs.forEach((knob) => knob.set());
      const before = from;
      from = source(name);
      if (!from) return false;
      const first = [...(from.history ?? from.ids)], ids = state.get("history") ?? first;
      text = { ids, promptLength: Math.min(ids.length, state.get("prompt_length") ?? from.prompt_length ?? ids.length) };
      if (from !== before) {
        chosen = ids.length - 1;
        const some = [...new Set([...from.state.ids.subarray(0, 6), ...first])].slice(0, MOST_WORDS);
        offer.replaceChildren(h("span", null, TEXT.add), ...some.map((id) => button(from.tokens[id], () => add(id))));
      }
      seam.set(text.promptLength, { stops: range(0, ids.length, 1), home: Math.min(ids.length, from.prompt_length ?? ids.length), format: String });
      drawChips();
      const view = at(from, text, Object.fromEntries(Object.keys(OFF).map((key) => [key, state.get(key)])), state.get("sign") === "divide");
      drawRows(bars, view);
      drawCurve(curve, view);
      words.say(sentence(view));
      shown = view.rows.map((row) => [row.token, row.id ?? "", row.inPrompt ?? "", row.inAnswer ?? "", row.logit ?? "", row.penalised ?? "", row.before, row.after]);
      numbers.update();
    }
    return { update, dispose: words.stop };
  });

  // The penalised state, or null where no token is left. `divide` is the code of the CTRL paper: θ divides whatever the sign.
  function penalised(from, text, settings, divide) {
    const { run, steps } = ns.sampler, theta = settings.repetition_penalty;
    try {
      if (!divide) return run(from.state, steps(settings), text);
      const positive = text.ids.filter((id) => from.state.z[id] > 0), others = text.ids.filter((id) => !(from.state.z[id] > 0));
      const once = run(from.state, [["repetition_penalty", theta]], { ids: positive, promptLength: 0 });
      const twice = run(once, [["repetition_penalty", 1 / theta]], { ids: others, promptLength: 0 });
      return run(twice, steps({ ...settings, repetition_penalty: null }), text);
    } catch (problem) {
      if (problem instanceof RangeError) return null;
      throw problem;
    }
  }

  // All that is shown for one text and its penalties: the likeliest tokens before and after, the last row for all others.
  function at(from, text, settings, divide) {
    const { z, ids } = from.state, final = penalised(from, text, settings, divide), { softmax } = ns.sampler;
    const share = (state) => {
      const top = softmax(state)[0], peak = state.z[state.ids[0]];
      return (id) => top * Math.exp(state.z[id] - peak);
    };
    const before = share(from.state), after = final ? share(final) : () => 0, now = (id) => (final ? final.z[id] : -Infinity);
    const count = (part) => (id) => part.reduce((n, other) => n + (other === id), 0);
    const inPrompt = count(text.ids.slice(0, text.promptLength)), inAnswer = count(text.ids.slice(text.promptLength));
    const named = [...new Set([...ids.subarray(0, LIKELIEST), ...(final?.ids ?? []).slice(0, LIKELIEST)])].sort((a, b) => z[b] - z[a] || a - b);
    const rows = named.map((id) => ({
      id, token: from.tokens[id], inPrompt: inPrompt(id), inAnswer: inAnswer(id), logit: z[id], penalised: now(id),
      before: before(id), after: after(id), banned: now(id) === -Infinity,
    }));
    const changed = [...new Set(text.ids)].filter((id) => now(id) !== z[id]), banned = final ? ids.length - final.ids.length : ids.length;
    const left = ids.length - rows.length, rest = (key) => Math.max(0, rows.reduce((sum, row) => sum - row[key], 1));
    if (left) {
      const others = banned - rows.filter((row) => row.banned).length;
      rows.push({ token: TEXT.rest(left), bannedOthers: others, before: rest("before"), after: final ? rest("after") : 0, banned: others === left });
    }
    const theta = settings.repetition_penalty;
    return { from, final, rows, theta, divide, touched: final ? changed.length : ids.length, banned, before, after };
  }

  function drawRows(bars, { rows }) {
    const items = rows.map((row) => {
      const rest = row.id === undefined;
      return {
        kind: `${rest ? "nt-rest" : ""} ${row.banned ? "nt-cut" : ""}`,
        cells: [row.token, rest ? "" : TEXT.seen(row.inPrompt, row.inAnswer), rest ? "" : fixed(row.logit),
          rest ? TEXT.restBanned(row.bannedOthers) : fixed(row.penalised), null, percent(row.after)],
        bar: row.banned ? row.before : row.after, tick: row.before,
      };
    });
    bars.draw(items, ns.chart.scaleFor(Math.max(...rows.filter((row) => row.id !== undefined).map((row) => Math.max(row.before, row.after)))));
  }

  // Round numbers between two values, three to six of them.
  function ticks(low, high) {
    const step = [0.5, 1, 2, 5, 10, 20, 50, 100].find((s) => (high - low) / s <= 6) ?? 200;
    return range(Math.ceil(low / step), Math.floor(high / step), 1).map((n) => [n * step, fixed(n * step, step < 1 ? 1 : 0)]);
  }

  function drawCurve(plot, { rows, theta, divide }) {
    const named = rows.filter((row) => row.id !== undefined), logits = named.map((row) => row.logit);
    const alive = named.filter((row) => !row.banned), after = alive.map((row) => row.penalised);
    const low = Math.min(...logits) - 1, high = Math.max(...logits) + 1, bottom = Math.min(low, ...after.map((z) => z - 1)), top = Math.max(high, ...after);
    const bent = (z) => (z > 0 || divide ? z / theta : z * theta), bend = [low, ...(low < 0 && high > 0 ? [0] : []), high];
    plot.draw({
      x: { low, high, title: TEXT.curve.x, ticks: ticks(low, high) },
      y: { low: bottom, high: top, title: TEXT.curve.y, ticks: ticks(bottom, top) },
      marks: (pen) => [
        pen.line([[low, low], [high, high]], "nt-before"),
        theta !== 1 && pen.line(bend.map((z) => [z, bent(z)])),
        ...alive.map((row) => pen.dot(row.logit, row.penalised)),
        pen.note(high, high, TEXT.curve.same, -4),
      ],
    });
  }

  function sentence({ from, final, touched, banned, before, after }) {
    if (!final) return TEXT.nothing;
    const { tokens, state: { ids }, V } = from, first = ids[0], now = final.ids[0], p = percent(before(first)), q = percent(after(first));
    if (!touched) return TEXT.none(TEXT.likeliest(tokens[first], p));
    return TEXT.touched(thousands(touched), thousands(V), thousands(banned)) +
      (first === now ? TEXT.stays(tokens[first], p, q) : TEXT.falls(tokens[first], p, q, tokens[now], percent(after(now))));
  }
})(globalThis);
