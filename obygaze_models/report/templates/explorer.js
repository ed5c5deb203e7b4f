// The film explorer: the selection, and the strips, list and concepts that depend on it.
const FIRST_ROWS = 10;
const STEP = 50;
const STILLS = 3;
const FOLDED = 5; // as in the style sheet
const chosen = Object.fromEntries(["run", "model", "shown-class", "film", "level", "match", "which", "order"].map((name) => [name, find(`choose-${name}`)]));
let drawn = []; // the films' strips
let listed = []; // the clips of the list
let showing = FIRST_ROWS;

function offer(select, pairs, all) {
  const before = select.value;
  select.replaceChildren(...(all ? [new Option(all, "")] : []), ...pairs.map(([value, text]) => new Option(text, value)));
  if ([...select.options].some((option) => option.value === before)) select.value = before;
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

const model_name = ({ model, task }) => joined([model, task], ": ");

function offer_models() {
  const run = Number(chosen.run.value);
  offer(chosen.model, data.views.flatMap((entry, number) => (entry.run === run ? [[number, model_name(entry)]] : [])));
  chosen.model.value = data.runs[run].view;
}

// A page opens on one film. Another run or model shows the same film if the run has the film.
function choose_view() {
  const film = view && film_id();
  view = open_view(Number(chosen.model.value));
  const { films, levels } = view.clips;
  offer(chosen["shown-class"], view.classes.map(({ title }, code) => [code, title]));
  chosen["shown-class"].value = view.class_shown;
  chosen["shown-class"].parentElement.hidden = !view.several;
  const titles = films.map(({ title }, place) => [place, title]);
  offer(chosen.film, titles.sort(([, a], [, b]) => a.localeCompare(b, "en", { numeric: true })), "all films");
  const place = film === null ? first_film() : films.findIndex(({ id }) => id === film);
  chosen.film.value = place < 0 ? "" : place;
  offer(chosen.level, levels.map((level, order) => [order, [level.code, ...beyond_code(level)].join(": ")]), "all levels");
  offer_concepts();
  draw();
}

function show_class(code) {
  chosen["shown-class"].value = view.class_shown = code;
  draw();
}

// The number of clips with a level of the class shown, or null if the class has no levels.
function positives(clips) {
  const shown = view.classes[view.class_shown];
  const levels = view.clips.levels.map((level) => shown.levels.includes(level.code));
  return levels.includes(true) ? clips.filter((clip) => levels[view.clips.level[clip]]).length : null;
}

// The id of the selected film; empty for all films.
const film_id = () => (chosen.film.value === "" ? "" : view.clips.films[chosen.film.value].id);

// The indices of the films, those with the largest share of the class shown first.
function by_share() {
  const shares = film_clips().map((clips) => positives(clips) / clips.length);
  return shares.map((_, place) => place).sort((a, b) => shares[b] - shares[a]);
}

// The film that a page opens on: the first that was tested.
function first_film() {
  const films = new Set(view.at.map((clip) => view.clips.film[clip]));
  return by_share().find((place) => !has_models || films.has(place)) ?? 0;
}

function draw() {
  drawn = film_clips().map((clips, place) => film_section(view.clips.films[place], clips, place));
  find("strips").replaceChildren(...by_share().map((place) => drawn[place].section));
  find("sets-legend").replaceChildren(...(view.clips.sets.length ? level_keys(view.clips.levels) : []));
  find("about-run").textContent = has_models ? about_run() : "";
  for (const words of document.querySelectorAll(".class-shown")) words.textContent = class_words(view.class_shown);
  if (has_models) find("why-head").hidden = !view.why;
  if (view.why) find("weighs").textContent = reason_kind();
  filter();
}

function about_run() {
  const run = data.runs[view.run];
  const total = view.clips.ids.length;
  const missing = new Map();
  for (let clip = 0; clip < total; clip++) {
    const reason = missing_reason(clip);
    if (reason) missing.set(reason, (missing.get(reason) || 0) + 1);
  }
  const rest = [...missing].map(([reason, number]) => `${grouped(number)} ${reason}`).join("; ");
  const more = data.total > total ? ` This run’s label set, ${run.labels}, has ${grouped(total)} of the page’s ${count(data.total, "clip")}.` : "";
  return `${run.about}. ${grouped(view.at.length)} of ${count(total, "annotated clip")} were tested${rest ? `; without a prediction: ${rest}` : ""}.${more}`;
}

const WHICH = {
  all: () => true,
  tested,
  differ: differs,
  agree: (clip) => tested(clip) && !differs(clip),
  gap: (clip) => !tested(clip),
  divided: (clip) => new Set(given_levels(clip)).size > 1,
  single: (clip) => given_levels(clip).filter((code) => view.classes[view.class_shown].levels.includes(code)).length === 1,
};

const ORDER = {
  differ: (clip) => -distance(clip) - (differs(clip) ? 1 : 0),
  most: (clip) => (tested(clip) ? -probability(clip) : 1),
  least: (clip) => probability(clip) ?? 2,
  unsure: sureness,
  level: (clip) => -view.clips.level[clip],
  scene: (clip) => clip,
};

function filter() {
  const [film, level] = [chosen.film.value, chosen.level.value];
  const concepts = ticked();
  const which = WHICH[chosen.which.value];
  const shows = (clip) => concepts[chosen.match.value === "any" ? "some" : "every"]((concept) => view.clips.shows[clip].includes(concept));
  const matches = new Set([...view.clips.ids.keys()].filter((clip) =>
    (film === "" || view.clips.film[clip] === Number(film)) &&
    (level === "" || view.clips.level[clip] === Number(level)) &&
    (!concepts.length || shows(clip)) &&
    which(clip)));
  drawn.forEach((drawing, place) => {
    drawing.section.hidden = film !== "" && place !== Number(film);
    if (!drawing.section.hidden) show_film(drawing, film !== "" || drawn.length === 1);
    drawing.clips.forEach((clip, at) => drawing.marks[at]?.classList.toggle("dim", !matches.has(clip)));
    drawing.line.textContent = film_line(drawing.clips);
    if (!drawing.timeline_shown) drawing.line.append(" ", button("Look closer", () => look_closer(place), { class: "open" }));
  });
  const closely = drawn.every((drawing) => drawing.section.hidden || drawing.timeline_shown);
  for (const id of ["strips-legend", "sets-legend", "strips-order"]) find(id).hidden = closely;
  const key = ORDER[chosen.order.value];
  const ranked = [...matches].map((clip) => [key(clip), clip]);
  listed = ranked.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, clip]) => clip);
  showing = FIRST_ROWS;
  list();
  write_address();
}

