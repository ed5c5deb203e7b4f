// A dialog that explains a clip's prediction, plays it, and steps through the list it was opened from.
const FOLDER_KEY = "obygaze-films";
const ENDINGS = ["mp4", "mkv", "webm", "m4v", "mov"];
const dialog = find("clip");
const CONVERT = "Convert it, for example with: ffmpeg -i FILM -c:v libx264 -c:a aac FILM.mp4";
let plays_on = false; // true once a clip has been played
let walk = { clips: [], at: 0 };

function open_clip(clip, clips) {
  walk = { clips, at: clips.indexOf(clip) };
  show_clip();
  if (!dialog.open) dialog.showModal();
  find("clip-title").focus();
}

function show_clip() {
  const { clips, at } = walk;
  find("clip-title").textContent = clip_title(clips[at]);
  find("clip-place").textContent = `${grouped(at + 1)} of ${grouped(clips.length)}`;
  find("clip-before").disabled = at === 0;
  find("clip-after").disabled = at === clips.length - 1;
  find("clip-body").replaceChildren(...clip_parts(clips[at]));
  note_clip(view.clips.ids[clips[at]]);
}

function step_clip(by) {
  const at = walk.at + by;
  if (at < 0 || at >= walk.clips.length) return;
  walk.at = at;
  show_clip();
  find("clip-said").textContent = `${find("clip-title").textContent}. ${sentence(walk.clips[at])}`;
}

const soft = (...words) => make("p", { class: "soft" }, words);
const heading = (words) => make("h3", {}, words);
const marked_sign = () => [" ", make("span", { class: "marked" }, "marked")];

function clip_parts(clip) {
  const sets = label_sets(clip);
  const facts = [
    ["Label", level_chip(level_of(clip)), ` ${beyond_code(level_of(clip)).join("")}`],
    [marked_concepts(), concepts_of(clip).join(", ") || "none"],
    ...sets.map(([name, level, concepts]) => [name, level_chip(level), ` ${[...beyond_code(level), ...concepts].join(", ")}`]),
    ...notes_of(clip),
    ...(has_models ? [["Model", verdict(clip)]] : []),
  ];
  const first = plays_on || video_address(clip); // readers who play clips see each at the top
  return [
    soft(id_and_time(clip)),
    ...(first ? play_parts(clip) : []),
    picture(view.clips.ids[clip], { alt: `A frame of ${scene(clip)}`, class: "still" }),
    make("dl", {}, facts.map(([term, ...words]) => [make("dt", {}, term), make("dd", {}, words)])),
    make("p", { class: "more" }, copy_button("Copy link", address), copy_button("Copy citation", () => citation(clip))),
    ...(view.why && tested(clip) ? [heading("Why"), ...why_parts(clip, concepts_of(clip))] : []),
    ...(first ? [] : play_parts(clip)),
  ].filter((part) => part !== null);
}

// The annotators' notes on segments in a clip. Segment times are in hundredths of a second.
const notes_of = (clip) => (data.timelines.films[film_of(clip).id]?.lanes || []).flatMap(({ name, start, length, notes }) => Object.entries(notes)
  .filter(([at]) => start[at] < 100 * view.clips.end[clip] && start[at] + length[at] > 100 * view.clips.start[clip])
  .map(([, words]) => [`Note by ${name}`, words]));

function verdict(clip) {
  if (!tested(clip)) return [`No prediction: ${missing_reason(clip)}.`];
  const row = view.row[clip];
  const value = probability(clip);
  const [low, high] = view.low ? [number_at(view.low, row), number_at(view.high, row)] : [];
  return [
    `Says ${class_words(called(clip))}: the model’s probability of ${class_words(view.class_shown)} is `,
    make("data", { value }, two_digits(value)),
    view.low ? `, the mean of ${count(view.fits[row], "fit")} (${two_digits(low)} to ${two_digits(high)})` : null,
    differs(clip) ? `. Label: ${class_words(labelled(clip))}. ` : ". ",
    make("strong", ...agreement(clip, "Model and label differ.", "Model and label agree.")),
  ];
}

