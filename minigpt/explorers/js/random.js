// Uniform numbers exactly as PyTorch's CPU generator gives them, so that a seed means the same in page and notebook.
(function (root) {
  const ns = (root.nextToken ??= {});

  // Mersenne Twister (Matsumoto and Nishimura 1998): 32 random bits a call.
  function twister(seed) {
    const N = 624, M = 397, state = new Uint32Array(N);
    state[0] = seed % 2 ** 32;
    for (let i = 1; i < N; i++) {
      state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
    }
    let next = N;
    function refill() {
      for (let i = 0; i < N; i++) {
        const y = (state[i] & 0x80000000) | (state[(i + 1) % N] & 0x7fffffff);
        state[i] = state[(i + M) % N] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      }
      next = 0;
    }
    return () => {
      if (next === N) refill();
      let y = state[next++];
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      return (y ^ (y >>> 18)) >>> 0;
    };
  }

  // Doubles in [0, 1): the low 53 of 64 random bits.
  function doubles(seed) {
    const bits = twister(seed);
    return () => {
      const high = bits() & 0x1fffff, low = bits();
      return (high * 2 ** 32 + low) * 2 ** -53;
    };
  }

  // A function that gives the numbers of row `row` of a request with this seed, as minigpt.sampling.Uniforms draws them.
  ns.uniformStream = (seed, row = 0) => {
    const rows = doubles(seed);
    let rowSeed;
    for (let r = 0; r <= row; r++) rowSeed = Math.floor(rows() * 2 ** 32);
    return doubles(rowSeed);
  };

  // The first `count` of them.
  ns.uniforms = (seed, count, row = 0) => Float64Array.from({ length: count }, ns.uniformStream(seed, row));
})(globalThis);
