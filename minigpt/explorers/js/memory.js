// Chapter 10: what a model's weights and the KV caches of its users take of a GPU's memory, and how many users fit.
// Sizes of models and GPUs, and bits a number takes, are in the state (`facts`); Python made them.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { thousands, fixed } = ns.chart;
  const LONGEST = 2 ** 20, MOST_USERS = 1024, DRAWN = 64; // more users than DRAWN are one block
  const START = { model: "Llama-3-8B", gpu: "A100", context: 8192, users: 64, weights: "16-bit", kv: "16-bit", attention: "as it is",
    groups: 8, window: 4096 };
  const some = (n, one) => `${thousands(n)} ${one}${n === 1 ? "" : "s"}`;
  const digits = (x) => (x < 10 ? fixed(x, 2) : x < 100 ? fixed(x, 1) : thousands(x));
  const decimal = (n) => (n < 1e6 ? `${digits(n / 1e3)} kB` : n < 1e9 ? `${digits(n / 1e6)} MB` : `${digits(n / 1e9)} GB`);
  const binary = (n) => (n < 2 ** 20 ? `${digits(n / 2 ** 10)} KiB` : n < 2 ** 30 ? `${digits(n / 2 ** 20)} MiB` : `${digits(n / 2 ** 30)} GiB`);
  const sheet = (n) => `${fixed(n / 1e9, 1).replace(/\.0$/, "")} GB`; // as a data sheet has it
  const both = (n) => (n < 1000 ? `${n} B` : `${binary(n)} (${decimal(n)})`);
  const bitsOf = (bits) => (bits % 1 ? fixed(bits, 1) : String(bits));
  const TEXT = {
    presets: "Try",
    examples: [
      ["64 users in 80 GB", {}],
      ["the same with MHA", { attention: "MHA" }],
      ["2 GiB a user", { model: "Llama-2-7B", context: 4096, users: 4, gpu: "RTX 4090" }],
      ["70B in 80 GB", { model: "Llama-3-70B", users: 1 }],
      ["70B, 4-bit weights", { model: "Llama-3-70B", users: 8, weights: "4-bit" }],
      ["a million tokens", { context: LONGEST, users: 1, gpu: "H200" }],
      ["a million, window of 4,096", { context: LONGEST, users: 1, gpu: "H200", attention: "window" }],
      ["a 2-bit cache", { kv: "2-bit" }],
      ["MLA keeps a latent", { model: "DeepSeek-V2", weights: "4-bit", gpu: "H200", users: 8 }],
    ],
    model: "model",
    gpu: "GPU",
    gpuOption: (name, bytes) => `${name}, ${sheet(bytes)}`,
    context: "tokens a user",
    tokens: (n, own) => thousands(n) + (n === own ? " (the model's own)" : n > own ? ` (${digits(n / own)}× its own)` : ""),
    own: (n) => `the model's own context: ${thousands(n)} tokens`,
    users: "users",
    weights: "weights",
    kv: "keys and values",
    dtypes: {
      fp32: () => "fp32",
      "16-bit": () => "bf16 or fp16",
      "8-bit": () => "fp8 or int8",
      "4-bit": (bits) => `4-bit (${fixed(bits, 1)} with scales)`,
      "2-bit": (bits) => `2-bit (${fixed(bits, 1)} with scales)`,
    },
    attention: "attention",
    ways: { "as it is": "attention as it is", MHA: "MHA", GQA: "GQA", MQA: "MQA", window: "sliding window" },
    groups: "KV heads",
    heads: (n, H) => `${n} for ${some(H, "query head")}`,
    window: "window",
    needed: "needed",
    fit: (n) => (n ? `${some(n, "user")}` : "nobody"),
    head: ["GPU memory", "users that fit"],
    picture: "Bars on one scale: what is needed, and the memory of each GPU",
    segment: (k, fits) => `cache of user ${thousands(k)}${fits ? "" : ": does not fit"}`,
    key: [["nt-mem-weights", "weights"], ["nt-mem-kv", "KV cache, a user each"], ["nt-mem-over", "does not fit"]],
    table: "Memory, by formula",
    columns: ["what", "bytes", "GiB (2³⁰)", "GB (10⁹)", "users that fit"],
    lines: { weights: "weights", token: "KV cache, one token", user: "KV cache, one user", cache: "KV cache, all users", total: "weights and cache" },
    passing: "tokens in the cache of each user when it passes the weights",
    never: "never",
    numbers: (s) => (s.kv_latent ? `${s.n_layers} layers · a latent of ${s.kv_latent}` : `2 · ${s.n_layers} layers · ${some(s.n_kv_heads, "KV head")} · ${s.head_dim}`),
    kind: (s) => (s.kv_latent ? "MLA" : s.n_kv_heads === s.n_heads ? "MHA" : s.n_kv_heads === 1 ? "MQA" : "GQA"),
    token: (s, bits, bytes, mha) => `A token leaves ${thousands(bytes)} B in the cache (${TEXT.kind(s)}): ${TEXT.numbers(s)} numbers at ` +
      `${bitsOf(bits)} bits${mha ? `; MHA would leave ${Number(digits(mha))} times as much` : ""}. `,
    packed: (bits, plain, group) => `The bits are ${plain} and a 16-bit scale and zero point for every ${group} numbers: ` +
      `${fixed(bits, 1)} a number, so the cache is ${fixed(16 / bits, 2)} times smaller than at 16 bits, not ${16 / plain}. `,
    user: (context, user, users, cache, weights) => `A user with ${some(context, "token")} takes ${both(user)}` +
      `${users > 1 ? `, ${thousands(users)} users ${both(cache)}` : ""}; the weights take ${both(weights)}. `,
    held: (n, window) => `Of ${some(n, "token")} the cache holds the last ${thousands(window)}. `,
    sum: (total, gpu, all) => `Together ${decimal(total)} of this GPU's ${sheet(gpu)} (${binary(gpu)}): ${all}. `,
    room: (fit, users) => `${some(fit, "such user")} ${fit === 1 ? "fits" : "fit"}${fit > users ? `, room for ${thousands(fit - users)} more` : ""}`,
    over: (fit, excess) => `${decimal(excess)} too much, ${fit ? `but ${thousands(fit)} such ${fit === 1 ? "user fits" : "users fit"}` : "not one such user fits"}`,
    tooLarge: (weights, gpu) => `The weights alone are ${fixed(weights / gpu, 2)} times this GPU's ${sheet(gpu)} (${binary(gpu)}): not one user fits. `,
    passes: (n, users) => `${users > 1 ? `With ${thousands(users)} users the` : "The"} cache passes the weights at ${some(n, "token")}${users > 1 ? " each" : ""}.`,
    neverPasses: "With this window the cache never passes the weights.",
    beyond: (n, own) => ` ${digits(n / own)} times the model's own context: this counts memory only.`,
    hint: (source, same) => `At best: nothing is kept for activations, and a cache has no unused room. GiB = 2³⁰ B, GB = 10⁹ B. Sizes of the model: ${source}.` +
      (same ? " Weights are counted as the model has them, with its latent." : ""),
    range: (name, value, most) => `${name}=${value} is not a whole number from 1 to ${thousands(most)}`,
    unknown: (name, value, list) => `${name}=${value} is not one of ${list.join(", ")}`,
  };

  // --- The formulas, as `minigpt.costs` has them; tested against it.
  const asBytes = (count, bits) => Math.ceil(bits % 1 ? (count * bits) / 8 : count * (bits / 8)); // exact below 2**53
  const divisors = (n) => Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);

  function variant(shape, { attention, groups, window }) {
    if (attention === "as it is") return shape;
    if (attention === "window") return { ...shape, window };
    const H = shape.n_heads, most = { MHA: H, GQA: groups, MQA: 1 }[attention];
    const n_kv_heads = divisors(H).findLast((d) => d <= most);
    const more = 2 * shape.n_layers * shape.d_model * shape.head_dim * (n_kv_heads - shape.n_kv_heads); // weights of K and V
    return { ...shape, kv_latent: null, n_kv_heads, n_params: shape.total_params ?? shape.n_params + more };
  }

  const perToken = (s) => s.n_layers * (s.kv_latent ?? 2 * s.n_kv_heads * s.head_dim);
  const kvBytes = (s, n, users, bits) => asBytes(Math.min(n, s.window ?? n) * users * perToken(s), bits);

  // Least tokens of each user at which all caches take more than the weights; null if a window keeps them below.
  function passing(s, users, bits, weights) {
    let n = Math.max(1, Math.floor((weights * 8) / (users * perToken(s) * bits)) - 1);
    while (kvBytes({ ...s, window: null }, n, users, bits) <= weights) n++;
    return s.window != null && n > s.window ? null : n;
  }

  function fits(memory, weights, user) {
    const left = memory - weights;
    return left < 0 ? 0 : (left - (left % user)) / user;
  }

  function look(state) {
    const facts = state.get("facts") ?? {}, at = {};
    const choices = { model: facts.models, gpu: facts.gpus, weights: facts.weight_bits, kv: facts.kv_bits, attention: TEXT.ways };
    for (const [name, list] of Object.entries(choices)) {
      at[name] = state.get(name);
      if (!Object.hasOwn(list ?? {}, at[name])) throw new RangeError(TEXT.unknown(name, at[name], Object.keys(list ?? {})));
    }
    for (const [name, most] of Object.entries({ context: LONGEST, users: MOST_USERS, groups: MOST_USERS, window: LONGEST })) {
      at[name] = state.get(name);
      if (!Number.isInteger(at[name]) || at[name] < 1 || at[name] > most) throw new RangeError(TEXT.range(name, at[name], most));
    }
    const own = facts.models[at.model], shape = variant(own, at), bits = facts.kv_bits[at.kv];
    const weights = asBytes(shape.n_params, facts.weight_bits[at.weights]);
    const [token, user, cache] = [[1, 1], [at.context, 1], [at.context, at.users]].map(([n, users]) => kvBytes(shape, n, users, bits));
    const mha = perToken(variant(own, { attention: "MHA" })) / perToken(shape);
    const gpus = Object.entries(facts.gpus).map(([name, { memory_bytes }]) => ({ name, memory: memory_bytes, fit: fits(memory_bytes, weights, user) }));
    return { ...at, facts, own, shape, bits, bytes: { weights, token, user, cache, total: weights + cache }, mha, gpus,
      chosen: gpus.find(({ name }) => name === at.gpu), passes: passing(shape, at.users, bits, weights) };
  }

  function sentence({ shape, own, bits, kv, context, users, bytes, mha, chosen, passes, facts }) {
    const { weights, token, user, cache, total } = bytes, { memory, fit } = chosen;
    const plain = parseInt(kv, 10), packed = bits > plain && kv !== "fp32";
    return TEXT.token(shape, bits, token, mha > 1 && mha) + (packed ? TEXT.packed(bits, plain, facts.group) : "") +
      (context > (shape.window ?? context) ? TEXT.held(context, shape.window) : "") + TEXT.user(context, user, users, cache, weights) +
      (weights > memory ? TEXT.tooLarge(weights, memory)
        : TEXT.sum(total, memory, total <= memory ? TEXT.room(fit, users) : TEXT.over(fit, total - memory))) +
      (passes ? TEXT.passes(passes, users) : TEXT.neverPasses) + (context > own.context_length ? TEXT.beyond(context, own.context_length) : "");
  }

  const lines = ({ bytes, gpus, passes }) => {
    const line = (name, n, fit = "") => [name, n, fixed(n / 2 ** 30, 3), fixed(n / 1e9, 3), fit];
    return [...Object.entries(TEXT.lines).map(([key, name]) => line(name, bytes[key])),
      ...gpus.map(({ name, memory, fit }) => line(name, memory, fit)), [TEXT.passing, passes ?? TEXT.never, "", "", ""]];
  };

  // --- The figure.
  const halves = (low, high) => { // 2**k and 1.5 · 2**k
    const all = Array.from({ length: 2 * Math.log2(high) + 1 }, (_, i) => (i % 2 ? 1.5 : 1) * 2 ** Math.floor(i / 2));
    return all.filter((n) => n >= low && n <= high && n % 1 === 0);
  };

  ns.define("memory", { ...START, facts: null }, ({ root, state }) => {
    const { h, slider, select, chips, presets, table, readout } = ns.chart;
    const facts = state.get("facts") ?? {}, names = (list) => Object.keys(list ?? {});
    let view = null;
    const set = (name) => (value) => state.set({ [name]: value });
    const examples = presets(TEXT.presets, TEXT.examples.map(([name, changes]) => [name, { ...START, ...changes }]), state);
    const dtypes = (bits) => names(bits).map((name) => [name, TEXT.dtypes[name]?.(bits[name]) ?? name]);
    const options = {
      model: names(facts.models).map((name) => [name, name]),
      gpu: names(facts.gpus).map((name) => [name, TEXT.gpuOption(name, facts.gpus[name].memory_bytes)]),
      weights: dtypes(facts.weight_bits),
      kv: dtypes(facts.kv_bits),
    };
    const selects = Object.entries(options).map(([name, list]) => [name, select({ label: TEXT[name], options: list, onInput: set(name) })]);
    const sliders = Object.fromEntries(["context", "users", "groups", "window"].map((name) => [name, slider({ label: TEXT[name], onInput: set(name) })]));
    const mark = h("i", { class: "nt-own", "aria-hidden": "true" });
    sliders.context.node.append(h("div", { class: "nt-own-rail" }, mark));
    const ways = chips({ label: TEXT.attention, options: Object.entries(TEXT.ways), onInput: set("attention") });
    const bars = h("div", { class: "nt-memory", role: "group", "aria-label": TEXT.picture }), words = readout(), hint = h("p", { class: "nt-hint" });
    const key = h("p", { class: "nt-key" }, TEXT.key.map(([kind, name]) => h("span", null, h("i", { class: kind }), name)));
    const numbers = table(TEXT.table, () => [TEXT.columns, ...lines(view)]);
    root.append(
      examples.node,
      h("div", { class: "nt-controls nt-four" }, selects.map(([, { node }]) => node)),
      h("div", { class: "nt-controls" }, sliders.context.node, sliders.users.node),
      h("div", { class: "nt-controls nt-ways" }, ways.node, sliders.groups.node, sliders.window.node),
      bars, key, ...words.nodes, hint, h("div", { class: "nt-foot" }, h("div", { class: "nt-buttons" }, numbers.buttons)), numbers.body,
    );

    function update() {
      view = look(state);
      const { own, shape, attention } = view, H = shape.n_heads;
      examples.update();
      for (const [name, control] of selects) control.set(view[name]);
      ways.set(attention);
      const stops = [...new Set([...halves(128, LONGEST), own.context_length])].sort((a, b) => a - b), home = own.context_length;
      sliders.context.set(view.context, { stops, home, format: (n) => TEXT.tokens(n === nearest(stops, view.context) ? view.context : n, home) });
      mark.style.setProperty("--nt-share", stops.indexOf(home) / (stops.length - 1));
      mark.title = TEXT.own(home);
      sliders.users.set(view.users, { stops: halves(1, MOST_USERS), home: START.users, format: thousands });
      sliders.groups.node.hidden = attention !== "GQA";
      sliders.groups.set(shape.n_kv_heads, { stops: divisors(H), home: own.n_kv_heads, format: (n) => TEXT.heads(n, H) });
      sliders.window.node.hidden = attention !== "window";
      sliders.window.set(view.window, { stops: halves(128, LONGEST), home: START.window, format: thousands });
      draw(view);
      words.say(sentence(view));
      hint.textContent = TEXT.hint(own.source, own.kv_latent != null && shape.kv_latent == null);
      numbers.update();
    }

    function draw({ gpus, chosen, bytes: { weights, user, total }, users, gpu }) {
      const scale = Math.max(total, ...gpus.map(({ memory }) => memory));
      const part = (kind, from, size, title) => {
        const node = h("i", { class: kind, title });
        node.style.left = `${(100 * from) / scale}%`;
        node.style.width = `${(100 * size) / scale}%`;
        return node;
      };
      const fit = Math.min(users, chosen.fit), runs = users <= DRAWN ? Array.from({ length: users }, (_, k) => [k, 1]) : [[0, fit], [fit, users - fit]];
      const caches = runs.filter(([, n]) => n).map(([k, n]) =>
        part(k < fit ? "nt-mem-kv" : "nt-mem-over", weights + k * user, n * user, TEXT.segment(k + 1, k < fit)));
      const kept = Math.min(weights, chosen.memory);
      const needed = [part("nt-mem-weights", 0, kept), weights > kept && part("nt-mem-over", kept, weights - kept), ...caches].filter(Boolean);
      const row = (kind, name, size, marks, end) => h("div", { class: kind, "data-row": name }, h("span", null, name), h("span", null, size),
        h("div", { class: "nt-mem-track" }, marks, part("nt-mem-limit", chosen.memory, 0)), h("span", null, end));
      bars.replaceChildren(
        row("nt-mem-needed", TEXT.needed, decimal(total), needed, ""),
        h("div", { class: "nt-mem-head" }, TEXT.head.map((title) => h("span", null, title))),
        ...gpus.map(({ name, memory, fit: n }) =>
          row(name === gpu ? "nt-mem-chosen" : "", name, sheet(memory), [part("nt-mem-gpu", 0, memory)], TEXT.fit(n))));
    }
    return { update, dispose: () => words.stop() };
  });
  const nearest = (stops, value) => stops.reduce((best, stop) => (Math.abs(stop - value) < Math.abs(best - value) ? stop : best));
})(globalThis);
