// Chapter 09: FLOPs of a whole generation against its length, without a cache and with one, linear layers and attention apart.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { thousands, fixed } = ns.chart;
  const MOST = 100000, PLAIN = "plain", SIDES = ["naive", "cached"], KINDS = ["linear", "attention", "both"];
  const RANGES = { prompt: [1, MOST], new_tokens: [1, MOST], d_model: [64, 16384], layers: [1, 128] };
  const START = { prompt: 183, new_tokens: 64, model: "SmolLM2-135M", d_model: 768, layers: 12, convention: "full" };
  const NBSP = "\u00a0", nEquals = (n) => `N${NBSP}=${NBSP}${thousands(n)}`;
  const raised = (n) => String(n).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
  const times = (x) => (x < 1000 ? fixed(x, 1) : thousands(x));
  function flops(x) {
    if (x < 1e6) return thousands(x);
    const [mantissa, power] = x.toExponential(2).split("e+");
    return `${mantissa}${NBSP}×${NBSP}10${raised(power)}`;
  }
  const TEXT = {
    presets: "Try",
    examples: [
      ["prompt of 183, 64 new", {}],
      ["1,000 from one token", { prompt: 1, new_tokens: 1000 }],
      ["the same, causal pairs", { prompt: 1, new_tokens: 1000, convention: "causal" }],
      ["the prefill saves nothing", { prompt: 4000, new_tokens: 1 }],
      ["attention overtakes", { model: PLAIN, prompt: 1, new_tokens: 20000, convention: "causal" }],
      ["a wide model", { model: "Llama-3-70B", prompt: 1000, new_tokens: 1000 }],
      ["a window of 4,096", { model: "Mistral-7B", prompt: 1, new_tokens: MOST, convention: "causal" }],
    ],
    model: "model",
    plain: "plain sizes: 12·d² weights a layer",
    labels: { prompt: "prompt P", new_tokens: "new tokens N", d_model: "width d", layers: "layers L" },
    convention: "Pairs that attention counts",
    conventions: [["full", "full square, as kernels compute it"], ["causal", "causal pairs only"]],
    picture: (n) => `FLOPs of a generation against the number of new tokens, both axes logarithmic, ${nEquals(n)} marked`,
    axes: { x: "new tokens N", y: "FLOPs of the whole generation" },
    sides: { naive: "without a cache", cached: "with a cache" },
    kinds: { linear: "linear layers", attention: "attention", both: "both" },
    ends: { naive: "no cache", cached: "cache" },
    overtakes: (side, n) => `${side}: attention overtakes the linear layers at ${nEquals(n)}`,
    key: [["nt-both", "both"], ["nt-linear", "linear layers"], ["nt-attention", "attention"], ["nt-saved", "what a cache saves"], ["nt-passes", "attention overtakes the linear layers"]],
    note: "Not counted: the head, once for each new token on both sides.",
    columns: (n) => [nEquals(n), "no cache", "cache", "times"],
    tokens: "tokens through the model",
    table: "FLOPs of the blocks for some N, without a cache and with one",
    head: ["N", ...["no cache", "cache"].flatMap((side) => ["tokens", "linear layers", "attention", "both"].map((kind) => `${side}: ${kind}`)),
      "times: linear layers", "times: attention", "times: both"],
    none: (f) => `One new token is the prefill alone, the same with a cache and without: ${thousands(f.cached.tokens)} token${f.cached.tokens === 1 ? "" : "s"} through the model, ${flops(f.cached.both)} FLOPs.`,
    ratios: (f, r, convention) =>
      `Without the cache ${times(r.tokens)} times as many tokens go through the model: ${thousands(f.naive.tokens)} against ${thousands(f.cached.tokens)}. ` +
      `The linear layers cost ${times(r.linear)} times the FLOPs, attention ${times(r.attention)} times (${convention === "full" ? "full square" : "causal pairs"}), ` +
      `both together ${times(r.both)} times: ${flops(f.naive.both)} against ${flops(f.cached.both)}.`,
    where: (n) => (n === null ? "nowhere on this chart" : n === 1 ? `already at ${nEquals(1)}` : `at ${nEquals(n)}`),
    passes: (at) => (at.naive === at.cached ? ` Attention overtakes the linear layers ${TEXT.where(at.cached)}, with the cache and without.`
      : ` Attention overtakes the linear layers ${TEXT.where(at.cached)} with the cache, ${TEXT.where(at.naive)} without.`),
    step: (S) => (S === null ? " One decode step never does: its window is too narrow." : ` One decode step does so once it sees ${thousands(S)} tokens.`),
    range: (name, value, low, high) => `${name}=${value} is not a whole number from ${low} to ${high}`,
    unknown: (name, value) => `${name}=${value} is not known`,
  };
  const MANTISSAS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  const lengths = [...new Set(Array.from({ length: 51 }, (_, i) => Math.round(MANTISSAS[i % 10] * 10 ** Math.floor(i / 10))))];
  const doubling = (low, high) => [...new Set(Array.from({ length: 40 }, (_, i) => 2 ** Math.floor(i / 2) * (i % 2 ? 1.5 : 1)))]
    .filter((n) => n >= low && n <= high && Number.isInteger(n));
  const STOPS = { prompt: lengths, new_tokens: lengths, d_model: doubling(...RANGES.d_model), layers: doubling(...RANGES.layers) };
  const LINE = [...new Set(Array.from({ length: 121 }, (_, i) => Math.round(MOST ** (i / 120))))]; // the N of the curves

  ns.define("complexity", { ...START, model: PLAIN, models: {} }, ({ root, state }) => {
    const { h, slider, select, chips, presets, table, readout } = ns.chart;
    let view = null;
    const models = Object.keys(state.get("models"));
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...START, ...changes }])
      .filter(([, { model }]) => model === PLAIN || models.includes(model)), state);
    const pick = select({
      label: TEXT.model, options: [...models.map((name) => [name, name]), [PLAIN, TEXT.plain]],
      onInput: (model) => state.set({ model }),
    });
    // Who moves the width or the layers of a real model goes on with plain sizes, from where the model was.
    const own = () => ({ model: PLAIN, d_model: view.shape.d_model, layers: view.shape.layers });
    const sizes = Object.keys(RANGES).map((name) => [name, slider({ label: TEXT.labels[name],
      onInput: (value) => state.set({ ...(name in view.shape && state.get("model") !== PLAIN ? own() : {}), [name]: value }) })]);
    const convention = chips({ label: TEXT.convention, options: TEXT.conventions, onInput: (value) => state.set({ convention: value }) });
    const picture = curves(), counts = h("table", { class: "nt-counts" }), words = readout();
    const key = h("p", { class: "nt-key" }, TEXT.key.map(([kind, name]) => h("span", null, h("i", { class: `nt-cost-key ${kind}` }), name)));
    const numbers = table(TEXT.table, () => [TEXT.head, ...lines(view)]);
    root.append(
      examples.node,
      h("div", { class: "nt-controls" }, pick.node, sizes.map(([, { node }]) => node)),
      convention.node,
      h("div", { class: "nt-body" }, h("div", null, picture.node, key), h("div", null, counts, h("p", { class: "nt-notice" }, TEXT.note))),
      ...words.nodes,
      h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      view = look(state);
      examples.update();
      pick.set(view.model);
      for (const [name, control] of sizes) control.set(view.shape[name] ?? view[name], { stops: STOPS[name], home: START[name], format: thousands });
      convention.set(view.convention);
      picture.draw(view);
      counts.replaceChildren(...rows(view));
      words.say(sentence(view));
      numbers.update();
    }
    return { update, dispose: words.stop };
  });

  function whole(state, name) {
    const value = state.get(name), [low, high] = RANGES[name];
    if (!Number.isInteger(value) || value < low || value > high) throw new RangeError(TEXT.range(name, value, low, high));
    return value;
  }

  // All that is shown: the settings, `at(N)` of both sides, where attention overtakes.
  function look(state) {
    const [prompt, new_tokens, d_model, layers] = Object.keys(RANGES).map((name) => whole(state, name));
    const model = state.get("model"), convention = state.get("convention"), models = state.get("models");
    if (model !== PLAIN && !Object.hasOwn(models, model)) throw new RangeError(TEXT.unknown("model", model));
    if (!TEXT.conventions.some(([name]) => name === convention)) throw new RangeError(TEXT.unknown("convention", convention));
    const shape = model === PLAIN ? ns.flops.plain(d_model, layers) : models[model];
    const of = (f) => Object.fromEntries(SIDES.map((side) => [side, f({ shape, P: prompt, convention, cached: side === "cached" })]));
    return { prompt, new_tokens, model, convention, shape, at: (N) => of((how) => ns.flops.generation({ ...how, N })), passes: of((how) => ns.flops.overtakes(how, MOST)) };
  }
  const ratios = ({ naive, cached }) => Object.fromEntries(["tokens", ...KINDS].map((kind) => [kind, naive[kind] / cached[kind]]));

  function sentence({ new_tokens, convention, shape, at, passes }) {
    const f = at(new_tokens);
    return (new_tokens === 1 ? TEXT.none(f) : TEXT.ratios(f, ratios(f), convention)) + TEXT.passes(passes) + TEXT.step(ns.flops.stepBalance(shape));
  }

  function rows({ new_tokens, at }) {
    const { h } = ns.chart, f = at(new_tokens), r = ratios(f);
    const line = (kind, title, format) => h("tr", { "data-count": kind }, h("th", { scope: "row" }, title),
      [format(f.naive[kind]), format(f.cached[kind]), times(r[kind])].map((cell) => h("td", null, cell)));
    return [
      h("thead", null, h("tr", null, TEXT.columns(new_tokens).map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", null, line("tokens", TEXT.tokens, thousands), KINDS.map((kind) => line(kind, TEXT.kinds[kind], flops))),
    ];
  }

  function lines({ new_tokens, at }) {
    const all = [...new Set([1, 10, 100, 1000, 10000, MOST, new_tokens])].sort((a, b) => a - b);
    return all.map((N) => {
      const f = at(N), r = ratios(f);
      return [N, ...SIDES.flatMap((side) => [f[side].tokens, ...KINDS.map((kind) => f[side][kind])]), ...KINDS.map((kind) => Number(r[kind].toPrecision(6)))];
    });
  }

  // --- The chart: warm without a cache, cool with one, and the saving between the two sums hatched.
  const WIDTH = 400, HEIGHT = 280, LEFT = 34, RIGHT = 86, TOP = 34, BOTTOM = 32, GAP = 11.5;

  function curves() {
    const { svg } = ns.chart, hatch = `nt-cost-hatch-${(ns.serial = (ns.serial ?? 0) + 1)}`;
    const node = svg("svg", { class: "nt-cost-picture", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const end = WIDTH - RIGHT, base = HEIGHT - BOTTOM;
    const text = (x, y, content, anchor, kind, data) => svg("text", { x, y, class: kind, "text-anchor": anchor, ...data }, content);
    const X = (N) => LEFT + ((end - LEFT) * Math.log(N)) / Math.log(MOST);

    function draw({ new_tokens: N, at, passes }) {
      const points = LINE.map((n) => [n, at(n)]), all = points.flatMap(([, f]) => SIDES.flatMap((side) => KINDS.map((kind) => f[side][kind])));
      const low = Math.floor(Math.log10(Math.min(...all))), high = Math.ceil(Math.log10(Math.max(...all)));
      const Y = (value) => base - ((base - TOP) * (Math.log10(value) - low)) / (high - low);
      const path = (list) => list.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      const curve = (side, kind) => points.map(([n, f]) => [X(n), Y(f[side][kind])]);
      const every = Math.ceil((high - low) / 7);
      const grid = [
        ...Array.from({ length: high - low + 1 }, (_, i) => low + i).filter((power) => (high - power) % every === 0).flatMap((power) => [
          svg("line", { class: "nt-grid", x1: LEFT, x2: end, y1: Y(10 ** power), y2: Y(10 ** power) }),
          text(LEFT - 4, Y(10 ** power) + 3.5, `10${raised(power)}`, "end", "nt-axis", { "data-power": power }),
        ]),
        ...[1, 10, 100, 1000, 10000, MOST].map((n) => text(X(n), base + 13, thousands(n), "middle", "nt-axis")),
        text((LEFT + end) / 2, HEIGHT - 4, TEXT.axes.x, "middle", "nt-axis"), text(0, 10, TEXT.axes.y, "start", "nt-axis"),
      ];
      const saved = svg("path", { class: "nt-saved", fill: `url(#${hatch})`, d: `${path([...curve("naive", "both"), ...curve("cached", "both").reverse()])}Z` });
      const drawn = [...SIDES].reverse().flatMap((side) => KINDS.map((kind) =>
        svg("path", { class: `nt-cost nt-${side} nt-${kind}`, d: path(curve(side, kind)) })));
      const crossings = SIDES.filter((side) => passes[side] > 1).map((side) => {
        const [x, y] = [X(passes[side]), Y(at(passes[side])[side].linear)];
        return svg("path", { class: `nt-cost-passes nt-${side}`, "data-side": side, "data-n": passes[side], d: `M${x} ${y - 5}l5 5l-5 5l-5 -5Z` },
          svg("title", null, TEXT.overtakes(TEXT.sides[side], passes[side])));
      });
      const f = at(N), r = ratios(f), ends = SIDES.map((side) => Y(f[side].both)), right = X(N) > end - 70;
      const marked = [
        svg("line", { class: "nt-threshold", x1: X(N), x2: X(N), y1: TOP, y2: base }),
        ...SIDES.map((side, i) => svg("circle", { class: `nt-cost-dot nt-${side}`, "data-side": side, cx: X(N), cy: ends[i], r: 4 })),
        text(X(N), TOP - 4, nEquals(N), right ? "end" : X(N) < LEFT + 20 ? "start" : "middle", "nt-note"),
        N > 1 && text(X(N) + (right ? -7 : 7), (ends[0] + ends[1]) / 2 + 3.5, `${times(r.both)}${NBSP}×`, right ? "end" : "start", "nt-note"),
      ];
      const pattern = svg("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 1.1, height: 5, class: "nt-hatch-line" }));
      node.setAttribute("aria-label", TEXT.picture(N));
      node.replaceChildren(svg("defs", null, pattern), ...grid, saved, ...drawn, ...crossings, ...marked.filter(Boolean), ...names(Y, points.at(-1)[1]));
    }

    // Each curve's name at its right end, under the name of its side; none on top of another.
    function names(Y, f) {
      const labels = SIDES.flatMap((side) => {
        const ends = KINDS.map((kind) => ({ side, kind, at: Y(f[side][kind]) })).sort((a, b) => a.at - b.at);
        return [{ side, kind: null, at: ends[0].at - GAP }, ...ends];
      });
      let floor = TOP - 2;
      for (const label of labels) floor = (label.y = Math.max(label.at, floor + GAP));
      let ceiling = base + 6;
      for (const label of [...labels].reverse()) {
        label.y = Math.min(label.y, ceiling);
        ceiling = label.y - GAP;
      }
      return labels.flatMap(({ side, kind, at, y }) => [
        kind && svg("path", { class: `nt-cost-leader nt-${side}`, d: `M${end} ${at.toFixed(1)}L${end + 9} ${y.toFixed(1)}` }),
        text(end + 11 - (kind ? 0 : 8), y + 3, kind ? TEXT.kinds[kind] : TEXT.ends[side], "start", kind ? "nt-cost-name" : "nt-cost-side", { "data-side": side }),
      ].filter(Boolean));
    }
    return { node, draw };
  }
})(globalThis);
