"""The films of a page: each as a strip on a common axis, with the numbers of its row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.text import group_by
from obygaze_features.page.html import Html, html
from obygaze_models.report.people import ABSENT, People
from obygaze_models.report.scores import Axis, Tested
from obygaze_models.report.sources import Clip, Labels, is_timed

MAX_LANES = 4
"""The maximum number of annotators' lanes in a strip."""
LANE, GAP = 9, 1
Shape = tuple[str, float, float]
"""The CSS class of a clip's colour, its start and its length."""


@dataclass(frozen=True, eq=False)
class FilmRow:
    """A film's strip and numbers.

    Parameters
    ----------
    film, title, strip
        The id, the title, and the strip as SVG.
    shares
        The share of clips with the counted levels by each annotator.
    top
        The share of clips with these levels on the page.
    same, gamma
        The share of clips with equal levels, and the annotators' gamma.
    tested, score
        The number of tested clips, and the model's score.
    """

    film: str
    title: str
    strip: Html
    shares: Sequence[float | None]
    top: float
    same: float | None = None
    gamma: float | None = None
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
    """Return the films, those with the highest score or the most marked clips first.

    Return None if no clip has a film.
    """
    if not labels.has_films:
        return None
    timed = is_timed(labels.clips)
    film_rows = _rows_of(labels)
    longest = max(
        max(clip.end or 0.0 for clip in own) if timed else float(len(own))
        for own in labels.films.values()
    )
    scores = entry.scores.groups if entry else {}
    lanes = _lanes(labels, people, entry)
    rows = []
    for number, (film, clips) in enumerate(labels.films.items()):
        own = film_rows[number]
        marked = float(np.mean([clip.level in labels.positives for clip in clips]))
        shares: Sequence[float | None] = [marked]
        same = gamma = None
        if people is not None:
            shares = people.share(own)
            both = people.shared[own]
            same = float(1 - people.differ[own][both].mean()) if both.any() else None
            gamma = people.gamma(number)
        spans = _spans(clips, timed=timed)
        shapes = [
            [(colours[row], *span) for row, span in zip(own, spans, strict=True) if colours[row]]
            for colours in lanes.values()
        ]
        rows.append(
            FilmRow(
                film,
                clips[0].title or film,
                strip(shapes, longest),
                shares,
                marked,
                same,
                gamma,
                tested=_tested_clips(entry, clips),
                score=scores[film].get(entry.metric) if entry and film in scores else None,
            )
        )
    rows.sort(key=lambda row: row.top, reverse=True)
    if entry is not None:
        rows.sort(key=lambda row: -1.0 if row.score is None else row.score, reverse=True)
    most = max(share or 0.0 for row in rows for share in row.shares)
    step = 3600.0 if timed else max(1.0, round(longest / 4, -1))
    return Films(
        rows,
        [name for name in lanes if name],
        Axis(0.0, longest, [*np.arange(0.0, longest, step).tolist()]),
        timed,
        Axis(-0.05, most + 0.05, [0.0, round(most / 2, 1), round(most, 1)]),
    )


def _rows_of(labels: Labels) -> list[list[int]]:
    """Return the indices of each film's clips."""
    ends = np.cumsum([len(own) for own in labels.films.values()]).tolist()
    return [[*range(start, end)] for start, end in zip([0, *ends], ends, strict=False)]


def _tested_clips(entry: Tested | None, clips: Iterable[Clip]) -> int:
    if entry is None:
        return 0
    ids = {*entry.table["id"]}
    return sum(clip.id in ids for clip in clips)


def _spans(clips: Sequence[Clip], *, timed: bool) -> list[tuple[float, float]]:
    """Return each clip's start and length: in seconds, or one after the other."""
    if not timed:
        return [(float(number), 1.0) for number in range(len(clips))]
    return [(clip.start or 0.0, (clip.end or 0.0) - (clip.start or 0.0)) for clip in clips]


def _lanes(
    labels: Labels, people: People | None, entry: Tested | None
) -> Mapping[str, Sequence[str]]:
    """Return the colour of each clip in each lane: annotators, the model, and differences."""
    colours = [*labels.colours.values()]
    lanes: dict[str, Sequence[str]] = {}
    if people is None:
        lanes["labels"] = [labels.colours.get(clip.level, "") for clip in labels.clips]
    else:
        for name, codes in zip(people.names[:MAX_LANES], people.codes, strict=False):
            lanes[name] = ["" if code == ABSENT else colours[code] for code in codes]
    if entry is not None and entry.task.is_binary:
        means = entry.means.set_index("id")
        called = dict(zip(means.index, means["called"], strict=True))
        label = dict(zip(means.index, means["label"], strict=True))
        ids = [clip.id for clip in labels.clips]
        lanes["model"] = ["model" if called.get(clip) == 1 else "" for clip in ids]
        lanes[""] = ["wrong" if called.get(clip) != label.get(clip) else "" for clip in ids]
    elif people is not None:
        lanes[""] = ["wrong" if differ else "" for differ in people.differ]
    return lanes


def _joined(shapes: Iterable[Shape]) -> list[list[float]]:
    """Return the start and end of each run of clips that touch."""
    spans: list[list[float]] = []
    for _, start, length in shapes:
        if spans and start <= spans[-1][1] + 0.05:
            spans[-1][1] = start + length
        else:
            spans.append([start, start + length])
    return spans


def strip(lanes: Sequence[Sequence[Shape]], longest: float) -> Html:
    """Draw lanes as SVG. Clips of one colour that touch become one shape."""
    paths = ""
    top = 0.0
    for lane in lanes:
        is_thin = all(colour == "wrong" for colour, _, _ in lane)
        height = 3.0 if is_thin else LANE
        for colour, shapes in group_by(lane, lambda shape: shape[0]).items():
            outline = "".join(
                f"M{start:g} {top:g}h{end - start:g}v{height:g}H{start:g}z"
                for start, end in _joined(shapes)
            )
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
