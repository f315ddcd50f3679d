// A generation that can be stepped, taken back and branched, with or without a KV cache, and that counts what it does.
//
// Work is cut in slices, so that a page stays alive: `work(ms)` goes on for so long and says whether the next
// distribution is there. `text` is the whole text, prompt first; at the context limit a session stops, or goes on from the
// last half of the context, which is then read anew.
(function (root) {
  const ns = (root.nextToken ??= {});

  // Tokens through the model for N new ones after P: P + N − 1 with a cache, P·N + N(N − 1)/2 without.
  ns.tokensThrough = (P, N, cached) => (N === 0 ? 0 : cached ? P + N - 1 : P * N + (N * (N - 1)) / 2);

  // The same where the text goes on past the context: a stretch from P to `context`, then stretches from `keep` tokens on.
  ns.tokensSliding = (P, N, cached, context, keep) => {
    let sum = 0;
    for (let from = P, left = N; left > 0; from = keep) {
      const now = Math.min(left, context - from);
      sum += ns.tokensThrough(from, now, cached);
      left -= now;
    }
    return sum;
  };

  class Session {
    // settings: temperature, the rules of the sampler, `seed` (whole, below 2**32); `order`: names of rules.
    constructor(lm, promptIds, { settings = {}, order, cached = true, slide = false } = {}) {
      const { context_length: context } = lm.model.config;
      if (!promptIds.length) throw new RangeError("the prompt is empty: a model needs a token to start from");
      this.lm = lm;
      this.context = context;
      this.keep = context / 2;
      this.cut = Math.max(0, promptIds.length - context + 1); // of a prompt that is too long, the end is read
      this.prompt = promptIds.length - this.cut;
      this.text = promptIds.slice(this.cut);
      this.cached = cached;
      this.slide = slide;
      this.cache = new ns.engine.Cache(lm.model.config);
      this.start = 0; // first token of the text that the model still sees
      // One a pass, by the number of new tokens before it: tokens through the model, milliseconds, first token seen.
      this.spent = { tokens: [], ms: [], start: [] };
      this.recent = new Map(); // the same number → { logits, attention }, of as many passes as the context is long
      this.missing = 0; // tokens that the cache lacks because the text went back: a straight run would hold them
      this.undone = 0; // tokens through the model in passes taken back, and those read again because of that
      this.change(settings, order);
      this.#begin();
    }

    get newTokens() { return this.text.length - this.prompt; }
    get pass() { return this.recent.get(this.newTokens) ?? null; } // the one whose logits belong to the end of the text
    get finished() { return !this.slide && this.text.length >= this.context; }
    get counts() {
      const needed = Math.max(this.newTokens, 1); // passes that the new tokens needed
      const sum = (numbers) => numbers.reduce((total, n, i) => (i < needed ? total + n : total), 0);
      return { tokens: sum(this.spent.tokens), ms: sum(this.spent.ms), undone: this.undone };
    }
    // What the formula says that so many new tokens need; a prompt alone has been read once, for the first one.
    predicted(cached = this.cached, n = this.newTokens) {
      return ns.tokensSliding(this.prompt, Math.max(n, 1), cached, this.context, this.keep);
    }

    // New settings hold from the next token on.
    change(settings, order) {
      this.settings = { ...settings };
      this.order = order;
      this.rules = ns.sampler.steps(this.settings, order);
      this.seed = settings.seed ?? 0;
      this.draws = { next: 0, stream: ns.uniformStream(this.seed) };
      this.known = null; // the distribution of the last pass asked for
    }

    // Set out for the distribution after the text, unless it is there.
    #begin() {
      this.todo = null;
      if (this.pass || this.finished) return;
      if (this.slide && this.text.length - this.start >= this.context) {
        this.start = this.text.length - this.keep;
        this.cache.truncate(0);
        this.missing = 0; // every run has to read these
      }
      if (!this.cached) this.cache.truncate(0);
      this.todo = { tokens: 0, ms: 0 };
    }

    // Go on for `ms` milliseconds or to the end; whether the next distribution is there (or none is to come).
    work(ms = Infinity) {
      if (!this.todo) return true;
      const { model } = this.lm, begun = performance.now(), until = begun + ms;
      let logits = null, now = begun;
      while (!logits && now <= until) {
        const at = this.start + this.cache.length, last = at === this.text.length - 1;
        logits = model.forward(this.text[at], this.cache, last);
        this.todo.tokens++;
        now = performance.now();
      }
      this.todo.ms += now - begun;
      if (!logits) return false;
      const attention = model.attention.map((row) => row.slice(0, this.cache.length));
      const n = this.newTokens;
      this.recent.set(n, { logits, attention });
      this.recent.delete(n - this.context);
      this.spent.tokens[n] = this.todo.tokens - this.missing;
      this.undone += this.missing;
      this.missing = 0;
      this.spent.ms[n] = this.todo.ms;
      this.spent.start[n] = this.start;
      this.todo = null;
      return true;
    }

    // The sampler's state before the rules and after them. Rules that leave no token leave an empty one.
    distribution() {
      const { pass } = this;
      if (!pass) return null;
      if (this.known?.pass !== pass) {
        const before = ns.sampler.distribution(pass.logits);
        let after = { z: before.z, ids: new Int32Array(0) };
        try {
          after = ns.sampler.run(before, this.rules, { ids: this.text, promptLength: this.prompt });
        } catch (error) {
          if (!(error instanceof RangeError)) throw error;
        }
        this.known = { pass, before, after };
      }
      return this.known;
    }
    get stuck() { return this.distribution()?.after.ids.length === 0; }

    // The uniform number of the next token: the n-th of the seed, whatever was taken back before.
    uniform(n = this.newTokens) {
      if (n < this.draws.next - 1) this.change(this.settings, this.order);
      for (; this.draws.next <= n; this.draws.next++) this.draws.last = this.draws.stream();
      return this.draws.last;
    }
    // The token that these settings choose next.
    choose(u = this.uniform()) {
      if (this.stuck) throw new RangeError("the rules leave no token");
      const { after } = this.distribution();
      return this.settings.temperature === 0 ? after.ids[0] : ns.sampler.drawer(after)(u);
    }

    // Append a token: the one chosen, or the reader's own.
    step(id = this.choose()) {
      if (!this.pass) throw new RangeError(this.finished ? "the context is full" : "the distribution is not there yet");
      this.text.push(id);
      this.#begin();
      return id;
    }

    // Take back all but the first `n` new tokens.
    rewind(n) {
      if (!(n >= 0 && n <= this.newTokens)) throw new RangeError(`rewind(${n}): there are ${this.newTokens} new tokens`);
      const { tokens, ms, start } = this.spent;
      const there = this.recent.has(n); // else this pass is done again
      this.undone += tokens.slice(there ? n + 1 : n).reduce((sum, count) => sum + count, this.todo?.tokens ?? 0);
      this.text.length = this.prompt + n;
      for (const numbers of [tokens, ms, start]) numbers.length = Math.min(numbers.length, there ? n + 1 : n);
      for (const key of this.recent.keys()) if (key > n) this.recent.delete(key);
      // With the same first token the cache goes back; what slid away must be read anew.
      const first = start.at(-1) ?? 0, held = this.text.length - first - !there;
      this.cache.truncate(first === this.start ? Math.min(this.cache.length, held) : 0);
      this.start = first;
      this.missing = this.cached && (n > 0 || there) ? held - this.cache.length : 0;
      this.#begin();
    }
  }
  ns.Session = Session;
})(globalThis);
