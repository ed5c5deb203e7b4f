// The page's data, and helpers that make elements. Text is never parsed as HTML.
const data = JSON.parse(document.getElementById("explorer-data").textContent);
const find = (id) => document.getElementById(id);
let view = null; // the model that is shown, or null on a page without a model

// Make an element. Null children are left out; functions become event listeners.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "title", "polyline"].includes(tag);
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
const film_of = (clip) => data.films[data.film[clip]];
const concepts_of = (shown) => shown.map((concept) => data.concepts[concept]).join(", ");

// What lanes and tables show of each clip: the annotators' labels, or only the page's labels if there
// are too many annotators, or none.
const labels = { name: "label", level: data.level, shows: data.shows };
const sets = data.annotators.length && !data.votes ? data.annotators : [labels];
const votes = data.votes?.of ?? null;
const many = votes && `${data.votes.level}, of ${data.annotators.length}`;

// What the model that is shown has of a clip; null if it was not tested on it.
const of_view = (clip, column) => (view?.row.has(clip) ? view[column][view.row.get(clip)] : null);
const predicted = (clip) => of_view(clip, "p");
const label_of = (clip) => of_view(clip, "label");
const tested = (clip) => predicted(clip) !== null;
const share = (value) => (view.range ? (value - view.range[0]) / (view.range[1] - view.range[0]) : value);
const wrong = (clip) => !view.range && of_view(clip, "called") !== label_of(clip);
const reasons = (clip) => (tested(clip) && view.why ? view.why.reasons[view.row.get(clip)] : []);

// A clip in one line, for tooltips and screen readers.
function sentence(clip) {
  const parts = [data.scene[clip]];
  for (const own of sets) {
    if (own.level[clip] !== null) parts.push(`\u2068${own.name}\u2069: ${data.levels[own.level[clip]].name}`);
  }
  if (votes) parts.push(`${many}: ${votes[clip]}`);
  if (tested(clip)) parts.push(`${view.what} ${decimals(predicted(clip))}`);
  return parts.join("; ");
}
