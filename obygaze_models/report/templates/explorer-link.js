// What is chosen, in the page's address: #run=...&film=...&clip=..., by names, so that it outlives the page.
const CHOICES = ["level", "match", "which", "order"];
const FIRST = { film: "", level: "", match: "all", which: "all", order: "most" };
let restoring = true; // until the address is read
let clip_in_address = "";

const ours = (fragment) => /^#(run|model|class|film|level|concepts|match|which|order|clip)=/.test(fragment);

// A page that was just opened has no names; else a missing film is all films.
function chosen_names(clip = clip_in_address) {
  const names = new URLSearchParams();
  const run = data.runs[view.run];
  const model = (number) => [data.views[number].model, data.views[number].task].filter(Boolean).join(": ");
  if (view.run !== data.run) names.set("run", run.name);
  if (view.number !== run.view) names.set("model", model(view.number));
  if (view.several && view.spoken !== view.classes.length - 1) names.set("class", view.classes[view.spoken]);
  const values = {
    level: chosen.level.value === "" ? "" : view.clips.levels[chosen.level.value].code,
    match: chosen.match.value, which: chosen.which.value, order: chosen.order.value,
  };
  for (const name of CHOICES) if (values[name] !== FIRST[name]) names.set(name, values[name]);
  const concepts = ticked().map((concept) => view.clips.concepts[concept]);
  if (concepts.length) names.set("concepts", concepts.join("|"));
  const [film, opens_on] = [chosen.film.value, String(first_film())];
  if (film !== "" && (film !== opens_on || names.size || clip)) names.set("film", film_id());
  if (clip) names.set("clip", clip);
  else if (film === "" && !names.size) names.set("film", "");
  return names;
}

const address = () => `${location.href.split("#")[0]}#${chosen_names()}`;

function write_address() {
  if (restoring || !view) return;
  const names = String(chosen_names());
  if (!names && !ours(location.hash)) return;
  try {
    history.replaceState(null, "", names ? `#${names}` : location.href.split("#")[0]);
  } catch { /* a page within another page has no address of its own */ }
}

function note_clip(id) {
  clip_in_address = id;
  write_address();
}

// Choose what an address names; returns the names that this page does not have.
function read_address() {
  const missing = [];
  if (!ours(location.hash)) return missing;
  const names = new URLSearchParams(location.hash.slice(1));
  const at = (list, name) => {
    const place = list.indexOf(names.get(name));
    if (place < 0 && names.get(name)) missing.push(`${name} ${names.get(name)}`);
    return place;
  };
  const run = at(data.runs.map((entry) => entry.name), "run");
  chosen.run.value = run < 0 ? data.run : run;
  offer_models();
  const models = [...chosen.model.options];
  const model = at(models.map((option) => option.text), "model");
  if (model >= 0) chosen.model.value = models[model].value;
  choose_view();
  const shown = at(view.classes, "class");
  if (shown >= 0) {
    chosen["shown-class"].value = view.spoken = shown;
    draw();
  }
  const film = at(view.clips.films.map((entry) => entry.id), "film");
  const level = at(view.clips.levels.map((entry) => entry.code), "level");
  chosen.film.value = film < 0 ? "" : film;
  chosen.level.value = level < 0 ? "" : level;
  for (const name of ["match", "which", "order"]) {
    const place = at([...chosen[name].options].map((option) => option.value), name);
    chosen[name].value = place < 0 ? FIRST[name] : names.get(name);
  }
  const concepts = names.has("concepts") ? names.get("concepts").split("|") : [];
  missing.push(...concepts.filter((name) => !view.clips.concepts.includes(name)).map((name) => `concept ${name}`));
  for (const box of find("choose-concepts").querySelectorAll("input")) box.checked = concepts.includes(view.clips.concepts[box.value]);
  const clip = at(view.clips.ids, "clip");
  filter();
  if (clip >= 0) open_clip(view, clip, listed.includes(clip) ? listed : [clip]);
  else {
    if (dialog.open) dialog.close();
    find("explorer").scrollIntoView();
  }
  return missing;
}

function restore() {
  restoring = true;
  const missing = read_address();
  restoring = false;
  find("address-note").textContent = missing.length ? `The link names what is not on this page: ${missing.join(", ")}.` : "";
}

addEventListener("hashchange", restore);
