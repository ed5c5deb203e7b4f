// What a reader takes along: a link, a citation, a table of the clips that are listed.
async function copy_text(text, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { readonly: "" }, text);
    (dialog.open ? dialog : document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1500);
}

function copy_button(words, text) {
  const button = make("button", { type: "button" }, words);
  button.addEventListener("click", () => copy_text(text(), button));
  return button;
}

// Film, time, levels, concepts and the run, in one paragraph.
function citation(view, clip) {
  const film = film_of(view, clip);
  const run = data.runs[view.run];
  const place = [...new Set([scene(view, clip), time(view, clip)])].filter(Boolean).join(", ");
  const others = label_sets(view, clip).map(([name, level]) => `${name}: ${level.name}`);
  const levels = [`${run.labels}: ${level_of(view, clip).name}`, ...others].join("; ");
  const concepts = concepts_of(view, clip).join(", ") || "none";
  const value = said(view, clip);
  const model = value === null
    ? `${view.model} has no prediction (${gap(view, clip)})`
    : `${view.model} gives ${named(view, view.spoken)} a probability of ${probability(value)}`;
  return `${film.title}, ${place} [${view.clips.ids[clip]}]. Annotators: ${levels}. Concepts: ${concepts}. Model: ${model}, in run ${run.name} (${run.feature}, ${run.protocol}) on ${run.data}. Cite: ${run.cite}.`;
}

const COLUMNS = [
  "rank", "id", "film", "title", "start", "end", "level", "level name", "concepts", "run", "model",
  "class", "probability", "predicted", "agrees", "no prediction because",
];

function table_row(view, clip, place) {
  const film = film_of(view, clip);
  const level = level_of(view, clip);
  const value = said(view, clip);
  const seconds = (column) => view.clips[column][clip] ?? "";
  return [
    place + 1, view.clips.ids[clip], film.id, film.title, seconds("start"), seconds("end"), level.code, level.name,
    concepts_of(view, clip).join("|"), data.runs[view.run].name, view.model, view.classes[view.spoken],
    ...(value === null ? ["", "", "", gap(view, clip)] : [
      Number(value.toFixed(4)), view.classes[called(view, clip)], differs(view, clip) ? "no" : "yes", "",
    ]),
    reasons(view, clip, Infinity).join("; "),
    ...view.clips.sets.map((labels) => (labels.level[clip] === null ? "" : view.clips.levels[labels.level[clip]].code)),
  ];
}

// A cell that no spreadsheet takes for a formula; numbers are ours, and stay numbers.
function cell_text(value) {
  if (typeof value === "number") return String(value);
  const text = /^'*[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv_table(view, clips) {
  const rows = clips.map((clip, place) => table_row(view, clip, place));
  return [[...COLUMNS, weighs(view), ...view.clips.sets.map((labels) => `level of ${labels.name}`)], ...rows]
    .map((row) => row.map(cell_text).join(",")).join("\n") + "\n";
}

function save_table() {
  const url = URL.createObjectURL(new Blob([csv_table(view, listed)], { type: "text/csv" }));
  make("a", { href: url, download: "clips.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
