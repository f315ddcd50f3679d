// Mounts every figure of a static page: `<div class="nt-explorer" data-explorer=NAME>` with its state as JSON inside.
// No import and no fetch: the book opens from a double click.
(function (root) {
  const ns = (root.nextToken ??= {});
  const DATA = new URL("distributions.js", document.currentScript.src);

  // A stand-in for the widget model of a notebook: the same methods, and nobody at the other end.
  class StaticModel {
    constructor(state) {
      this.state = state;
      this.handlers = {};
    }
    get(key) { return this.state[key]; }
    set(key, value) {
      if (this.state[key] === value) return;
      this.state[key] = value;
      this.emit(`change:${key}`);
    }
    on(event, handler) { (this.handlers[event] ??= new Set()).add(handler); }
    off(event, handler) { this.handlers[event]?.delete(handler); }
    emit(event, ...args) { [...(this.handlers[event] ?? [])].forEach((handler) => handler(...args)); }
    save_changes() {}
    send(message) {
      loadData().then(
        (data) => {
          const bytes = Uint8Array.from(atob(data.logits[message.source]), (c) => c.charCodeAt(0));
          this.emit("msg:custom", { ...message, tokens: data.tokens, ids: data.prompts[message.source] }, [new DataView(bytes.buffer)]);
        },
        () => this.emit("msg:custom", { ...message, error: `${DATA.pathname} could not be read` }),
      );
    }
  }

  let loading;
  function loadData() {
    return (loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = DATA;
      script.onload = () => resolve(ns.distributions);
      script.onerror = () => { loading = null; reject(); };
      document.head.append(script);
    }));
  }

  function mount(figure) {
    const state = JSON.parse(figure.querySelector('script[type="application/json"]')?.textContent || "{}");
    const place = figure.appendChild(document.createElement("div"));
    ns.explorers[figure.dataset.explorer].render({ model: new StaticModel(state), el: place });
  }

  for (const figure of document.querySelectorAll(".nt-explorer")) {
    try {
      mount(figure);
    } catch (error) {
      console.error(`figure ${figure.dataset.explorer}:`, error); // one broken figure must not take the others along
    }
  }
  ns.StaticModel = StaticModel;
})(globalThis);
