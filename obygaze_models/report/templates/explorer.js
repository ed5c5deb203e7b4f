// The film explorer: what is chosen, the strips and the list that follow from it.
const FIRST_ROWS = 10;
const STEP = 50;
const chosen = Object.fromEntries(
  ["run", "model", "shown-class", "film", "level", "match", "which", "order"].map((name) => [name, find(`choose-${name}`)]),
);
let view = null;
let drawn = [];
let listed = [];
let showing = FIRST_ROWS;

function options(select, pairs, all) {
  const before = select.value;
  select.replaceChildren();
  if (all) select.append(new Option(all, ""));
  for (const [value, text] of pairs) select.append(new Option(text, value));
  if ([...select.options].some((one) => one.value === before)) select.value = before;
}

function offer_runs() {
  const groups = new Map();
  data.runs.forEach((run, number) => {
    if (!groups.has(run.protocol)) groups.set(run.protocol, make("optgroup", { label: run.protocol }));
    groups.get(run.protocol).append(new Option(`${run.name} (${run.feature})`, number));
  });
  chosen.run.append(...groups.values());
  chosen.run.value = data.run;
}

function offer_models() {
  const run = Number(chosen.run.value);
  const of_run = data.views.flatMap((one, number) => (one.run === run ? [[number, one]] : []));
  options(chosen.model, of_run.map(([number, one]) => [number, one.task ? `${one.model}: ${one.task}` : one.model]));
  chosen.model.value = data.runs[run].view;
}

// A page opens on one film; another run or model shows the same film, if it has it.
function choose_view() {
  const film = view && film_id();
  view = open_view(Number(chosen.model.value));
  const clips = view.clips;
  options(chosen["shown-class"], view.classes.map((name, code) => [code, name]));
  chosen["shown-class"].value = view.spoken;
  chosen["shown-class"].parentElement.hidden = !view.several;
  options(chosen.film, by_title(clips.films), "all films");
  const place = film === null ? first_film() : clips.films.findIndex((entry) => entry.id === film);
  chosen.film.value = place < 0 ? "" : place;
  options(chosen.level, clips.levels.map((level, place) => [place, `${level.code}: ${level.name}`]), "all levels");
  offer_concepts(clips);
  draw();
}

const by_title = (films) => films
  .map((film, place) => [place, film.title])
  .sort(([, a], [, b]) => a.localeCompare(b, "en", { numeric: true }));

// Of a film's clips, those of the levels that the model looks for; null where it looks for no level.
function positives(clips) {
  const codes = view.classes[view.spoken].split("+");
  const levels = view.clips.levels.map((level) => codes.includes(level.code));
  return levels.includes(true) ? clips.filter((clip) => levels[view.clips.level[clip]]).length : null;
}

// The id of the chosen film; empty for all films.
const film_id = () => (chosen.film.value === "" ? "" : view.clips.films[chosen.film.value].id);

// The films' places, those with the largest share of what the model looks for first.
function by_share() {
  const films = film_clips(view);
  const shares = films.map((clips) => positives(clips) / clips.length);
  return films.map((_, place) => place).sort((a, b) => shares[b] - shares[a]);
}

// The film that a page opens on: the first that was tested.
function first_film() {
  const tested = new Set(view.at.map((clip) => view.clips.film[clip]));
  return by_share().find((place) => tested.has(place)) ?? 0;
}

function draw() {
  drawn = strips(view, open_drawn);
  find("strips").replaceChildren(...by_share().map((place) => drawn[place].section));
  find("sets-legend").replaceChildren(...sets_legend(view));
  find("about-run").textContent = about_run();
  for (const one of document.querySelectorAll(".spoken")) one.textContent = named(view, view.spoken);
  find("weighs").textContent = weighs(view);
  filter();
}

const open_drawn = (clip, clips) => open_clip(view, clip, clips);

function about_run() {
  const run = data.runs[view.run];
  const tested = view.at.length;
  const total = view.clips.ids.length;
  const gaps = new Map();
  for (let clip = 0; clip < total; clip++) {
    if (view.row[clip] < 0) gaps.set(gap(view, clip), (gaps.get(gap(view, clip)) || 0) + 1);
  }
  const rest = [...gaps].map(([why, number]) => `${number.toLocaleString("en")} ${why}`).join("; ");
  const more = data.total > total ? ` This run’s label set, ${run.labels}, has ${total.toLocaleString("en")} of the page’s ${count(data.total, "clip")}.` : "";
  return `${run.about}. ${tested.toLocaleString("en")} of ${count(total, "annotated clip")} tested${rest ? `; without a prediction: ${rest}` : ""}.${more}`;
}

