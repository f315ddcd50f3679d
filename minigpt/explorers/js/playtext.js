// The text of the playground: a span a character. Each new one can be pointed at or reached with the arrow keys, which
// tells how likely it was and what else could have come; from a chosen one the reader goes back, or off on another branch.
(function (root) {
  const ns = (root.nextToken ??= {});
  const { percent, thousands } = ns.chart;
  const SHOWN = 1000, KEPT = 4000; // characters on show; those that can be asked about if the text goes back
  const TEXT = {
    text: "The text: prompt, then what the model wrote. Arrow keys choose a character, Enter goes back to it.",
    hint: "Warm: the model thought it unlikely. Hatched: it stood there before. Point at a character to see what else could have come; " +
      "press it to change it.",
    earlier: (n) => `… ${thousands(n)} earlier characters\n`,
    about: (n, name, p, q) => `Character ${thousands(n)}, ${name}: ${p} from the model, ${q} after the rules.`,
    own: (n, name, p) => `Character ${thousands(n)}, ${name}: ${p} from the model, picked by you.`,
    instead: "Instead:",
    other: (token, p) => `${token} ${p}`,
    back: "Take it and the rest back",
  };

  // `back(step)` takes back the new character `step` and all after it; `branch(step, id)` writes another one there.
  ns.playText = ({ back, branch }) => {
    const { h, button } = ns.chart;
    const earlier = h("span", { class: "nt-prompt" });
    const node = h("div", {
      class: "nt-text nt-play", role: "group", tabindex: 0, "aria-label": TEXT.text, keydown: onKey,
      click: (event) => choose(stepAt(event)), pointerover: (event) => point(stepAt(event)), pointerleave: () => point(null),
    }, earlier);
    const sentence = h("span", { role: "status" }), offers = h("span", { class: "nt-buttons" });
    const card = h("div", { class: "nt-about" }, sentence, offers);
    let told = []; // of each new character shown: { id, name, p, q, own, others: [{ id, token, p }] }
    let glyphs = [], first = 0, prompt = 0, last = -1; // spans, the first one's place, the prompt's length, the last new step
    let chosen = null, pointed = null, shown = null; // steps; what the card shows

    const stepAt = ({ target }) => {
      const at = target.closest("[data-step]");
      return at && Number(at.dataset.step);
    };
    const glyph = (step) => glyphs[step + prompt - first];

    function choose(step) {
      glyph(chosen)?.node.removeAttribute("data-at");
      chosen = told[step] && glyph(step) ? step : null;
      if (chosen !== null) {
        const { node: span } = glyph(chosen);
        span.setAttribute("data-at", "");
        const above = span.offsetTop; // the text is positioned, so this counts from its top
        if (above < node.scrollTop || above > node.scrollTop + node.clientHeight - 30) node.scrollTop = above - node.clientHeight / 2;
      }
      drawCard();
    }
    function point(step) {
      pointed = step;
      drawCard();
    }
    function onKey(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const from = chosen ?? last + 1, { key } = event, home = told.findIndex((facts, step) => facts && glyph(step));
      const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: home, End: last }[key];
      if (to !== undefined) choose(told[to] && glyph(to) ? to : chosen);
      else if (key === "Escape") choose(null);
      else if (key === "Enter" && chosen !== null) back(chosen);
      else return;
      event.preventDefault();
      event.stopPropagation(); // the theme turns pages with the arrows
    }

    // The chosen character with its buttons; else the one pointed at.
    function drawCard() {
      const step = chosen ?? pointed, facts = told[step], key = facts ? `${step} ${facts.id} ${chosen}` : "";
      if (key === shown) return;
      shown = key;
      offers.replaceChildren();
      if (!facts) {
        sentence.textContent = TEXT.hint;
        return;
      }
      const { name, p, q, own, others } = facts, say = own ? TEXT.own : TEXT.about;
      sentence.textContent = say(step + 1, name, percent(p), percent(q));
      offers.append(TEXT.instead, ...others.map((other) => {
        const text = TEXT.other(other.token, percent(other.p, 1));
        return chosen === null ? h("span", null, text) : button(text, () => leave(() => branch(step, other.id)));
      }), ...(chosen === null ? [] : [button(TEXT.back, () => leave(() => back(step)))]));
    }
    // The card is about to change under the button that was pressed: the text takes the focus.
    function leave(act) {
      node.focus({ preventScroll: true });
      act();
    }

    function dress(at, id, character, kind, share) {
      let glyph = glyphs[at - first];
      if (!glyph) {
        glyph = { node: h("span", { "data-step": at < prompt ? null : at - prompt }) };
        glyphs.push(glyph);
        node.append(glyph.node);
      }
      if (glyph.id !== id) glyph.node.replaceChildren(...(character === "\n" ? [h("span", { class: "nt-blank" }, "↵"), "\n"] : [character]));
      if (glyph.kind !== kind) glyph.node.className = kind;
      if (glyph.share !== share) glyph.node.style.setProperty("--nt-share", share);
      Object.assign(glyph, { id, kind, share });
    }

    function restart(promptLength, from) {
      node.replaceChildren(earlier);
      glyphs = [];
      [first, prompt, last] = [from, promptLength, -1];
    }

    return {
      nodes: [node, card],
      told: (step) => told[step],
      // What is to be said of the new character `step`.
      tell(step, facts) {
        told[step] = facts;
        delete told[step - KEPT];
      },
      // `ids`: the text; `tint(at)`: 0 to 1, of a place in it; `marked`: of the last SHOWN, which ones repeat.
      draw({ ids, promptLength, characters, tint, marked }) {
        const from = Math.max(0, ids.length - SHOWN), before = last;
        if (promptLength !== prompt || from < first || from > first + glyphs.length) restart(promptLength, from);
        for (; first < from; first++) glyphs.shift().node.remove();
        while (glyphs.length > ids.length - from) glyphs.pop().node.remove();
        last = ids.length - prompt - 1;
        told.length = Math.min(told.length, last + 1);
        if (!told[chosen]) chosen = null;
        for (let at = from; at < ids.length; at++) {
          const kind = [at < prompt && "nt-prompt", marked[at - from] && "nt-loop", at - prompt === last && at >= prompt && "nt-new"]
            .filter(Boolean).join(" ");
          dress(at, ids[at], characters[ids[at]], kind, tint(at).toFixed(3));
        }
        earlier.textContent = from ? TEXT.earlier(from) : "";
        if (last !== before) node.scrollTop = node.scrollHeight;
        drawCard();
      },
      release: () => choose(null),
      // Another text begins; until it is there, `message` stands in its place.
      clear(message = "") {
        told = [];
        chosen = pointed = null;
        restart(0, 0);
        earlier.textContent = message;
        drawCard();
      },
    };
  };
  ns.playText.SHOWN = SHOWN;
})(globalThis);
