// A strip a film: each clip a bar of its probability, under the annotators' lanes, over their level.
const BARS = { top: 12, bottom: 92 };
const LANE = 11;
const SET_LANE = 12;

const strips = (view, open) => film_clips(view).map((clips, place) => strip(view, view.clips.films[place], clips, place, open));

// Each film's clips.
function film_clips(view) {
  const films = view.clips.films.map(() => []);
  view.clips.film.forEach((film, clip) => films[film].push(clip));
  return films;
}

// A film alone is shown on an axis that can be zoomed, with a lane for each concept.
function show_alone(view, drawing, alone, open) {
  if (alone && !drawing.timeline) drawing.timeline = timeline(view, film_axis(view, drawing.film, drawing.clips), drawing.clips, open);
  drawing.timeline_shown = alone;
  drawing.marks = alone ? drawing.timeline.marks : drawing.strip.marks;
  drawing.content.replaceChildren(alone ? drawing.timeline.element : drawing.strip.element);
}

function strip(view, film, clips, place, open) {
  const { levels, sets } = view.clips;
  const shift = sets.length * SET_LANE;
  const height = BARS.bottom + 6 + LANE * levels.length;
  const title = make("h4", { id: `film-${place}` }, film.title);
  const line = make("p", { class: "counts" });
  const readout = make("p", { class: "readout", "aria-hidden": "true" }, " ");
  const svg = make("svg", {
    viewBox: `0 ${-shift} 1000 ${height + shift}`, preserveAspectRatio: "none", role: "listbox", tabindex: "0",
    "aria-label": `${film.title}: clips in scene order; arrows move, Enter opens`,
  });
  svg.style.height = `${height + shift}px`;
  const axis = clip_axis(view, film, clips);
  const across = (at) => (1000 * (at - axis.first)) / (axis.last - axis.first);
  const spans = axis.spans.map(([from, to]) => [across(from), Math.max(across(to), across(from) + 1.2)]);
  levels.forEach((_, order) => {
    const y = lane(order, levels.length);
    svg.append(make("rect", { class: "lane", x: 0, y, width: 1000, height: LANE - 1, role: "presentation" }));
  });
  const absent = unlabelled(axis).map(([from, to]) => [across(from), across(to)]);
  svg.append(blocks(absent, BARS.bottom + 6, LANE * levels.length, "absent"));
  sets.forEach((labels, row) => {
    svg.append(...level_blocks(view, labels, clips, spans, row * SET_LANE - shift, SET_LANE - 3));
  });
  const marks = spans.map(([from, to], at) => clip_mark(view, clips[at], from, to - from, levels.length, shift));
  svg.append(...marks);
  const half = (BARS.top + BARS.bottom) / 2;
  svg.append(make("line", { class: "half", x1: 0, x2: 1000, y1: half, y2: half, role: "presentation" }));
  const plot = make("div", { class: "plot" }, svg, axis_words(view, film, clips, axis, across));
  const body = make("div", { class: sets.length ? "strip with-names" : "strip" }, scale(view, height, shift), plot);
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
  return { section, content, marks, clips, line, film, strip: { element, marks } };
}

const lane = (order, levels) => BARS.bottom + 6 + LANE * (levels - 1 - order);

function clip_mark(view, clip, x, width, levels, shift) {
  const mark = make("g", {
    role: "option", id: `mark-${clip}`, "aria-selected": "false",
    "aria-label": sentence(view, clip), "data-clip": clip,
  });
  mark.append(make("rect", { class: "hit", x, y: -shift, width, height: BARS.bottom + 6 + LANE * levels + shift }));
  const inner = Math.max(1, width - 1);
  const value = said(view, clip);
  if (value === null) {
    mark.append(make("rect", { class: "gap", x, y: BARS.bottom - 5, width: inner, height: 5 }));
  } else {
    const wrong = differs(view, clip);
    const tall = Math.max(1.5, value * (BARS.bottom - BARS.top));
    mark.append(make("rect", { class: "bar", x, y: BARS.bottom - tall, width: inner, height: tall }));
    if (wrong) mark.append(make("rect", { class: "flag", x, y: 1, width: inner, height: 7 }));
  }
  const y = lane(view.clips.level[clip], levels);
  mark.append(make("rect", { class: level_of(view, clip).colour, x, y, width: inner, height: LANE - 1 }));
  return mark;
}

// The words beside the strip: they are outside the drawing, which is stretched.
function scale(view, height, shift) {
  const { levels, sets } = view.clips;
  const words = make("div", { class: "scale", "aria-hidden": "true" });
  words.style.height = `${height + shift}px`;
  const put = (text, y) => {
    const word = make("span", {}, text);
    word.style.top = `${y + shift}px`;
    words.append(word);
  };
  sets.forEach((labels, row) => put(labels.name, row * SET_LANE - shift + SET_LANE / 2 - 1));
  put("1", BARS.top);
  put(".5", (BARS.top + BARS.bottom) / 2);
  put("0", BARS.bottom - 3);
  levels.forEach((level, order) => put(level.code, lane(order, levels.length) + LANE / 2));
  return words;
}

function axis_words(view, film, clips, axis, across) {
  const words = make("div", { class: "axis", "aria-hidden": "true" });
  const put = (text, x) => {
    const word = make("span", { class: x < 50 ? "start" : x > 950 ? "end" : null }, text);
    word.style.left = `${x / 10}%`;
    words.append(word);
  };
  if (film.timed) {
    for (const [seconds, text] of time_ticks(axis.first, axis.last, 6, film.long)) put(text, across(seconds));
  } else {
    // A word stands under the middle of its bar.
    const last = clips.length - 1;
    const middle = (at) => across((axis.spans[at][0] + axis.spans[at][1]) / 2);
    for (const at of new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * last)))) put(scene(view, clips[at]), middle(at));
  }
  return words;
}

// What the colours of the lanes of further label sets say; empty without such sets.
function sets_legend(view) {
  if (!view.clips.sets.length) return [];
  return view.clips.levels.map((level) => make("li", {}, level_key(level), ` ${level.code} (${level.name})`));
}

function level_key(level) {
  return make("svg", { class: "key", viewBox: "0 0 24 16", "aria-hidden": "true" },
    make("rect", { class: level.colour, x: 3, y: 2, width: 18, height: 12 }));
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
