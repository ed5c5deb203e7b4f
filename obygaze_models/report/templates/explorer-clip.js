// One clip and why: a dialog that walks through the clips it was opened among.
const dialog = find("clip");
let walk = { view: null, clips: [], at: 0, past: null };

function open_clip(view, clip, clips) {
  walk = { view, clips, at: clips.indexOf(clip), past: null };
  show_clip();
  if (!dialog.open) dialog.showModal();
  find("clip-title").focus();
}

// A clip from within the panel, whose clip can be gone back to.
function visit_clip(clips, at) {
  walk = { view: walk.view, clips, at, past: walk };
  revisit();
}

function revisit() {
  show_clip();
  dialog.scrollTop = 0;
  find("clip-title").focus();
}

function show_clip() {
  const { view, clips, at } = walk;
  const clip = clips[at];
  const film = film_of(view, clip);
  find("clip-title").textContent = `${film.title}, ${scene(view, clip)}`;
  find("clip-place").textContent = `${(at + 1).toLocaleString("en")} of ${clips.length.toLocaleString("en")}`;
  find("clip-before").disabled = at === 0;
  find("clip-after").disabled = at === clips.length - 1;
  find("clip-back").hidden = !walk.past;
  find("clip-body").replaceChildren(...clip_parts(view, clip));
  note_clip(view.clips.ids[clip]);
}

function step_clip(by) {
  const at = walk.at + by;
  if (at < 0 || at >= walk.clips.length) return;
  walk.at = at;
  show_clip();
  find("clip-said").textContent = `${find("clip-title").textContent}. ${sentence(walk.view, walk.clips[at])}`;
}

function clip_parts(view, clip) {
  const id = view.clips.ids[clip];
  const parts = [make("p", { class: "soft" }, [id, film_of(view, clip).grid ? "" : time(view, clip)].filter(Boolean).join(" · "))];
  if (Object.hasOwn(data.pictures, id)) {
    parts.push(make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: `A frame of ${scene(view, clip)}`, class: "still" }));
  }
  const level = level_of(view, clip);
  const concepts = concepts_of(view, clip);
  const facts = make("dl");
  facts.append(
    make("dt", {}, label_sets(view, clip).length ? "Label" : "Annotators"),
    make("dd", {}, level_chip(level), ` ${level.name}`),
    make("dt", {}, "Concepts they marked"),
    make("dd", {}, concepts.join(", ") || "none"),
    ...label_sets(view, clip).flatMap(([name, own_level, own_concepts]) => [
      make("dt", {}, name),
      make("dd", {}, level_chip(own_level), ` ${[own_level.name, ...own_concepts].join(", ")}`),
    ]),
    make("dt", {}, "Model"),
    make("dd", {}, ...verdict(view, clip)),
  );
  parts.push(facts, make("p", { class: "more" }, copy_button("Copy link", address), copy_button("Copy citation", () => citation(view, clip))));
  if (view.row[clip] >= 0) parts.push(...why_parts(view, clip, concepts));
  parts.push(...play_parts(view, clip));
  if (view.clips.near) parts.push(...nearest_parts(view, clip));
  return parts;
}

function nearest_parts(view, clip) {
  const near = view.clips.near[clip];
  const title = make("h3", {}, "Nearest clips");
  if (!near.length) return [title, make("p", { class: "soft" }, `${data.nearest} has no vector of this clip.`)];
  const list = make("ol", { class: "near" });
  near.forEach((other, rank) => {
    const id = view.clips.ids[other];
    const button = make("button", { type: "button", class: "open", "data-clip": other }, `${film_of(view, other).title}, ${scene(view, other)}`);
    button.addEventListener("click", () => visit_clip(near, rank));
    const item = make("li", {}, button, make("small", {}, level_chip(level_of(view, other)),
      ` cosine ${minus((view.clips.cosine[clip][rank] / 1000).toFixed(2))}`));
    if (Object.hasOwn(data.pictures, id)) item.prepend(make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: "" }));
    list.append(item);
  });
  return [title, make("p", { class: "soft" }, `By the cosine of their vectors in ${data.nearest}.`), list];
}

function verdict(view, clip) {
  const row = view.row[clip];
  if (row < 0) return [`No prediction: ${gap(view, clip)}.`];
  const label = named(view, called(view, clip));
  const value = make("data", { value: said(view, clip) }, probability(said(view, clip)));
  const parts = [`Says ${label}: the model’s probability of ${named(view, view.spoken)} is `, value];
  if (view.low) {
    const [low, high] = [view.low, view.high].map((column) => column.of[row] * column.unit);
    parts.push(`, the mean of ${count(view.fits[row], "fit")} (${probability(low)} to ${probability(high)})`);
  }
  const truth = named(view, labelled(view, clip));
  parts.push(differs(view, clip) ? `. Annotators: ${truth}. ` : ". ");
  parts.push(make("strong", { class: differs(view, clip) ? "differ" : "agree" }, differs(view, clip) ? "Model and label differ." : "Model and label agree."));
  return parts;
}

