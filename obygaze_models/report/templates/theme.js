// Light and dark by the system, unless the reader chooses; nothing is kept.
const toggle = find("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const is_dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
function show_theme() {
  toggle.setAttribute("aria-pressed", is_dark());
}
toggle.hidden = false;
toggle.addEventListener("click", () => {
  document.documentElement.dataset.theme = is_dark() ? "light" : "dark";
  show_theme();
});
system.addEventListener("change", show_theme);
show_theme();

// On paper nothing can be unfolded.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details[data-print]:not([open])")];
  for (const one of unfolded) one.open = true;
});
addEventListener("afterprint", () => { for (const one of unfolded) one.open = false; });
