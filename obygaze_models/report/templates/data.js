// The page's data, and helpers that make elements. Text is never parsed as HTML.
const data = JSON.parse(document.getElementById("explorer-data").textContent);
const find = (id) => document.getElementById(id);
let view = null; // the model that is shown, or null on a page without a model

// Make an element. Null children are left out; functions become event listeners.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "path", "text", "title", "polyline"].includes(tag);
  const element = document.createElementNS(`http://www.w3.org/${svg ? "2000/svg" : "1999/xhtml"}`, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

// A name or a title, in any script and direction; in heads, at most 16 letters.
function named(text, most = Infinity) {
  const letters = [...text];
  return make("bdi", { title: text }, letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text);
}
const square = (level) => make("i", { class: `square ${level.colour}` });
const decimals = (value) => value.toFixed(2).replace("-", "−");

function clock(seconds) {
  const [minutes, rest] = [Math.floor(Math.round(seconds) / 60), Math.round(seconds) % 60];
  return [Math.floor(minutes / 60), ...[minutes % 60, rest].map((part) => String(part).padStart(2, "0"))].join(":");
}

const film_of = (clip) => data.films[data.film[clip]];
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

// The predicted number, or the probability of a class. Of two classes, only the second has a column.
function predicted(clip, shown = view.shown) {
  if (!tested(clip)) return null;
  const row = row_of(clip);
  if (view.range) return view.p[0][row];
  if (view.p.length > 1) return view.p[shown][row] / 1000;
  return (shown ? view.p[0][row] : 1000 - view.p[0][row]) / 1000;
}

const label_of = (clip) => view.label[row_of(clip)];
const share = (value) => (view.range ? (value - view.range[0]) / (view.range[1] - view.range[0]) : value);
const wrong = (clip) => tested(clip) && !view.range && view.called[row_of(clip)] !== label_of(clip);
// The distance of a number, or the probability that the model does not give to the label.
function distance(clip) {
  if (!tested(clip)) return -1;
  return view.range ? Math.abs(predicted(clip) - label_of(clip)) : 1 - predicted(clip, label_of(clip));
}

// The parts of a prediction, largest first, then the intercept; or the questions of a tree.
function reasons(clip) {
  if (!tested(clip) || !view.why) return [];
  if (view.why.steps) return view.why.steps[row_of(clip)];
  return view.why.parts[row_of(clip)].map(([name, part]) => `${name} ${part > 0 ? "+" : ""}${decimals(part)}`);
}

// A clip in one line, for tooltips and screen readers.
function sentence(clip) {
  const parts = [scene(clip)];
  for (const own of sets) {
    if (own.level[clip] !== null) parts.push(`\u2068${own.name}\u2069: ${data.levels[own.level[clip]].name}`);
  }
  if (votes) parts.push(`${many}: ${votes[clip]}`);
  if (tested(clip)) parts.push(`${view.classes[view.shown] ?? view.test} ${decimals(predicted(clip))}`);
  return parts.join("; ");
}
