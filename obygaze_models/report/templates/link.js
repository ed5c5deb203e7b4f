// Links to a selection, citations, and a table of clips, for readers to take away.
// Links use names, #run=...&film=...&clip=..., so that they still work after the page is made again. Other pages may
// use them, too: PAGE.html#clip=ID opens a clip of a film, PAGE.html#film=ID (or its title) a film. Every name is optional.
const COLUMNS = [
  "rank", "id", "film", "title", "from", "to", "start", "end", "level", "level name", "concepts", "run", "model",
  "class", "probability", "predicted", "agrees", "no prediction because",
];
if (!has_models) COLUMNS.splice(COLUMNS.indexOf("run"));
const FIRST = { film: "", level: "", match: "all", which: "all", order: has_models ? "most" : "level" };
let [restoring, clip_in_address] = [true, ""]; // restoring until the URL has been read

const names_choice = (fragment) => /^#(run|model|class|film|level|concepts|match|which|order|clip)=/.test(fragment);

// A page that was just opened has no names; otherwise, no film means all films.
function chosen_names(clip = clip_in_address) {
  const names = new URLSearchParams();
  const run = data.runs[view.run];
  const values = {
    run: view.run === data.run ? "" : run.name,
    model: view.number === run.view ? "" : model_name(view),
    class: view.class_shown === view.classes.length - 1 ? "" : view.classes[view.class_shown].key,
    level: chosen.level.value === "" ? "" : view.clips.levels[chosen.level.value].code,
    match: chosen.match.value, which: chosen.which.value, order: chosen.order.value,
    concepts: concept_names(ticked()).join("|"),
  };
  for (const [name, value] of Object.entries(values)) if (value !== (FIRST[name] ?? "")) names.set(name, value);
  const film = chosen.film.value;
  if (film !== "" && (film !== String(first_film()) || names.size || clip)) names.set("film", film_id());
  if (clip) names.set("clip", clip);
  if (film === "" && (clip || !names.size)) names.set("film", "");
  return names;
}

const address = () => `${location.href.split("#")[0]}#${chosen_names()}`;

function write_address() {
  if (restoring || !view) return;
  const names = String(chosen_names());
  if (!names && !names_choice(location.hash)) return;
  try {
    history.replaceState(null, "", names ? `#${names}` : location.href.split("#")[0]);
  } catch { /* an embedded page has no URL of its own */ }
}

function note_clip(id) {
  clip_in_address = id;
  write_address();
}

// Select what the URL names, and return the names that this page does not have.
function read_address() {
  const missing = [];
  if (!names_choice(location.hash)) return missing;
  const names = new URLSearchParams(location.hash.slice(1));
  const find_name = (list, name, otherwise = "") => {
    const place = list.indexOf(names.get(name));
    if (place < 0 && names.get(name)) missing.push(`${name} ${names.get(name)}`);
    return place < 0 ? otherwise : place;
  };
  chosen.run.value = find_name(data.runs.map((run) => run.name), "run", data.run);
  offer_models();
  const models = [...chosen.model.options].map((option) => option.value);
  chosen.model.value = models[find_name(models.map((number) => model_name(data.views[number])), "model", chosen.model.selectedIndex)];
  choose_view();
  const code = find_name(view.classes.map(({ key }) => key), "class");
  if (code !== "") show_class(code);
  const clip = find_name(view.clips.ids, "clip");
  const of_clip = clip === "" || names.has("film") ? "" : view.clips.film[clip];
  const key = view.clips.films.some((film) => film.id === names.get("film")) ? "id" : "title";
  chosen.film.value = find_name(view.clips.films.map((film) => film[key]), "film", of_clip);
  chosen.level.value = find_name(view.clips.levels.map((level) => level.code), "level");
  for (const name of ["match", "which", "order"]) {
    const options = [...chosen[name].options].map((option) => option.value);
    chosen[name].value = options[find_name(options, name)] ?? FIRST[name];
  }
  const concepts = names.has("concepts") ? names.get("concepts").split("|") : [];
  missing.push(...concepts.filter((name) => !view.clips.concepts.includes(name)).map((name) => `concept ${name}`));
  for (const box of concept_boxes()) box.checked = concepts.includes(view.clips.concepts[box.value]);
  filter();
  if (clip !== "") open_clip(clip, listed.includes(clip) ? listed : [clip]);
  else {
    if (dialog.open) dialog.close();
    go_to(find("explorer"));
  }
  return missing;
}

