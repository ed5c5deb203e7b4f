// The lanes of a film on a time axis. A range input widens them, and the browser scrolls.
const LANE = { level: 18, model: 44, frames: 44, moments: 16, concept: 10, axis: 18 };

// Each clip's start and end on the axis of its film: in seconds, or one after the other.
function film_spans(clips) {
  const { timed } = film_of(clips[0]);
  return clips.map((clip, place) => (timed ? [data.start[clip], data.end[clip]] : [place, place + 1]));
}

function draw_lanes(clips) {
  const spans = film_spans(clips);
  const more = data.lanes[film_of(clips[0]).id] ?? {};
  const ends = [...spans, ...(more.frames ?? []), ...(more.segments ?? []).flatMap((lane) => lane.of)];
  const last = ends.reduce((most, [, end]) => Math.max(most, end), 1);
  const names = make("div", { class: "names", "aria-hidden": "true" });
  const tracks = make("div", { class: "wide" });
  const add = (name, height, label, marks) => {
    names.append(make("span", { style: `height: ${height}px; overflow: hidden`, title: name }, named(name)));
    tracks.append(make("svg", {
      viewBox: `0 0 ${last} ${height}`, preserveAspectRatio: "none", height, width: "100%",
      role: "img", "aria-label": label, style: "margin-bottom: 3px",
    }, marks));
  };
  const block = ([start, end], height, name, title = null, value = 1) => make("rect", {
    class: name, x: start, width: Math.max(end - start, last / 2000), y: height * (1 - value), height: height * value,
  }, title ? make_title(title) : null);

  for (const lane of more.segments ?? []) {
    add(`${lane.name}, segments`, LANE.level, `Segments of ${lane.name}: ${lane.of.length}`, lane.of.map(([start, end, level, concepts, comment]) => {
      const words = [data.levels[level].name, concepts, comment].filter(Boolean).join("; ");
      return block([start, end], LANE.level, data.levels[level].colour, words);
    }));
  }
  for (const own of sets) {
    const marks = clips.map((clip, place) => {
      const level = data.levels[own.level[clip]];
      return level ? block(spans[place], LANE.level, level.colour, sentence(clip)) : null;
    });
    add(own.name, LANE.level, `${own.name}: levels over time`, marks);
  }
  if (votes) {
    const marks = clips.map((clip, place) => {
      return votes[clip] < 0 ? null : block(spans[place], LANE.level, data.votes.ramp[votes[clip]], sentence(clip));
    });
    add(many, LANE.level, `${many}, over time`, marks);
  }
  if (view) {
    const marks = clips.map((clip, place) => {
      return tested(clip) ? block(spans[place], LANE.model, "model", sentence(clip), probability(clip)) : null;
    });
    add("the model", LANE.model, `Probability of ${view.classes[view.shown]} over time`, [marks, half(last, LANE.model)]);
  }
  if (more.frames) {
    add("frames", LANE.frames, `Probabilities of frames: ${more.frames.length}`,
      [more.frames.map(([start, end, p]) => block([start, end], LANE.frames, "model", null, p)), half(last, LANE.frames)]);
  }
  if (more.moments) {
    add("moments", LANE.moments, `Moments: ${more.moments.length}`, more.moments.map((span) => block(span, LANE.moments, "wrong")));
  }
  names.append(make("span", { style: `height: ${LANE.axis}px` }));
  if (film_of(clips[0]).timed) tracks.append(time_axis(last));
  tracks.addEventListener("click", (event) => open_at(event, clips, spans, last));
  tracks.style.width = `${find("zoom").value}%`;
  find("lanes").replaceChildren(names, make("div", { class: "tracks", tabindex: "0", role: "group", "aria-label": "Lanes over time; scroll sideways when wide" }, tracks));
  draw_concepts(clips, spans, last);
}

function make_title(words) {
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.append(words);
  return title;
}

const half = (last, height) => make("line", { class: "guess", x1: 0, x2: last, y1: height / 2, y2: height / 2, "vector-effect": "non-scaling-stroke", style: "stroke-width: 1" });

function time_axis(last) {
  const most = Math.min(6, find("app").clientWidth / 90); // labels that have room
  const step = [60, 300, 600, 1200, 3600].find((seconds) => last / seconds <= most) ?? 7200;
  const marks = [];
  for (let time = 0; time < last; time += step) {
    const place = time / last;
    const anchor = place > 0.92 ? "end" : "middle"; // the last label ends in the drawing
    marks.push(make("text", { x: `${100 * place}%`, y: 13, style: `text-anchor: ${time ? anchor : "start"}` }, clock(time)));
  }
  return make("svg", { class: "axis", "aria-hidden": "true" }, marks);
}

// Open the clip below the pointer.
function open_at(event, clips, spans, last) {
  const box = event.currentTarget.getBoundingClientRect();
  const time = (last * (event.clientX - box.left)) / box.width;
  const place = spans.findIndex(([start, end]) => start <= time && time < end);
  if (place >= 0) open_clip(clips[place], clips);
}

function draw_concepts(clips, spans, last) {
  const rows = data.concepts.map((name, concept) => {
    const marked = clips.flatMap((clip, place) => (data.shows[clip].includes(concept) ? [spans[place]] : []));
    if (!marked.length) return [];
    const marks = marked.map(([start, end]) => make("rect", { class: "both", x: start, width: end - start, height: LANE.concept }));
    const svg = make("svg", { viewBox: `0 0 ${last} ${LANE.concept}`, preserveAspectRatio: "none", height: LANE.concept, width: "100%", role: "img", "aria-label": `${name}: ${marked.length} marked` }, marks);
    return [make("span", {}, name), svg];
  });
  find("concept-lanes").hidden = !rows.flat().length;
  find("concept-lanes").lastElementChild.replaceChildren(...rows.flat());
}