function why_parts(clip, marked) {
  const { why } = view;
  const row = view.row[clip];
  if (why.kind === "path") return path_parts(row, marked);
  if (!has_parts(why, row)) return [make("p", {}, no_reasons())];
  const parts = parts_of(why, row);
  const amounts = parts.map(([, column]) => number_at(column, row));
  const most = Math.max(...amounts.map(Math.abs), 1e-9);
  const rows = parts.map(([name, column, measured], at) => make("tr", {},
    make("th", { scope: "row", class: measured ? null : "rest" }, name, measured && marked.includes(name) ? marked_sign() : null),
    make("td", {}, measured ? digits_at(measured, row) : ""),
    make("td", {}, make("data", { value: amounts[at] }, digits_at(column, row, true))),
    make("td", { class: "bars", "aria-hidden": "true" },
      make("span", { class: amounts[at] < 0 ? "against" : "for", style: { width: `${(Math.abs(amounts[at]) / most) * 50}%` } }))));
  rows.push(make("tr", { class: "sum" }, make("th", { scope: "row" }, why.of), make("td"),
    make("td", {}, digits_at(why.total, row, true)), make("td")));
  const titles = ["Concept", "measures", "part", "against · for"].map((title) => make("th", { scope: "col" }, title));
  const table = make("table", { class: "why" }, make("caption", {}, `Each concept’s part in the ${why.of}: parts above 0 count for the class, and parts below 0 against it. Apart from rounding, the parts add up to the total. “Measures”: how far the clip is on the concept’s side of the boundary that the model learned; below 0, it is on the other side.`),
    make("thead", {}, make("tr", {}, titles)), make("tbody", {}, rows));
  return view.fits[row] > 1 ? [table, soft(`Means over the ${view.fits[row]} fits that tested this clip.`)] : [table];
}

function path_parts(row, marked) {
  const { why, fits } = view;
  if (why.fit[row] < 0) return [make("p", {}, no_reasons())];
  if (!why.paths[row].length) return [make("p", {}, "The tree asks no questions, so it gives every clip the same verdict.")];
  const items = why.paths[row].map((step) => make("li", {}, step_words(why, step), marked.includes(why.concepts[step[0]]) ? marked_sign() : null));
  return [
    soft("The tree compared what the clip measures on each concept with a threshold."),
    make("ul", { class: "path" }, items),
    ...(fits[row] > 1 ? [soft(`This is one of ${fits[row]} trees: fit ${why.fit[row]} gave ${two_digits(number_at(why.own, row))}, which is nearest to the mean.`)] : []),
  ];
}

find("clip-before").addEventListener("click", () => step_clip(-1));
find("clip-after").addEventListener("click", () => step_clip(1));
find("clip-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => {
  plays_on = false;
  find("clip-body").replaceChildren(); // stop the film
  note_clip("");
});
dialog.addEventListener("keydown", (event) => {
  if (event.target.matches("input, video")) return;
  if (event.key === "ArrowRight") step_clip(1);
  else if (event.key === "ArrowLeft") step_clip(-1);
});

// The reader's own films: a local folder that is typed once and remembered by the browser. Nothing is uploaded.
function stored_folder() {
  try { return localStorage.getItem(FOLDER_KEY) || ""; } catch { return ""; }
}

function store_folder(path) {
  try { localStorage.setItem(FOLDER_KEY, path); } catch { /* the folder is remembered for this page only */ }
}

// The file: URL of a folder, or null for anything else, such as javascript: or https:.
function folder_address(path) {
  let text = path.trim().replaceAll("\\", "/");
  if (/^file:\/\/\//i.test(text)) {
    try { text = decodeURI(text.slice(7)).replace(/^\/([A-Za-z]:)/, "$1"); } catch { return null; }
  }
  if (!/^(\/(?!\/)|[A-Za-z]:\/)/.test(text)) return null;
  const parts = text.split("/").filter(Boolean).map((part, at) => (at === 0 && /^[A-Za-z]:$/.test(part) ? part : encodeURIComponent(part)));
  return `file:///${parts.join("/")}${parts.length ? "/" : ""}`;
}