const WHICH = {
  all: () => true,
  tested: (clip) => view.row[clip] >= 0,
  differ: (clip) => differs(view, clip),
  agree: (clip) => view.row[clip] >= 0 && !differs(view, clip),
  gap: (clip) => view.row[clip] < 0,
};

const ORDER = {
  differ: (clip) => -distance(view, clip) - (differs(view, clip) ? 1 : 0),
  most: (clip) => (view.row[clip] < 0 ? 1 : -said(view, clip)),
  least: (clip) => said(view, clip) ?? 2,
  unsure: (clip) => unsure(view, clip),
  scene: (clip) => clip,
};

function filter() {
  const [film, level, match] = ["film", "level", "match"].map((name) => chosen[name].value);
  const concepts = ticked();
  const which = WHICH[chosen.which.value];
  const wanted = (clip) =>
    (film === "" || view.clips.film[clip] === Number(film)) &&
    (level === "" || view.clips.level[clip] === Number(level)) &&
    shows_ticked(view.clips, clip, concepts, match) &&
    which(clip);
  const matches = new Set();
  view.clips.ids.forEach((_, clip) => { if (wanted(clip)) matches.add(clip); });
  drawn.forEach((one, place) => {
    one.section.hidden = film !== "" && place !== Number(film);
    show_alone(view, one, !one.section.hidden && (film !== "" || drawn.length === 1), open_drawn);
    one.clips.forEach((clip, at) => one.marks[at]?.classList.toggle("dim", !matches.has(clip)));
    one.line.textContent = film_line(one.clips);
    if (!one.timeline_shown) one.line.append(" ", timeline_button(place));
  });
  const closely = drawn.every((one) => one.section.hidden || one.timeline_shown);
  find("strips-legend").hidden = find("sets-legend").hidden = closely;
  find("strips-order").hidden = closely;
  const key = ORDER[chosen.order.value];
  const ranked = [...matches].map((clip) => [key(clip), clip]);
  ranked.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  listed = ranked.map(([, clip]) => clip);
  showing = FIRST_ROWS;
  list();
  write_address();
}

function timeline_button(place) {
  const button = make("button", { type: "button", class: "open" }, "Look closer");
  button.addEventListener("click", () => {
    chosen.film.value = place;
    filter();
    drawn[place].content.querySelector("[role=listbox]").focus();
  });
  return button;
}

// What is known of a film under this model, recomputed here from the clips.
function film_line(clips) {
  const tested = clips.filter((clip) => view.row[clip] >= 0);
  const percent = (part, whole) => `${Math.round((100 * part) / whole)}%`;
  const positive = positives(clips);
  const share = positive === null ? "" : `${named(view, view.spoken)}: ${positive} of ${count(clips.length, "clip")} (${percent(positive, clips.length)}). `;
  if (!tested.length) return `${share}None of its ${count(clips.length, "clip")} was tested.`;
  const wrong = tested.filter((clip) => differs(view, clip)).length;
  return `${share}${tested.length} of ${count(clips.length, "clip")} tested; model and annotators differ on ${wrong} (${percent(wrong, tested.length)}).`;
}

function list() {
  const body = find("clips-body");
  const names = chosen_names(view.clips.ids[listed[0]]);
  body.replaceChildren(...listed.slice(0, showing).map((clip, place) => list_row(clip, place, names)));
  const shown = Math.min(showing, listed.length);
  const total = view.clips.ids.length;
  find("clips-status").textContent = listed.length
    ? `Shows ${shown.toLocaleString("en")} of ${count(listed.length, "clip")} that match, of ${total.toLocaleString("en")}.`
    : `No clip matches, of ${total.toLocaleString("en")}.`;
  find("clips-choice").textContent = choice();
  find("clips-table").hidden = !listed.length;
  const rest = listed.length - shown;
  find("show-more").hidden = find("show-all").hidden = rest <= 0;
  find("show-more").textContent = `Show ${Math.min(STEP, rest)} more`;
  find("show-all").textContent = `Show all ${listed.length.toLocaleString("en")}`;
}

