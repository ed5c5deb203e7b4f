// The page's data, its wording, and helpers that make elements. Text is never parsed as HTML.
const data = JSON.parse(document.getElementById("explorer-data").textContent);
const has_models = data.views.some((entry) => entry.model);
let view = null; // the model that is shown, or the annotations on a page without a model

const no_reasons = () => `There are no reasons: the features are all zero (nothing is said or seen in the clip)${view.several ? ", or the fits that tested the clip predict different classes" : ""}.`;
const marked_concepts = () => view.clips.sets.length ? `Concepts of the ${data.runs[view.run].labels} labels` : "Marked concepts";
const MISSING = {
  "no-features": () => "without features in the store",
  "no-fold": () => "without a fold in the split",
  "not-in-task": () => "of a level that the task leaves out",
  "not-in-labels": () => `not in the label set ${data.runs[view.run].labels}`,
};

const find = (id) => document.getElementById(id);

// Make an element. Null attributes and children are left out; functions become event listeners.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "line", "path"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") Object.entries(value).forEach((property) => element.style.setProperty(...property));
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

const rect = (name, x, y, width, height, more = {}) => make("rect", { class: name, x, y, width, height, ...more });
const button = (words, click, more = {}) => make("button", { type: "button", click, ...more }, words);

// A clip's picture, or null if the page has none.
const picture = (id, more = {}) =>
  Object.hasOwn(data.pictures, id) ? make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: "", ...more }) : null;

const grouped = (number) => number.toLocaleString("en");
const count = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
const minus = (text) => text.replace("-", "−");
const two_digits = (value) => (value === null ? "–" : value.toFixed(2));
const joined = (parts, between) => parts.filter(Boolean).join(between);

// Columns hold integers in a unit, with null for missing values.
const number_at = (column, row) => (column.of[row] ?? null) === null ? null : column.of[row] * column.unit;

// Format a number of a column with as many digits as its unit has.
function digits_at(column, row, signed = false) {
  const value = number_at(column, row);
  if (value === null) return "–";
  const digits = Math.max(0, Math.min(4, -Math.round(Math.log10(column.unit))));
  return (signed && value > 0 ? "+" : "") + minus(value.toFixed(digits));
}

