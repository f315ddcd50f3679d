// The one drawing helper of all figures: elements, numbers, controls, rows of bars, plots, table, readout.
(function (root) {
  const ns = (root.nextToken ??= {});
  const SVG = "http://www.w3.org/2000/svg";
  const TEXT = {
    reset: (label) => `Reset ${label}`,
    table: "Table",
    copy: "Copy",
    copied: "Copied",
    refused: "Not copied",
  };
  const unique = () => `nt-${(ns.serial = (ns.serial ?? 0) + 1)}`;

  // --- Elements. Children that are strings become text nodes: nothing is ever parsed as HTML.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (typeof value === "function") node.addEventListener(name, value);
      else if (value != null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child != null));
    return node;
  }
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  // --- Numbers as the figures write them.
  const thousands = (n) => Math.round(n).toLocaleString("en-US");
  const fixed = (x, digits = 2) => (x === -Infinity ? "−∞" : x.toFixed(digits).replace("-", "−"));
  const short = (x) => String(Number(x.toPrecision(3)));
  function percent(p, digits = 2) {
    const text = (100 * p).toFixed(digits);
    if (p === 0 || Number(text) === 100) return p ? "100\u202f%" : "0";
    return Number(text) ? `${text}\u202f%` : `<${10 ** -digits}\u202f%`;
  }
  const count = (n) => (n < 100 ? n.toFixed(1) : thousands(n));

  // A token with its visible blanks set back; it is never empty.
  function token(text) {
    const parts = (text || "⟨⟩").split(/([␣↵⇥]+|⟨[0-9A-F]*⟩)/).filter(Boolean);
    return parts.map((part) => (/^[␣↵⇥⟨]/.test(part) ? h("span", { class: "nt-blank" }, part) : part));
  }

  // --- Controls. Each has `node` and `set`; what the reader does comes back through a callback.
  // A slider steps through `stops`; double click and the arrow button bring `home` back.
  function slider({ label, onInput }) {
    const id = unique(), output = h("output", { for: id });
    let now = { stops: [0], home: 0 };
    const reset = () => {
      input.focus(); // the button is about to be disabled
      onInput(now.home);
    };
    const input = h("input", { type: "range", id, min: 0, input: () => onInput(now.stops[input.value]), dblclick: reset });
    const name = h("label", { for: id }, label);
    const button = h("button", { type: "button", class: "nt-reset", "aria-label": TEXT.reset(label), click: reset }, "↺");
    return {
      node: h("div", { class: "nt-control nt-slider" }, h("div", null, name, output, button), input),
      // `lacking`: why the slider can do nothing now, if so.
      set(value, { stops, home, format, label: text = label, lacking = null }) {
        now = { stops, home };
        input.max = stops.length - 1;
        input.value = nearest(stops, value);
        name.textContent = text;
        button.title = TEXT.reset(text);
        output.textContent = lacking ?? format(value);
        input.setAttribute("aria-valuetext", output.textContent);
        input.disabled = lacking !== null;
        button.disabled = input.disabled || value === home;
      },
    };
  }
  function nearest(stops, value) {
    let best = 0;
    stops.forEach((stop, i) => { if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = i; });
    return best;
  }

  function select({ label, options, onInput }) {
    const id = unique();
    const input = h("select", { id, change: () => onInput(input.value) },
      options.map(([value, text]) => h("option", { value }, text)));
    return {
      node: h("div", { class: "nt-control" }, h("label", { for: id }, label), input),
      set(value) { input.value = value; },
    };
  }

  // One of several, as chips: radio buttons, so the arrow keys work.
  function chips({ label, options, onInput }) {
    const group = unique();
    const inputs = options.map(([value]) => h("input", { type: "radio", name: group, value, change: () => onInput(value) }));
    return {
      node: h("fieldset", { class: "nt-chips" }, h("legend", null, label),
        options.map(([, text], i) => h("label", null, inputs[i], h("span", null, text)))),
      set(value) { inputs.forEach((input) => { input.checked = input.value === value; }); },
    };
  }

  const button = (text, click, attributes) => h("button", { type: "button", class: "nt-button", click, ...attributes }, text);

  // Named states that each make one point; the one that is shown now is marked.
  function presets(label, list, state) {
    const nodes = list.map(([text, settings]) => button(text, () => state.set(settings))), id = unique();
    return {
      node: h("div", { class: "nt-presets", role: "group", "aria-labelledby": id }, h("span", { id }, label), nodes),
      update() {
        list.forEach(([, settings], i) => {
          const shown = Object.entries(settings).every(([key, value]) => state.get(key) === value);
          nodes[i].setAttribute("aria-pressed", shown);
        });
      },
    };
  }

  // --- Rows of a distribution: a grid whose last but one column is the bar.
  const STEPS = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001];
  const scaleFor = (largest) => STEPS.findLast((step) => step >= largest) ?? 1;

  // `columns`: [title, class]; the class "nt-track" marks the bars.
  function rows(label, columns) {
    const ends = [h("span"), h("span")];
    const head = h("div", { class: "nt-row nt-head" }, columns.map(([title, kind]) =>
      h("span", { class: kind }, kind === "nt-track" ? ends : title)));
    const node = h("div", { class: "nt-rows", role: "img", "aria-label": label }, head);
    const pool = [];

    function make() {
      const cells = columns.map(([, kind]) => h("span", { class: kind }));
      const bars = ["nt-bar", "nt-tick", "nt-drawn"].map((kind) => h("i", { class: kind }));
      cells[columns.findIndex(([, kind]) => kind === "nt-track")].append(...bars);
      return { node: node.appendChild(h("div", null, cells)), cells, bars, texts: [] };
    }

    function place(bar, share, scale) {
      bar.hidden = share == null;
      if (share == null) return;
      bar.style.setProperty("--nt-share", Math.min(1, share / scale));
      bar.classList.toggle("nt-over", share > scale);
    }

    return {
      node,
      // `items`: { kind, cells (null in place of the bar), bar, tick, drawn }, the last three shares of 1.
      draw(items, scale) {
        ends[0].textContent = "0";
        ends[1].textContent = `${short(100 * scale)}\u202f%`;
        while (pool.length < items.length) pool.push(make());
        const near = scale / 80; // a tick at the end of its bar says nothing
        pool.forEach((row, r) => {
          const item = items[r];
          row.node.hidden = !item;
          if (!item) return;
          row.node.className = `nt-row ${item.kind ?? ""}`;
          item.cells.forEach((text, c) => {
            if (text == null || row.texts[c] === text) return;
            row.texts[c] = text;
            row.cells[c].replaceChildren(...(c ? [text] : token(text)));
          });
          [item.bar, Math.abs(item.tick - item.bar) < near ? null : item.tick, item.drawn].forEach((share, b) => place(row.bars[b], share, scale));
        });
      },
    };
  }

  // What the marks of such rows mean, in this order; a figure names the first few.
  const MARKS = [["nt-bar", ""], ["nt-bar", "nt-cut"], ["nt-tick", ""], ["nt-chosen-key", ""]]; // mark, class of its row
  const barKey = (names, ...more) => h("p", { class: "nt-key" }, names.map((name, i) =>
    h("span", { class: MARKS[i][1] }, h("i", { class: MARKS[i][0] }), name)), ...more);

  // --- Plots: one SVG, drawn anew each time. An axis is { low, high, log, ticks: [[value, text]], title }.
  const WIDTH = 250, HEIGHT = 160, LEFT = 32, RIGHT = 8, TOP = 18, BOTTOM = 32;

  function scale({ low, high, log }, from, to) {
    const f = log ? Math.log : Number;
    return (value) => from + ((to - from) * (f(Math.min(high, Math.max(low, value))) - f(low))) / (f(high) - f(low) || 1);
  }

  function plot(label) {
    const hatch = unique(), node = svg("svg", { class: "nt-plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
    const defs = svg("defs", null, svg("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 1.3, height: 5, class: "nt-hatch-line" })));
    const text = (x, y, content, anchor, kind) => svg("text", { x, y, "text-anchor": anchor, class: kind }, content);

    function grid(x, y, X, Y) {
      return [
        ...y.ticks.flatMap(([value, name]) => [
          svg("line", { class: "nt-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: Y(value), y2: Y(value) }),
          text(LEFT - 5, Y(value) + 3.5, name, "end"),
        ]),
        ...x.ticks.map(([value, name]) => text(X(value), HEIGHT - BOTTOM + 13, name, "middle")),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, x.title, "middle", "nt-axis"),
        text(0, 10, y.title, "start", "nt-axis"),
      ];
    }

    return {
      node,
      // `marks(pen)` gives the nodes to draw, made with the pen below.
      draw({ x, y, marks }) {
        const X = scale(x, LEFT, WIDTH - RIGHT), Y = scale(y, HEIGHT - BOTTOM, TOP), base = HEIGHT - BOTTOM;
        const d = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${X(a).toFixed(1)} ${Y(b).toFixed(1)}`).join("");
        const pen = {
          line: (points, kind) => svg("path", { d: d(points), class: `nt-line ${kind ?? ""}` }),
          area: (points, kind) => points.length && svg("path", {
            d: `${d(points)}L${X(points.at(-1)[0]).toFixed(1)} ${base}L${X(points[0][0]).toFixed(1)} ${base}Z`,
            class: kind, fill: kind === "nt-cut" ? `url(#${hatch})` : null,
          }),
          band: (from, to) => svg("rect", { x: X(from), width: Math.max(1, X(to) - X(from)), y: TOP, height: base - TOP, fill: `url(#${hatch})` }),
          across: (at, kind) => svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: Y(at), y2: Y(at), class: kind ?? "nt-threshold" }),
          down: (at, kind) => svg("line", { y1: TOP, y2: base, x1: X(at), x2: X(at), class: kind ?? "nt-threshold" }),
          dot: (a, b) => svg("circle", { cx: X(a), cy: Y(b), r: 4, class: "nt-dot" }),
          // A direct label, kept inside the frame.
          note: (a, b, content, dy = -7) => {
            const right = X(a) > WIDTH * 0.62;
            return text(X(a) + (right ? -7 : 7), Math.max(TOP + 9, Y(b) + dy), content, right ? "end" : "start", "nt-note");
          },
        };
        node.replaceChildren(defs, ...grid(x, y, X, Y), ...marks(pen).flat().filter(Boolean));
      },
    };
  }
  const powers = (low, high) => {
    const superscript = (n) => String(n).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
    const step = Math.max(1, Math.ceil((high - low) / 4));
    return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, i) => high - i * step)
      .map((e) => [10 ** e, e === 0 ? "1" : `10${superscript(e)}`]);
  };

  // --- A table of the same numbers, one click away.
  function table(caption, read) {
    const body = h("div", { class: "nt-table", id: unique(), hidden: true, tabindex: 0, role: "group", "aria-label": caption });
    const copy = copier(() => read().map((line) => line.map(plain).join("\t")).join("\n"), { hidden: true });
    const open = button(TEXT.table, () => {
      body.hidden = copy.hidden = !body.hidden;
      open.setAttribute("aria-expanded", !body.hidden);
      update();
    }, { "aria-expanded": "false", "aria-controls": body.id });
    function update() {
      if (body.hidden) return;
      const [head, ...lines] = read();
      body.replaceChildren(h("table", null, h("caption", null, caption),
        h("thead", null, h("tr", null, head.map((cell) => h("th", { scope: "col" }, cell)))),
        h("tbody", null, lines.map((line) => h("tr", null, line.map((cell) => h("td", null, plain(cell))))))));
    }
    return { buttons: [open, copy], body, update };
  }
  const plain = (cell) => (cell === -Infinity ? "-inf" : String(cell));
  // A button that copies what `read` gives at that moment.
  function copier(read, attributes, name = TEXT.copy) {
    const copy = button(name, async () => {
      const done = await put(read()).then(() => TEXT.copied, () => TEXT.refused);
      copy.textContent = done;
      setTimeout(() => { copy.textContent = name; }, 1500);
    }, attributes);
    return copy;
  }
  async function put(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = h("textarea", null, text); // a page opened from a file may have no clipboard object
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  // --- One sentence that says what is shown, and says it again to a screen reader once the reader pauses.
  function readout() {
    const visible = h("p", { class: "nt-readout" }), spoken = h("div", { class: "nt-spoken", "aria-live": "polite" });
    let timer, last;
    return {
      nodes: [visible, spoken],
      say(text, wait = 700) {
        visible.replaceChildren(...text.split(/(−?\d+(?:[.,]\d+)*(?:\u202f%)?)/).map((part, i) => (i % 2 ? h("b", null, part) : part)));
        clearTimeout(timer);
        if (last !== undefined && text !== last) timer = setTimeout(() => { spoken.textContent = text; }, wait);
        last = text;
      },
      stop: () => clearTimeout(timer),
    };
  }

  ns.chart = {
    h, svg, thousands, fixed, short, percent, count, token, slider, select, chips, button, presets, rows, barKey, scaleFor,
    plot, powers, table, copier, readout,
  };
})(globalThis);
