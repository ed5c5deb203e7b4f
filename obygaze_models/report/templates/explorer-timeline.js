// A film on one time axis that can be zoomed: pictures, annotators, clips, frames and moments.
const LANE_HEIGHT = { level: 18, clip: 56, differs: 8, frame: 56, moment: 12, concept: 12 };
const SHORTEST_S = 4;
const PICTURE_WIDTH = 76;
const TICK_WIDTH = 64;
const KEY_ZOOM = 1.6;

// A film's clips on its time axis in seconds, with their frames; read once.
function film_axis(view, film, clips) {
  const given = Object.hasOwn(data.timelines.films, film.id) ? data.timelines.films[film.id] : null;
  if (given && given.frames) return read_timeline(given);
  const axis = clip_axis(view, film, clips);
  const spans = clips.map((clip, at) => ({ id: view.clips.ids[clip], start: axis.spans[at][0], end: axis.spans[at][1], frames: [] }));
  const lanes = given ? given.lanes : [];
  for (const lane of lanes) lane.segments = read_spans(lane);
  const last = Math.max(axis.last, ((given && given.until) || 0) / 100, ...lanes.flatMap((lane) => lane.segments.map((segment) => segment.end)));
  return { pasted: !film.timed, spans, lanes, intervals: [], last, range: [0, last], long: last >= 3600 };
}

const read_spans = (lane) => lane.start.map((start, at) => ({ start: start / 100, end: (start + lane.length[at]) / 100, at }));

function read_timeline(film) {
  if (film.spans) return film;
  let row = 0;
  const { count, gap, length, p } = film.frames;
  film.spans = film.clips.map((id, at) => {
    const span = { id, start: film.start[at] / 100, end: film.end[at] / 100, frames: [] };
    let reached = film.start[at];
    for (const last = row + count[at]; row < last; row++) {
      const start = reached + gap[row];
      reached = start + length[row];
      span.frames.push({ start: start / 100, end: reached / 100, p: p[row] / 1000 });
    }
    return span;
  });
  film.intervals = read_spans(film.moments).map((moment) => ({ ...moment, score: film.moments.score[moment.at] / 1000 }));
  for (const lane of film.lanes) lane.segments = read_spans(lane);
  const ends = [film.spans, film.intervals, ...film.lanes.map((lane) => lane.segments)].flatMap((spans) => spans.map((one) => one.end));
  film.last = ends.reduce((most, end) => Math.max(most, end), (film.until || 0) / 100);
  film.range = [0, film.last];
  film.long = film.last >= 3600;
  return film;
}

