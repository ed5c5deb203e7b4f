"use strict";
const [map, facts, link, count, data] = ["map", "facts", "open", "lit", "clips"].map((id) => document.getElementById(id));
const [marks, keys] = ["circle", "[data-clips]"].map((chosen) => [...document.querySelectorAll(chosen)]);
// If there are few clips, they are circles; if there are many, a canvas draws them from data.
const { x, y, words, colours, colour_of } = data ? JSON.parse(data.textContent) : {
  x: marks.map((mark) => mark.cx.baseVal.value),
  y: marks.map((mark) => mark.cy.baseVal.value),
  words: marks.map((mark) => mark.textContent),
};
const layer = document.createElement("canvas");
let [lit, at, pinned] = [[], -1, false];
// Highlight the clips that match all pressed names, above the other clips.
function light() {
  const sets = keys.filter((key) => key.ariaPressed === "true").map((key) => new Set(key.dataset.clips.split(" ").map(Number)));
  lit = [...words.keys()].filter((n) => sets.every((clips) => clips.has(n)));
  count.textContent = map.classList.toggle("dimmed", sets.length > 0) ? `${lit.length.toLocaleString("en")} of ${words.length.toLocaleString("en")} clips` : "";
  if (data) return draw();
  for (const mark of marks) mark.classList.remove("lit");
  for (const n of lit) marks[n].classList.add("lit");
  if (sets.length) map.append(...lit.map((n) => marks[n]));
}
// Draw all dots on a layer, which the map shows with a ring around the current clip.
function draw() {
  const scale = (map.clientWidth * devicePixelRatio) / 1000;
  for (const canvas of [map, layer]) [canvas.width, canvas.height] = [1000 * scale, 720 * scale];
  const style = getComputedStyle(map);
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const pen = layer.getContext("2d");
  const radius = 4 * scale;
  const edge = Math.ceil(radius) + 1;
  function stamp(fill, alpha, outline) {
    const dot = document.createElement("canvas");
    dot.width = dot.height = 2 * edge;
    const brush = dot.getContext("2d");
    Object.assign(brush, { globalAlpha: alpha, fillStyle: fill, strokeStyle: outline, lineWidth: 0.7 });
    brush.arc(edge, edge, radius, 0, 2 * Math.PI);
    brush.fill();
    if (outline) brush.stroke();
    return dot;
  }
  const put = (dot, n) => pen.drawImage(dot, x[n] * scale - edge, y[n] * scale - edge);
  const is_dimmed = map.classList.contains("dimmed");
  if (is_dimmed) {
    const [dim, shown] = [stamp(colour("soft"), 0.16), new Set(lit)];
    for (const n of words.keys()) if (!shown.has(n)) put(dim, n);
  }
  const dots = colours.map((name) => stamp(colour(name), is_dimmed ? 0.95 : name === "soft" ? 0.4 : 0.55, is_dimmed && colour("ink")));
  for (const n of lit) put(dots[colour_of[n]], n);
  ring();
}
function ring() {
  const pen = map.getContext("2d");
  const scale = map.width / 1000;
  pen.clearRect(0, 0, map.width, map.height);
  pen.drawImage(layer, 0, 0);
  if (at < 0) return;
  pen.beginPath();
  Object.assign(pen, { strokeStyle: getComputedStyle(map).getPropertyValue("--ink"), lineWidth: 3.5 * scale });
  pen.arc(x[at] * scale, y[at] * scale, 4 * scale, 0, 2 * Math.PI);
  pen.stroke();
}
function show(n) {
  marks[at]?.classList.remove("at");
  marks[at = n]?.classList.add("at");
  map.classList.add("read");
  if (data) ring();
  facts.textContent = words[n];
  link.href = map.dataset.link + encodeURIComponent(words[n].split("\n").pop());
}
// The address contains the pressed names: #film=NAME&level=NAME.
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
// Show the highlighted clip nearest to the pointer, within 14 pixels; a clicked clip stays.
function point(event) {
  const [box, clicked] = [map.getBoundingClientRect(), event.type === "click"];
  const gap = (at, from, pointer) => from + (at * box.width) / 1000 - pointer;
  let [near, least] = [-1, 14];
  for (const n of lit) {
    const away = Math.hypot(gap(x[n], box.x, event.clientX), gap(y[n], box.y, event.clientY));
    if (away < least) [near, least] = [n, away];
  }
  if (clicked) pinned = near >= 0;
  if (near >= 0 && near !== at && (clicked || !pinned)) show(near);
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
if (data) {
  new ResizeObserver(draw).observe(map);
  for (const media of ["print", "(prefers-color-scheme: dark)"]) matchMedia(media).addEventListener("change", draw);
}
