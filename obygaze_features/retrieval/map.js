"use strict";
const [map, facts, link, count] = ["map", "facts", "open", "lit"].map((id) => document.getElementById(id));
const [marks, keys] = ["circle", "[data-clips]"].map((chosen) => [...document.querySelectorAll(chosen)]);
let [lit, at, pinned] = [[], -1, false];
// Clips that all pressed names have are lit, and lie above the others.
function light() {
  const sets = keys.filter((key) => key.ariaPressed === "true").map((key) => new Set(key.dataset.clips.split(" ").map(Number)));
  lit = [...marks.keys()].filter((n) => sets.every((clips) => clips.has(n)));
  for (const mark of marks) mark.classList.remove("lit");
  for (const n of lit) marks[n].classList.add("lit");
  map.append(...lit.map((n) => marks[n]));
  count.textContent = map.classList.toggle("dimmed", sets.length > 0) ? `${lit.length.toLocaleString("en")} of ${marks.length.toLocaleString("en")} clips` : "";
}
function show(n) {
  marks[at]?.classList.remove("at");
  marks[at = n].classList.add("at");
  facts.textContent = marks[n].textContent;
  link.href = map.dataset.link + encodeURIComponent(facts.textContent.split("\n").pop());
}
// The names that are pressed are in the address: #film=NAME&level=NAME.
const name_of = (key) => [key.closest("fieldset").name, key.value];
function read() {
  const names = new URLSearchParams(location.hash.slice(1));
  if (names.size) for (const key of keys) key.ariaPressed = String(names.get(name_of(key)[0]) === key.value);
  light();
}
function write() {
  const names = new URLSearchParams(keys.filter((key) => key.ariaPressed === "true").map(name_of));
  history.replaceState(null, "", names.size ? `#${names}` : location.href.split("#")[0]);
}
// The lit clip that is nearest to the pointer, within 14 pixels; one that was clicked on stays.
function point(event) {
  const [box, clicked] = [map.getBoundingClientRect(), event.type === "click"];
  const gap = (at, size, from, pointer) => from + (at.baseVal.value * size) / 1000 - pointer;
  const away = ({ cx, cy }) => Math.hypot(gap(cx, box.width, box.x, event.clientX), gap(cy, box.width, box.y, event.clientY));
  const [near] = lit.filter((n) => away(marks[n]) < 14).sort((a, b) => away(marks[a]) - away(marks[b]));
  if (clicked) pinned = near !== undefined;
  if (near !== undefined && (clicked || !pinned)) show(near);
}
for (const kind of ["pointermove", "click"]) map.addEventListener(kind, point);
map.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step && lit.length) show(lit[(lit.indexOf(at) + step + lit.length) % lit.length]);
  if (event.key === "Enter" && at >= 0 && map.dataset.link) link.click();
});
for (const key of keys) key.onclick = () => {
  for (const other of key.parentElement.children) other.ariaPressed = String(other === key && key.ariaPressed !== "true");
  light();
  write();
};
addEventListener("hashchange", read);
read();
