"use strict";
// The page itself. Light or dark: as the system has it, until the button says otherwise.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* not kept */ } };
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      store(root.dataset.theme);
      name();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    name();
  });
})();

// A table that is wider than the page says that it can be moved sideways, as long as it is.
addEventListener("DOMContentLoaded", () => {
  const tell = (box) => { box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1; };
  const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => tell(target)));
  document.querySelectorAll(".scroll").forEach((box) => watcher.observe(box));
});