// A clip's time within its film, as a URL fragment; empty if the clip has its own file.
function part_of(clip) {
  const [start, end] = [view.clips.start[clip] ?? null, view.clips.end[clip] ?? null];
  return start === null ? "" : `#t=${start}${end === null ? "" : `,${end}`}`;
}

// The URLs where a clip may be, likeliest first.
function media_addresses(clip, folder) {
  const film = film_of(clip);
  const part = part_of(clip);
  const names = new Set([view.clips.media[clip], ...(part ? [film.id, film.title] : [view.clips.ids[clip]])].filter(Boolean));
  return [...names].flatMap((name) => {
    const whole = name.split(/[/\\]/).map(encodeURIComponent).join("/");
    return [...(/\.\w{2,4}$/.test(name) ? [whole] : []), ...ENDINGS.map((ending) => `${whole}.${ending}`)];
  }).map((name) => `${folder}${name}${part}`);
}

// The URL of a clip's file that the page was written with, or an empty string.
function video_address(clip) {
  const { of } = data.videos;
  const own = [view.clips.ids[clip], film_of(clip).id].find((id) => Object.hasOwn(of, id));
  return own === undefined ? "" : `${of[own]}${part_of(clip)}`;
}

const file_name = (address) => decodeURIComponent(address.replace(/#.*/, "").split("/").at(-1));

// Play the first URL that the browser can play. From then on, stepping to another clip plays that clip, too.
function play(addresses, screen, note, trouble) {
  const video = make("video", { controls: "", autoplay: "", preload: "auto",
    loadeddata: () => {
      const name = file_name(video.currentSrc);
      note.textContent = video.videoWidth ? `Playing ${name}. ← and → play the previous and the next clip.` : `Playing only the sound of ${name}: this browser cannot decode its pictures. ${CONVERT}`;
    } },
  addresses.map((src) => make("source", { src })));
  video.lastChild.addEventListener("error", () => {
    if (!video.isConnected) return; // another folder has been typed since
    video.hidden = true;
    note.textContent = location.protocol === "file:" ? trouble
      : "Browsers play local files only on pages opened from this computer. Save the page and open it from your disk.";
  });
  screen.replaceChildren(video);
  plays_on = true;
  find("clip-title").focus(); // so that the arrow keys keep stepping
}

function play_parts(clip) {
  const note = make("p", { class: "soft", role: "status" }, "The page plays the file from this computer; nothing is uploaded.");
  const screen = make("div");
  const own = video_address(clip);
  if (own) {
    const start = () => play([own], screen, note, `This browser cannot play ${file_name(own)}, or the file has moved. ${CONVERT}`);
    if (plays_on) queueMicrotask(start);
    return [heading("Play"), make("p", { class: "play" }, button("Play", start)), screen, note];
  }
  const field = make("input", { type: "text", value: stored_folder(), placeholder: "/home/me/films or C:\\films", spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event?.preventDefault();
    const folder = folder_address(field.value);
    screen.replaceChildren();
    if (!folder) {
      note.textContent = "Type the full path of a folder on this computer, such as /home/me/films or C:\\films.";
      return;
    }
    store_folder(field.value.trim());
    const addresses = media_addresses(clip, folder);
    play(addresses, screen, note, `This browser cannot play any film in ${field.value.trim()} (it looked for files such as ${file_name(addresses[0])}).`);
  };
  if (plays_on && field.value) queueMicrotask(submit);
  const form = make("form", { class: "play", submit }, make("label", {}, "Folder of your films ", field), make("button", { type: "submit" }, "Play"));
  return [heading("Play"), form, screen, note];
}
