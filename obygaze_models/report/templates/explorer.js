// One film clip by clip: what is chosen, the list of its clips, and links.
const FIRST_ROWS = 5;
const chosen = (name) => find(`choose-${name}`).value;
let listed = [];
let showing = FIRST_ROWS;

function offer(name, pairs) {
  const select = find(`choose-${name}`);
  select.replaceChildren(...pairs.map(([value, words]) => new Option(words, value)));
  select.parentElement.hidden = pairs.length < 2;
}

const levels_of = (clip) => data.annotators.map((own) => own.level[clip]).filter((level) => level !== null);
const ORDERS = {
  scene: () => 0,
  most: (clip) => -(predicted(clip) ?? -1e9),
  wrong: (clip) => -(of_view(clip, "off") ?? -1),
  differ: (clip) => -new Set(levels_of(clip)).size,
};

const film_clips = () => data.ids.map((_, clip) => clip).filter((clip) => data.film[clip] === Number(chosen("film")));
const shows = (clip, concept) => [data, ...data.annotators].some((own) => own.shows[clip].includes(concept));

function choose_view() {
  view = data.views[chosen("view")] ?? null;
  if (view) {
    view.row = new Map(data.tested[view.at].map((clip, row) => [clip, row]));
    view.what = view.classes.at(-1) ?? view.test; // of which there is a probability, or a number
  }
  draw();
}

function draw() {
  draw_lanes(film_clips());
  list();
}

function list() {
  showing = FIRST_ROWS;
  const concept = chosen("concept");
  const order = ORDERS[chosen("order")];
  listed = film_clips().filter((clip) => concept === "" || shows(clip, Number(concept)));
  listed.sort((a, b) => order(a) - order(b) || a - b);
  draw_rows();
}

// The columns of the list: a head, and what a cell has of a clip.
function columns() {
  const number = (value) => (value === null ? "–" : decimals(value));
  if (view?.range) {
    return [
      [view.test, (clip) => number(label_of(clip))],
      ["prediction", (clip) => number(predicted(clip))],
      ["difference", (clip) => number(tested(clip) ? predicted(clip) - label_of(clip) : null)],
    ];
  }
  const own = sets.map(({ name, level, shows }) => [named(name, 16), (clip) => {
    const rank = data.levels[level[clip]];
    return rank ? [square(rank), make("span", { class: "hidden" }, rank.name), ` ${concepts_of(shows[clip])}`] : "–";
  }]);
  if (votes) own.push([many, (clip) => (votes[clip] < 0 ? "–" : votes[clip])]);
  if (view) {
    const bar = (value) => make("span", { class: "chance" }, make("i", { style: `width: ${100 * value}%` }));
    own.push([`probability of ${view.what}`, (clip) => [`${number(predicted(clip))} `, bar(predicted(clip))]]);
  }
  return own;
}

function draw_rows() {
  find("status").textContent = `${listed.length} ${data.unit}${listed.length === 1 ? "" : "s"}`;
  const shown = columns();
  const heads = [data.unit, ...shown.map(([name]) => name)];
  find("heads").replaceChildren(...heads.map((words) => make("th", { scope: "col" }, words)));
  find("rows").replaceChildren(...listed.slice(0, showing).map((clip) => {
    const link = make("a", { href: `#${new URLSearchParams({ clip: data.ids[clip] })}` }, data.scene[clip]);
    return make("tr", {}, make("th", { scope: "row" }, link), shown.map(([, cell]) => make("td", {}, cell(clip))));
  }));
  find("show-more").hidden = showing >= listed.length;
}

// Links use ids, #film=... and #clip=..., so that they work after the page is made again.
function follow(hash) {
  const names = new URLSearchParams(hash.slice(1));
  const clip = data.ids.indexOf(names.get("clip"));
  const film = clip >= 0 ? data.film[clip] : data.films.findIndex(({ id }) => id === names.get("film"));
  if (film < 0) return;
  if (film !== Number(chosen("film"))) {
    find("choose-film").value = film;
    draw();
  }
  if (clip < 0) find("explorer").scrollIntoView();
  else open_clip(clip, listed.includes(clip) ? listed : film_clips());
}

const titles = data.films.map(({ title }, film) => [film, title]);
offer("film", titles.sort(([, a], [, b]) => a.localeCompare(b, "en", { numeric: true })));
find("choose-film").value = data.first;
offer("view", data.views.map(({ run, model, test }, number) => [number, [run, model, test].join(" · ")]));
find("choose-view").value = data.view;
offer("concept", [["", "any"], ...data.concepts.map((name, concept) => [concept, name])]);
find("choose-film").addEventListener("change", draw);
find("choose-view").addEventListener("change", choose_view);
for (const name of ["concept", "order"]) find(`choose-${name}`).addEventListener("change", list);
find("show-more").addEventListener("click", () => { showing += 50; draw_rows(); });
addEventListener("hashchange", () => follow(location.hash));
addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (!link) return;
  event.preventDefault(); // an embedded page has no address of its own
  follow(link.hash);
});
addEventListener("beforeprint", () => {
  for (const closed of document.querySelectorAll("details")) closed.open = true;
});
find("app").hidden = false;
choose_view();
follow(location.hash);