// What is chosen, for paper, where the controls are not.
function choice() {
  const words = (name) => chosen[name].selectedOptions[0].text;
  const parts = [`${words("model")} of ${words("run")}`, `film: ${words("film")}`, `level: ${words("level")}`, `concepts: ${concept_words()}`, `clips: ${words("which")}`, words("order")];
  return `${parts.join("; ")}.`;
}

const concept_words = () =>
  ticked().map((concept) => view.clips.concepts[concept]).join(chosen.match.value === "any" ? " or " : " and ") || "any";

function list_row(clip, place, names) {
  const film = film_of(view, clip);
  names.set("clip", view.clips.ids[clip]);
  const name = make("a", { href: `#${names}`, class: "open", "aria-haspopup": "dialog", "data-clip": clip }, `${film.title}, ${scene(view, clip)}`);
  const level = level_of(view, clip);
  const row = make("tr", { role: "row" });
  const cell = (title, tag = "td") => {
    const one = make(tag, { role: tag === "th" ? "rowheader" : "cell", "data-title": title, scope: tag === "th" ? "row" : null });
    row.append(one);
    return one;
  };
  cell("").append((place + 1).toLocaleString("en"));
  const named = cell("Clip", "th");
  const id = view.clips.ids[clip];
  if (Object.hasOwn(data.pictures, id)) named.append(make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: "" }));
  named.append(name, make("small", {}, [id, film.grid ? "" : time(view, clip)].filter(Boolean).join(" · ")));
  cell("Annotators").append(level_chip(level), make("small", {}, concepts_of(view, clip).join(", ") || "no concept"));
  const model = cell("Model");
  const value = said(view, clip);
  if (value === null) model.append(make("em", {}, `no prediction: ${gap(view, clip)}`));
  else {
    const bar = make("span", { class: "meter", "aria-hidden": "true" }, make("span"));
    bar.firstChild.style.width = `${value * 100}%`;
    model.append(make("data", { value }, probability(value)), bar, make("small", { class: differs(view, clip) ? "differ" : "agree" }, differs(view, clip) ? "≠ differ" : "= agree"));
  }
  const why = cell("Why");
  const parts = reasons(view, clip, 3);
  parts.forEach((text, number) => {
    const more = number + 1 < parts.length ? " · " : "";
    why.append(make("span", { class: "reason" }, text), more);
  });
  if (!parts.length) why.append(make("span", { class: "soft" }, value === null ? "–" : !view.why ? "gives no reasons" : view.why.kind === "path" ? "no question" : FITS_DIFFER));
  if (view.why && view.why.kind === "path" && value !== null && view.why.paths[view.row[clip]].length > 3) why.append(" …");
  return row;
}

chosen.run.addEventListener("change", () => { offer_models(); choose_view(); });
chosen.model.addEventListener("change", choose_view);
chosen["shown-class"].addEventListener("change", () => { view.spoken = Number(chosen["shown-class"].value); draw(); });
for (const name of ["film", "level", "match", "which", "order"]) chosen[name].addEventListener("change", filter);
find("choose").addEventListener("submit", (event) => event.preventDefault());
find("choose-reset").addEventListener("click", () => {
  for (const [name, value] of Object.entries(FIRST)) chosen[name].value = value;
  for (const box of find("choose-concepts").querySelectorAll("input")) box.checked = false;
  filter();
});
find("concept-chips").addEventListener("change", filter);
find("concept-glossary").addEventListener("toggle", (event) => { if (event.target.open) explain_concepts(); });
find("save-table").addEventListener("click", save_table);
find("copy-list").addEventListener("click", (event) => copy_text(address(), event.target));
find("show-more").addEventListener("click", () => more(showing + STEP));
find("show-all").addEventListener("click", () => more(listed.length));
function more(number) {
  const from = showing;
  showing = number;
  list();
  find("clips-body").rows[from]?.querySelector(".open").focus();
}
find("clips-body").addEventListener("click", (event) => {
  const link = event.target.closest(".open");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser's own ways to open a link
  event.preventDefault();
  open_clip(view, Number(link.dataset.clip), listed);
});

find("explorer-app").hidden = false;
offer_runs();
offer_models();
choose_view();
restore();
document.documentElement.dataset.ready = Math.round(performance.now());
