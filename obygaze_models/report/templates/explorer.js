// One film clip by clip: what is chosen, the list of its clips, links, and a table to save.
const FIRST_ROWS = 5;
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
  select.parentElement.hidden = pairs.length < 2;
}

const TESTS = {
  "": () => true,
  tested,
  wrong,
  untested: (clip) => !tested(clip),
  differ: (clip) => new Set(data.annotators.map((own) => own.level[clip]).filter((level) => level !== null)).size > 1,
};
const ORDERS = {
  scene: () => 0,
  most: (clip) => -(predicted(clip) ?? -1e9),
  wrong: (clip) => -distance(clip),
};

const film_clips = () => data.ids.map((_, clip) => clip).filter((clip) => data.film[clip] === Number(chosen("film")));
const shows = (clip, concept) => [data, ...data.annotators].some((own) => own.shows[clip].includes(concept));

function choose_view() {
  open_view(Number(chosen("view") || data.view));
  if (view) {
    offer("class", view.classes.length > 2 ? view.classes.map((name, code) => [code, name]) : []);
    find("choose-class").value = view.shown;
  }
  draw();
}

function draw() {
  draw_lanes(film_clips());
  filter();
}

function filter() {
  showing = FIRST_ROWS;
  const [concept, level, order] = [chosen("concept"), chosen("level"), ORDERS[chosen("order")]];
  listed = film_clips()
    .filter((clip) => concept === "" || shows(clip, Number(concept)))
    .filter((clip) => level === "" || data.level[clip] === Number(level))
    .filter(TESTS[chosen("which")]);
  listed.sort((a, b) => order(a) - order(b) || a - b);
  draw_rows();
  write_address();
}

// The columns of the list: a head, and what a cell has of a clip.
function columns() {
  const own = (view?.range ? [] : sets).map(({ name, level, shows }) => [named(name, 16), (clip) => {
    const rank = data.levels[level[clip]];
    return rank ? [square(rank), make("span", { class: "hidden" }, rank.name), ` ${concepts_of(shows[clip])}`] : "–";
  }]);
  if (votes) own.push([many, (clip) => (votes[clip] < 0 ? "–" : votes[clip])]);
  const number = (value) => (value === null ? "–" : decimals(value));
  if (view?.range) {
    const label = (clip) => (tested(clip) ? label_of(clip) : null);
    own.push([view.test, (clip) => number(label(clip))], ["prediction", (clip) => number(predicted(clip))]);
    own.push(["difference", (clip) => number(tested(clip) ? predicted(clip) - label(clip) : null)]);
  } else if (view) {
    const bar = (value) => make("span", { class: "chance" }, make("i", { style: `width: ${100 * value}%` }));
    const cell = (value) => [`${number(value)} `, bar(value)];
    own.push([`probability of ${view.classes[view.shown]}`, (clip) => cell(predicted(clip))]);
  }
  if (view?.why) own.push(["what weighs most", (clip) => reasons(clip).slice(0, 3).join(", ")]);
  return own;
}

function draw_rows() {
  find("status").textContent = `${listed.length} ${data.unit}${listed.length === 1 ? "" : "s"}`;
  const shown = columns();
  const heads = [data.unit, ...shown.map(([name]) => name)];
  find("heads").replaceChildren(...heads.map((words) => make("th", { scope: "col" }, words)));
  find("rows").replaceChildren(...listed.slice(0, showing).map((clip) => {
    const click = (event) => { event.preventDefault(); open_clip(clip, listed); };
    const link = make("a", { href: `#${new URLSearchParams({ clip: data.ids[clip] })}`, click }, scene(clip));
    return make("tr", {}, make("th", { scope: "row" }, link), shown.map(([, cell]) => make("td", {}, cell(clip))));
  }));
  find("show-more").hidden = showing >= listed.length;
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
  const head = ["id", "film", "title", "start", "end", "level", "concepts"];
  head.push(...data.annotators.map((own) => `level of ${own.name}`));
  if (view) head.push("model", view.range ? view.test : `probability of ${view.classes[view.shown]}`, "predicted");
  if (view?.why) head.push(view.why.of);
  const code = (own, clip) => data.levels[own.level[clip]]?.code ?? "";
  const rows = listed.map((clip) => {
    const { id, title } = film_of(clip);
    const cells = [data.ids[clip], id, title, data.start[clip] ?? "", data.end[clip] ?? "", code(data, clip)];
    cells.push(concepts_of(data.shows[clip]), ...data.annotators.map((own) => code(own, clip)));
    const [label, called] = tested(clip) ? (view.range ? [label_of(clip), predicted(clip)]
      : [predicted(clip), view.classes[view.called[row_of(clip)]]]) : ["", ""];
    if (view) cells.push(view.model, label, called);
    if (view?.why) cells.push(reasons(clip).join("; "));
    return cells;
  });
  const lines = [head, ...rows].map((row) => `${row.map(cell_text).join(",")}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
  make("a", { href: url, download: "clips.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const titles = data.films.map(({ title }, film) => [film, title]);
offer("film", titles.sort(([, a], [, b]) => a.localeCompare(b, "en", { numeric: true })));
find("choose-film").value = data.first;
offer("concept", [["", "any"], ...data.concepts.map((name, concept) => [concept, name])]);
offer("level", [["", "all"], ...data.levels.map(({ name }, level) => [level, name])]);
offer("view", data.views.map(({ run, model, test }, number) => [number, [run, model, test].join(" · ")]));
if (view ?? data.views.length) find("choose-view").value = data.view;
for (const name of ["concept", "level", "which", "order"]) find(`choose-${name}`).addEventListener("change", filter);
find("choose-film").addEventListener("change", draw);
find("choose-view")?.addEventListener("change", choose_view);
find("choose-class")?.addEventListener("change", ({ target }) => { view.shown = Number(target.value); draw(); });
find("zoom").addEventListener("input", () => {
  find("lanes").querySelector(".wide").style.width = `${find("zoom").value}%`;
});
find("save").addEventListener("click", save_table);
find("show-more").addEventListener("click", () => { showing += 50; draw_rows(); });
addEventListener("hashchange", read_address);
addEventListener("beforeprint", () => {
  for (const closed of document.querySelectorAll("details[data-print]")) closed.open = true;
});
find("app").hidden = false;
choose_view();
is_reading = false;
read_address();
