// One film clip by clip: what is chosen, the list of its clips, and links.
const chosen = (name) => find(`choose-${name}`).value;
let listed = [];

function offer(name, pairs) {
  const select = find(`choose-${name}`);
  select.replaceChildren(...pairs.map(([value, words]) => new Option(words, value)));
  select.parentElement.hidden = pairs.length < 2;
}

const ORDERS = {
  scene: () => 0,
  most: (clip) => -(predicted(clip) ?? -1e9),
  wrong: (clip) => -(of_view(clip, "off") ?? -1),
  differ(clip) {
    const all = data.annotators.map((own) => level_of(own, clip)).filter(Boolean);
    return -all.flatMap((a) => all.filter((b) => b !== a)).length;
  },
};

const film_clips = () => data.ids.map((_, clip) => clip).filter((clip) => data.film[clip] === Number(chosen("film")));
const everyone = [labels, ...data.annotators];

function draw() {
  view = data.views[chosen("view")] ?? null;
  if (view) {
    view.row = new Map(data.tested[view.at].map((clip, row) => [clip, row]));
    view.what = view.classes.at(-1) ?? view.test; // of which there is a probability, or a number
  }
  draw_lanes(film_clips());
  const concept = chosen("concept");
  const order = ORDERS[chosen("order")];
  const shows = (clip) => everyone.some((own) => own.shows[clip].includes(Number(concept)));
  listed = film_clips().filter((clip) => concept === "" || shows(clip));
  listed.sort((a, b) => order(a) - order(b) || a - b);
  find("status").textContent = `${listed.length} ${data.unit}${listed.length === 1 ? "" : "s"}`;
  draw_rows(5);
}

// The columns of lists: a head, and what a cell has of a clip.
const marks = (own) => [own.name, (clip) => marks_of(own, clip)];
const given = everyone.map(marks);
const shown = sets.map(marks);
if (votes) shown.push([many, (clip) => (votes[clip] < 0 ? "–" : `${votes[clip]}`)]);
function answers() {
  if (!view) return [];
  const model = [view.range ? "prediction" : `probability of ${view.what}`, (clip) => decimals(predicted(clip))];
  if (!view.range) return [model];
  const off = (clip) => decimals(tested(clip) ? predicted(clip) - label_of(clip) : null);
  return [[view.test, (clip) => decimals(label_of(clip))], model, ["difference", off]];
}
const columns = () => (view?.range ? answers() : [...shown, ...answers()]);

// A clip in one line, for tooltips.
function sentence(clip) {
  const words = columns().map(([name, cell]) => `\u2068${name}\u2069: ${make("i", {}, cell(clip)).textContent}`);
  return [data.scene[clip], ...words].join("; ");
}

function draw_rows(most) {
  const heads = [data.unit, ...columns().map(([name]) => name)];
  find("heads").replaceChildren(...heads.map((name) => make("th", { scope: "col" }, named(name))));
  find("rows").replaceChildren(...listed.slice(0, most).map((clip) => {
    const link = make("a", { href: `#${new URLSearchParams({ clip: data.ids[clip] })}` }, data.scene[clip]);
    return make("tr", {}, make("th", { scope: "row" }, link), columns().map(([, cell]) => make("td", {}, cell(clip))));
  }));
  find("show-more").hidden = most >= listed.length;
}

// Links use ids, so that they work after the page is made again.
function follow(hash) {
  const names = new URLSearchParams(hash.slice(1));
  const clip = data.ids.indexOf(names.get("clip"));
  const film = data.film[clip] ?? data.films.findIndex(({ id }) => id === names.get("film"));
  if (film < 0) return;
  if (film !== Number(chosen("film"))) {
    find("choose-film").value = film;
    draw();
  }
  if (clip < 0) find("explorer").scrollIntoView();
  else open_clip(clip, listed.includes(clip) ? listed : film_clips());
}

const titles = data.films.map(({ title }, film) => [film, title]);
offer("film", titles.sort(([, a], [, b]) => by_text(a, b)));
find("choose-film").value = data.first;
offer("view", data.views.map(({ run, model, test }, number) => [number, [run, model, test].join(" · ")]));
find("choose-view").value = data.view;
offer("concept", [["", "any"], ...data.concepts.map((name, concept) => [concept, name])]);
find("choose").onchange = draw;
find("show-more").onclick = () => draw_rows(Infinity);
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
draw();
addEventListener("hashchange", () => follow(location.hash));
follow(location.hash);
