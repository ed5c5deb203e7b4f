// A strip a film: each clip a bar of its probability, over the annotators' level.
const BARS = { top: 12, bottom: 92 };
const LANE = 11;

function strips(view, open) {
  const films = view.clips.films.map((film) => ({ film, clips: [] }));
  view.clips.film.forEach((film, clip) => films[film].clips.push(clip));
  return films.map(({ film, clips }, place) => strip(view, film, clips, place, open));
}

// A film alone is shown on its time axis, where it has one.
function show_alone(view, one, alone, open) {
  if (!one.lanes) return;
  if (alone && !one.timeline) one.timeline = timeline(view, read_timeline(one.lanes), one.clips, open);
  one.timeline_shown = alone;
  one.marks = alone ? one.timeline.marks : one.strip.marks;
  one.content.replaceChildren(alone ? one.timeline.element : one.strip.element);
}

function spans(view, film, clips) {
  if (!film.timed) return clips.map((_, place) => [place / clips.length, (place + 1) / clips.length]);
  const first = Math.min(...clips.map((clip) => view.clips.start[clip]));
  const last = Math.max(...clips.map((clip) => view.clips.end[clip]));
  const long = last - first || 1;
  return clips.map((clip) => [
    (view.clips.start[clip] - first) / long,
    (view.clips.end[clip] - first) / long,
  ]);
}

function strip(view, film, clips, place, open) {
  const levels = view.clips.levels;
  const height = BARS.bottom + 6 + LANE * levels.length;
  const title = make("h4", { id: `film-${place}` }, film.title);
  const line = make("p", { class: "counts" });
  const lanes = Object.hasOwn(data.timelines.films, film.id) ? data.timelines.films[film.id] : null;
  const readout = make("p", { class: "readout", "aria-hidden": "true" }, " ");
  const svg = make("svg", {
    viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none", role: "listbox", tabindex: "0",
    "aria-label": `${film.title}: clips in scene order; arrows move, Enter opens`,
  });
  svg.style.height = `${height}px`;
  levels.forEach((_, order) => {
    const y = lane(order, levels.length);
    svg.append(make("rect", { class: "lane", x: 0, y, width: 1000, height: LANE - 1, role: "presentation" }));
  });
  const marks = spans(view, film, clips).map(([from, to], at) =>
    clip_mark(view, clips[at], from * 1000, Math.max(1.2, (to - from) * 1000), levels.length),
  );
  svg.append(...marks);
  const half = (BARS.top + BARS.bottom) / 2;
  svg.append(make("line", { class: "half", x1: 0, x2: 1000, y1: half, y2: half, role: "presentation" }));
  const plot = make("div", { class: "plot" }, svg, axis(view, film, clips));
  const body = make("div", { class: "strip" }, scale(levels, height), plot);
  const element = make("div", {}, make("div", { class: "scroll" }, body), readout);
  const content = make("div", {}, element);
  const section = make("section", { class: "film", "aria-labelledby": `film-${place}` }, title, line, content);
  const tell = (clip) => { readout.textContent = sentence(view, clip); };
  const point = move_within(svg, marks, clips, tell, open);
  svg.addEventListener("pointermove", (event) => {
    const mark = event.target.closest("g");
    if (mark) tell(Number(mark.dataset.clip));
  });
  svg.addEventListener("click", (event) => {
    const mark = event.target.closest("g");
    if (!mark) return;
    const clip = Number(mark.dataset.clip);
    point(clips.indexOf(clip));
    open(clip, clips, svg);
  });
  return { section, content, marks, clips, line, lanes, strip: { element, marks } };
}

const lane = (order, levels) => BARS.bottom + 6 + LANE * (levels - 1 - order);

function clip_mark(view, clip, x, width, levels) {
  const mark = make("g", {
    role: "option", id: `mark-${clip}`, "aria-selected": "false",
    "aria-label": sentence(view, clip), "data-clip": clip,
  });
  mark.append(make("rect", { class: "hit", x, y: 0, width, height: BARS.bottom + 6 + LANE * levels }));
  const inner = Math.max(1, width - 1);
  const value = said(view, clip);
  if (value === null) {
    mark.append(make("rect", { class: "gap", x, y: BARS.bottom - 5, width: inner, height: 5 }));
  } else {
    const wrong = differs(view, clip);
    const tall = Math.max(1.5, value * (BARS.bottom - BARS.top));
    mark.append(make("rect", { class: wrong ? "bar wrong" : "bar", x, y: BARS.bottom - tall, width: inner, height: tall }));
    if (wrong) mark.append(make("rect", { class: "flag", x, y: 1, width: inner, height: 7 }));
  }
  const y = lane(view.clips.level[clip], levels);
  mark.append(make("rect", { class: "mark", x, y, width: inner, height: LANE - 1 }));
  return mark;
}

// The words beside the strip: they are outside the drawing, which is stretched.
function scale(levels, height) {
  const words = make("div", { class: "scale", "aria-hidden": "true" });
  words.style.height = `${height}px`;
  const put = (text, y) => {
    const word = make("span", {}, text);
    word.style.top = `${y}px`;
    words.append(word);
  };
  put("1", BARS.top);
  put(".5", (BARS.top + BARS.bottom) / 2);
  put("0", BARS.bottom - 3);
  levels.forEach((level, order) => put(level.code, lane(order, levels.length) + LANE / 2));
  return words;
}

function axis(view, film, clips) {
  const words = make("div", { class: "axis", "aria-hidden": "true" });
  let before = "";
  const put = (text, share) => {
    if (text === before) return;
    before = text;
    const word = make("span", { class: share < 0.05 ? "start" : share > 0.95 ? "end" : null }, text);
    word.style.left = `${share * 100}%`;
    words.append(word);
  };
  if (film.timed) {
    const first = Math.min(...clips.map((clip) => view.clips.start[clip]));
    const long = Math.max(...clips.map((clip) => view.clips.end[clip])) - first;
    for (const share of [0, 0.25, 0.5, 0.75, 1]) put(clock(first + share * long), share);
  } else {
    // A word stands under the middle of its bar.
    const last = clips.length - 1;
    for (const at of new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * last)))) {
      put(scene(view, clips[at]), (at + 0.5) / clips.length);
    }
  }
  return words;
}

// One stop for the tab key; within, arrows, Home, End; Enter or a click opens.
function move_within(svg, marks, clips, tell, open) {
  let at = -1;
  const point = (place) => {
    if (at >= 0) marks[at].setAttribute("aria-selected", "false");
    at = place;
    marks[at].setAttribute("aria-selected", "true");
    svg.setAttribute("aria-activedescendant", marks[at].id);
    tell(clips[at]);
  };
  svg.addEventListener("focus", () => point(Math.max(at, 0)));
  svg.addEventListener("keydown", (event) => {
    const last = marks.length - 1;
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last, PageDown: at + 10, PageUp: at - 10 };
    if (event.key in steps) point(Math.min(last, Math.max(0, steps[event.key])));
    else if (event.key === "Enter" || event.key === " ") open(clips[Math.max(at, 0)], clips, svg);
    else return;
    event.preventDefault();
  });
  return point;
}
