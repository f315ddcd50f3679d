// Beam search on a recorded tree: the rule of minigpt.search, in float64. Chapter 06.
// A tree is { nodes: { "id id …": [[id, logProb], …] }, eos, max_new_tokens }, as record_tree writes it; a text is { ids, sum }.
(function (root) {
  const ns = (root.nextToken ??= {});
  const lengthPenalty = ({ form, alpha }) => (t) => (form === "gnmt" ? (5 + t) / 6 : t) ** alpha;
  const key = (ids) => ids.join(" ");
  const byScore = (a, b) => b.score - a.score;

  // All steps: [{ beams, candidates: [{ parent, id, ids, logProb, sum, fate, score }], finished }]; the last one is the end.
  function search(tree, { width, form = "power", alpha = 1, stopping = "false" }) {
    const penalty = lengthPenalty({ form, alpha }), longest = tree.max_new_tokens, steps = [];
    let beams = [{ ids: [], sum: 0 }], finished = [];
    for (let t = 1; t <= longest && beams.length; t++) {
      const candidates = rank(tree, beams).slice(0, 2 * width);
      candidates.forEach((one, place) => {
        const ends = one.id === tree.eos, last = t === longest;
        one.score = one.sum / penalty(t);
        one.fate = ends || last ? (place < width ? (ends ? "ended" : "cut") : "pruned") : "live";
      });
      const live = candidates.filter(({ fate }) => fate === "live");
      live.forEach((one, place) => { one.fate = place < width ? "kept" : "pruned"; });
      const kept = live.slice(0, width), ended = candidates.filter(({ fate }) => fate === "ended" || fate === "cut");
      finished = [...finished, ...ended].sort(byScore).slice(0, width);
      steps.push({ beams, candidates, finished });
      beams = kept;
      if (kept.length && isDone(stopping, kept[0].sum, t, longest, finished.map(({ score }) => score), width, penalty)) break;
    }
    return steps;
  }

  // Can the best beam no longer displace the worst of enough finished texts? "never" asks for any length still possible.
  function isDone(stopping, best, t, longest, scores, width, penalty) {
    if (scores.length < width) return false;
    if (stopping === "true") return true;
    const lengths = Array.from({ length: stopping === "never" ? longest - t + 1 : 1 }, (_, i) => t + i);
    return Math.max(...lengths.map((length) => best / penalty(length))) <= Math.min(...scores);
  }

  // Candidates of all beams, largest sum first; on a tie the earlier beam, then the lower id.
  function rank(tree, beams) {
    const pool = beams.flatMap((beam, parent) => {
      const row = tree.nodes[key(beam.ids)];
      if (!row) throw new RangeError(`the tree has no entry for ${key(beam.ids) || "its root"}`);
      return row.map(([id, logProb]) => ({ parent, id, logProb, ids: [...beam.ids, id], sum: beam.sum + logProb }));
    });
    return pool.sort((a, b) => b.sum - a.sum || a.parent - b.parent || a.id - b.id);
  }

  // The text greedy takes.
  function greedy(tree) {
    let text = { ids: [], sum: 0 };
    while (text.ids.length < tree.max_new_tokens && text.ids.at(-1) !== tree.eos) [text] = rank(tree, [text]);
    return text;
  }

  // The best text of a tree that holds every prefix, by looking at all of them.
  function exact(tree, settings) {
    const penalty = lengthPenalty(settings);
    let best = null;
    (function walk(text) {
      const t = text.ids.length;
      if (t === tree.max_new_tokens || text.ids.at(-1) === tree.eos) {
        const score = text.sum / penalty(t);
        if (!best || score > best.score) best = { ...text, score };
      } else rank(tree, [text]).forEach(walk);
    })({ ids: [], sum: 0 });
    return best;
  }
  // Does a text begin with these ids?
  const begins = (text, ids) => Boolean(text) && ids.every((id, i) => text.ids[i] === id);

  ns.beams = { search, greedy, exact, lengthPenalty, begins };
})(globalThis);
