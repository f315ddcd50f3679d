// From logits to a token, as minigpt.processors and minigpt.sampling do it: logits float32, all sums float64.
//
// A state is { z, ids }: logits by id, and the ids still alive, most likely first, equal logits by rising id. A rule is
// a pure function (state, value, text) -> state. The sort is done once, in `distribution`: temperature keeps the order,
// and a penalty moves only the few tokens it touches. The text is { ids, promptLength }: all ids so far, how many are prompt.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fround } = Math; // arithmetic in float32, as torch does it

  function distribution(logits) {
    const z = Float32Array.from(logits);
    if (z.some((v) => Number.isNaN(v) || v === Infinity)) throw new RangeError("the logits hold a NaN or +inf");
    const ids = Int32Array.from(z.keys()).filter((i) => z[i] > -Infinity);
    if (!ids.length) throw new RangeError("every logit is -inf: no token is left");
    return { z, ids: ids.sort((a, b) => z[b] - z[a] || a - b) };
  }

  // Probabilities in the order of `state.ids`, worked out once: a state never changes.
  const known = new WeakMap();
  function softmax(state) {
    if (!known.has(state)) known.set(state, probabilities(state));
    return known.get(state);
  }
  function probabilities({ z, ids }) {
    const p = new Float64Array(ids.length), peak = z[ids[0]];
    let total = 0;
    for (let i = 0; i < p.length; i++) total += p[i] = Math.exp(z[ids[i]] - peak);
    for (let i = 0; i < p.length; i++) p[i] /= total;
    return p;
  }

  // Shannon entropy in nats.
  function entropy(p) {
    let sum = 0;
    for (let i = 0; i < p.length; i++) if (p[i] > 0) sum -= p[i] * Math.log(p[i]);
    return sum;
  }

  // What a reader wants to know of a distribution: entropy in bits, effective number of tokens, mass of the first.
  function summary(p) {
    const bits = entropy(p) / Math.LN2;
    return { bits, effective: 2 ** bits, top: p[0] };
  }

  const first = (state, count) => ({ z: state.z, ids: state.ids.subarray(0, count) });

  // The ids from the first on for which `keep(rank)` holds; those with the largest logit always stay.
  function leading(state, keep) {
    const { z, ids } = state;
    let count = 1;
    while (count < ids.length && (z[ids[count]] === z[ids[0]] || keep(count))) count++;
    return first(state, count);
  }

  function temperature(state, T) {
    if (T === 1) return state;
    if (T === 0) return first(state, 1);
    const { z: logits, ids } = state, peak = logits[ids[0]], z = new Float32Array(logits.length).fill(-Infinity);
    // Rounding to float32 may make neighbours equal (then the smaller id goes first), or -Infinity at the end.
    let order = ids, start = 0, mixed = false, rank = 0;
    const settle = (end) => {
      if (!mixed) return;
      if (order === ids) order = ids.slice(); // only if there is something to put right
      order.subarray(start, end).sort();
    };
    for (let last = NaN; rank < ids.length; rank++) {
      const id = ids[rank], value = fround((logits[id] - peak) / T);
      if (value === -Infinity) break;
      z[id] = value;
      if (value !== last) {
        settle(rank);
        start = rank;
        mixed = false;
        last = value;
      } else if (id < ids[rank - 1]) mixed = true;
    }
    settle(rank);
    return { z, ids: order.subarray(0, rank) };
  }

  const topK = (state, k) => first(state, Math.min(k, state.ids.length));

  function topP(state, mass) {
    if (mass === 1) return state;
    const p = softmax(state);
    let count = 0;
    for (let before = 0; count < p.length && before < mass; count++) before += p[count];
    return first(state, count);
  }

  function minP(state, share) {
    const { z, ids } = state, floor = z[ids[0]] + Math.log(share);
    return leading(state, (rank) => z[ids[rank]] >= floor);
  }

  function epsilon(state, floor) {
    const p = softmax(state);
    return leading(state, (rank) => p[rank] >= floor);
  }

  const etaFloor = (p, eta) => Math.min(eta, Math.sqrt(eta) * Math.exp(-entropy(p)));

  function eta(state, value) {
    const p = softmax(state), floor = etaFloor(p, value);
    return leading(state, (rank) => p[rank] >= floor);
  }

  function sigma({ z, ids }) {
    let sum = 0, squares = 0;
    for (const id of ids) sum += z[id];
    const mean = sum / ids.length;
    for (const id of ids) squares += (z[id] - mean) ** 2;
    return Math.sqrt(squares / ids.length);
  }

  function topNSigma(state, n) {
    const { z, ids } = state, floor = z[ids[0]] - n * sigma(state);
    return leading(state, (rank) => z[ids[rank]] >= floor);
  }

  // Ranks by rising |-log p - H|, equal ones by rising id: to both sides of the entropy the deviation grows, so two
  // sorted lists are merged.
  function typicalOrder({ z, ids }, p) {
    const n = ids.length, nats = entropy(p), deviation = new Float64Array(n);
    let middle = 0;
    for (let i = 0; i < n; i++) {
      const surprise = -Math.log(p[i]);
      if (surprise < nats) middle = i + 1;
      deviation[i] = Math.abs(surprise - nats);
    }
    const left = new Int32Array(middle), order = new Int32Array(n);
    for (let end = middle, at = 0, start; end > 0; end = start) { // reversed, but equal logits keep their order
      for (start = end - 1; start > 0 && z[ids[start - 1]] === z[ids[start]]; start--);
      for (let i = start; i < end; i++) left[at++] = i;
    }
    for (let at = 0, l = 0, r = middle; at < n; at++) {
      const a = left[l], b = r;
      const takeLeft = l < middle && (r >= n || deviation[a] < deviation[b] ||
        (deviation[a] === deviation[b] && ids[a] < ids[b]));
      order[at] = takeLeft ? (l++, a) : (r++, b);
    }
    return order;
  }

  function typical(state, mass) {
    if (mass === 1) return state;
    const p = softmax(state), kept = new Uint8Array(p.length);
    let before = 0;
    for (const rank of typicalOrder(state, p)) {
      if (before >= mass) break;
      kept[rank] = 1;
      before += p[rank];
    }
    return { z: state.z, ids: state.ids.filter((_, rank) => kept[rank]) };
  }

  // The state with `change(z, id)` for the logits of some tokens, put back in their places.
  function changed({ z, ids }, touched, change) {
    const moved = new Set(touched), next = Float32Array.from(z);
    for (const id of moved) next[id] = change(z[id], id);
    const before = (a, b) => next[b] - next[a] || a - b;
    const back = [...moved].filter((id) => next[id] > -Infinity).sort(before);
    const merged = new Int32Array(ids.length);
    let count = 0, at = 0;
    for (const id of ids) {
      if (moved.has(id)) continue;
      while (at < back.length && before(back[at], id) < 0) merged[count++] = back[at++];
      merged[count++] = id;
    }
    while (at < back.length) merged[count++] = back[at++];
    if (!count) throw new RangeError("every logit is -inf: no token is left");
    return { z: next, ids: merged.subarray(0, count) };
  }

  function counts(ids) {
    const times = new Map();
    for (const id of ids) times.set(id, (times.get(id) ?? 0) + 1);
    return times;
  }
  const answer = (text) => counts(text.ids.slice(text.promptLength));

  function repetition(state, theta, text) {
    const divisor = fround(theta);
    return changed(state, text.ids, (z) => (z > 0 ? z / divisor : z * divisor));
  }
  function frequency(state, f, text) {
    const times = answer(text);
    return changed(state, times.keys(), (z, id) => z - fround(fround(f) * times.get(id)));
  }
  const presence = (state, r, text) => changed(state, answer(text).keys(), (z) => z - fround(r));

  // The tokens that would complete an n-gram of the text for a second time.
  function completions({ ids }, n) {
    const found = [], open = ids.length - n + 1;
    for (let start = 0; start + n <= ids.length; start++) {
      let same = 0;
      while (same < n - 1 && ids[start + same] === ids[open + same]) same++;
      if (same === n - 1) found.push(ids[start + n - 1]);
    }
    return found;
  }
  const noRepeat = (state, n, text) => changed(state, completions(text, n), () => -Infinity);

  // By name and in the order of Hugging Face's transformers.
  const rules = {
    repetition_penalty: repetition, frequency_penalty: frequency, presence_penalty: presence, no_repeat_ngram_size: noRepeat,
    temperature, top_k: topK, top_p: topP, min_p: minP, typical_p: typical, epsilon, eta, top_n_sigma: topNSigma,
  };

  // The values a rule takes; SamplingParams refuses the same ones.
  const share = (p) => p > 0 && p <= 1, floor = (p) => p > 0 && p < 1, whole = (n) => Number.isInteger(n) && n >= 1;
  const legal = {
    repetition_penalty: (theta) => theta > 0 && theta < Infinity, frequency_penalty: Number.isFinite,
    presence_penalty: Number.isFinite, no_repeat_ngram_size: whole,
    temperature: (T) => T >= 0, top_k: whole, top_p: share, min_p: (p) => p >= 0 && p <= 1,
    typical_p: share, epsilon: floor, eta: floor, top_n_sigma: (n) => n > 0,
  };

  const penalties = new Set(Object.keys(rules).slice(0, 4));

  // [[name, value], ...] for settings like SamplingParams', in `order`; null is off, and temperature 0 skips truncation.
  function steps(settings, order = Object.keys(rules)) {
    const on = order.filter((name) => settings[name] != null);
    const greedy = settings.temperature === 0;
    return (greedy ? [...on.filter((name) => penalties.has(name)), "temperature"] : on).map((name) => [name, settings[name]]);
  }

  const run = (state, steps, text = { ids: [], promptLength: 0 }) =>
    steps.reduce((now, [name, value]) => rules[name](now, value, text), state);

  // A function u -> id: the first id whose cumulative probability, in id order, exceeds u.
  function drawer({ z, ids }) {
    const cumulative = new Float64Array(z.length), peak = z[ids[0]];
    for (const id of ids) cumulative[id] = Math.exp(z[id] - peak);
    for (let i = 1; i < cumulative.length; i++) cumulative[i] += cumulative[i - 1];
    const total = cumulative[cumulative.length - 1];
    return (u) => {
      let low = 0, high = cumulative.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (cumulative[middle] > u * total) high = middle;
        else low = middle + 1;
      }
      return low;
    };
  }

  ns.sampler = { distribution, softmax, entropy, summary, legal, steps, run, completions, drawer, typicalOrder, etaFloor, sigma };
})(globalThis);
