// The dialog of a clip: its picture or film, its labels, and the reasons for the prediction.
const dialog = find("clip");
let around = []; // the clips that the arrows step through
let opened = -1; // the clip that is shown

function open_clip(clip, clips) {
  around = clips;
  show_clip(clip);
  if (!dialog.open) dialog.showModal();
}

function show_clip(clip) {
  opened = clip;
  const place = around.indexOf(clip);
  find("before").disabled = place <= 0;
  find("after").disabled = place >= around.length - 1;
  find("clip-title").replaceChildren(named(film_of(clip).title), `, ${data.scene[clip]}`);
  const id = make("p", { class: "note" }, data.ids[clip]);
  const parts = [video(clip) ?? picture(clip), labels_table(clip), why_list(clip), id];
  find("clip-body").replaceChildren(...parts.filter(Boolean));
  find("clip-title").focus();
}

function step(by) {
  const clip = around[around.indexOf(opened) + by];
  if (clip !== undefined) show_clip(clip);
}

function labels_table(clip) {
  const row = (name, ...cells) =>
    make("tr", {}, make("th", { scope: "row" }, named(name)), cells.map((cell) => make("td", {}, cell)));
  const all = [labels, ...data.annotators].filter((own) => own.level[clip] !== null);
  const rows = all.map((own) => {
    const level = data.levels[own.level[clip]];
    return row(own.name, [square(level), level.name], concepts_of(own.shows[clip]));
  });
  if (view?.range && tested(clip)) rows.push(row(view.test, decimals(label_of(clip)), ""));
  if (view) {
    const value = tested(clip) ? `${view.what} ${decimals(predicted(clip))}` : "not tested";
    rows.push(row(view.model, value, wrong(clip) ? "differs from the label" : ""));
  }
  return make("table", {}, make("tbody", {}, rows));
}

function why_list(clip) {
  const parts = reasons(clip);
  if (!parts.length) return null;
  return make("div", {}, make("h3", {}, view.why.of), make("ul", {}, parts.map((part) => make("li", {}, part))));
}

function picture(clip) {
  const id = data.ids[clip];
  if (!Object.hasOwn(data.pictures, id)) return null;
  return make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: "" });
}

// The video of a clip's film at the clip's time, or null if the page has no such video.
function video(clip) {
  const { of } = data.videos;
  const key = [data.ids[clip], film_of(clip).id].find((id) => Object.hasOwn(of, id));
  if (key === undefined) return null;
  const [start, end] = [data.start[clip], data.end[clip]];
  const part = start === null ? "" : `#t=${start}${end === null ? "" : `,${end}`}`;
  const note = make("p", { class: "note" });
  const error = () => {
    note.textContent = "This browser cannot play the file. Local files only play on pages opened from this computer.";
  };
  return make("div", {}, make("video", { src: `${of[key]}${part}`, controls: "", preload: "metadata", error }), note);
}

find("before").addEventListener("click", () => step(-1));
find("after").addEventListener("click", () => step(1));
find("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => find("clip-body").replaceChildren()); // stop the film
dialog.addEventListener("keydown", (event) => {
  if (!event.target.matches("video")) step({ ArrowRight: 1, ArrowLeft: -1 }[event.key]);
});
