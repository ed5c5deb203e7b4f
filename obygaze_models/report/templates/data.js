// The page's data, and helpers that make elements. Text is never parsed as HTML.
const data = JSON.parse(document.getElementById("explorer-data").textContent);
const find = (id) => document.getElementById(id);
let view = null; // the model that is shown, or null on a page without a model

// Make an element. Null children are left out; functions become event listeners.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "path", "text"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

// A name or a title, in any script and direction.
const named = (text) => make("bdi", {}, text);
function head(name) {
  const letters = [...name];
  return make("bdi", { title: name }, letters.length > 16 ? `${letters.slice(0, 15).join("")}…` : name);
}
const button = (words, click) => make("button", { type: "button", click }, words);
const square = (level) => make("i", { class: `square ${level.colour}` });
const decimals = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

// A clip's picture, or null if the page has none.
function picture(clip) {
  const id = data.ids[clip];
  if (!Object.hasOwn(data.pictures, id)) return null;
  return make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: "" });
}

// Format a time as hours, minutes and seconds.
function clock(seconds) {
  const whole = Math.round(seconds);
  const pair = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  return `${hours}:${pair(Math.floor(whole / 60) % 60)}:${pair(whole % 60)}`;
}

const film_of = (clip) => data.films[data.film[clip]];
const level_of = (clip) => data.levels[data.level[clip]] ?? null;
const concepts_of = (shown) => shown.map((concept) => data.concepts[concept]).join(", ");

// What lanes and tables show of each clip: the annotators' labels, or only the page's labels if there
// are too many annotators, or none.
const labels = { name: "label", level: data.level, shows: data.shows };
const sets = data.annotators.length && !data.votes ? data.annotators : [labels];
const votes = data.votes?.of ?? null;
const many = votes && `${data.votes.level}, of ${data.annotators.length}`;

// The name of a clip within its film: its time, scene number or id.
function scene(clip) {
  if (data.start[clip] !== null) return clock(data.start[clip]);
  return data.number[clip] === null ? data.ids[clip] : `scene ${data.number[clip]}`;
}

// Open a view, with lookups by clip.
function open_view(number) {
  view = data.views[number] ?? null;
  if (!view || view.row) return;
  view.row = new Map(data.tested[view.at].map((clip, row) => [clip, row]));
  view.shown = view.classes.length - 1;
}

const row_of = (clip) => view?.row.get(clip) ?? null;
const tested = (clip) => row_of(clip) !== null;

// The probability of a class. Of two classes, only the second has a column.
function probability(clip, shown = view.shown) {
  if (!tested(clip)) return null;
  const row = row_of(clip);
  if (view.p.length > 1) return view.p[shown][row] / 1000;
  return (shown ? view.p[0][row] : 1000 - view.p[0][row]) / 1000;
}

const wrong = (clip) => tested(clip) && view.called[row_of(clip)] !== view.label[row_of(clip)];
// The probability that the model does not give to the label; -1 for untested clips.
const distance = (clip) => (tested(clip) ? 1 - probability(clip, view.label[row_of(clip)]) : -1);

function annotators_differ(clip) {
  const levels = data.annotators.map((own) => own.level[clip]).filter((level) => level !== null);
  return new Set(levels).size > 1;
}

// The parts of a prediction, largest first, then the intercept; or the questions of a tree.
function reasons(clip) {
  const row = row_of(clip);
  if (row === null || !view.why) return [];
  if (view.why.steps) return view.why.steps[row];
  return view.why.parts[row].map(([name, part]) => `${name} ${part > 0 ? "+" : ""}${decimals(part)}`);
}

// A clip in one line, for tooltips and screen readers.
function sentence(clip) {
  const parts = [scene(clip)];
  for (const own of sets) {
    if (own.level[clip] !== null) parts.push(`\u2068${own.name}\u2069: ${data.levels[own.level[clip]].name}`);
  }
  if (votes) parts.push(`${many}: ${votes[clip]}`);
  if (tested(clip)) parts.push(`${view.classes[view.shown]} ${decimals(probability(clip))}`);
  return parts.join("; ");
}