function why_parts(view, clip, marked) {
  const why = view.why;
  const row = view.row[clip];
  const title = make("h3", {}, "Why");
  if (!why) return [title, make("p", {}, NO_REASONS)];
  if (why.kind === "path") return [title, ...path_parts(view, row, marked)];
  if (!has_parts(why, row)) return [title, make("p", {}, `No parts: ${FITS_DIFFER}.`)];
  const note = `Each concept’s part in the ${why.of}. The parts add up.`;
  const rows = why.order[row].map((place) => ({
    name: why.concepts[place], column: why.amounts[place], measured: figure(why.values[place], row), marked: marked.includes(why.concepts[place]),
  }));
  for (const [key, name] of [["residual", NOT_CONCEPTS], ["intercept", "at rest (intercept)"]]) {
    if (why[key]) rows.push({ name, column: why[key], measured: "", rest: true });
  }
  const most = Math.max(...rows.map((one) => Math.abs(one.column.of[row] * one.column.unit)), 1e-9);
  const table = make("table", { class: "why" });
  table.append(make("caption", {}, note), head("Concept", "measures", "part", ""));
  const body = make("tbody");
  let sum = 0;
  for (const one of rows) {
    const amount = one.column.of[row] * one.column.unit;
    sum += amount;
    const bar = make("span", { class: amount < 0 ? "against" : "for" });
    bar.style.width = `${(Math.abs(amount) / most) * 50}%`;
    const name = make("th", { scope: "row", class: one.rest ? "rest" : null }, one.name);
    if (one.marked) name.append(" ", make("span", { class: "marked" }, "marked"));
    body.append(make("tr", {}, name, make("td", {}, one.measured),
      make("td", {}, make("data", { value: amount }, figure(one.column, row, true))),
      make("td", { class: "bars", "aria-hidden": "true" }, bar)));
  }
  const unit = why.amounts[0] ? why.amounts[0].unit : 0.01;
  body.append(make("tr", { class: "sum" }, make("th", { scope: "row" }, why.of), make("td"),
    make("td", {}, figure({ unit, of: [Math.round(sum / unit)] }, 0, true)), make("td")));
  table.append(body);
  const tail = view.fits[row] > 1 ? [make("p", { class: "soft" }, `Means over the ${view.fits[row]} fits that tested this clip.`)] : [];
  return [title, table, ...tail];
}

function path_parts(view, row, marked) {
  const why = view.why;
  if (!why.paths[row].length) return [make("p", {}, "The tree asks nothing: it gives each clip the same verdict.")];
  const list = make("ul", { class: "path" });
  for (const [at, percentile] of why.paths[row]) {
    const [concept, low, high] = why.conditions[at];
    const bounds = [low === null ? "" : `${low}% or more`, high === null ? "" : `${high}% or less`];
    list.append(make("li", {},
      make("strong", {}, condition_words(why, at)), ...(marked.includes(why.concepts[concept]) ? [" ", make("span", { class: "marked" }, "marked")] : []),
      `: more of it than in ${percentile}% of the clips; the tree asks for ${bounds.filter(Boolean).join(" and ")}`));
  }
  const parts = [make("p", { class: "soft" }, "The tree came to its verdict by these concepts. Percentages are of the clips that it was tested on."), list];
  if (view.fits[row] > 1) {
    const own = why.own.of[row] * why.own.unit;
    parts.push(make("p", { class: "soft" }, `One of ${view.fits[row]} trees: that of fit ${why.fit[row]}, which said ${probability(own)} and is nearest to the mean.`));
  }
  return parts;
}

function head(...titles) {
  const row = make("tr");
  for (const title of titles) row.append(title ? make("th", { scope: "col" }, title) : make("td"));
  return make("thead", {}, row);
}

find("clip-before").addEventListener("click", () => step_clip(-1));
find("clip-after").addEventListener("click", () => step_clip(1));
find("clip-back").addEventListener("click", () => { walk = walk.past; revisit(); });
find("clip-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => note_clip(""));
dialog.addEventListener("keydown", (event) => {
  if (event.target.matches("input, video")) return;
  if (event.key === "ArrowRight") step_clip(1);
  else if (event.key === "ArrowLeft") step_clip(-1);
});
