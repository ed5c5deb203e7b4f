// The lanes of a film on a time axis. A range input widens them, and the browser scrolls.
function draw_lanes(clips) {
  const { id, timed } = film_of(clips[0]);
  const spans = clips.map((clip, place) => (timed ? [data.start[clip], data.end[clip]] : [place, place + 1]));
  const more = data.lanes[id] ?? {};
  const ends = [...spans, ...(more.frames ?? []), ...(more.segments ?? []).flatMap((lane) => lane.of)];
  const last = ends.reduce((most, [, end]) => Math.max(most, end), 1);
  let [names, tracks] = [];
  const add = (name, height, label, marks) => {
    names.append(make("span", { style: `height: ${height}px`, title: name }, named(name)));
    const box = { viewBox: `0 0 ${last} ${height}`, preserveAspectRatio: "none", height, width: "100%" };
    tracks.append(make("svg", { ...box, role: "img", "aria-label": label }, marks));
  };
  const block = ([start, end], height, name, title = null, part = 1) => make("rect", {
    class: name, x: start, width: Math.max(end - start, last / 2000), y: height * (1 - part), height: height * part,
  }, title && make("title", {}, title));
  const line = (points, name) => make("polyline", { points: points.join(" "), class: name });
  const half = line([[0, 22], [last, 22]], "half");
  const of_clips = (draw) => clips.map((clip, place) => draw(clip, spans[place]));
  const start = (box) => {
    [names, tracks] = [make("div", { class: "names", "aria-hidden": "true" }), make("div", { class: "wide" })];
    const label = "Lanes over time; scroll sideways when wide";
    const scroll = make("div", { class: "tracks", tabindex: "0", role: "group", "aria-label": label }, tracks);
    box.replaceChildren(names, scroll);
  };

  start(find("lanes"));
  for (const lane of more.segments ?? []) {
    const marks = lane.of.map(([from, to, rank, ...words]) => {
      const { name, colour } = data.levels[rank];
      return block([from, to], 18, colour, [name, ...words].filter(Boolean).join("; "));
    });
    add(`${lane.name}, segments`, 18, `Segments of ${lane.name}: ${marks.length}`, marks);
  }
  for (const own of view?.range ? [] : sets) {
    add(own.name, 18, `${own.name}: levels over time`, of_clips((clip, span) =>
      (own.level[clip] === null ? null : block(span, 18, data.levels[own.level[clip]].colour, sentence(clip)))));
  }
  if (votes) {
    add(many, 18, `${many}, over time`, of_clips((clip, span) =>
      (votes[clip] < 0 ? null : block(span, 18, data.votes.ramp[votes[clip]], sentence(clip)))));
  }
  if (view?.range) {
    const points = clips.filter(tested).map((clip) => {
      const [from, to] = spans[clips.indexOf(clip)];
      return [(from + to) / 2, 44 * (1 - share(predicted(clip)))];
    });
    add(view.test, 44, `${view.test} (bars) and its prediction (line) over time`, [of_clips((clip, span) =>
      (tested(clip) ? block(span, 44, "l3", sentence(clip), share(label_of(clip))) : null)), line(points, "line")]);
  } else if (view) {
    add("the model", 44, `Probability of ${view.classes[view.shown]} over time`, [of_clips((clip, span) => {
      if (!tested(clip)) return null;
      return block(span, 44, predicted(clip) > 0.5 ? "model" : "model low", sentence(clip), predicted(clip));
    }), half]);
  }
  if (more.frames) {
    add("frames", 44, `Probabilities of frames: ${more.frames.length}`,
      [more.frames.map(([from, to, p]) => block([from, to], 44, "model", null, p)), half]);
  }
  const moments = (more.moments ?? []).map((span) => block(span, 16, "wrong"));
  if (more.moments) add("moments", 16, `Moments: ${moments.length}`, moments);
  if (timed) tracks.append(time_axis(last));
  names.append(make("span"));
  tracks.style.width = `${find("zoom").value}%`;
  tracks.addEventListener("click", (event) => { // open the clip below the pointer
    const box = event.currentTarget.getBoundingClientRect();
    const time = (last * (event.clientX - box.left)) / box.width;
    const place = spans.findIndex(([from, to]) => from <= time && time < to);
    if (place >= 0) open_clip(clips[place], clips);
  });

  start(find("concept-lanes").lastElementChild);
  for (const [concept, name] of data.concepts.entries()) {
    const marked = spans.filter((_, place) => data.shows[clips[place]].includes(concept));
    if (marked.length) add(name, 12, `${name}: ${marked.length} marked`, marked.map((span) => block(span, 12, "both")));
  }
  find("concept-lanes").hidden = !names.childElementCount;
}

function time_axis(last) {
  const most = Math.min(6, find("app").clientWidth / 90); // labels that have room
  const step = [60, 300, 600, 1200, 3600].find((seconds) => last / seconds <= most) ?? 7200;
  const times = [];
  for (let time = 0; time < last * (1 - 0.6 / most); time += step) times.push(time);
  return make("svg", { class: "axis", "aria-hidden": "true" }, [...times, last].map((time) => {
    const anchor = { 0: "start", [last]: "end" }[time] ?? "middle";
    return make("text", { x: `${(100 * time) / last}%`, y: 13, style: `text-anchor: ${anchor}` }, clock(time));
  }));
}
