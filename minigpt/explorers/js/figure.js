// The life of a figure: state with defaults over a widget model, one redraw for any number of changes, clean removal;
// and what figures that go from step to step are steered with.
(function (root) {
  const ns = (root.nextToken ??= {});
  ns.explorers ??= {};
  const mounted = new WeakMap(); // element -> how to remove the figure in it
  const TEXT = {
    waiting: "Fetching the data…",
    failed: (reason) => `This figure cannot be drawn: ${reason}.`,
    play: "Play",
    pause: "Pause",
  };

  // Register a figure. `build({ root, state, model, arrived })` draws nothing yet and gives { update, dispose }; `update`
  // returns false while data are on their way, and `arrived(error)` is to be called when they are there.
  ns.define = (name, defaults, build) => {
    ns.explorers[name] = {
      render({ model, el }) {
        mounted.get(el)?.();
        const { h } = ns.chart;
        const root = el.appendChild(h("section", { class: "nt-figure", "data-figure": name }));
        // Keys pressed in a figure are its own: without this attribute JupyterLab takes the arrows from its sliders.
        root.addEventListener("focusin", (event) => event.target.setAttribute("data-lm-suppress-shortcuts", "true"));
        const notice = h("p", { class: "nt-notice", role: "status" });
        const state = {
          get: (key) => model.get(key) ?? defaults[key],
          set(changes) {
            for (const [key, value] of Object.entries(changes)) model.set(key, value);
            model.save_changes();
          },
        };
        let queued = false, removed = false;

        function update(error) {
          if (removed) return;
          let message = error;
          try {
            if (!message) message = view.update() === false ? TEXT.waiting : "";
          } catch (problem) {
            message = problem.message;
            console.error(`figure ${name}:`, problem);
          }
          const waiting = message === TEXT.waiting;
          root.setAttribute("aria-busy", waiting);
          notice.hidden = !message;
          notice.textContent = !message || waiting ? message : TEXT.failed(message);
        }
        const redraw = () => {
          if (queued) return;
          queued = true;
          queueMicrotask(() => { queued = false; update(); });
        };

        const view = build({ root, state, model, arrived: update, source: (key) => ns.source(model, key, update) });
        root.append(notice);
        const events = Object.keys(defaults).map((key) => `change:${key}`);
        events.forEach((event) => model.on(event, redraw));
        update();
        function dispose() {
          removed = true;
          events.forEach((event) => model.off(event, redraw));
          view.dispose?.();
          root.remove();
          mounted.delete(el);
        }
        mounted.set(el, dispose);
        return dispose;
      },
    };
  };

  // What steps a figure through `step` of its state: buttons, Play, a slider, and the arrow keys, Home and End anywhere in
  // the figure. `labels`: { step, of(step, last), first, previous, next } and, for a button to the end, `last`. Steps go
  // from `first` to `last()`; `at()` is the one shown.
  ns.stepper = ({ root, state, labels, wait, first = 0, last, at }) => {
    const { h, slider, button } = ns.chart;
    let timer = null;
    const go = (step) => state.set({ step: Math.max(first, Math.min(step, last())) });
    const move = (step) => { pause(); go(step); };
    const to = { first: () => first, previous: () => at() - 1, next: () => at() + 1, last };
    const buttons = Object.keys(to).filter((name) => labels[name]).map((name, i) =>
      button("«‹›»"[i], () => move(to[name]()), { "aria-label": labels[name], title: labels[name] }));
    const player = button(TEXT.play, () => (timer ? pause() : play()));
    const place = slider({ label: labels.step, onInput: move });
    function play() {
      if (at() === last()) go(first);
      timer = setInterval(() => (at() === last() ? pause() : go(at() + 1)), wait);
      player.textContent = TEXT.pause;
    }
    function pause() {
      clearInterval(timer);
      timer = null;
      player.textContent = TEXT.play;
    }
    root.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
      const target = { ArrowLeft: to.previous, ArrowRight: to.next, Home: to.first, End: to.last }[event.key];
      if (!target) return;
      event.preventDefault();
      event.stopPropagation(); // the theme turns pages with the arrows
      move(target());
    });
    return {
      node: h("div", { class: "nt-controls nt-stepper" }, h("div", { class: "nt-buttons" }, buttons, player), place.node),
      move, // to a step, as a reader does: whoever takes a control stops the play
      pause,
      patience: () => (timer ? 3000 : 700), // ms until the sentence is spoken: while it plays, hardly ever
      update() {
        const stops = Array.from({ length: last() - first + 1 }, (_, i) => first + i);
        place.set(at(), { stops, home: first, format: (step) => labels.of(step, last()) });
      },
    };
  };

  // The stops of a slider, by the scale the catalogue names.
  ns.stops = ({ scale, low, high }) => {
    const between = (value) => value >= low && value <= high;
    const range = (n, f) => Array.from({ length: n }, (_, i) => f(i));
    if (scale === "count") return [...new Set(range(161, (i) => Math.round(Math.exp((i / 160) * Math.log(high)))))];
    if (scale === "share") return [...range(99, (i) => (i + 1) / 100), 0.995, 0.999, 1];
    if (scale === "tenths") return range(Math.round(high * 10), (i) => (i + 1) / 10);
    const mantissas = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
    return range(70, (i) => Number(`${mantissas[i % 10]}e${Math.floor(i / 10) - 6}`)).filter(between);
  };
  ns.temperatures = Array.from({ length: 41 }, (_, i) => i / 20);

  // About 100 ranks from 1 to V, evenly spread on a log scale: enough to draw a curve over the whole vocabulary.
  ns.ranks = (V) => [...new Set(Array.from({ length: 121 }, (_, i) => Math.round(V ** (i / 120))))];
  ns.rankAxis = (V, title) => ({
    low: 1, high: V, log: true, title,
    ticks: V < 10 ? Array.from({ length: V }, (_, i) => [i + 1, String(i + 1)])
      : [1, 10, 100, 1000, 10000].filter((n) => n <= V).map((n) => [n, ns.chart.thousands(n)]),
  });
})(globalThis);
