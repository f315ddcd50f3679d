// Chapter 01: a recorded generation, step by step: the text so far, the candidates, the one chosen.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, percent, thousands } = ns.chart;
  const WINDOW = 20, PAUSE_MS = 450;
  const TEXT = {
    runs: "Run",
    steps: {
      step: "token",
      of: (step, last) => `${step + 1} of ${last + 1}`,
      first: "First token",
      previous: "Previous token",
      next: "Next token",
    },
    text: "The text so far",
    picture: "Bars: the likeliest next tokens and the one chosen",
    columns: { token: "candidate", logProb: "log p", share: "p" },
    rest: (n) => `${thousands(n)} others`,
    key: ["chosen", (n) => `${n} tokens in a row seen before: a loop`],
    chosen: "chosen",
    sum: { label: "Running sum of log-probabilities", x: "token", y: "sum of log p, nats" },
    table: "Candidates at this step",
    head: ["token", "id", "log-probability", "probability", "chosen"],
    none: "no generation was recorded for it",
    sentence: (step, token, p, rank) => `Token ${step}: “${token}” was chosen, with probability ${p}, ${rank}.`,
    rank: (n) => (n === 1 ? "the likeliest" : `number ${n} of the candidates`),
    outside: "from outside those shown",
    sums: (sum, perplexity) => ` The log-probabilities so far add up to ${sum} nats, a perplexity of ${perplexity}.`,
    loop: (window) => ` The last ${window} tokens stood in the text before: a loop.`,
  };

  ns.define("generation", { runs: [], run: 0, step: 0 }, ({ root, state }) => {
    const { h, presets, rows, plot, table, readout } = ns.chart;
    const current = () => read(state.get("runs")[state.get("run")]);
    const last = () => current().steps.length - 1, at = () => Math.min(state.get("step"), last());
    const steps = ns.stepper({ root, state, labels: TEXT.steps, wait: PAUSE_MS, last, at });
    const choose = { get: state.get, set: ({ run }) => { steps.pause(); state.set({ run, step: 0 }); } };
    const list = (runs) => presets(TEXT.runs, runs.map(({ name }, run) => [name, { run }]), choose);
    let listed = [], names = list(listed);
    const text = h("p", { class: "nt-text", tabindex: 0, role: "group", "aria-label": TEXT.text, click: (event) => {
      const step = event.target.closest("[data-step]")?.dataset.step;
      if (step) steps.move(Number(step));
    } });
    const { columns } = TEXT;
    const bars = rows(TEXT.picture, [[columns.token, "nt-token"], [columns.logProb, "nt-number"], ["", "nt-track"],
      [columns.share, "nt-number"]]);
    const key = h("p", { class: "nt-key" }, h("span", null, h("i", { class: "nt-chosen-key" }), TEXT.key[0]),
      h("span", null, h("i", { class: "nt-loop-key" }), TEXT.key[1](WINDOW)));
    const sum = plot(TEXT.sum.label), words = readout();
    let shown = [];
    const numbers = table(TEXT.table, () => [TEXT.head, ...shown]);
    root.append(
      names.node,
      steps.node,
      text,
      h("div", { class: "nt-body" }, h("div", null, bars.node, key), h("div", { class: "nt-side" }, sum.node)),
      ...words.nodes,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      if (!state.get("runs").length) throw new RangeError(TEXT.none);
      const run = current(), step = at();
      if (listed !== state.get("runs")) {
        const old = names.node;
        names = list(listed = state.get("runs"));
        old.replaceWith(names.node);
      }
      names.update();
      steps.update();
      drawText(text, run, step);
      drawRows(bars, run, step);
      drawSum(sum, run, step);
      words.say(sentence(run, step), steps.patience());
      shown = candidates(run, step).map((row) => [row.token, row.id ?? "", Math.log(row.p), row.p, row.chosen ? TEXT.chosen : ""]);
      numbers.update();
    }
    return { update, dispose() { steps.pause(); words.stop(); } };
  });

  // A recorded run with what the figure derives from it: the running sums, and what repeats up to each step.
  const known = new WeakMap();
  function read(run) {
    if (!run) throw new RangeError(TEXT.none);
    if (!known.has(run)) {
      const ids = [...run.prompt_ids, ...run.steps.map((step) => step.id)], P = run.prompt_ids.length, marked = [];
      let sum = 0;
      known.set(run, {
        ...run,
        // Of each new token up to `step`: is it in a window that stood in the text before?
        repeats: (step) => (marked[step] ??= ns.repeats(ids.slice(0, P + step + 1), WINDOW).marked.slice(P)),
        words: run.steps.some(({ text }) => text.length > 1), // then tokens are set apart
        sums: run.steps.map((step) => (sum += step.logprob)),
      });
    }
    return known.get(run);
  }

  // Stretches [from, to) of the new tokens up to `step` that stood in the text before.
  function stretches({ repeats }, step) {
    const found = [];
    repeats(step).forEach((repeat, i) => {
      if (!repeat) return;
      if (found.at(-1)?.[1] === i) found.at(-1)[1] = i + 1;
      else found.push([i, i + 1]);
    });
    return found;
  }

  function candidates(run, step) {
    const { id, logprob, top } = run.steps[step];
    const rows = top.map(([other, logProb]) => ({ id: other, token: run.tokens[other], p: Math.exp(logProb), chosen: other === id }));
    if (!rows.some((row) => row.chosen)) rows.push({ id, token: run.tokens[id], p: Math.exp(logprob), chosen: true });
    const left = run.vocab_size - rows.length;
    if (left) rows.push({ token: TEXT.rest(left), p: Math.max(0, rows.reduce((sum, row) => sum - row.p, 1)), chosen: false });
    return rows;
  }

  function drawRows(bars, run, step) {
    const rows = candidates(run, step);
    const items = rows.map((row) => ({
      kind: `${row.id === undefined ? "nt-rest" : ""} ${row.chosen ? "nt-chosen" : ""}`,
      cells: [row.token, row.id === undefined ? "" : fixed(Math.log(row.p)), null, percent(row.p)],
      bar: row.p,
    }));
    bars.draw(items, 1);
  }

  // The prompt, the tokens so far, the new one outlined. Words stay words; only line breaks and fragments are marked.
  function drawText(node, run, step) {
    const { h } = ns.chart, looped = run.repeats(step);
    const pieces = run.steps.slice(0, step + 1).map(({ id, text }, i) => {
      const kind = [i === step && "nt-new", looped[i] && "nt-loop"].filter(Boolean).join(" ");
      const blank = text ? [] : [h("span", { class: "nt-blank" }, run.tokens[id])];
      const lines = text.split(/(\n)/).map((part) => (part === "\n" ? [h("span", { class: "nt-blank" }, "↵"), "\n"] : part));
      return h("span", { class: kind, "data-step": i }, blank, lines.flat());
    });
    node.classList.toggle("nt-words", run.words);
    node.replaceChildren(h("span", { class: "nt-prompt" }, run.prompt), ...pieces);
    node.scrollTop = node.scrollHeight;
  }

  function drawSum(plot, run, step) {
    const { sums } = run, low = Math.min(-1, Math.floor(sums.at(-1))), n = sums.length, points = sums.map((sum, i) => [i + 1, sum]);
    const ticks = [...new Set([1, Math.ceil(n / 2), n])].map((i) => [i, String(i)]);
    plot.draw({
      x: { low: 0, high: n, title: TEXT.sum.x, ticks },
      y: { low, high: 0, title: TEXT.sum.y, ticks: [0, low / 2, low].map((v) => [v, fixed(v, v % 1 ? 1 : 0)]) },
      marks: (pen) => [...stretches(run, step).map(([from, to]) => pen.band(from, to)), pen.line(points, "nt-before"),
        pen.line(points.slice(0, step + 1)), pen.dot(...points[step]), pen.note(...points[step], fixed(sums[step]))],
    });
  }

  function sentence(run, step) {
    const rows = candidates(run, step), rank = rows.findIndex((row) => row.chosen), row = rows[rank];
    const listed = rank < run.steps[step].top.length;
    return TEXT.sentence(step + 1, row.token, percent(row.p), listed ? TEXT.rank(rank + 1) : TEXT.outside) +
      TEXT.sums(fixed(run.sums[step]), fixed(Math.exp(-run.sums[step] / (step + 1)))) + (run.repeats(step)[step] ? TEXT.loop(WINDOW) : "");
  }
})(globalThis);
