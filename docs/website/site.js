"use strict";
// The live panel is a page in a page: it gets the height that it needs, and the colours of the site.
for (const frame of document.querySelectorAll("iframe.panel")) {
  const fit = () => {
    const inner = frame.contentDocument?.documentElement;
    if (!inner?.querySelector(".bench")) return; // not there yet, or files, which do not see one another
    inner.dataset.theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
    frame.style.height = `${inner.querySelector("main").getBoundingClientRect().height + 24}px`;
  };
  frame.addEventListener("load", fit);
  addEventListener("resize", fit);
  new MutationObserver(fit).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  fit();
}
