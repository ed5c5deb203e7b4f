// The lanes of a film on a time axis.
function draw_lanes(clips) {
  const { id, timed } = film_of(clips[0]);
  const spans = clips.map((clip, place) => (timed ? [data.start[clip], data.end[clip]] : [place, place + 1]));
  const segments = data.segments[id] ?? [];
  const ends = [...spans, ...segments.flatMap((lane) => lane.of)];
  const last = ends.reduce((most, [, end]) => Math.max(most, end), 1);
  const names = make("div", { class: "names", "aria-hidden": "true" });
  const tracks = make("div", { class: "wide" });
  const scroll = { class: "tracks", tabindex: "0", role: "group", "aria-label": "Lanes over time" };
  find("lanes").replaceChildren(names, make("div", scroll, tracks));

  const add = (name, height, label, marks) => {
    names.append(make("span", { style: `height: ${height}px`, title: name }, named(name)));
    const box = { viewBox: `0 0 ${last} ${height}`, preserveAspectRatio: "none", height, width: "100%" };
    tracks.append(make("svg", { ...box, role: "img", "aria-label": label }, marks));
  };
  const block = ([start, end], height, name, title = null, part = 1) => make("rect", {
    class: name, x: start, width: Math.max(end - start, last / 2000), y: height * (1 - part), height: height * part,
  }, title && make("title", {}, title));
  const line = (points, name) => make("polyline", { points: points.join(" "), class: name });
  const of_clips = (draw) => clips.map((clip, place) => draw(clip, spans[place]));

  for (const lane of segments) {
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
    const points = clips.flatMap((clip, place) => {
      const [from, to] = spans[place];
      return tested(clip) ? [[(from + to) / 2, 44 * (1 - share(predicted(clip)))]] : [];
    });
    add(view.test, 44, `${view.test} (bars) and its prediction (line) over time`, [of_clips((clip, span) =>
      (tested(clip) ? block(span, 44, "l3", sentence(clip), share(label_of(clip))) : null)), line(points, "line")]);
  } else if (view) {
    add("the model", 44, `Probability of ${view.what} over time`, [of_clips((clip, span) => {
      if (!tested(clip)) return null;
      return block(span, 44, predicted(clip) > 0.5 ? "model" : "model low", sentence(clip), predicted(clip));
    }), line([[0, 22], [last, 22]], "half")]);
  }
  if (timed) tracks.append(time_axis(last));
  names.append(make("span"));
  tracks.addEventListener("click", (event) => { // open the clip below the pointer
    const box = event.currentTarget.getBoundingClientRect();
    const time = (last * (event.clientX - box.left)) / box.width;
    const place = spans.findIndex(([from, to]) => from <= time && time < to);
    if (place >= 0) open_clip(clips[place], clips);
  });
}

function clock(seconds) {
  const minutes = Math.floor(Math.round(seconds) / 60);
  const parts = [minutes % 60, Math.round(seconds) % 60].map((part) => String(part).padStart(2, "0"));
  return [Math.floor(minutes / 60), ...parts].join(":");
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