function timeline(view, film, clips, open) {
  const number = new Map(clips.map((clip) => [view.clips.ids[clip], clip]));
  const shown = film.spans.filter((span) => number.has(span.id));
  const order = shown.map((span) => number.get(span.id));
  const readout = make("p", { class: "readout", "aria-hidden": "true" }, " ");
  const pictures = make("div", { class: "pictures", "aria-hidden": "true" });
  const ticks = make("div", { class: "ticks", "aria-hidden": "true" });
  const cursor = make("div", { class: "cursor", hidden: "" });
  const over = make("div", { class: "over", "aria-hidden": "true" }, cursor);
  const tracks = make("div", { class: "tracks" });
  const drawings = [];
  const track = (name, content) => tracks.append(make("div", { class: "lane-name", title: name }, name), content);
  const lane = (name, height, label, marks, attributes = { role: "img" }) => {
    const svg = make("svg", { preserveAspectRatio: "none", "aria-label": label, "data-lane": name, ...attributes });
    svg.style.height = `${height}px`;
    svg.append(make("rect", { class: "lane", x: 0, y: 0, width: film.last, height, role: "presentation" }), ...marks);
    drawings.push([svg, height]);
    track(name, svg);
    return svg;
  };
  const half = (height) => make("line", { class: "half", x1: 0, x2: film.last, y1: height / 2, y2: height / 2, role: "presentation" });

  if (shown.some((span) => Object.hasOwn(data.pictures, span.id))) track("Pictures", pictures);
  const levels = data.timelines.levels || [];
  for (const one of film.lanes) {
    lane(one.name, LANE_HEIGHT.level, `${one.name}: ${count(one.segments.length, "segment")}`,
      one.segments.map((segment) => level_mark(segment, one.level[segment.at], levels)));
  }
  const bounds = shown.map((span) => [span.start, span.end]);
  for (const labels of film.lanes.length ? [] : view.clips.sets) {
    lane(labels.name, LANE_HEIGHT.level, `Label set ${labels.name}, clip by clip`,
      level_blocks(view, labels, order, bounds, 0, LANE_HEIGHT.level));
  }
  const marks = shown.map((span, at) => {
    const mark = make("g", { role: "option", id: `mark-${order[at]}`, "aria-selected": "false", "aria-label": clip_words(span, order[at]), "data-clip": order[at] });
    mark.append(make("rect", { class: "hit", x: span.start, y: 0, width: span.end - span.start, height: LANE_HEIGHT.level }),
      level_mark(span, view.clips.level[order[at]], view.clips.levels, "clip"));
    return mark;
  });
  const list = lane("Labels of clips", LANE_HEIGHT.level, "Clips in time; arrows move, Enter opens, plus and minus zoom, 0 shows all", marks, { role: "listbox", tabindex: 0 });
  const bars = shown.map((span, at) => chance_mark(view, span, order[at]));
  lane("Model, by clip", LANE_HEIGHT.clip, `Probability of ${named(view, view.spoken)} of each clip`, [...bars, half(LANE_HEIGHT.clip)]);
  const wrong = bounds.filter((_, at) => differs(view, order[at]));
  lane("Model differs", LANE_HEIGHT.differs, `Model and annotators differ on ${count(wrong.length, "clip")}`, [blocks(wrong, 0, LANE_HEIGHT.differs, "flag")]);
  const rows = film.spans.reduce((sum, span) => sum + span.frames.length, 0);
  if (rows) {
    lane("Model, by frame", LANE_HEIGHT.frame, `Probability of each of ${count(rows, "frame")}`,
      [...film.spans.filter((span) => span.frames.length).map(frame_mark), half(LANE_HEIGHT.frame)]);
    lane(film.intervals.length ? "Found moments" : "No moments found", LANE_HEIGHT.moment, count(film.intervals.length, "moment"),
      film.intervals.map((moment) => make("rect", { class: "moment", x: moment.start, y: 1, width: moment.end - moment.start, height: LANE_HEIGHT.moment - 2 })));
  }
  view.clips.concepts.forEach((name, concept) => {
    const marked = bounds.filter((_, at) => view.clips.shows[order[at]].includes(concept));
    if (marked.length) lane(name, LANE_HEIGHT.concept, `${name}: marked in ${count(marked.length, "clip")}`, [blocks(marked, 2, LANE_HEIGHT.concept - 4, "marked-clip")]);
  });
  track(film.pasted ? "Scene" : "Time", ticks);
  tracks.append(over);

  const images = new Map();
  const part = (seconds) => (seconds - film.range[0]) / (film.range[1] - film.range[0]);
  const width = () => ticks.getBoundingClientRect().width || 900;

  function show_range(from, to) {
    const long = Math.min(film.last, Math.max(Math.min(SHORTEST_S, film.last), to - from));
    const start = Math.min(film.last - long, Math.max(0, (from + to - long) / 2));
    film.range = [start, start + long];
    for (const [svg, height] of drawings) svg.setAttribute("viewBox", `${start} 0 ${long} ${height}`);
    cursor.hidden = true;
    draw_ticks();
    draw_pictures();
    buttons.out.disabled = buttons.all.disabled = is_whole();
    buttons.in.disabled = long <= SHORTEST_S;
    buttons.range.textContent = film.pasted ? "" : `${clock(start, film.long)} to ${clock(start + long, film.long)}`;
  }

  const is_whole = () => film.range[1] - film.range[0] >= film.last - 1e-6;
  const zoom = (factor, centre) => {
    const [from, to] = film.range;
    const long = Math.min(film.last, Math.max(SHORTEST_S, (to - from) * factor));
    const start = centre - part(centre) * long;
    show_range(start, start + long);
  };
  const pan = (seconds) => show_range(film.range[0] + seconds, film.range[1] + seconds);
  const middle = () => (film.range[0] + film.range[1]) / 2;

  function draw_ticks() {
    const [from, to] = film.range;
    const most = Math.max(2, Math.floor(width() / TICK_WIDTH));
    const words = film.pasted ? scene_ticks(from, to, most) : time_ticks(from, to, most, film.long);
    ticks.replaceChildren();
    over.replaceChildren(cursor);
    for (const [seconds, text] of words) {
      const word = make("span", {}, text);
      const rule = make("i");
      word.style.left = rule.style.left = `${part(seconds) * 100}%`;
      if (part(seconds) < 0.03) word.className = "start";
      else if (part(seconds) > 0.95) word.className = "end";
      ticks.append(word);
      over.append(rule);
    }
  }

  function scene_ticks(from, to, most) {
    const seen = shown.map((span, at) => [span.start, scene(view, order[at]).replace("scene ", "")]).filter(([start]) => start >= from - 1e-6 && start <= to);
    const step = Math.ceil(seen.length / most);
    return seen.filter((_, at) => at % step === 0);
  }

  // As many pictures as stand side by side.
  function draw_pictures() {
    const room = PICTURE_WIDTH / width();
    let free = 0;
    const row = [];
    shown.forEach((span, at) => {
      const left = part((span.start + span.end) / 2) - room / 2;
      if (left < free || left + room > 1 || !Object.hasOwn(data.pictures, span.id)) return;
      free = left + room * 1.05;
      if (!images.has(span.id)) {
        images.set(span.id, make("img", { src: `data:image/jpeg;base64,${data.pictures[span.id]}`, alt: "", draggable: "false", "data-clip": order[at] }));
      }
      images.get(span.id).style.left = `${left * 100}%`;
      row.push(images.get(span.id));
    });
    pictures.replaceChildren(...row);
  }

  function clip_words(span, clip) {
    const chances = span.frames.map((frame) => frame.p);
    const most = Math.max(...chances);
    const best = span.frames.find((frame) => frame.p === most);
    const when = film.pasted ? `${clock(best ? best.start - span.start : 0)} of the clip` : clock(best ? best.start : 0, film.long);
    return sentence(view, clip) + (best ? `; frames ${probability(Math.min(...chances))} to ${probability(most)}, highest at ${when}` : "");
  }

  const covers = (seconds) => (one) => one.start <= seconds && seconds < one.end;
  const at_time = (seconds) => shown.findIndex(covers(seconds));

  function tell(seconds) {
    const span = film.spans.find(covers(seconds));
    const words = [film.pasted ? span && span.frames.length && `${clock(seconds - span.start)} of the clip` : clock(seconds, film.long)];
    const clip = span && number.get(span.id);
    if (span) words.push(clip === undefined ? span.id : `${scene(view, clip)}, ${level_of(view, clip).code}`);
    const frame = span && span.frames.find(covers(seconds));
    if (frame) words.push(`frame ${probability(frame.p)}`);
    const moment = film.intervals.find(covers(seconds));
    if (moment) words.push(`moment of ${probability(moment.score)}`);
    for (const one of film.lanes) {
      for (const segment of one.segments.filter(covers(seconds))) {
        const concepts = one.shows[segment.at].map((place) => data.timelines.concepts[place]);
        words.push(`${one.name}: ${[levels[one.level[segment.at]].name, ...concepts].join(", ")}`);
      }
    }
    readout.textContent = words.filter(Boolean).join(" · ");
    cursor.hidden = false;
    cursor.style.left = `${part(seconds) * 100}%`;
  }

  const buttons = {
    out: make("button", { type: "button", "aria-label": "Zoom out" }, "−"),
    in: make("button", { type: "button", "aria-label": "Zoom in" }, "+"),
    all: make("button", { type: "button" }, "Whole film"),
    range: make("span", { class: "soft" }),
  };
  buttons.out.addEventListener("click", () => zoom(2, middle()));
  buttons.in.addEventListener("click", () => zoom(0.5, middle()));
  buttons.all.addEventListener("click", () => show_range(0, film.last));
  const tools = make("div", { class: "zoom", role: "group", "aria-label": "Part of the film" }, ...Object.values(buttons));

  const point = move_within(list, marks, order, (clip) => {
    const span = shown[order.indexOf(clip)];
    readout.textContent = clip_words(span, clip);
    cursor.hidden = true;
    const [from, to] = film.range;
    if (span.start < from || span.end > to) pan((span.start + span.end) / 2 - middle());
  }, open);
  list.addEventListener("keydown", (event) => {
    const at = marks.findIndex((mark) => mark.getAttribute("aria-selected") === "true");
    const centre = at < 0 ? middle() : (shown[at].start + shown[at].end) / 2;
    const long = film.range[1] - film.range[0];
    if (event.key === "+" || event.key === "=") zoom(1 / KEY_ZOOM, centre);
    else if (event.key === "-") zoom(KEY_ZOOM, centre);
    else if (event.key === "0") show_range(0, film.last);
    else if (event.shiftKey && event.key === "ArrowRight") pan(long / 4);
    else if (event.shiftKey && event.key === "ArrowLeft") pan(-long / 4);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);

  move_with_pointer(tracks, {
    width,
    time: (x) => {
      const box = ticks.getBoundingClientRect();
      return film.range[0] + ((x - box.left) / box.width) * (film.range[1] - film.range[0]);
    },
    seconds: (pixels) => (pixels / width()) * (film.range[1] - film.range[0]),
    tell, zoom, pan, is_whole,
    leave: () => { cursor.hidden = true; },
    reset: () => show_range(0, film.last),
    open: (seconds, clip) => {
      const at = clip === undefined ? at_time(seconds) : order.indexOf(clip);
      if (at < 0) return;
      point(at);
      open(order[at], order, list);
    },
  });
  new ResizeObserver(() => { draw_ticks(); draw_pictures(); }).observe(ticks);
  const element = make("div", { class: "timeline" }, tools, tracks, readout, ...timeline_notes(view, film));
  show_range(...film.range);
  return { element, marks: clips.map((clip) => marks[order.indexOf(clip)]) };
}

// The higher the level, the taller the mark, as in the figures of timelines.
function level_mark(span, level, levels, name = "segment") {
  const tall = (LANE_HEIGHT.level * (level + 1)) / levels.length;
  return make("rect", { class: `${name} ${levels[level].colour}`, x: span.start, y: LANE_HEIGHT.level - tall, width: span.end - span.start, height: tall });
}

function chance_mark(view, span, clip) {
  const height = LANE_HEIGHT.clip;
  const value = said(view, clip);
  const tall = value === null ? 4 : Math.max(1.5, value * height);
  const name = value === null ? "gap" : "clip bar";
  return make("rect", { class: name, x: span.start, y: height - tall, width: span.end - span.start, height: tall });
}

function frame_mark(span) {
  const height = LANE_HEIGHT.frame;
  let path = "";
  let reached = null;
  for (const { start, end, p } of span.frames) {
    if (reached !== start) path += `${reached === null ? "" : `V${height}`}M${start} ${height}`;
    path += `V${(height * (1 - p)).toFixed(1)}H${end}`;
    reached = end;
  }
  return make("path", { class: "bar", d: `${path}V${height}` });
}

function timeline_notes(view, film) {
  const legend = make("ul", { class: "legend", "aria-label": "How to read the timeline" });
  const levels = new Map([...(data.timelines.levels || []), ...view.clips.levels].map((level) => [`${level.code} ${level.name} ${level.colour}`, level]));
  for (const level of levels.values()) {
    legend.append(make("li", {}, level_key(level), ` ${level.code} (${level.name})`));
  }
  const hint = make("span", { class: "hint" }, "Turn the wheel or pinch to zoom, drag to move, double click to see all; a click opens the clip.");
  const notes = [" The lines are at .5."];
  if (film.pasted) notes.push("Where the clips are in the film is unknown: they follow each other in scene order, without annotators’ segments.");
  else if (data.timelines.levels && !film.lanes.length) notes.push("No annotator marked a segment of this film.");
  if (film.trained) notes.push(`The frames’ model was trained on ${count(film.trained, "clip")} of this film: there it is surer than on new clips.`);
  return [legend, make("p", { class: "counts" }, hint, notes.join(" "))];
}
