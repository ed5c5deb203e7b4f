// Where a film's clips are on its axis: in seconds where these are known, else by scene number.
const TICKS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200];

function clip_axis(view, film, clips) {
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

// The parts of an axis that no clip with a label covers.
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

// Round times, as [seconds, text]; at most so many.
function time_ticks(from, to, most, long) {
  const step = TICKS_S.find((seconds) => (to - from) / seconds <= most) || 14400;
  const words = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + 1e-6; at += step) words.push([at, clock(at + 1e-6, long)]);
  return words;
}

// Rectangles of one colour as one shape: a film has thousands.
function blocks(spans, top, height, name) {
  const d = spans.map(([from, to]) => `M${from} ${top}H${to}v${height}H${from}z`).join("");
  return make("path", { class: name, d, role: "presentation" });
}

// A label set's levels: a shape for each level, in its colour; the higher, the taller.
function level_blocks(view, labels, clips, spans, top, height) {
  const levels = view.clips.levels;
  return levels.map((level, order) => {
    const tall = (height * (order + 1)) / levels.length;
    const own = spans.filter((_, at) => labels.level[clips[at]] === order);
    return blocks(own, top + height - tall, tall, `segment ${level.colour}`);
  });
}
