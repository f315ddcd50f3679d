// The settings of the playground: its knobs, what each means by "off", what a link may carry.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fixed, short } = ns.chart;
  const LONGEST = 5000; // characters of a prompt in a link: a model reads fewer
  const TEXT = { off: "off", greedy: "0, greedy", lacking: (engine) => `not in ${engine}`, idle: "not at T = 0" };

  const range = (low, high, parts) => Array.from({ length: Math.round((high - low) * parts) + 1 }, (_, i) => low + i / parts);
  const stops = (setting) => ns.stops(ns.catalogue.methods.find((method) => method.setting === setting));
  const knob = (name, label, stops, off, format) => ({ name, label, stops, off, format: (v) => (v === off ? TEXT.off : format(v)) });
  const one = (v) => fixed(v, 1);
  const knobs = [
    { ...knob("temperature", "temperature T", ns.temperatures, 1), format: (v) => (v === 0 ? TEXT.greedy : fixed(v)) },
    knob("frequency_penalty", "frequency f", range(-2, 2, 10), 0, one),
    knob("top_p", "top-p", stops("top_p"), 1, short),
    knob("repetition_penalty", "repetition θ", range(0.5, 2, 20), 1, fixed),
    knob("presence_penalty", "presence r", range(-2, 2, 10), 0, one),
    knob("no_repeat_ngram_size", "no-repeat n", range(0, 10, 1), 0, String),
    knob("top_k", "top-k", range(0, 75, 1), 0, String),
    knob("min_p", "min-p", [0, ...range(0.01, 0.5, 100)], 0, fixed),
    knob("typical_p", "typical τ", stops("typical_p"), 1, short),
    knob("epsilon", "epsilon ε", [0, ...stops("epsilon")], 0, short),
    knob("eta", "eta ε", [0, ...stops("eta")], 0, short),
    knob("top_n_sigma", "top-nσ", [0, ...stops("top_n_sigma")], 0, one),
  ];
  const off = Object.fromEntries(knobs.map(({ name, off }) => [name, off]));
  const models = ["shakespeare", "shakespeare-early"];
  const engine = (state) => ns.catalogue.orders.find(({ name }) => name === state.get("order"));

  // What a link may set, and to what: anything else in it is passed over.
  const legal = {
    ...Object.fromEntries(knobs.map(({ name, stops, off }) => [name, (v) =>
      typeof v === "number" && (v === off || (v >= stops[0] && v <= stops.at(-1) && ns.sampler.legal[name](v)))])),
    prompt: (v) => typeof v === "string" && v.length <= LONGEST,
    model: (v) => models.includes(v),
    order: (v) => ns.catalogue.orders.some(({ name }) => name === v),
    seed: (v) => Number.isInteger(v) && v >= 0 && v < 2 ** 32,
    cached: (v) => typeof v === "boolean",
    slide: (v) => typeof v === "boolean",
  };
  const HASH = "#play=";

  ns.play = {
    knobs, off, models, legal, engine,
    defaults: { ...off, temperature: 0, order: "huggingface", prompt: "ROMEO:\n", model: "shakespeare-early", seed: 1, cached: true, slide: true },

    // Why a rule does nothing now, if so: the chosen engine lacks it, or greedy skips it.
    lacking(state, name) {
      const { rules, label } = engine(state), penalty = /penalty|ngram/.test(name);
      if (!rules.includes(name)) return TEXT.lacking(label);
      return state.get("temperature") === 0 && name !== "temperature" && !penalty ? TEXT.idle : null;
    },

    // For the sampler: a setting that is off is none at all.
    settings: (state) => ({ seed: state.get("seed"), ...Object.fromEntries(knobs.map(({ name, off }) => {
      const value = state.get(name);
      return [name, value === off && name !== "temperature" ? null : value];
    })) }),

    toLink(state) {
      const all = Object.fromEntries(Object.keys(legal).map((key) => [key, state.get(key)]));
      return HASH + encodeURIComponent(JSON.stringify({ ...all, prompt: all.prompt.slice(-LONGEST) }));
    },
    fromLink() {
      if (!location.hash.startsWith(HASH)) return {};
      try {
        const given = Object.entries(JSON.parse(decodeURIComponent(location.hash.slice(HASH.length))));
        return Object.fromEntries(given.filter(([key, value]) => Object.hasOwn(legal, key) && legal[key](value)));
      } catch {
        return {};
      }
    },
  };
})(globalThis);
