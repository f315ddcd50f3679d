// FLOPs of a whole generation in closed form, as `minigpt.costs` sums them pass by pass: 2 for a multiply-add, one row,
// matrix products of the blocks only. P prompt tokens, N new ones; S keys visible; W the window of the model.
(function (root) {
  const ns = (root.nextToken ??= {});

  // Sums over n = 1 … m of n, of n(n + 1)/2 and of n².
  const triangle = (m) => (m * (m + 1)) / 2;
  const tetrahedron = (m) => (m * (m + 1) * (m + 2)) / 6;
  const squares = (m) => 2 * tetrahedron(m) - triangle(m);

  // Causal pairs of n queries that each see at most W keys; and the sum of that over n = 1 … m.
  function pairsOf(n, W) {
    const rising = Math.min(n, W);
    return triangle(rising) + (n - rising) * W;
  }
  function pairsUpTo(m, W) {
    const over = Math.max(0, m - W);
    return tetrahedron(m - over) + (over && over * triangle(W) + W * triangle(over));
  }

  // Pairs of query and key: a prompt in one pass, a generation with a cache, one without.
  const prefill = (P, W, full) => (full ? P * P : pairsOf(P, W));
  const withCache = (P, N, W, full) => prefill(P, W, full) + pairsOf(P + N - 1, W) - pairsOf(P, W);
  const without = (P, N, W, full) =>
    full ? squares(P + N - 1) - squares(P - 1) : pairsUpTo(P + N - 1, W) - pairsUpTo(P - 1, W);

  // `shape`: { weights, layers, width, window }: numbers in all blocks, H·D of the query heads, null for no window.
  const perPair = ({ layers, width }) => 4 * layers * width;
  function generation({ shape, P, N, cached, convention }) {
    const W = shape.window ?? Number.MAX_SAFE_INTEGER, full = convention === "full";
    const tokens = cached ? P + N - 1 : P * N + (N * (N - 1)) / 2;
    const linear = 2 * shape.weights * tokens;
    const attention = perPair(shape) * (cached ? withCache : without)(P, N, W, full);
    return { tokens, linear, attention, both: linear + attention };
  }

  // The fewest new tokens for which attention costs at least what the linear layers do, up to `most`; null if it does not.
  function overtakes(settings, most) {
    const larger = (N) => { const f = generation({ ...settings, N }); return f.attention >= f.linear; };
    if (larger(1)) return 1;
    if (!larger(most)) return null;
    let low = 1, high = most;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (larger(middle)) high = middle;
      else low = middle;
    }
    return high;
  }

  // The fewest visible keys for which the same holds of one decode step; null if the window is narrower.
  function stepBalance(shape) {
    const S = Math.ceil((2 * shape.weights) / perPair(shape));
    return S > (shape.window ?? Infinity) ? null : S;
  }

  // Plain sizes: as many heads for keys as for queries, H·D = d, a feed-forward of 4·d: 12·d² weights a layer.
  const plain = (d, layers) => ({ weights: 12 * d * d * layers, layers, d_model: d, width: d, window: null });

  ns.flops = { generation, overtakes, stepBalance, plain };
})(globalThis);
