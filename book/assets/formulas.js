// A formula wider than its column scrolls; this lets the keyboard reach it, as the theme does for code.
addEventListener("load", () => {
  const reach = () => {
    for (const formula of document.querySelectorAll('mjx-container[display="true"]')) {
      if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;
    }
  };
  globalThis.MathJax?.startup?.promise.then(reach);
  addEventListener("resize", reach);
});