function look_closer(place) {
  chosen.film.value = place;
  filter();
  drawn[place].content.querySelector("[role=listbox]").focus();
}

// Describe a film under this model, from its clips.
function film_line(clips) {
  const percent = (part, whole) => `${Math.round((100 * part) / whole)}%`;
  const positive = positives(clips);
  const share = positive === null ? "" : `${class_words(view.class_shown)}: ${positive} of ${count(clips.length, "clip")} (${percent(positive, clips.length)}). `;
  const total = clips.filter(tested).length;
  if (!total) return `${share}${has_models ? `None of its ${count(clips.length, "clip")} was tested.` : ""}`;
  const wrong = clips.filter(differs).length;
  return `${share}Tested: ${total} of ${count(clips.length, "clip")}; model and label differ on ${wrong} (${percent(wrong, total)}).`;
}

function list() {
  const names = chosen_names(view.clips.ids[listed[0]]);
  find("clips-body").replaceChildren(...listed.slice(0, showing).map((clip, place) => list_row(clip, place, names)));
  const shown = Math.min(showing, listed.length);
  const total = grouped(view.clips.ids.length);
  find("clips-status").textContent = listed.length
    ? `Showing ${grouped(shown)} of ${count(listed.length, "matching clip")} (${total} in all).`
    : `None of the ${total} clips matches.`;
  find("clips-choice").textContent = choice();
  find("clips-table").hidden = !listed.length;
  if (find("play-list")) find("play-list").disabled = !listed.some(video_address);
  const rest = listed.length - shown;
  find("show-more").hidden = find("show-all").hidden = rest <= 0;
  find("show-more").textContent = `Show ${Math.min(STEP, rest)} more`;
  find("show-all").textContent = `Show all ${grouped(listed.length)}`;
}

// The selection in words, for print, where the controls are hidden.
function choice() {
  const words = (name) => chosen[name].selectedOptions[0].text;
  const concepts = concept_names(ticked()).join(chosen.match.value === "any" ? " or " : " and ") || "any";
  return `${has_models ? `${words("model")} of ${words("run")}; ` : ""}film: ${words("film")}; level: ${words("level")}; concepts: ${concepts}; clips: ${words("which")}; ${words("order")}.`;
}

