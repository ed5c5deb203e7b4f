// A film on a time axis that can be zoomed: pictures, annotators, clips, frames and moments.
const LANE_HEIGHT = { level: 18, clip: 56, differs: 8, frame: 56, moment: 12, sound: 14, concept: 12 };
const SHORTEST_S = 4;
const PICTURE_WIDTH = 76;
const TICK_WIDTH = 64;
const KEY_ZOOM = 1.6;
const DRAG_PIXELS = 4;
const DOUBLE_CLICK_MS = 260;

// A film's clips and frames on its time axis, in seconds. Frames are read only once.
function film_axis(film, clips) {
  const given = Object.hasOwn(data.timelines.films, film.id) ? data.timelines.films[film.id] : {};
  if (given.spans) return given;
  const span_of = (start, length) => ({ start: start / 100, end: (start + length) / 100 });
  const lanes = given.lanes || [];
  for (const lane of lanes) lane.segments = lane.start.map((start, at) => ({ ...span_of(start, lane.length[at]), at }));
  const axis = { pasted: !film.timed, lanes, intervals: [] };
  let reached = (given.until || 0) / 100;
  if (given.frames) {
    axis.pasted = given.pasted;
    axis.trained = given.trained;
    axis.spans = read_frames(given);
    axis.intervals = given.moments.map(([start, length, score]) => ({ ...span_of(start, length), score: score / 1000 }));
  } else {
    const { spans, last } = clip_axis(film, clips);
    axis.spans = clips.map((clip, at) => ({ id: view.clips.ids[clip], start: spans[at][0], end: spans[at][1], frames: [] }));
    reached = Math.max(reached, last);
  }
  const ends = [axis.spans, axis.intervals, ...lanes.map((lane) => lane.segments)].flat().map((span) => span.end);
  axis.last = ends.reduce((most, end) => Math.max(most, end), reached);
  axis.range = [0, axis.last];
  axis.long = axis.last >= 3600;
  return given.frames ? (data.timelines.films[film.id] = axis) : axis;
}

function read_frames(film) {
  let row = 0;
  const { count: counts, gap, length, p, loud = [] } = film.frames;
  return film.clips.map((id, at) => {
    const span = { id, start: film.start[at] / 100, end: film.end[at] / 100, frames: [] };
    let reached = film.start[at];
    for (const last = row + counts[at]; row < last; row++) {
      const start = reached + gap[row];
      reached = start + length[row];
      span.frames.push({ start: start / 100, end: reached / 100, p: p[row] / 1000, loud: loud[row] / 100 });
    }
    return span;
  });
}