// Format a time. If the film has an hour or more, all its times show hours.
function clock(seconds, long = false) {
  const whole = Math.floor(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const tail = `${String(minutes).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
  return hours || long ? `${hours}:${tail}` : tail.replace(/^0/, "");
}

// Open a model of a run, with lookups by clip. `row[clip]` is the clip's row, or -1 if it has none.
function open_view(number) {
  const opened = data.views[number];
  if (opened.row) return opened;
  const { clips, unused } = data.runs[opened.run];
  opened.number = number;
  opened.clips = data.clips[clips];
  opened.row = new Int32Array(opened.clips.ids.length).fill(-1);
  opened.at.forEach((clip, row) => (opened.row[clip] = row));
  opened.reason = new Map(Object.entries(unused).flatMap(([reason, of]) => of.map((clip) => [clip, reason])));
  opened.several = opened.classes.length > 2;
  opened.class_shown = opened.classes.length - 1;
  return opened;
}

const tested = (clip) => view.row[clip] >= 0;
const called = (clip) => view.called[view.row[clip]];
const labelled = (clip) => view.label[view.row[clip]];
const differs = (clip) => tested(clip) && called(clip) !== labelled(clip);

// The reason why there is no prediction, or an empty string if there is one.
function missing_reason(clip) {
  if (tested(clip)) return "";
  const reason = MISSING[view.reason.get(clip)];
  return reason ? reason() : "used only for training or validation";
}

// The probability of a class, by default the class that is shown.
function probability(clip, code = view.class_shown) {
  if (!tested(clip)) return null;
  if (view.several) return number_at(view.p[code], view.row[clip]);
  const positive = number_at(view.p[0], view.row[clip]);
  return code === 1 ? positive : 1 - positive;
}

// The distance of the model from the annotators: 1 - the probability of their class.
const distance = (clip) => (tested(clip) ? 1 - probability(clip, labelled(clip)) : -1);

function sureness(clip) {
  if (!tested(clip)) return 2;
  if (!view.several) return Math.abs(probability(clip) - 0.5);
  return Math.max(...view.classes.map((_, code) => probability(clip, code)));
}

const film_of = (clip) => view.clips.films[view.clips.film[clip]];
const level_of = (clip) => view.clips.levels[view.clips.level[clip]];
const concept_names = (concepts) => concepts.map((concept) => view.clips.concepts[concept]);
const concepts_of = (clip) => concept_names(view.clips.shows[clip]);

// Each film's clips.
function film_clips() {
  const films = view.clips.films.map(() => []);
  view.clips.film.forEach((film, clip) => films[film].push(clip));
  return films;
}

// The name of a clip: its time if it is part of a grid, else its scene number.
function scene(clip) {
  if (film_of(clip).grid) return time(clip);
  const number = view.clips.number[clip];
  return number === null ? view.clips.ids[clip] : `scene ${number}`;
}

const clip_title = (clip) => `${film_of(clip).title}, ${scene(clip)}`;
const id_and_time = (clip) => joined([view.clips.ids[clip], film_of(clip).grid ? "" : time(clip)], " · ");

function time(clip) {
  const [start, end] = [view.clips.start[clip], view.clips.end[clip]];
  const { long } = film_of(clip);
  if (start === undefined || start === null) return "";
  return end === null ? clock(start, long) : `${clock(start, long)}–${clock(end, long)}`;
}

// The other label sets' labels of a clip, as [name, level, concepts].
const label_sets = (clip) => view.clips.sets
  .filter((labels) => labels.level[clip] !== null)
  .map((labels) => [labels.name, view.clips.levels[labels.level[clip]], concept_names(labels.shows[clip])]);
const given_levels = (clip) => label_sets(clip).map(([, level]) => level.code);

// A class in full words: "EN+HN (Easy Negative or Hard Negative)".
function class_words(code) {
  const { title, words } = view.classes[code];
  return words === title ? title : `${title} (${words})`;
}

// A clip in one line, for screen readers and tooltips.
function sentence(clip) {
  const parts = [...new Set([scene(clip), time(clip)]), `level: ${level_of(clip).name}`, concepts_of(clip).join(", ")];
  if (!has_models) parts.push(...label_sets(clip).map(([name, level]) => `${name}: ${level.name}`));
  else if (tested(clip)) {
    parts.push(`${view.classes[view.class_shown].title} ${two_digits(probability(clip))}`);
    parts.push(differs(clip) ? "model and label differ" : "model and label agree");
  } else parts.push(`no prediction: ${missing_reason(clip)}`);
  return joined(parts, "; ");
}

// A tree's question with its answer, such as "Body 0.31 > 0.12".
const step_words = (why, [concept, value, above, threshold]) =>
  `${why.concepts[concept]} ${minus(String(value))} ${above ? ">" : "≤"} ${minus(String(threshold))}`;

// The name for a model's reasons.
function reason_kind() {
  if (!view.why) return "reasons";
  return view.why.kind === "path" ? "questions of the tree" : `parts in the ${view.why.of}`;
}

// Fits that predict different classes (of more than two) have no common sum.
const has_parts = (why, row) => why.amounts.every((column) => column.of[row] !== null);

// The parts that add up, as [name, amounts, values]: concepts by weight, then the intercept, without values.
const concept_parts = (why, row) => why.order[row].map((place) => [why.concepts[place], why.amounts[place], why.values[place]]);
const rest_parts = (why, title) => (why.intercept ? [[title, why.intercept]] : []);
const parts_of = (why, row) => [...concept_parts(why, row), ...rest_parts(why, "at rest (intercept)")];

// The largest parts as texts that add up, with those for the verdict first; of a tree, the first questions.
function reasons(clip, most) {
  const { why } = view;
  const row = view.row[clip];
  if (!why || row < 0) return [];
  if (why.kind === "path") return why.paths[row].slice(0, most).map((step) => step_words(why, step));
  if (!has_parts(why, row)) return [];
  const parts = parts_of(why, row), words = ([name, column]) => `${name} ${digits_at(column, row, true)}`;
  if (most === Infinity || !parts.length) return parts.map(words);
  const toward = view.several || called(clip) ? 1 : -1;
  const supports = ([, column]) => column.of[row] * toward >= 0;
  const others = concept_parts(why, row).sort(([, a], [, b]) => Math.abs(b.of[row]) - Math.abs(a.of[row]));
  const shown = [...others.splice(0, others.length === most + 1 ? most + 1 : most), ...rest_parts(why, "at rest")];
  const rest = { ...why.total, of: { [row]: others.reduce((sum, [, column]) => sum + column.of[row], 0) } };
  if (others.length) shown.push([`${others.length} others`, rest]);
  return [
    ...shown.filter(supports).map(words), ...shown.filter((part) => !supports(part)).map((part) => `against: ${words(part)}`),
    `together ${digits_at(why.total, row, true)}`,
  ];
}

const level_chip = (level) => make("span", { class: "level", style: { "--level": `var(--${level.colour})` }, title: level.name }, level.code);
// What a level's code alone does not say.
const beyond_code = (level) => (level.name === level.code ? [] : [level.name]);

const agreement = (clip, differ, agree) =>
  [{ class: differs(clip) ? "differ" : "agree" }, differs(clip) ? differ : agree];
