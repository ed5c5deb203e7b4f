// Label clips by keys. The browser keeps the labels. Text is never parsed as HTML.
const find = (id) => document.getElementById(id);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const { digest, scheme, clips, pictures } = JSON.parse(find("data").textContent);
const [levels, concepts] = [scheme.levels, scheme.concepts].map((entries) => entries.map(({ name }) => name));
const store = JSON.stringify([digest, levels, concepts]);
const labels = new Map(); // by id, the level and the concepts of a clip
const buttons = [];
const keys = new Map();
let at = 0;

const label_of = ({ id }) => labels.get(id) ?? ["", []];
const level_of = (clip) => label_of(clip)[0];
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19).replace(/^0/, "");

// As in reports: higher levels stand out more.
const shade = (number) => (levels.length > 5 ? number % 6 : Math.ceil(4 * number / (levels.length - 1 || 1)));
const colour = (number) => `l${1 + shade(number)}`;

// Use the browser's storage, which some browsers refuse to files.
const attempt = (use) => { try { use(localStorage); } catch { find("lost").hidden = false; } };
const keep = () => attempt((storage) => storage.setItem(store, JSON.stringify([...labels])));

function show(number) {
  at = Math.min(Math.max(number, 0), clips.length - 1);
  const { id, film, media, start, end } = clips[at];
  const [level, ticked] = label_of(clips[at]);
  const all = clips.map(level_of);
  find("film").textContent = film || media;
  find("time").textContent = start === null ? id : `${clock(start)} – ${clock(end)} (${id})`;
  find("position").textContent = `${at + 1} of ${all.length}, ${all.filter(Boolean).length} labelled`;
  const picture = () => make("img", { src: `data:image/jpeg;base64,${pictures[id]}`, alt: id });
  find("picture").replaceChildren(Object.hasOwn(pictures, id) ? picture() : "no picture");
  find("place").value = at + 1;
  for (const { button, group, name } of buttons) {
    button.ariaPressed = group === "levels" ? name !== "" && name === level : ticked.includes(name);
    if (group === "levels") button.lastChild.textContent = all.filter((other) => other === name).length;
  }
  [...find("map").children].forEach((square, other) => {
    square.className = `${all[other] && colour(levels.indexOf(all[other]))} ${other === at ? "now" : ""}`;
  });
}

// `change` gets the level and the concepts of the clip that is shown, and returns new ones.
function add_button(group, key, name, square, change, step) {
  const press = () => {
    labels.set(clips[at].id, change(...label_of(clips[at])));
    keep();
    show(at + step);
  };
  const button = make("button", { type: "button", onclick: press });
  if (key) button.append(make("kbd", { textContent: key }));
  if (square) button.append(make("i", { className: `square ${square}` }));
  button.append(make("bdi", { textContent: name || "no label" }), make("span"));
  buttons.push({ button, group, name });
  keys.set(key || button, press);
  find(group).append(button);
}

// No spreadsheet takes a name for a formula; `read` undoes this.
function save() {
  const quote = (cell) => `"${cell.replace(/^'*[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  const rows = clips.filter(level_of).map((clip) => [clip.id, level_of(clip), label_of(clip)[1].join("|")]);
  const lines = [["id", "level", "concepts"], ...rows].map((row) => `${row.map(quote)}\n`);
  make("a", { href: URL.createObjectURL(new Blob(lines, { type: "text/csv" })), download: "labels.csv" }).click();
}

async function read() {
  for (const line of (await find("load").files[0].text()).split(/\r?\n/)) {
    const found = [...line.matchAll(/"((?:[^"]|"")*)"|[^",]+/g)];
    const cells = found.map(([text, quoted]) => quoted?.replaceAll('""', '"') ?? text);
    const [id, level, ticked = ""] = cells.map((cell) => cell.replace(/^'(?='*[=+\-@\t\r])/, ""));
    if (levels.includes(level)) labels.set(id, [level, concepts.filter((name) => ticked.split("|").includes(name))]);
  }
  keep();
  show(at);
}

levels.forEach((name, number) => {
  add_button("levels", number < 9 ? `${number + 1}` : "", name, colour(number), (_, ticked) => [name, ticked], 1);
});
add_button("levels", "0", "", "", (_, ticked) => ["", ticked], 1);
concepts.forEach((name, number) => {
  const toggle = (ticked) => concepts.filter((other) => ticked.includes(other) !== (other === name));
  const letter = "abcdefghijklmnopqrstuvwxyz".charAt(number);
  add_button("concepts", letter, name, "", (level, ticked) => [level, toggle(ticked)], 0);
});
find("back").onclick = () => show(at - 1);
find("next").onclick = () => show(at + 1);
keys.set("arrowleft", find("back").onclick).set("backspace", find("back").onclick);
keys.set("arrowright", find("next").onclick);
find("save").onclick = save;
find("load").onchange = read;
Object.assign(find("place"), { max: clips.length, oninput: ({ target }) => show(target.value - 1) });
find("hint").hidden = !concepts.length;
find("map").append(...clips.map((_, number) => make("i", { onclick: () => show(number) })));
addEventListener("keydown", (event) => {
  // Digits need Shift on French keyboards, so their place counts, not their sign.
  const digit = event.key.length === 1 && event.code.match(/^(?:Digit|Numpad)(\d)$/)?.[1];
  const press = keys.get(digit || event.key.toLowerCase());
  const moves = event.target.type === "range" && event.key.startsWith("Arrow");
  const is_taken = event.ctrlKey || event.metaKey || event.altKey || moves;
  if (!press || is_taken || (event.repeat && event.key.length === 1)) return;
  event.preventDefault();
  press();
});
attempt((storage) => JSON.parse(storage.getItem(store) ?? "[]").forEach(([id, label]) => labels.set(id, label)));
show(clips.findIndex((clip) => !level_of(clip)));
