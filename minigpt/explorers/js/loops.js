// Loops: what of a text stood in it before.
(function (root) {
  const ns = (root.nextToken ??= {});

  // Share of windows of `size` tokens that stood in the text before, and for each token whether it is in such a window.
  ns.repeats = (ids, size = 20) => {
    const seen = new Set(), marked = new Uint8Array(ids.length), windows = ids.length - size + 1;
    let again = 0;
    for (let start = 0; start < windows; start++) {
      const window = ids.slice(start, start + size).join();
      if (seen.has(window)) {
        again++;
        marked.fill(1, start, start + size);
      }
      seen.add(window);
    }
    return { share: windows > 0 ? again / windows : 0, marked };
  };
})(globalThis);
