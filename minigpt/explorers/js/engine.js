// The play model in the browser: minigpt.model's forward pass with a KV cache, one token a call, and its tokenizer.
//
// Numbers are float32 in memory, as torch has them; a sum is kept in float64 until it is stored. C width, H query heads,
// G KV heads, D head size, F feed-forward width, V vocabulary, S keys.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { fround } = Math;

  // float16, little-endian, as float32.
  function decodeHalf(view) {
    const out = new Float32Array(view.byteLength / 2);
    for (let i = 0; i < out.length; i++) {
      const bits = view.getUint16(2 * i, true), exponent = (bits >> 10) & 31, fraction = bits & 1023;
      const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
      out[i] = bits & 0x8000 ? -size : size;
    }
    return out;
  }

  // out = W x for a matrix W with rows of x.length numbers, one behind the other. Four rows at a time, each in two sums:
  // a number of x is then read and widened once for four products, and none of the sums waits for another.
  let wide = new Float64Array(0);
  function multiply(W, x, out) {
    const n = x.length, even = n - (n % 2), rows = out.length, fours = rows - (rows % 4);
    if (wide.length < n) wide = new Float64Array(n);
    const v = wide;
    v.set(x);
    for (let row = 0; row < fours; row += 4) {
      const p = row * n, q = p + n, r = q + n, s = r + n;
      let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
      for (let i = 0; i < even; i += 2) {
        const left = v[i], right = v[i + 1];
        a += W[p + i] * left;
        b += W[q + i] * left;
        c += W[r + i] * left;
        d += W[s + i] * left;
        e += W[p + i + 1] * right;
        f += W[q + i + 1] * right;
        g += W[r + i + 1] * right;
        h += W[s + i + 1] * right;
      }
      const end = even < n ? v[even] : 0, last = even < n ? even : 0;
      out[row] = a + e + W[p + last] * end;
      out[row + 1] = b + f + W[q + last] * end;
      out[row + 2] = c + g + W[r + last] * end;
      out[row + 3] = d + h + W[s + last] * end;
    }
    for (let row = fours; row < rows; row++) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += W[row * n + i] * v[i];
      out[row] = sum;
    }
  }

  function normalise(x, weight, eps, out) {
    let squares = 0;
    for (let i = 0; i < x.length; i++) squares += x[i] * x[i];
    const scale = 1 / Math.sqrt(squares / x.length + eps);
    for (let i = 0; i < x.length; i++) out[i] = x[i] * scale * weight[i];
  }

  // Cosines and sines of every position, (positions, D / 2) each.
  function rotaryTables({ context_length: positions, head_dim: D, rope_theta: theta }) {
    const half = D / 2, cos = new Float32Array(positions * half), sin = new Float32Array(positions * half);
    for (let i = 0; i < half; i++) {
      const frequency = fround(theta ** ((-2 * i) / D));
      for (let p = 0; p < positions; p++) {
        cos[p * half + i] = Math.cos(fround(p * frequency));
        sin[p * half + i] = Math.sin(fround(p * frequency));
      }
    }
    return { cos, sin, half };
  }

  // Keys and values of the text so far; `length` tokens are in it.
  class Cache {
    constructor({ n_layers: L, context_length: capacity, n_kv_heads: G, head_dim: D }) {
      const storage = () => Array.from({ length: L }, () => new Float32Array(capacity * G * D)); // (S, G, D) a layer
      this.keys = storage();
      this.values = storage();
      this.length = 0;
    }
    truncate(length) {
      if (!(length >= 0 && length <= this.length)) throw new RangeError(`truncate(${length}): the cache holds ${this.length}`);
      this.length = length;
    }
  }

  class Model {
    // `tensors` is a list of [name, number of values] in the order of the bytes in `view`.
    constructor({ config, tensors }, view) {
      const all = decodeHalf(view), weights = {};
      let at = 0;
      for (const [name, count] of tensors) weights[name] = all.subarray(at, (at += count));
      if (at !== all.length) throw new RangeError(`${all.length} weights where ${at} were expected`);
      const layer = (i) => (name) => weights[`layers.${i}.${name}.weight`];
      this.config = config;
      this.embedding = weights["embedding.weight"];
      this.norm = weights["norm.weight"];
      this.layers = Array.from({ length: config.n_layers }, (_, i) => ({
        norm: layer(i)("attention_norm"), ffnNorm: layer(i)("ffn_norm"),
        q: layer(i)("attention.q_proj"), k: layer(i)("attention.k_proj"),
        v: layer(i)("attention.v_proj"), o: layer(i)("attention.o_proj"),
        gate: layer(i)("ffn.gate_proj"), up: layer(i)("ffn.up_proj"), down: layer(i)("ffn.down_proj"),
      }));
      this.rotary = rotaryTables(config);
      const { d_model: C, n_heads: H, n_kv_heads: G, head_dim: D, d_ff: F, context_length } = config;
      const room = (n) => new Float32Array(n);
      this.room = { x: room(C), normed: room(C), q: room(H * D), k: room(G * D), v: room(G * D), mixed: room(H * D),
        gate: room(F), up: room(F), added: room(C) };
      // Attention weights of the last token, a row a layer and head.
      this.attention = Array.from({ length: config.n_layers * H }, () => room(context_length));
    }

    // Put one token through the model: the cache grows by one. Gives the logits of the next token if they are asked for.
    forward(id, cache, wantLogits = true) {
      const { config, room } = this, { d_model: C, vocab_size: V, context_length, norm_eps: eps } = config;
      if (!(Number.isInteger(id) && id >= 0 && id < V)) throw new RangeError(`token id ${id} is outside the vocabulary of ${V}`);
      if (cache.length >= context_length) throw new RangeError(`position ${cache.length} is past context_length=${context_length}`);
      room.x.set(this.embedding.subarray(id * C, (id + 1) * C));
      this.layers.forEach((layer, i) => this.#layer(layer, i, cache));
      cache.length++;
      if (!wantLogits) return null;
      normalise(room.x, this.norm, eps, room.normed);
      const logits = new Float32Array(V);
      multiply(this.embedding, room.normed, logits);
      return logits;
    }

    #layer(layer, index, cache) {
      const { room } = this, { norm_eps: eps } = this.config, { x, normed, q, k, v, mixed, gate, up, added } = room;
      normalise(x, layer.norm, eps, normed);
      multiply(layer.q, normed, q);
      multiply(layer.k, normed, k);
      multiply(layer.v, normed, v);
      this.#rotate(q, cache.length);
      this.#rotate(k, cache.length);
      cache.keys[index].set(k, cache.length * k.length);
      cache.values[index].set(v, cache.length * v.length);
      this.#attend(cache.keys[index], cache.values[index], cache.length + 1, index);
      multiply(layer.o, mixed, added);
      for (let i = 0; i < x.length; i++) x[i] += added[i];
      normalise(x, layer.ffnNorm, eps, normed);
      multiply(layer.gate, normed, gate);
      multiply(layer.up, normed, up);
      for (let i = 0; i < gate.length; i++) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
      multiply(layer.down, gate, added);
      for (let i = 0; i < x.length; i++) x[i] += added[i];
    }

    // Turn each pair (2i, 2i + 1) of every head by its position's angle.
    #rotate(heads, position) {
      const { cos, sin, half } = this.rotary, row = position * half;
      for (let at = 0; at < heads.length; at += 2) {
        const i = row + ((at / 2) % half), even = heads[at], odd = heads[at + 1];
        heads[at] = even * cos[i] - odd * sin[i];
        heads[at + 1] = even * sin[i] + odd * cos[i];
      }
    }

    // What each query head of `room.q` makes of S keys: into `room.mixed`. Groups of query heads share a KV head.
    #attend(keys, values, S, index) {
      const { n_heads: H, n_kv_heads: G, head_dim: D } = this.config, { q, mixed } = this.room;
      const scale = 1 / Math.sqrt(D), stride = G * D;
      mixed.fill(0);
      for (let head = 0; head < H; head++) {
        const share = this.attention[index * H + head], own = head * D, kv = Math.floor(head / (H / G)) * D;
        let peak = -Infinity, total = 0;
        for (let s = 0; s < S; s++) {
          let score = 0;
          for (let d = 0, at = s * stride + kv; d < D; d++) score += q[own + d] * keys[at + d];
          share[s] = score * scale;
          if (share[s] > peak) peak = share[s];
        }
        for (let s = 0; s < S; s++) total += share[s] = Math.exp(share[s] - peak);
        for (let s = 0; s < S; s++) {
          const weight = (share[s] /= total);
          for (let d = 0, at = s * stride + kv; d < D; d++) mixed[own + d] += weight * values[at + d];
        }
      }
    }
  }

  // One token a character, as minigpt.tokenization has it.
  class CharTokenizer {
    constructor(characters) {
      this.characters = [...characters];
      this.ids = new Map(this.characters.map((character, id) => [character, id]));
    }
    // Ids of the characters that the model knows, and the others, each once.
    encode(text) {
      const ids = [], unknown = new Set();
      for (const character of text.normalize("NFC").replace(/\r\n?/g, "\n")) {
        if (this.ids.has(character)) ids.push(this.ids.get(character));
        else unknown.add(character);
      }
      return { ids, unknown: [...unknown] };
    }
    // One token as readers meet it: a blank is visible.
    tokenText(id) { return { "\n": "↵", " ": "␣" }[this.characters[id]] ?? this.characters[id]; }
    decode(ids) { return Array.from(ids, (id) => this.characters[id]).join(""); }
  }

  ns.engine = { Model, Cache, CharTokenizer };

  // A play model by name, once it is there; `fetchModel` asks for it, calls `arrived` (with an error message if there is
  // one), and gives a function that takes the question back.
  const ready = {};
  ns.playModel = (name) => ready[name] ?? null;
  ns.fetchModel = (model, name, arrived) => {
    const cancel = () => model.off("msg:custom", answer);
    function answer(message, buffers) {
      if (message.kind !== "weights" || message.model !== name) return;
      cancel();
      if (message.error) return arrived(message.error);
      const { facts } = message;
      ready[name] ??= { model: new Model(facts, buffers[0]), tokenizer: new CharTokenizer(facts.characters) };
      arrived();
    }
    model.on("msg:custom", answer);
    model.send({ kind: "weights", model: name });
    return cancel;
  };
})(globalThis);