function restore() {
  restoring = true;
  const missing = read_address();
  restoring = false;
  find("address-note").textContent = missing.length ? `The link asks for something that is not on this page: ${missing.join(", ")}.` : "";
}

addEventListener("hashchange", restore);

// Links within the page leave the URL unchanged, so that it keeps the selection.
addEventListener("click", (event) => {
  const target = event.target.closest?.('a[href^="#"]');
  const section = target && names_choice(location.hash) && document.getElementById(target.hash.slice(1));
  if (!section || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go_to(section);
});

// Move the focus, too, so that Tab continues from there.
function go_to(section) {
  section.tabIndex = -1;
  section.focus({ preventScroll: true });
  section.scrollIntoView();
}

async function copy_text(text, pressed) {
  const words = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { readonly: "" }, text);
    (dialog.open ? dialog : document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    pressed.focus();
  }
  pressed.textContent = "Copied";
  setTimeout(() => { pressed.textContent = words; }, 1500);
}

const copy_button = (words, text) => button(words, (event) => copy_text(text(), event.currentTarget));

// Cite a clip in one paragraph: film, time, levels, concepts and run.
function citation(clip) {
  const run = data.runs[view.run];
  const place = joined([...new Set([scene(clip), time(clip)])], ", ");
  const levels = [[run.labels, level_of(clip)], ...label_sets(clip)].map(([name, level]) => `${name}: ${level.name}`).join("; ");
  const model = tested(clip)
    ? `${view.model} gives ${class_words(view.class_shown)} a probability of ${two_digits(probability(clip))}`
    : `${view.model} has no prediction (${missing_reason(clip)})`;
  return `${film_of(clip).title}, ${place} [${view.clips.ids[clip]}]. Labels: ${levels}. Concepts: ${concepts_of(clip).join(", ") || "none"}. ${has_models ? `Model: ${model}, in run ${run.name} (${run.feature}, ${run.protocol}) on` : "Data:"} ${run.data}. Cite: ${run.cite}.`;
}

function table_row(clip, place) {
  const [film, level] = [film_of(clip), level_of(clip)];
  const times = [view.clips.start[clip] ?? "", view.clips.end[clip] ?? ""];
  const cells = [
    place + 1, view.clips.ids[clip], film.id, film.title, ...times.map((time) => time === "" ? "" : clock(time, true)), ...times,
    level.code, level.name, concepts_of(clip).join("|"),
  ];
  if (has_models) cells.push(data.runs[view.run].name, view.model, view.classes[view.class_shown].title,
    ...(tested(clip)
      ? [Number(probability(clip).toFixed(4)), view.classes[called(clip)].title, differs(clip) ? "no" : "yes", ""]
      : ["", "", "", missing_reason(clip)]),
    reasons(clip, Infinity).join("; "),
    ...(view.why?.total ? [reasons(clip, Infinity).length ? Number(number_at(view.why.total, view.row[clip]).toFixed(4)) : ""] : []));
  return [...cells, ...view.clips.sets.map((labels) => (labels.level[clip] === null ? "" : view.clips.levels[labels.level[clip]].code))];
}

// Escape a cell so that no spreadsheet reads it as a formula. Numbers stay as they are.
function cell_text(value) {
  if (typeof value === "number") return String(value);
  const text = /^'*[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save_table() {
  const head = [...COLUMNS, ...(has_models ? [reason_kind()] : []), ...(view.why?.total ? [view.why.of] : []), ...view.clips.sets.map((labels) => `level of ${labels.name}`)];
  const lines = [head, ...listed.map(table_row)].map((row) => `${row.map(cell_text).join(",")}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
  make("a", { href: url, download: "clips.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
