// Loops: what of a text stood in it before.
(function (root) {
  const ns = (root.nextToken ??= {});

  // Of windows of `size` tokens: the share that stood in the text before; and for each token whether it is in such a window
  // (`marked`), and whether it ends one (`ends`).
  ns.repeats = (ids, size = 20) => {
    const seen = new Set(), windows = ids.length - size + 1;
    const marked = new Uint8Array(ids.length), ends = new Uint8Array(ids.length);
    let again = 0;
    for (let start = 0; start < windows; start++) {
      const window = ids.slice(start, start + size).join();
      if (seen.has(window)) {
        again++;
        marked.fill(1, start, start + size);
        ends[start + size - 1] = 1;
      }
      seen.add(window);
    }
    return { share: windows > 0 ? again / windows : 0, marked, ends };
  };
})(globalThis);
