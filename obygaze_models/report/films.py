"""The films of a page: each as a strip on a common axis, with the numbers of its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.page.html import Html, html
from obygaze_models.report.people import People
from obygaze_models.report.scores import Axis, Tested
from obygaze_models.report.sources import Clip, Labels, is_timed
from obygaze_models.scoring.intervals import mean_scores

HEIGHTS = {"levels": 9, "verdicts": 9, "differences": 3}
"""The height of a lane of each kind."""
GAP = 1


@dataclass(frozen=True, eq=False)
class Lane:
    """A lane of the strips: its kind in `HEIGHTS`, its name, and each clip's colour or ""."""

    kind: str
    name: str
    colours: Sequence[str]


@dataclass(frozen=True, eq=False)
class FilmRow:
    """A film's strip and numbers.

    Parameters
    ----------
    film, title, strip
        The id, the title, and the strip as SVG.
    shares
        Each annotator's share of clips with the counted levels, or else `top` alone.
    top
        The share of clips with these levels in the page's labels.
    same, alpha
        The share of clips with equal levels, and the annotators' alpha.
    tested, score
        The number of tested clips, and the model's score.
    """

    film: str
    title: str
    strip: Html
    shares: Sequence[float | None]
    top: float
    same: float | None = None
    alpha: float | None = None
    tested: int = 0
    score: float | None = None


@dataclass(frozen=True, eq=False)
class Films:
    """The rows of all films, with their axes. `lanes` are the names of the lanes from the top."""

    rows: Sequence[FilmRow]
    lanes: Sequence[str]
    axis: Axis
    is_timed: bool
    share_axis: Axis


def films_of(labels: Labels, people: People | None, entry: Tested | None) -> Films | None:
    """Return the films by the model's score, and then by the share of marked clips, highest first.

    Return None if no clip has a film.
    """
    if not labels.has_films:
        return None
    timed = is_timed(labels.clips)
    spans = {film: _spans(clips, timed=timed) for film, clips in labels.films.items()}
    longest = max(end for own in spans.values() for _, end in own)
    lanes = _lanes(labels, people, entry)
    tested = {*entry.table["id"]} if entry else set()
    rows = []
    first = 0
    for film, clips in labels.films.items():
        own = slice(first, first + len(clips))
        first = own.stop
        levels = [clip.level for clip in clips if clip.level]
        marked = sum(level in labels.positives for level in levels) / max(1, len(levels))
        shares: Sequence[float | None] = [marked]
        same = alpha = None
        if people is not None:
            shares = people.share(own)
            same, alpha = people.agreement(own)
        score = None
        if entry:
            groups = {entry.run.group_of[clip.id] for clip in clips}
            scores = [values for group, values in entry.scores.groups.items() if group in groups]
            if scores:
                score = mean_scores(scores)[entry.metric]
        row = FilmRow(
            film,
            clips[0].title or film,
            strip(lanes, own, spans[film], longest),
            shares,
            marked,
            same,
            alpha,
            tested=sum(clip.id in tested for clip in clips),
            score=score,
        )
        rows.append(row)
    rows.sort(key=lambda row: row.top, reverse=True)
    rows.sort(key=lambda row: -1.0 if row.score is None else row.score, reverse=True)
    hours = np.arange(0.0, longest, 3600.0).tolist()
    most = max(share or 0.0 for row in rows for share in row.shares)
    return Films(
        rows,
        [lane.name for lane in lanes if lane.name],
        Axis(0.0, longest, hours),
        timed,
        Axis(-0.05, most + 0.1, [0.0, most]),
    )


def _spans(clips: Sequence[Clip], *, timed: bool) -> list[tuple[float, float]]:
    """Return each clip's start and end: in seconds, or one after the other."""
    if not timed:
        return [(float(number), number + 1.0) for number in range(len(clips))]
    return [(clip.start or 0.0, clip.end or 0.0) for clip in clips]


def _lanes(labels: Labels, people: People | None, entry: Tested | None) -> list[Lane]:
    """Return the lanes of all clips: annotators or labels, the model, and differences."""
    lanes = []
    if people is not None and not people.is_many:
        of_codes = np.array([*labels.colours.values(), ""])[people.codes]  # the last for `ABSENT`
        for name, colours in zip(people.names, of_codes.tolist(), strict=True):
            lanes.append(Lane("levels", name, colours))
    else:
        colours = [labels.colours.get(clip.level, "") for clip in labels.clips]
        lanes.append(Lane("levels", "labels", colours))
        if people is not None:
            shades = np.array([*people.ramp, ""])[people.votes]
            lanes.append(Lane("levels", f"how many say {labels.top}", shades.tolist()))
    differ = None
    if entry is not None and entry.task.is_binary:
        means = entry.means.set_index("id").reindex([clip.id for clip in labels.clips])
        says = np.where(means["called"] == 1, "model", "").tolist()
        lanes.append(Lane("verdicts", "the model", says))
        differ = (means["called"] - means["label"]).abs().to_numpy() > 0
    elif people is not None:
        differ = people.differ
    if differ is not None:
        lanes.append(Lane("differences", "", np.where(differ, "wrong", "").tolist()))
    return lanes


def strip(
    lanes: Sequence[Lane],
    clips: slice,
    spans: Sequence[tuple[float, float]],
    longest: float,
) -> Html:
    """Draw lanes of some clips as SVG. Clips of one colour that touch become one shape."""
    paths = ""
    top = 0.0
    for lane in lanes:
        height = HEIGHTS[lane.kind]
        colours = lane.colours[clips]
        for colour in dict.fromkeys(filter(None, colours)):
            joined: list[list[float]] = []
            for own, (start, end) in zip(colours, spans, strict=True):
                if own == colour and joined and start <= joined[-1][1] + 0.05:
                    joined[-1][1] = end
                elif own == colour:
                    joined.append([start, end])
            outline = ""
            for start, end in joined:
                outline += f"M{start:g} {top:g}h{end - start:g}v{height:g}H{start:g}z"
            paths += html('<path class="{}" d="{}"/>', colour, outline)
        top += height + GAP
    return html(
        '<svg class="strip" viewBox="0 0 {} {}" style="height: {}px" preserveAspectRatio="none" '
        'shape-rendering="crispEdges" aria-hidden="true">{}</svg>',
        f"{longest:g}",
        f"{top:g}",
        f"{top + 2:g}",
        Html(paths),
    )