function list_row(clip, place, names) {
  const id = view.clips.ids[clip];
  names.set("clip", id);
  const link = make("a", { href: `#${names}`, class: "open", "aria-haspopup": "dialog", "data-clip": clip }, chosen.film.value === "" ? clip_title(clip) : scene(clip));
  const cell = (title, ...parts) => make("td", { "data-title": title }, parts);
  return make("tr", { role: "row" },
    cell("", grouped(place + 1)),
    make("th", { "data-title": "Clip", scope: "row" }, picture(id), link, make("small", {}, id_and_time(clip))),
    cell(find("label-head").textContent, level_chip(level_of(clip)), make("small", {}, concepts_of(clip).join(", ") || "no concept")),
    find("each-head") ? cell("Each annotator", label_sets(clip).map(([name, level, concepts]) =>
      make("div", {}, level_chip(level), ` ${name} `, make("small", {}, concepts.join(", "))))) : null,
    has_models ? cell("Model", model_parts(clip)) : null,
    view.why ? cell("Why", reason_parts(clip)) : null);
}

function model_parts(clip) {
  const value = probability(clip);
  if (value === null) return make("em", {}, `no prediction: ${missing_reason(clip)}`);
  return [
    make("data", { value }, two_digits(value)),
    make("span", { class: "meter", "aria-hidden": "true" }, make("span", { style: { width: `${value * 100}%` } })),
    make("small", ...agreement(clip, ...(view.clips.sets.length
      ? [`≠ differs from ${data.runs[view.run].labels}`, `= agrees with ${data.runs[view.run].labels}`] : ["≠ differ", "= agree"]))),
  ];
}

function reason_parts(clip) {
  const { why } = view;
  const path = why && why.kind === "path";
  const parts = reasons(clip, 3);
  if (!parts.length) return make("span", { class: "soft", title: no_reasons() }, !tested(clip) ? "–" : path && why.fit[view.row[clip]] >= 0 ? "no question" : "no reasons");
  const words = parts.flatMap((text, number) => [number ? " · " : null, make("span", { class: "reason" }, text)]);
  return path && why.paths[view.row[clip]].length > 3 ? [words, " …"] : words;
}

// The concepts: chips to filter by, and a description and pictures of each.
const concept_boxes = () => [...find("choose-concepts").querySelectorAll("input")];
const ticked = () => concept_boxes().filter((box) => box.checked).map((box) => Number(box.value));
let offered = []; // the concepts' names

function offer_concepts() {
  const { concepts, meanings } = view.clips;
  const before = ticked().map((concept) => offered[concept]);
  offered = concepts;
  find("concept-chips").replaceChildren(...concepts.map((name, concept) => {
    const box = make("input", { type: "checkbox", value: concept });
    box.checked = before.includes(name);
    return make("label", { class: "chip", title: meanings[concept] || null }, box, ` ${name}`);
  }));
  find("choose-concepts").hidden = !concepts.length;
  find("choose-concepts").querySelector("legend").textContent = marked_concepts();
  const glossary = find("concept-glossary");
  glossary.hidden = !concepts.length || (!meanings.some(Boolean) && !Object.keys(data.pictures).length);
  if (glossary.open) explain_concepts();
}

// Show each concept with pictures of clips that have it, highest levels first.
function explain_concepts() {
  const { clips } = view;
  const lines = clips.concepts.map((name, concept) => {
    const marked = [...clips.ids.keys()].filter((clip) => clips.shows[clip].includes(concept));
    const line = joined([clips.meanings[concept], `marked in ${count(marked.length, "clip")}`], " – ");
    const stills = marked.filter((clip) => Object.hasOwn(data.pictures, clips.ids[clip]))
      .sort((a, b) => clips.level[b] - clips.level[a] || a - b)
      .slice(0, STILLS)
      .map((clip) => picture(clips.ids[clip], { alt: `${film_of(clip).title}, ${clips.ids[clip]}` }));
    return [make("dt", {}, name), make("dd", {}, line, make("div", {}, stills))];
  });
  find("concept-glossary").replaceChildren(find("concept-glossary").firstElementChild, make("dl", {}, lines));
}

function show_rows(number) {
  const from = showing;
  showing = number;
  list();
  find("clips-body").rows[from]?.querySelector(".open").focus();
}

