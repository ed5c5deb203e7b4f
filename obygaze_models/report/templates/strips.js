// One strip per film: a bar for each clip's probability, below the annotators' lanes and above the clip's level.
// Clips are placed by time if it is known, else by scene number.
const TICKS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200];
const BARS = has_models ? { top: 12, bottom: 92 } : { top: 0, bottom: 0 };
const LANE = 11;
const SET_LANE = 12;
const DRAWN = { role: "presentation" };

function clip_axis(film, clips) {
  if (film.timed) {
    const spans = clips.map((clip) => [view.clips.start[clip], view.clips.end[clip]]);
    const start = Math.min(...spans.map(([from]) => from));
    const last = Math.max(...spans.map(([, to]) => to));
    return { spans, first: start < last / 10 ? 0 : start, last: Math.max(last, start + 1) };
  }
  const numbers = clips.map((clip) => view.clips.number[clip]);
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const numbered = !numbers.includes(null) && new Set(numbers).size === clips.length && most - least < 2 * clips.length;
  const first = least > 1 && least < clips.length / 2 ? 1 : least;
  const slots = numbered ? numbers.map((number) => number - first) : clips.map((_, at) => at);
  return { spans: slots.map((slot) => [slot, slot + 1]), first: 0, last: Math.max(...slots) + 1 };
}

// The length of the longest film, in seconds or scenes, so that the strips share one scale.
const longest = (timed) => Math.max(...drawn.filter(({ film }) => film.timed === timed).map(({ film, clips }) => {
  const { first, last } = clip_axis(film, clips);
  return last - first;
}));

// The parts of an axis that no labelled clip covers.
function unlabelled(axis) {
  const shortest = (axis.last - axis.first) / axis.spans.length / 2;
  const gaps = [];
  let reached = axis.first;
  for (const [from, to] of [...axis.spans].sort((a, b) => a[0] - b[0])) {
    if (from - reached > shortest) gaps.push([reached, from]);
    reached = Math.max(reached, to);
  }
  return gaps;
}

// Round times as [seconds, text], at most `most` of them.
function time_ticks(from, to, most, long) {
  const step = TICKS_S.find((seconds) => (to - from) / seconds <= most) || 14400;
  const words = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + 1e-6; at += step) words.push([at, clock(at + 1e-6, long)]);
  return words;
}

// Draw rectangles of one colour as one shape, because a film has thousands.
const blocks = (spans, top, height, name) => make("path", {
  class: name, d: spans.map(([from, to]) => `M${from} ${top}H${to}v${height}H${from}z`).join(""), ...DRAWN,
});

// A label set's levels: one shape per level, in the level's colour. Higher levels are taller.
const level_blocks = (labels, clips, spans, top, height) => view.clips.levels.map((level, order, levels) => {
  const tall = (height * (order + 1)) / levels.length;
  const own = spans.filter((_, at) => labels.level[clips[at]] === order);
  return blocks(own, top + height - tall, tall, `segment ${level.colour}`);
});

const half_line = (width, y) => make("line", { class: "half", x1: 0, x2: width, y1: y, y2: y, ...DRAWN });

// Show a single film on a timeline that can be zoomed, or one of several as a strip. Each is drawn when first shown.
function show_film(drawing, alone) {
  if (alone) drawing.timeline ||= timeline(film_axis(drawing.film, drawing.clips), drawing.clips);
  else drawing.strip ||= strip(drawing.film, drawing.clips);
  drawing.timeline_shown = alone;
  const { marks, element } = alone ? drawing.timeline : drawing.strip;
  drawing.marks = marks;
  drawing.content.replaceChildren(element);
}

// Make the section of a film, still empty.
function film_section(film, clips, place) {
  const [line, content] = [make("p", { class: "counts" }), make("div")];
  const section = make("section", { class: "film", "aria-labelledby": `film-${place}` },
    make("h4", { id: `film-${place}` }, film.title), line, content);
  return { section, content, marks: [], clips, line, film };
}

