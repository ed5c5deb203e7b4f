// Films of the reader's own: a folder of this computer, typed once and kept by the browser; nothing is uploaded.
const FOLDER_KEY = "obygaze-films";
const ENDINGS = ["mp4", "mkv", "webm", "m4v", "mov"];

function stored_folder() {
  try { return localStorage.getItem(FOLDER_KEY) || ""; } catch { return ""; }
}

function store_folder(path) {
  try { localStorage.setItem(FOLDER_KEY, path); } catch { /* kept for this page only */ }
}

// The file: address of a folder; null for what is none, such as javascript: or https:.
function folder_address(path) {
  let text = path.trim().replaceAll("\\", "/");
  if (/^file:\/\/\//i.test(text)) {
    try { text = decodeURI(text.slice(7)).replace(/^\/([A-Za-z]:)/, "$1"); } catch { return null; }
  }
  if (!/^(\/(?!\/)|[A-Za-z]:\/)/.test(text)) return null;
  const parts = text.split("/").filter(Boolean).map((part, at) => (at === 0 && /^[A-Za-z]:$/.test(part) ? part : encodeURIComponent(part)));
  return `file:///${parts.join("/")}${parts.length ? "/" : ""}`;
}

// The addresses that may have a clip, the likeliest first.
function media_addresses(view, clip, folder) {
  const film = film_of(view, clip);
  const [start, end] = [view.clips.start[clip], view.clips.end[clip]];
  const span = start !== undefined && start !== null;
  const part = span ? `#t=${start}${end === null ? "" : `,${end}`}` : "";
  const media = view.clips.media[clip] || "";
  const names = new Set([media, ...(span ? [film.id, film.title] : [view.clips.ids[clip]])].filter(Boolean));
  return [...names].flatMap((name) => {
    const whole = name.split(/[/\\]/).map(encodeURIComponent).join("/");
    return [...(/\.\w{2,4}$/.test(name) ? [whole] : []), ...ENDINGS.map((ending) => `${whole}.${ending}`)];
  }).map((name) => `${folder}${name}${part}`);
}

function play_parts(view, clip) {
  const field = make("input", { type: "text", value: stored_folder(), placeholder: "/home/me/films or C:\\films", spellcheck: "false", autocomplete: "off" });
  const button = make("button", { type: "submit" }, "Play");
  const note = make("p", { class: "soft", role: "status" }, "The page plays the file from this computer; nothing is uploaded.");
  const screen = make("div");
  const form = make("form", { class: "play" }, make("label", {}, "Folder of your films ", field), button);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const folder = folder_address(field.value);
    screen.replaceChildren();
    if (!folder) {
      note.textContent = "Type the whole path of a folder of this computer, such as /home/me/films or C:\\films.";
      return;
    }
    store_folder(field.value.trim());
    const addresses = media_addresses(view, clip, folder);
    const video = make("video", { controls: "", autoplay: "", preload: "auto" });
    const sources = addresses.map((src) => make("source", { src }));
    sources.at(-1).addEventListener("error", () => {
      if (!video.isConnected) return; // another folder was typed since
      video.hidden = true;
      const name = decodeURIComponent(addresses[0].slice(folder.length).replace(/#.*/, ""));
      note.textContent = location.protocol === "file:"
        ? `${field.value.trim()} has no film that this browser plays, such as ${name}.`
        : "Browsers play files only from pages on this computer: save the page, and open it from your disk.";
    });
    video.addEventListener("loadeddata", () => { note.textContent = `Plays ${decodeURI(video.currentSrc)}`; });
    video.append(...sources);
    screen.append(video);
  });
  return [make("h3", {}, "Play"), form, screen, note];
}
