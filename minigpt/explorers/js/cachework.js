// The work of a generation, counted pass by pass in one layer and one head: without a KV cache and with one.
// Tokens are counted from 0; the rows of a pass, [from, to), are the queries computed in it.
(function (root) {
  const ns = (root.nextToken ??= {});
  const wide = (window) => window ?? Number.MAX_SAFE_INTEGER;

  // 1 + 2 + … + n, with no term above the window: the pairs of the first n queries.
  function triangle(n, W) {
    const rising = Math.min(n, W);
    return (rising * (rising + 1)) / 2 + (n - rising) * W;
  }

  // Without a cache the whole text of `to` tokens goes through; queries below `again` did so before.
  const naive = (to, again, W) => ({
    from: again, to, again, tokens: to, pairs: triangle(to, W), pairsAgain: triangle(again, W), vectors: 2 * to, kept: 0,
  });
  // With a cache the tokens [from, to) do, and see those from `oldest` on, which were kept.
  const cached = (from, to, W) => {
    const oldest = Math.max(0, from - W + 1);
    return {
      from, to, oldest, tokens: to - from, pairs: triangle(to, W) - triangle(from, W), vectors: 2 * (to - from),
      read: from - oldest, kept: 2 * Math.min(to, W),
    };
  };

  // Every pass: the prompt, cut into chunks or not, then N − 1 decode steps. A pass gives new token number `gives`, from
  // 1; a chunk that is not the last gives 0, and the side without a cache, which cannot do chunks, is null.
  function passes({ prompt: P, new_tokens: N, window, chunk }) {
    const W = wide(window), size = Math.min(chunk ?? P, P), chunks = Math.ceil(P / size);
    return Array.from({ length: chunks + N - 1 }, (_, s) => {
      const from = s < chunks ? s * size : P + s - chunks, to = s < chunks ? Math.min(P, from + size) : from + 1;
      const gives = Math.max(0, s - chunks + 2);
      return { gives, naive: gives ? naive(to, gives > 1 ? to - 1 : 0, W) : null, cached: cached(from, to, W) };
    });
  }

  // Sums over some passes of one side, "naive" or "cached"; of what is kept, the last.
  function sums(list, side) {
    const sum = (key) => list.reduce((total, pass) => total + (pass[side]?.[key] ?? 0), 0);
    return { tokens: sum("tokens"), pairs: sum("pairs"), vectors: sum("vectors"), kept: list.at(-1)[side]?.kept ?? 0 };
  }

  // The same sums for lengths nobody would draw.
  function totals({ prompt: P, new_tokens: N, window }) {
    const W = wide(window), M = P + N - 1;
    let pairs = 0;
    for (let n = P; n <= M; n++) pairs += triangle(n, W);
    return { naive: { tokens: P * N + (N * (N - 1)) / 2, pairs }, cached: { tokens: M, pairs: triangle(M, W) } };
  }

  ns.cacheWork = { passes, sums, totals };
})(globalThis);