function strip(film, clips) {
  const { levels, sets } = view.clips;
  const above = sets.length * SET_LANE;
  const below = BARS.bottom + 6;
  const height = below + LANE * levels.length;
  const axis = clip_axis(film, clips);
  const across = (at) => (1000 * (at - axis.first)) / longest(film.timed);
  const end = across(axis.last);
  const spans = axis.spans.map(([from, to]) => [across(from), Math.max(across(to), across(from) + 1.2)]);
  const marks = spans.map(([from, to], at) => clip_mark(clips[at], from, to - from, levels.length, above));
  const svg = make("svg", {
    viewBox: `0 ${-above} 1000 ${height + above}`, preserveAspectRatio: "none", role: "listbox", tabindex: "0",
    "aria-label": `${film.title}: clips in scene order; arrows move, Enter opens`, style: { height: `${height + above}px` },
    pointermove: (event) => { if (mark_under(event)) describe(Number(mark_under(event).dataset.clip)); },
    click: (event) => {
      if (!mark_under(event)) return;
      const clip = Number(mark_under(event).dataset.clip);
      select(clips.indexOf(clip));
      open_clip(clip, clips);
    },
  },
  levels.map((_, order) => rect("lane", 0, lane_top(order, levels.length), end, LANE - 1, DRAWN)),
  blocks(unlabelled(axis).map((gap) => gap.map(across)), below, LANE * levels.length, "absent"),
  sets.map((labels, row) => level_blocks(labels, clips, spans, row * SET_LANE - above, SET_LANE - 3)),
  marks, has_models ? half_line(end, (BARS.top + BARS.bottom) / 2) : null);
  const mark_under = (event) => event.target.closest("g");
  const readout = make("p", { class: "readout", "aria-hidden": "true" }, " ");
  const describe = (clip) => { readout.textContent = sentence(clip); };
  const select = move_within(svg, marks, clips, describe);
  const plot = make("div", { class: "plot" }, svg, axis_words(film, clips, axis, across));
  const body = make("div", { class: sets.length ? "strip with-names" : "strip" }, scale(height, above), plot);
  return { element: make("div", {}, make("div", { class: "scroll" }, body), readout), marks };
}

const lane_top = (order, levels) => BARS.bottom + 6 + LANE * (levels - 1 - order);

function clip_mark(clip, x, width, levels, above) {
  const inner = Math.max(1, width - 1);
  const value = probability(clip);
  const tall = value === null ? 5 : Math.max(1.5, value * (BARS.bottom - BARS.top));
  return make("g", { role: "option", id: `mark-${clip}`, "aria-selected": "false", "aria-label": sentence(clip), "data-clip": clip },
    rect("hit", x, -above, width, BARS.bottom + 6 + LANE * levels + above),
    !has_models ? null : rect(value === null ? "gap" : "bar", x, BARS.bottom - tall, inner, tall),
    differs(clip) ? rect("flag", x, 1, inner, 7) : null,
    rect(level_of(clip).colour, x, lane_top(view.clips.level[clip], levels), inner, LANE - 1));
}

// The text beside the strip. It is outside the drawing, because the drawing is stretched.
function scale(height, above) {
  const { levels, sets } = view.clips;
  const words = [
    ...sets.map((labels, row) => [labels.name, row * SET_LANE - above + SET_LANE / 2 - 1]),
    ...(has_models ? [["1", BARS.top], [".5", (BARS.top + BARS.bottom) / 2], ["0", BARS.bottom - 3]] : []),
    ...levels.map((level, order) => [level.code, lane_top(order, levels.length) + LANE / 2]),
  ];
  return make("div", { class: "scale", "aria-hidden": "true", style: { height: `${height + above}px` } },
    words.map(([text, y]) => make("span", { style: { top: `${y + above}px` } }, text)));
}

function axis_words(film, clips, axis, across) {
  // The name of a scene is centred under its bar.
  const scenes = () => [...new Set([0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (clips.length - 1))))]
    .map((at) => [(axis.spans[at][0] + axis.spans[at][1]) / 2, scene(clips[at])]);
  const words = film.timed ? time_ticks(axis.first, axis.last, 6, film.long) : scenes();
  return make("div", { class: "axis", "aria-hidden": "true" }, words.map(([at, text]) => {
    const x = across(at);
    return make("span", { class: x < 50 ? "start" : x > 950 ? "end" : null, style: { left: `${x / 10}%` } }, text);
  }));
}

// The key to the colours of levels.
const level_keys = (levels) => levels.map((level) => make("li", {},
  make("svg", { class: "key", viewBox: "0 0 24 16", "aria-hidden": "true" }, rect(level.colour, 3, 2, 18, 12)),
  ` ${level.code}`, ...beyond_code(level).map((name) => ` (${name})`)));

// Make a drawing a single tab stop: arrows, Home and End move within it, and Enter opens a clip.
function move_within(svg, marks, clips, describe) {
  let at = -1;
  const select = (place) => {
    if (at >= 0) marks[at].setAttribute("aria-selected", "false");
    at = place;
    marks[at].setAttribute("aria-selected", "true");
    svg.setAttribute("aria-activedescendant", marks[at].id);
    describe(clips[at]);
  };
  svg.addEventListener("focus", () => select(Math.max(at, 0)));
  svg.addEventListener("keydown", (event) => {
    const last = marks.length - 1;
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last, PageDown: at + 10, PageUp: at - 10 };
    if (event.key in steps) select(Math.min(last, Math.max(0, steps[event.key])));
    else if (event.key === "Enter" || event.key === " ") open_clip(clips[Math.max(at, 0)], clips);
    else return;
    event.preventDefault();
  });
  return select;
}
