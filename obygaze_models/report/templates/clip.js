// The dialog of a clip: its picture or film, its labels, and the reasons.
const dialog = find("clip");
let around = []; // the clips that the arrows step through
let place = 0; // the place among them of the clip that is shown

function open_clip(clip, clips) {
  around = clips;
  place = clips.indexOf(clip);
  find("before").disabled = place === 0;
  find("after").disabled = place === clips.length - 1;
  find("clip-title").replaceChildren(named(film_of(clip).title), `, ${data.scene[clip]}`);
  const rows = [...given, ...answers()].map(([name, cell]) => {
    return make("tr", {}, make("th", { scope: "row" }, named(name)), make("td", {}, cell(clip)));
  });
  const reasons = view?.why?.reasons[view.row.get(clip)] ?? [];
  const why = [make("h3", {}, view?.why?.of), make("ul", {}, reasons.map((reason) => make("li", {}, reason)))];
  const id = make("p", { className: "note" }, data.ids[clip]);
  const parts = [video(clip) ?? picture(clip), make("table", {}, make("tbody", {}, rows)), reasons.length && why, id];
  find("clip-body").replaceChildren(make("div", {}, parts));
  if (!dialog.open) dialog.showModal();
  find("clip-title").focus();
}

function step(by) {
  if (place + by in around) open_clip(around[place + by], around);
}

function picture(clip) {
  const id = data.ids[clip];
  const src = `data:image/jpeg;base64,${data.pictures[id]}`;
  return Object.hasOwn(data.pictures, id) && make("img", { src, alt: "" });
}

// The video of a clip's film at the clip's time, or null if the page has no such video.
function video(clip) {
  const { of } = data.videos;
  const key = [data.ids[clip], film_of(clip).id].find((id) => Object.hasOwn(of, id));
  if (key === undefined) return null;
  const src = `${of[key]}#t=${data.start[clip]},${data.end[clip]}`; // the whole file if a clip has no times
  const note = make("p", { className: "note" });
  const onerror = () => {
    note.textContent = "This browser cannot play the file. Local files only play on pages opened from this computer.";
  };
  return make("div", {}, make("video", { src, controls: true, onerror }), note);
}

find("before").onclick = () => step(-1);
find("after").onclick = () => step(1);
find("close").onclick = () => dialog.close();
dialog.onclose = () => find("clip-body").replaceChildren(); // stop the film
dialog.onkeydown = ({ target, key }) => {
  if (!target.matches("video")) step({ ArrowRight: 1, ArrowLeft: -1 }[key]);
};
