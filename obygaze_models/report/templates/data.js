// The page's data, and helpers that make elements. Text is never parsed as HTML.
const data = JSON.parse(document.getElementById("explorer-data").textContent);
const find = (id) => document.getElementById(id);
let view = null; // the model that is shown, or null on a page without a model

// Make an element from its properties and its children. Empty children are left out.
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.flat(Infinity).filter(Boolean));
  return element;
}

const named = (text) => make("bdi", { title: text }, text); // a name in any script and direction
const decimals = (value) => value?.toFixed(2).replace("-", "−") ?? "–";
const by_text = (a, b) => a.localeCompare(b, "en", { numeric: true });
const film_of = (clip) => data.films[data.film[clip]];

// What lanes and the list show: the annotators' labels, or the page's if annotators are too many or none.
const labels = { name: "label", level: data.level, shows: data.shows };
const sets = data.annotators.length && !data.votes ? data.annotators : [labels];
const votes = data.votes?.of;
const many = votes && `${data.votes.level}, of ${data.annotators.length}`;
const level_of = (own, clip) => data.levels[own.level[clip]];

// A level as a square and a word, and the concepts.
function marks_of(own, clip) {
  const level = level_of(own, clip);
  if (!level) return "–";
  const concepts = own.shows[clip].map((concept) => data.concepts[concept]).join(", ");
  const words = [level.name, concepts].filter(Boolean).join(": ");
  return [make("i", { className: `square ${level.colour}` }), words];
}

// What the model that is shown has of a clip; null if it was not tested on it.
const of_view = (clip, column) => view?.[column]?.[view.row.get(clip)] ?? null;
const predicted = (clip) => of_view(clip, "p");
const label_of = (clip) => of_view(clip, "label");
const tested = (clip) => predicted(clip) !== null;