chosen.run.addEventListener("change", () => { offer_models(); choose_view(); });
chosen.model.addEventListener("change", choose_view);
chosen["shown-class"].addEventListener("change", () => show_class(Number(chosen["shown-class"].value)));
for (const name of ["film", "level", "match", "which", "order"]) chosen[name].addEventListener("change", filter);
find("choose").addEventListener("submit", (event) => event.preventDefault());
find("choose-reset").addEventListener("click", () => {
  for (const [name, value] of Object.entries(FIRST)) chosen[name].value = value;
  for (const box of concept_boxes()) box.checked = false;
  filter();
});
find("concept-chips").addEventListener("change", filter);
find("concept-glossary").addEventListener("toggle", (event) => { if (event.target.open) explain_concepts(); });
find("save-table").addEventListener("click", save_table);
find("copy-list").addEventListener("click", (event) => copy_text(address(), event.target));
find("play-list")?.addEventListener("click", () => { plays_on = true; open_clip(listed.find(video_address), listed.filter(video_address)); });
find("show-more").addEventListener("click", () => show_rows(showing + STEP));
find("show-all").addEventListener("click", () => show_rows(listed.length));
find("clips-body").addEventListener("click", (event) => {
  const link = event.target.closest(".open");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // leave the browser's own ways to open a link
  event.preventDefault();
  open_clip(Number(link.dataset.clip), listed);
});

// The overview of films: hovering describes a clip, a click opens it, and column headings sort.
function clip_in_strip(event) {
  const svg = event.target.closest("svg[data-film]");
  const place = svg ? view.clips.films.findIndex(({ id }) => id === svg.dataset.film) : -1;
  if (place < 0) return [];
  const clips = film_clips()[place];
  const { left, width } = svg.getBoundingClientRect();
  const at = ((event.clientX - left) / width) * svg.dataset.last;
  const covers = (clip) => view.clips.start[clip] <= at && at < view.clips.end[clip];
  return [view.clips.films[place].timed ? clips.find(covers) : clips[Math.floor(at)], clips];
}

function sort_films(head) {
  const at = head.cellIndex;
  const up = head.ariaSort === "descending" || (!at && head.ariaSort !== "ascending");
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.ariaSort = up ? "ascending" : "descending";
  const key = ({ cells }) => cells[at].querySelector("data")?.value ?? cells[at].textContent.trim();
  const [body] = head.closest("table").tBodies;
  const sorted = [...body.rows].sort((a, b) => key(a) - key(b) || key(a).localeCompare(key(b), "en", { numeric: true }));
  body.append(...(up ? sorted : sorted.reverse()));
}

const [films_table, tip] = [find("films-table"), find("strip-tip")];
films_table?.addEventListener("pointermove", (event) => {
  const [clip] = clip_in_strip(event);
  tip.hidden = clip === undefined;
  if (tip.hidden) return;
  tip.textContent = sentence(clip);
  tip.style.left = `${Math.min(event.clientX, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 18}px`;
});
films_table?.addEventListener("pointerleave", () => { tip.hidden = true; });
films_table?.addEventListener("click", (event) => {
  const head = event.target.closest("button")?.parentElement;
  if (head) sort_films(head);
  const [clip, clips] = clip_in_strip(event);
  if (clip !== undefined) open_clip(clip, clips);
});

// On a phone, the list of films is long, so show the first rows until the reader asks for all.
const more_films = find("more-films");
more_films?.addEventListener("click", () => {
  films_table.classList.remove("folded");
  more_films.hidden = true;
  films_table.tBodies[0].rows[FOLDED].querySelector("a").focus();
});
if (more_films) {
  films_table.classList.toggle("folded", films_table.tBodies[0].rows.length > FOLDED);
  more_films.hidden = !films_table.classList.contains("folded");
}

// Follow the system's light or dark theme unless the reader chooses. The choice is not stored.
const system = matchMedia("(prefers-color-scheme: dark)");
const is_dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
const show_theme = () => find("theme").setAttribute("aria-pressed", is_dark());
find("theme").hidden = false;
find("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = is_dark() ? "light" : "dark";
  show_theme();
});
system.addEventListener("change", show_theme);
show_theme();

// Nothing can be expanded on paper, so print it expanded.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details[data-print]:not([open])")];
  for (const details of unfolded) details.open = true;
});
addEventListener("afterprint", () => { for (const details of unfolded) details.open = false; });

find("explorer-app").hidden = false;
offer_runs();
offer_models();
chosen.order.value = FIRST.order;
choose_view();
restore();
document.documentElement.dataset.ready = Math.round(performance.now());
