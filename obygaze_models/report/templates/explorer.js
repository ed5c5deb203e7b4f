// One film clip by clip: what is chosen, the list of its clips, links, and a table to save.
const FIRST_ROWS = 5;
const STEP = 50;
const chosen = (name) => find(`choose-${name}`)?.value ?? "";
let listed = [];
let showing = FIRST_ROWS;
let is_reading = true; // the address is being read

function offer(name, pairs) {
  const select = find(`choose-${name}`);
  if (!select) return;
  const before = select.value;
  select.replaceChildren(...pairs.map(([value, words]) => new Option(words, value)));
  if (pairs.some(([value]) => String(value) === before)) select.value = before;
  if (pairs.length < 2) select.parentElement.hidden = true;
}

function film_clips() {
  const film = Number(chosen("film"));
  return data.ids.map((_, clip) => clip).filter((clip) => data.film[clip] === film);
}

const TESTS = {
  "": () => true,
  tested,
  wrong,
  untested: (clip) => !tested(clip),
  differ: annotators_differ,
};

const ORDERS = {
  scene: () => 0,
  most: (clip) => -(probability(clip) ?? -1),
  wrong: (clip) => -distance(clip),
};

function shows_concept(clip, concept) {
  return data.shows[clip].includes(concept) || data.annotators.some((own) => own.shows[clip].includes(concept));
}

function choose_view() {
  open_view(Number(chosen("view") || data.view));
  if (view) {
    offer("class", view.classes.map((name, code) => [code, name]));
    find("choose-class").value = view.shown;
    find("choose-class").parentElement.hidden = view.classes.length < 3 || find("more").getAttribute("aria-expanded") === "false";
  }
  draw();
}

function draw() {
  showing = FIRST_ROWS;
  draw_lanes(film_clips());
  filter();
}

function filter() {
  const [concept, level] = [chosen("concept"), chosen("level")];
  listed = film_clips()
    .filter((clip) => concept === "" || shows_concept(clip, Number(concept)))
    .filter((clip) => level === "" || data.level[clip] === Number(level))
    .filter(TESTS[chosen("which")]);
  const order = ORDERS[chosen("order")];
  listed.sort((a, b) => order(a) - order(b) || a - b);
  draw_rows();
  write_address();
}

function draw_rows() {
  const count = listed.length;
  find("status").textContent = `${count} ${data.unit}${count === 1 ? "" : "s"}`;
  const heads = [data.unit, ...sets.map((own) => head(own.name))];
  if (votes) heads.push(many);
  if (view) heads.push(`probability of ${view.classes[view.shown]}`);
  if (view?.why) heads.push("what weighs most");
  find("heads").replaceChildren(...heads.map((words) => make("th", { scope: "col" }, words)));
  find("rows").replaceChildren(...listed.slice(0, showing).map(list_row));
  find("show-more").hidden = showing >= count;
}

function list_row(clip) {
  const open = (event) => { event.preventDefault(); open_clip(clip, listed); };
  const address = `#${new URLSearchParams({ clip: data.ids[clip] })}`;
  const cells = [make("th", { scope: "row" }, make("a", { href: address, click: open }, scene(clip)))];
  for (const own of sets) {
    const level = data.levels[own.level[clip]];
    cells.push(make("td", {}, level ? [square(level), make("span", { class: "hidden" }, level.name), ` ${concepts_of(own.shows[clip])}`] : "–"));
  }
  if (votes) cells.push(make("td", {}, votes[clip] < 0 ? "–" : votes[clip]));
  if (view) {
    const value = probability(clip);
    const bar = make("span", { class: "chance narrow", "aria-hidden": "true" }, make("i", { style: `width: ${100 * (value ?? 0)}%` }));
    cells.push(make("td", {}, value === null ? "–" : [`${decimals(value)} `, bar]));
  }
  if (view?.why) cells.push(make("td", {}, reasons(clip).slice(0, 3).join(", ")));
  return make("tr", {}, cells);
}

