// What the browser tests ask a page; every page they open has it.
globalThis.ask = {
  // Wait for formulas and live figures: the page is then as a reader sees it.
  settled: async () => {
    if (window.MathJax?.startup) await MathJax.startup.promise;
    const figures = () => [...document.querySelectorAll(".nt-explorer")];
    const ready = (figure) => figure.querySelector(".nt-figure")?.getAttribute("aria-busy") === "false";
    for (let i = 0; i < 200 && !figures().every(ready); i++) await new Promise((resolve) => setTimeout(resolve, 50));
    return { figures: figures().length, drawn: figures().filter(ready).length };
  },

  // The article's words as read, without code, formulas and figures.
  prose: () => {
    const copy = document.querySelector("article").cloneNode(true);
    copy.querySelectorAll("pre, code, script, style, mjx-container, .nt-explorer").forEach((node) => node.remove());
    return copy.textContent;
  },

  // The text of a figure's picture: what changes when a slider moves.
  figureText: (figure) => [...figure.querySelectorAll(".nt-readout, .nt-rows, text")].map((n) => n.textContent).join("\n"),

  // The first slider that a reader can move: that of a rule which is off is not shown.
  slider: (figure) => [...figure.querySelectorAll("input[type=range]")].find((s) => s.checkVisibility() && !s.disabled),

  move: (slider) => {
    slider.value = Number(slider.value) === Number(slider.max) ? slider.min : slider.max;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    return new Promise((resolve) => setTimeout(resolve, 150));
  },

  // Visible text in the article whose contrast with its ground is below 4.5.
  faint: () => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true }), known = new Map();
    const parse = (colour) => {
      if (!known.has(colour)) {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        known.set(colour, [r, g, b, a / 255]);
      }
      return known.get(colour);
    };
    const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const grounds = new Map([[null, [255, 255, 255, 1]]]);
    const ground = (node) => {
      if (!grounds.has(node)) {
        grounds.set(node, over(parse(getComputedStyle(node).backgroundColor), ground(node.parentElement)));
      }
      return grounds.get(node);
    };
    const found = new Map();
    const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
      if (!text || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      if (node.closest("script, style, noscript, mjx-assistive-mml, :disabled, [hidden]")) continue;
      const style = getComputedStyle(node), back = ground(node);
      const front = over(parse(node.ownerSVGElement ? style.fill : style.color), back);
      const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
      const contrast = (high + 0.05) / (low + 0.05);
      if (contrast < 4.5) found.set(`${node.tagName}.${node.getAttribute("class") ?? ""}`, `${contrast.toFixed(2)}: ${text.slice(0, 40)}`);
    }
    return Object.fromEntries(found);
  },
};
