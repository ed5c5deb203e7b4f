// The lanes of a film on a time axis. A click opens the clip below the pointer.
function draw_lanes(clips) {
  const { id, timed } = film_of(clips[0]);
  const spans = clips.map((clip, place) => (timed ? [data.start[clip], data.end[clip]] : [place, place + 1]));
  const segments = data.segments[id] ?? [];
  const ends = [...spans, ...segments.flatMap((lane) => lane.of)];
  const last = ends.reduce((most, [, end]) => Math.max(most, end), 1);
  const percent = (time) => `${(100 * time) / last}%`;

  function onclick({ currentTarget, clientX }) {
    const box = currentTarget.getBoundingClientRect();
    const time = (last * (clientX - box.left)) / box.width;
    const place = spans.findIndex(([from, to]) => from <= time && time < to);
    if (place >= 0) open_clip(clips[place], clips);
  }
  function add(name, marks, className = "") {
    const lane = make("div", { className, role: "img", ariaLabel: `${name}, over time`, onclick }, marks);
    find("lanes").append(named(name), lane);
  }
  function block([start, end], className, title, share = 1) {
    const style = `left: ${percent(start)}; width: ${percent(end - start)}; height: ${100 * share}%`;
    return make("i", { className, title, style });
  }
  const sentences = clips.map(sentence);
  const of_clips = (draw) => clips.map((clip, place) => draw(clip, spans[place], sentences[place]));

  find("lanes").replaceChildren();
  for (const lane of segments) {
    const marks = lane.of.map(([from, to, rank, ...words]) => {
      const { name, colour } = data.levels[rank];
      return block([from, to], colour, [name, ...words].filter(Boolean).join("; "));
    });
    add(`${lane.name}, segments`, marks);
  }
  for (const own of view?.range ? [] : sets) {
    add(own.name, of_clips((clip, span, title) => {
      const level = level_of(own, clip);
      return level && block(span, level.colour, title);
    }));
  }
  if (votes) add(many, of_clips((clip, span, title) => block(span, data.votes.ramp[votes[clip]] ?? "", title)));
  if (view?.range) {
    const [low, high] = view.range;
    const share = (value) => (value - low) / (high - low);
    add(`${view.what} (bars), predicted (line)`, of_clips((clip, span, title) => tested(clip) && [
      block(span, "l3", title, share(label_of(clip))), block(span, "line", title, share(predicted(clip))),
    ]), "tall");
  } else if (view) {
    add(`probability of ${view.what}`, of_clips((clip, span, title) => {
      const p = predicted(clip);
      return tested(clip) && block(span, p > 0.5 ? "model" : "model low", title, p);
    }), "tall half");
  }
  if (timed) find("lanes").append(make("span"), time_axis(last, percent));
}

function clock(seconds) {
  const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map(Math.floor);
  return parts.join(":").replace(/:(?=\d(:|$))/g, ":0");
}

function time_axis(last, percent) {
  const step = [60, 300, 600, 1800, 3600].find((seconds) => last / seconds <= 4) ?? 7200;
  const times = [];
  for (let time = 0; time < 0.8 * last; time += step) times.push(time);
  const label = (time) => make("span", { style: `left: ${percent(time)}` }, clock(Math.round(time)));
  return make("div", { className: "times", ariaHidden: true }, [...times, last].map(label));
}