// Links use ids, #film=... and #clip=..., so that they work after the page is made again.
function write_address() {
  if (is_reading) return;
  const names = new URLSearchParams({ film: data.films[chosen("film")].id });
  if (opened >= 0) names.set("clip", data.ids[opened]);
  try {
    history.replaceState(null, "", `#${names}`);
  } catch { /* an embedded page has no address of its own */ }
}

function read_address() {
  const names = new URLSearchParams(location.hash.slice(1));
  const clip = data.ids.indexOf(names.get("clip"));
  const film = clip >= 0 ? data.film[clip] : data.films.findIndex(({ id }) => id === names.get("film"));
  if (film < 0) return;
  is_reading = true;
  find("choose-film").value = film;
  draw();
  is_reading = false;
  find("explorer").scrollIntoView();
  if (clip >= 0) open_clip(clip, listed.includes(clip) ? listed : film_clips());
}

// Escape a cell so that no spreadsheet reads it as a formula. Numbers stay as they are.
function cell_text(value) {
  if (typeof value === "number") return String(value);
  const text = /^'*[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save_table() {
  const head = ["id", "film", "title", "start", "end", "level", "concepts", ...data.annotators.map((own) => `level of ${own.name}`)];
  if (view) head.push("model", `probability of ${view.classes[view.shown]}`, "predicted");
  if (view?.why) head.push(view.why.of);
  const rows = listed.map((clip) => {
    const cells = [data.ids[clip], film_of(clip).id, film_of(clip).title, data.start[clip] ?? "", data.end[clip] ?? "", level_of(clip)?.code ?? "", concepts_of(data.shows[clip])];
    for (const own of data.annotators) cells.push(data.levels[own.level[clip]]?.code ?? "");
    if (view) cells.push(view.model, probability(clip) ?? "", tested(clip) ? view.classes[view.called[row_of(clip)]] : "");
    if (view?.why) cells.push(reasons(clip).join("; "));
    return cells;
  });
  const lines = [head, ...rows].map((row) => `${row.map(cell_text).join(",")}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
  make("a", { href: url, download: "clips.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function copy_link() {
  await navigator.clipboard.writeText(location.href);
  find("copy").textContent = "Copied";
  setTimeout(() => { find("copy").textContent = "Copy link"; }, 1500);
}

function toggle_filters() {
  const is_open = find("more").getAttribute("aria-expanded") === "false";
  find("more").setAttribute("aria-expanded", is_open);
  find("more").textContent = is_open ? "Fewer filters" : "More filters";
  for (const label of document.querySelectorAll("[data-more]")) {
    label.hidden = !is_open || label.querySelector("select")?.options.length < 2;
  }
}

const titles = data.films.map(({ title }, film) => [film, title]);
offer("film", titles.sort(([, a], [, b]) => a.localeCompare(b, "en", { numeric: true })));
find("choose-film").value = data.first;
offer("concept", [["", "any"], ...data.concepts.map((name, concept) => [concept, name])]);
offer("level", [["", "all"], ...data.levels.map(({ name }, level) => [level, name])]);
offer("view", data.views.map(({ run, model, test }, number) => [number, [run, model, test].join(" · ")]));
if (find("choose-view")) find("choose-view").value = data.view;
for (const label of document.querySelectorAll("[data-more]")) label.hidden = true;
for (const name of ["concept", "level", "which", "order"]) find(`choose-${name}`).addEventListener("change", () => { showing = FIRST_ROWS; filter(); });
find("choose-film").addEventListener("change", draw);
find("choose-view")?.addEventListener("change", choose_view);
find("choose-class")?.addEventListener("change", (event) => { view.shown = Number(event.target.value); draw(); });
find("zoom").addEventListener("input", (event) => { document.querySelector("#lanes .wide").style.width = `${event.target.value}%`; });
find("more").addEventListener("click", toggle_filters);
find("save").addEventListener("click", save_table);
find("copy").addEventListener("click", copy_link);
find("show-more").addEventListener("click", () => { showing += STEP; draw_rows(); });
addEventListener("hashchange", read_address);
addEventListener("beforeprint", () => { for (const closed of document.querySelectorAll("details[data-print]")) closed.open = true; });
find("app").hidden = false;
choose_view();
is_reading = false;
read_address();
