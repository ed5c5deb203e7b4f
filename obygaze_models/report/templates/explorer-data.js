// What is asked of the data, and the words for it. All text goes through textContent.
const data = JSON.parse(document.getElementById("explorer-data").textContent);

const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "line", "path"].includes(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const count = (number, noun, nouns = `${noun}s`) =>
  `${number.toLocaleString("en")} ${number === 1 ? noun : nouns}`;

const NO_REASONS = "This model gives no reasons.";
const NOT_CONCEPTS = "not explained by concepts";
const FITS_DIFFER = "the fits predict different classes";

const minus = (text) => text.replace("-", "−");

// A whole number in its column's unit, with as many digits as the unit has.
function figure(column, row, signed = false) {
  const whole = column.of[row];
  if (whole === null || whole === undefined) return "–";
  const value = whole * column.unit;
  const digits = Math.max(0, Math.min(4, -Math.round(Math.log10(column.unit))));
  return (signed && value > 0 ? "+" : "") + minus(value.toFixed(digits));
}

const probability = (value) => (value === null ? "–" : value.toFixed(2));

// A time; with hours from the start where a film is that long, so that all its times look alike.
function clock(seconds, long = false) {
  const whole = Math.floor(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const tail = `${String(minutes).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
  return hours || long ? `${hours}:${tail}` : tail.replace(/^0/, "");
}

// A model of a run, with lookups by clip. `row[clip]` is its row there, -1 where it has none.
function open_view(number) {
  const view = data.views[number];
  if (view.row) return view;
  view.number = number;
  view.clips = data.clips[data.runs[view.run].clips];
  const total = view.clips.ids.length;
  view.row = new Int32Array(total).fill(-1);
  view.at.forEach((clip, row) => (view.row[clip] = row));
  view.reason = new Array(total).fill("");
  for (const [reason, clips] of Object.entries(data.runs[view.run].unused)) {
    for (const clip of clips) view.reason[clip] = reason;
  }
  view.several = view.classes.length > 2;
  view.spoken = view.classes.length - 1;
  return view;
}

const REASONS = {
  "no features": "no features in the store",
  "no fold": "no fold in the split",
  "not in the task": "of a level that the task leaves out",
};

// Why there is no prediction; empty where there is one.
function gap(view, clip) {
  if (view.row[clip] >= 0) return "";
  return REASONS[view.reason[clip]] || view.reason[clip] || "not in a test set: trained or validated";
}

// The probability of the class that is shown; of a class, where one is named.
function said(view, clip, code = view.spoken) {
  const row = view.row[clip];
  if (row < 0) return null;
  if (view.several) return view.p[code].of[row] * view.p[code].unit;
  const positive = view.p[0].of[row] * view.p[0].unit;
  return code === 1 ? positive : 1 - positive;
}

const called = (view, clip) => view.called[view.row[clip]];
const labelled = (view, clip) => view.label[view.row[clip]];
const differs = (view, clip) => view.row[clip] >= 0 && called(view, clip) !== labelled(view, clip);

// How far the model is from the annotators: 1 - the probability of their class.
const distance = (view, clip) =>
  view.row[clip] < 0 ? -1 : 1 - said(view, clip, labelled(view, clip));

function unsure(view, clip) {
  if (view.row[clip] < 0) return 2;
  if (!view.several) return Math.abs(said(view, clip) - 0.5);
  return Math.max(...view.classes.map((_, code) => said(view, clip, code)));
}

const film_of = (view, clip) => view.clips.films[view.clips.film[clip]];
const level_of = (view, clip) => view.clips.levels[view.clips.level[clip]];
const concepts_of = (view, clip) => view.clips.shows[clip].map((one) => view.clips.concepts[one]);

// What a clip is called: a part of a grid by its time, a scene by its number.
function scene(view, clip) {
  if (film_of(view, clip).grid) return time(view, clip);
  const number = view.clips.number[clip];
  return number === null ? view.clips.ids[clip] : `scene ${number}`;
}

function time(view, clip) {
  const [start, end] = [view.clips.start[clip], view.clips.end[clip]];
  const { long } = film_of(view, clip);
  if (start === undefined || start === null) return "";
  return end === null ? clock(start, long) : `${clock(start, long)}–${clock(end, long)}`;
}

// What each other label set says of a clip, as [name, level, concepts].
function label_sets(view, clip) {
  return view.clips.sets
    .filter((labels) => labels.level[clip] !== null)
    .map((labels) => [labels.name, view.clips.levels[labels.level[clip]], labels.shows[clip].map((at) => view.clips.concepts[at])]);
}

// A class in full words: "EN+HN (Easy Negative or Hard Negative)".
function named(view, code) {
  const label = view.classes[code];
  const names = label.split("+").map((one) => view.clips.levels.find((level) => level.code === one)?.name);
  return names.every((name) => name && name !== label) ? `${label} (${names.join(" or ")})` : label;
}

// A clip in one line, as it is read aloud.
function sentence(view, clip) {
  const parts = [...new Set([scene(view, clip), time(view, clip)]), `annotators: ${level_of(view, clip).name}`];
  const concepts = concepts_of(view, clip);
  if (concepts.length) parts.push(concepts.join(", "));
  if (view.row[clip] < 0) parts.push(`no prediction: ${gap(view, clip)}`);
  else {
    parts.push(`${view.classes[view.spoken]} ${probability(said(view, clip))}`);
    parts.push(differs(view, clip) ? "they differ" : "they agree");
  }
  return parts.filter(Boolean).join("; ");
}

// A tree's condition on a concept in words; its threshold may be a high or a low one.
function condition_words(why, at) {
  const [concept, low, high] = why.conditions[at];
  const bounds = [low === null ? "" : "enough", high === null ? "" : "not too much"];
  return `${bounds.filter(Boolean).join(", ")} ${why.concepts[concept]}`;
}

// What a model's reasons are.
const weighs = (view) => {
  if (!view.why) return "reasons";
  return view.why.kind === "path" ? "conditions of the tree" : `parts in the ${view.why.of}`;
};

// The concepts that weigh most, as texts; of a tree its first conditions.
function reasons(view, clip, most) {
  const why = view.why;
  const row = view.row[clip];
  if (!why || row < 0) return [];
  if (why.kind === "path") {
    return why.paths[row].slice(0, most).map(([at]) => condition_words(why, at));
  }
  if (!has_parts(why, row)) return [];
  const parts = why.order[row].map((place) => [why.concepts[place], why.amounts[place]]);
  if (why.residual) parts.push([NOT_CONCEPTS, why.residual]);
  return parts.slice(0, most).map(([name, column]) => `${name} ${figure(column, row, true)}`);
}

// Fits that predict different ones of several classes have no common sum.
const has_parts = (why, row) => why.amounts.every((column) => column.of[row] !== null);

function level_chip(level) {
  const chip = make("span", { class: "level" }, level.code);
  chip.style.setProperty("--level", `var(--${level.colour})`);
  chip.title = level.name;
  return chip;
}