function timeline(film, clips) {
  const number = new Map(clips.map((clip) => [view.clips.ids[clip], clip]));
  const shown = film.spans.filter((span) => number.has(span.id));
  const order = shown.map((span) => number.get(span.id));
  const bounds = shown.map((span) => [span.start, span.end]);
  const levels = data.timelines.levels || [];
  const readout = make("p", { class: "readout", "aria-hidden": "true" }, " ");
  const pictures = make("div", { class: "pictures", "aria-hidden": "true" });
  const ticks = make("div", { class: "ticks", "aria-hidden": "true" });
  const cursor = make("div", { class: "cursor", hidden: "" });
  const over = make("div", { class: "over", "aria-hidden": "true" }, cursor);
  const tracks = make("div", { class: "tracks" });
  const drawings = [];
  const track = (name, content) => tracks.append(make("div", { class: "lane-name", title: name }, name), content);
  const lane = (name, height, label, marks, attributes = { role: "img" }) => {
    const svg = make("svg", { preserveAspectRatio: "none", "aria-label": label, "data-lane": name, ...attributes, style: { height: `${height}px` } },
      rect("lane", 0, 0, film.last, height, DRAWN), marks);
    drawings.push([svg, height]);
    track(name, svg);
    return svg;
  };

  if (shown.some((span) => Object.hasOwn(data.pictures, span.id))) track("Pictures", pictures);
  for (const { name, segments, level } of film.lanes) {
    lane(name, LANE_HEIGHT.level, `${name}: ${count(segments.length, "segment")}`,
      segments.map((segment) => level_mark(segment, level[segment.at], levels, "segment")));
  }
  for (const labels of film.lanes.length ? [] : view.clips.sets) {
    lane(labels.name, LANE_HEIGHT.level, `Label set ${labels.name}, clip by clip`,
      level_blocks(labels, order, bounds, 0, LANE_HEIGHT.level));
  }
  const marks = shown.map((span, at) => make("g", {
    role: "option", id: `mark-${order[at]}`, "aria-selected": "false", "aria-label": clip_words(span, order[at]), "data-clip": order[at],
  },
  rect("hit", span.start, 0, span.end - span.start, LANE_HEIGHT.level),
  level_mark(span, view.clips.level[order[at]], view.clips.levels, "clip")));
  const list = lane("Labels of clips", LANE_HEIGHT.level, "Clips over time; arrows move, Enter opens, plus and minus zoom, 0 shows all", marks, { role: "listbox", tabindex: 0 });
  if (has_models) {
    lane("Model, by clip", LANE_HEIGHT.clip, `Probability of ${class_words(view.class_shown)} for each clip`,
      [shown.map((span, at) => probability_mark(span, probability(order[at]))), half_line(film.last, LANE_HEIGHT.clip / 2)]);
    const wrong = bounds.filter((_, at) => differs(order[at]));
    lane("Model differs", LANE_HEIGHT.differs, `Model and label differ on ${count(wrong.length, "clip")}`, blocks(wrong, 0, LANE_HEIGHT.differs, "flag"));
  }
  const frames = film.spans.reduce((sum, span) => sum + span.frames.length, 0);
  if (frames) {
    const with_frames = film.spans.filter((span) => span.frames.length);
    lane("Model, by frame", LANE_HEIGHT.frame, `Probability for each of ${count(frames, "frame")}`,
      [with_frames.map((span) => frame_mark(span, LANE_HEIGHT.frame, "p")), half_line(film.last, LANE_HEIGHT.frame / 2)]);
    lane(film.intervals.length ? "Found moments" : "No moments found", LANE_HEIGHT.moment, count(film.intervals.length, "moment"),
      film.intervals.map((moment) => rect("moment", moment.start, 1, moment.end - moment.start, LANE_HEIGHT.moment - 2)));
    if (with_frames.some((span) => span.frames.some((frame) => frame.loud))) {
      lane("Loudness", LANE_HEIGHT.sound, "Loudness of the sound. The foot of the lane is 60 dB below the loudest sound.",
        with_frames.map((span) => frame_mark(span, LANE_HEIGHT.sound, "loud")));
    }
  }
  view.clips.concepts.forEach((name, concept) => {
    const marked = bounds.filter((_, at) => view.clips.shows[order[at]].includes(concept));
    if (marked.length) lane(name, LANE_HEIGHT.concept, `${name}: marked in ${count(marked.length, "clip")}`, blocks(marked, 2, LANE_HEIGHT.concept - 4, "marked-clip"));
  });
  track(film.pasted ? "Scene" : "Time", ticks);
  tracks.append(over);

  const images = new Map();
  const length = () => film.range[1] - film.range[0];
  const part = (seconds) => (seconds - film.range[0]) / length();
  const width = () => ticks.getBoundingClientRect().width || 900;
  const is_whole = () => length() >= film.last - 1e-6;
  const middle = () => (film.range[0] + film.range[1]) / 2;
  const pan = (seconds) => show_range(film.range[0] + seconds, film.range[1] + seconds);
  const show_all = () => show_range(0, film.last);
  const zoom = (factor, centre) => {
    const long = Math.min(film.last, Math.max(SHORTEST_S, length() * factor));
    const start = centre - part(centre) * long;
    show_range(start, start + long);
  };

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

  function draw_ticks() {
    const most = Math.max(2, Math.floor(width() / TICK_WIDTH));
    const words = film.pasted ? scene_ticks(most) : time_ticks(...film.range, most, film.long);
    const places = words.map(([seconds, text]) => [part(seconds), text]);
    const left = (place) => ({ left: `${place * 100}%` });
    ticks.replaceChildren(...places.map(([place, text]) =>
      make("span", { style: left(place), class: place < 0.03 ? "start" : place > 0.95 ? "end" : null }, text)));
    over.replaceChildren(cursor, ...places.map(([place]) => make("i", { style: left(place) })));
  }

  function scene_ticks(most) {
    const seen = shown.map((span, at) => [span.start, scene(order[at]).replace("scene ", "")])
      .filter(([start]) => start >= film.range[0] - 1e-6 && start <= film.range[1]);
    return seen.filter((_, at) => at % Math.ceil(seen.length / most) === 0);
  }

  // Draw as many pictures as fit side by side.
  function draw_pictures() {
    const room = PICTURE_WIDTH / width();
    let free = 0;
    const row = [];
    shown.forEach((span, at) => {
      const left = part((span.start + span.end) / 2) - room / 2;
      if (left < free || left + room > 1 || !Object.hasOwn(data.pictures, span.id)) return;
      free = left + room * 1.05;
      if (!images.has(span.id)) images.set(span.id, picture(span.id, { draggable: "false", "data-clip": order[at] }));
      images.get(span.id).style.left = `${left * 100}%`;
      row.push(images.get(span.id));
    });
    pictures.replaceChildren(...row);
  }

  function clip_words(span, clip) {
    if (!span.frames.length) return sentence(clip);
    const chances = span.frames.map((frame) => frame.p);
    const best = span.frames[chances.indexOf(Math.max(...chances))];
    const when = film.pasted ? `${clock(best.start - span.start)} of the clip` : clock(best.start, film.long);
    return `${sentence(clip)}; frames ${two_digits(Math.min(...chances))} to ${two_digits(best.p)}, highest at ${when}`;
  }

  const covers = (seconds) => (span) => span.start <= seconds && seconds < span.end;

  function read_out(seconds) {
    const span = film.spans.find(covers(seconds));
    const clip = span && number.get(span.id);
    const frame = span && span.frames.find(covers(seconds));
    const moment = film.intervals.find(covers(seconds));
    const words = [
      film.pasted ? span && span.frames.length && `${clock(seconds - span.start)} of the clip` : clock(seconds, film.long),
      span && (clip === undefined ? span.id : `${scene(clip)}, ${level_of(clip).code}`),
      frame && `frame ${two_digits(frame.p)}`,
      moment && `moment of ${two_digits(moment.score)}`,
      ...film.lanes.flatMap(({ name, segments, level, shows }) => segments.filter(covers(seconds)).map(({ at }) =>
        `${name}: ${[levels[level[at]].name, ...shows[at].map((concept) => data.timelines.concepts[concept])].join(", ")}`)),
    ];
    readout.textContent = joined(words, " · ");
    cursor.hidden = false;
    cursor.style.left = `${part(seconds) * 100}%`;
  }

  const buttons = {
    out: button("−", () => zoom(2, middle()), { "aria-label": "Zoom out" }),
    in: button("+", () => zoom(0.5, middle()), { "aria-label": "Zoom in" }),
    all: button("Whole film", show_all),
    range: make("span", { class: "soft" }),
  };
  const tools = make("div", { class: "zoom", role: "group", "aria-label": "Part of the film" }, Object.values(buttons));

  const select = move_within(list, marks, order, (clip) => {
    const span = shown[order.indexOf(clip)];
    readout.textContent = clip_words(span, clip);
    cursor.hidden = true;
    if (span.start < film.range[0] || span.end > film.range[1]) pan((span.start + span.end) / 2 - middle());
  });
  list.addEventListener("keydown", (event) => {
    const at = marks.findIndex((mark) => mark.getAttribute("aria-selected") === "true");
    const centre = at < 0 ? middle() : (shown[at].start + shown[at].end) / 2;
    if (event.key === "+" || event.key === "=") zoom(1 / KEY_ZOOM, centre);
    else if (event.key === "-") zoom(KEY_ZOOM, centre);
    else if (event.key === "0") show_all();
    else if (event.shiftKey && event.key === "ArrowRight") pan(length() / 4);
    else if (event.shiftKey && event.key === "ArrowLeft") pan(-length() / 4);
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);

  move_with_pointer(tracks, {
    time: (x) => {
      const box = ticks.getBoundingClientRect();
      return film.range[0] + ((x - box.left) / box.width) * length();
    },
    seconds: (pixels) => (pixels / width()) * length(),
    read_out, zoom, pan, is_whole, show_all,
    leave: () => { cursor.hidden = true; },
    open: (seconds, clip) => {
      const at = clip === undefined ? shown.findIndex(covers(seconds)) : order.indexOf(clip);
      if (at < 0) return;
      select(at);
      open_clip(order[at], order);
    },
  });
  new ResizeObserver(() => { draw_ticks(); draw_pictures(); }).observe(ticks);
  const element = make("div", { class: "timeline" }, tools, tracks, readout, timeline_notes(film));
  show_range(...film.range);
  return { element, marks: clips.map((clip) => marks[order.indexOf(clip)]) };
}

// Draw taller marks for higher levels, as in the figures of timelines.
function level_mark(span, level, levels, name) {
  const tall = (LANE_HEIGHT.level * (level + 1)) / levels.length;
  return rect(`${name} ${levels[level].colour}`, span.start, LANE_HEIGHT.level - tall, span.end - span.start, tall);
}

function probability_mark(span, value) {
  const tall = value === null ? 4 : Math.max(1.5, value * LANE_HEIGHT.clip);
  return rect(value === null ? "gap" : "clip bar", span.start, LANE_HEIGHT.clip - tall, span.end - span.start, tall);
}

function frame_mark(span, height, key) {
  let path = "";
  let reached = null;
  for (const { start, end, [key]: value } of span.frames) {
    if (reached !== start) path += `${reached === null ? "" : `V${height}`}M${start} ${height}`;
    path += `V${(height * (1 - value)).toFixed(1)}H${end}`;
    reached = end;
  }
  return make("path", { class: key === "p" ? "bar" : "sound", d: `${path}V${height}` });
}

function timeline_notes(film) {
  const levels = new Map([...(data.timelines.levels || []), ...view.clips.levels].map((level) => [`${level.code} ${level.name} ${level.colour}`, level]));
  const legend = make("ul", { class: "legend", "aria-label": "How to read the timeline" }, level_keys([...levels.values()]));
  const hint = make("span", { class: "hint" }, "Scroll or pinch to zoom, drag to move, double-click to see all, and click a clip to open it.");
  const notes = [has_models ? ` The lines are at .5${film.intervals.length ? "; moments were cut at their own threshold" : ""}.` : ""];
  if (film.pasted) notes.push("The clips’ times in the film are unknown, so the clips follow one another in scene order, without annotators’ segments.");
  else if (data.timelines.levels && !film.lanes.length) notes.push("No annotator marked a segment of this film.");
  if (film.trained) notes.push(`The frame-level model was trained on ${count(film.trained, "clip")} of this film, and is probably more confident on them than on new clips.`);
  return [legend, make("p", { class: "counts" }, hint, notes.join(" "))];
}

// Pointer events on a time axis: hovering describes, dragging pans, wheel and pinch zoom, a click opens.
function move_with_pointer(element, axis) {
  const down = new Map();
  let dragged = false;
  let waiting = 0;
  const on = (name, listener, options) => element.addEventListener(name, listener, options);
  const pinch = () => {
    const [left, right] = [...down.values()];
    return { width: Math.max(1, Math.abs(left - right)), middle: (left + right) / 2 };
  };
  on("pointerdown", (event) => {
    if (event.button) return;
    if (!down.size) dragged = false;
    down.set(event.pointerId, event.clientX);
  });
  on("pointermove", (event) => {
    if (!down.has(event.pointerId)) {
      axis.read_out(axis.time(event.clientX));
      return;
    }
    const by = event.clientX - down.get(event.pointerId);
    if (down.size === 2) {
      const before = pinch();
      down.set(event.pointerId, event.clientX);
      axis.zoom(before.width / pinch().width, axis.time(before.middle));
    } else if (dragged || Math.abs(by) > DRAG_PIXELS) {
      if (!dragged) element.setPointerCapture(event.pointerId);
      down.set(event.pointerId, event.clientX);
      axis.pan(-axis.seconds(by));
    } else return;
    dragged = true;
  });
  const up = (event) => down.delete(event.pointerId);
  on("pointerup", up);
  on("pointercancel", up);
  on("pointerleave", (event) => { up(event); axis.leave(); });
  on("wheel", (event) => {
    const lines = event.deltaMode ? 16 : 1;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) axis.pan(axis.seconds(event.deltaX * lines));
    else if (event.deltaY > 0 && axis.is_whole()) return; // the page scrolls
    else axis.zoom(Math.exp(event.deltaY * lines * 0.002), axis.time(event.clientX));
    event.preventDefault();
  }, { passive: false });
  on("click", (event) => {
    clearTimeout(waiting);
    if (dragged || event.detail > 1) return;
    const [seconds, clip] = [axis.time(event.clientX), event.target.dataset.clip];
    const open = () => axis.open(seconds, clip === undefined ? undefined : Number(clip));
    if (axis.is_whole()) open(); // a double click has nothing to reset
    else waiting = setTimeout(open, DOUBLE_CLICK_MS);
  });
  on("dblclick", axis.show_all);
}
