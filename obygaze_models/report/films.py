"""The films of a page: each as a strip on a common axis, with the numbers of its row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.page.html import Html, html
from obygaze_models.report.people import People
from obygaze_models.report.scores import Axis, Tested, axis_of
from obygaze_models.report.sources import Labels, is_timed, lane_spans
from obygaze_models.scoring.intervals import Estimate, mean_scores

HEIGHTS = {"levels": 9, "verdicts": 9, "differences": 3}
"""The height of a lane of each type."""
GAP = 1
RATED = 28
"""The height of a strip of numbers."""
MAX_ROWS = 25
"""The number of films above which only the best and the worst ten are listed at first."""
FEW = 5
"""The number of tested clips of a class below which a film's score is marked."""
BINS = 80
"""The number of columns of the plot of all films, whose dots are stacked."""


@dataclass(frozen=True, eq=False)
class Lane:
    """A lane of the strips: its name, its type in `HEIGHTS`, and each clip's colour or ""."""

    name: str
    lane_type: str
    colours: Sequence[str]


@dataclass(eq=False)
class FilmRow:
    """A film's strip and numbers.

    Parameters
    ----------
    film, title, strip
        The id, the title, and the strip as SVG.
    top
        The share of clips with the counted levels in the page's labels.
    shares
        Each annotator's share of clips with these levels, or else `top` alone.
    alpha
        The annotators' alpha.
    tested
        The numbers of tested positive and negative clips; without two classes, of all tested clips.
    scores
        The model's scores; for numbers, also the means ``rating`` and ``predicted``, the mean
        ``error``, and ``of_mean``, the error of the film's mean.
    place
        What films are sorted by: the model's score, or `top`.
    """

    film: str
    title: str
    strip: Html
    top: float
    shares: Sequence[float | None]
    alpha: float | None = None
    tested: Sequence[int] = ()
    scores: Mapping[str, float | None] = field(default_factory=dict)
    place: float | None = None

    @property
    def is_few(self) -> bool:
        """True if the model's score is of few clips of a class."""
        return bool(self.tested) and min(self.tested) < FEW


@dataclass(frozen=True, eq=False)
class Films:
    """The rows of all films, highest first, with their axes.

    `lanes` are the names of the lanes from the top, and `colours` the colours in them. `heights`
    has, if there are many films, the height from 0 of each dot in a plot of all films that have a
    place.
    """

    rows: Sequence[FilmRow]
    lanes: Sequence[str]
    colours: Collection[str]
    axis: Axis
    is_timed: bool
    share_axis: Axis
    score_axis: Axis
    heights: Sequence[int]


def films_of(labels: Labels, people: People | None, entry: Tested | None) -> Films | None:
    """Return the films by the model's score, and then by the share of marked clips, highest first.

    Return None if no clip has a film.
    """
    if not labels.has_films:
        return None
    spans = {film: lane_spans(clips) for film, clips in labels.films.items()}
    longest = max(float(lengths.max()) for lengths in spans.values())
    lanes = _lanes(labels, people, entry)
    rows = []
    for film, clips in labels.films.items():
        clip_range = slice(clips.index[0], clips.index[-1] + 1)
        levels = clips["level"][clips["level"] != ""]
        top = float(levels.isin(labels.positives).mean())
        drawn = strip(lanes, clip_range, spans[film], longest)
        row = FilmRow(film, labels.titles[film], drawn, top, [top], place=top)
        if people is not None:
            row.shares = people.share(clip_range)
            row.alpha = people.agreement(clip_range)
        if entry is not None:
            _score(row, entry, clips, spans[film], longest)
        rows.append(row)
    rows.sort(key=lambda row: (-2.0 if row.place is None else row.place, row.top), reverse=True)

    ends = [*np.arange(0.0, 0.8 * longest, 3600.0).tolist(), longest]
    most = max(share or 0.0 for row in rows for share in row.shares)
    score_axis = axis_of([Estimate(row.place) for row in rows], 0.5, ticks=5)
    heights = []
    if len(rows) > MAX_ROWS:
        positions = pd.Series([row.place for row in rows if row.place is not None])
        bins = (BINS * (positions - score_axis.low) / (score_axis.high - score_axis.low)).round()
        heights = positions.groupby(bins).cumcount().tolist()
    return Films(
        rows,
        [lane.name for lane in lanes if lane.name],
        {colour for lane in lanes for colour in lane.colours},
        Axis(0.0, longest, ends),
        is_timed(labels.clips),
        Axis(-0.05, most + 0.1, [0.0, most]),
        score_axis,
        heights,
    )


def _score(row: FilmRow, entry: Tested, clips: pd.DataFrame, spans: Array, longest: float) -> None:
    """Add a model's scores to a film's row, and if it predicts numbers, the strip."""
    means = entry.means.set_index("id")
    of_film = means.reindex(clips["id"])
    ratings = of_film["label"]
    row.tested = [int(ratings.count())]
    if entry.task.is_binary:
        row.tested = [int((ratings == code).sum()) for code in (1, 0)]
    groups = {entry.run.group_of[clip] for clip in clips["id"]}
    scores = [values for group, values in entry.scores.groups.items() if group in groups]
    if scores:
        row.scores = mean_scores(scores)
    row.place = row.scores.get(entry.metric)
    if entry.task.target.is_numeric:
        row.strip = rated_strip(of_film, means, spans, longest)
        row.scores = {
            "r2": None,
            **row.scores,
            "rating": ratings.mean(),
            "predicted": of_film["called"].mean(),
            "error": (of_film["called"] - ratings).abs().mean(),
            "of_mean": (ratings - ratings.mean()).abs().mean(),
        }


def _lanes(labels: Labels, people: People | None, entry: Tested | None) -> list[Lane]:
    """Return the lanes of all clips: annotators or labels, the model, and differences."""
    if entry is not None and entry.task.target.is_numeric:
        ratings = entry.means["label"]
        extent = f"{ratings.min():g} to {ratings.max():g}"
        return [Lane(f"{entry.task.title} (bars, {extent}), predicted (line)", "levels", [])]
    lanes = []
    if people is not None and not people.is_many:
        of_codes = np.array([*labels.colours.values(), ""])[people.codes]  # the last for `ABSENT`
        for name, colours in zip(people.names, of_codes.tolist(), strict=True):
            lanes.append(Lane(name, "levels", colours))
    else:
        colours = labels.clips["level"].map(labels.colours).fillna("").tolist()
        lanes.append(Lane("labels", "levels", colours))
        if people is not None:
            shades = np.array([*people.ramp, ""])[people.votes]
            lanes.append(Lane(f"how many say {labels.top}", "levels", shades.tolist()))
    differ = None
    if entry is not None and entry.task.is_binary:
        means = entry.means.set_index("id").reindex(labels.clips["id"])
        says = np.where(means["called"] == 1, "model", "").tolist()
        lanes.append(Lane("the model", "verdicts", says))
        differ = (means["called"] - means["label"]).abs().to_numpy() > 0
    elif people is not None:
        differ = people.differ
    if differ is not None:
        lanes.append(Lane("", "differences", np.where(differ, "wrong", "").tolist()))
    return lanes


def strip(lanes: Sequence[Lane], clips: slice, spans: Array, longest: float) -> Html:
    """Draw lanes of some clips as SVG. Clips of one colour that touch become one shape."""
    paths = ""
    top = 0
    for lane in lanes:
        height = HEIGHTS[lane.lane_type]
        colours = lane.colours[clips]
        for colour in dict.fromkeys(filter(None, colours)):
            joined: list[list[float]] = []
            for shown_colour, (start, end) in zip(colours, spans.tolist(), strict=True):
                if shown_colour == colour and joined and start <= joined[-1][1] + 0.05:
                    joined[-1][1] = end
                elif shown_colour == colour:
                    joined.append([start, end])
            outline = ""
            for start, end in joined:
                outline += f"M{start:g} {top}h{end - start:g}v{height}H{start:g}z"
            paths += html('<path class="{}" d="{}"/>', colour, outline)
        top += height + GAP
    return _svg(paths, longest, top)


def rated_strip(means: pd.DataFrame, all_means: pd.DataFrame, spans: Array, longest: float) -> Html:
    """Draw a film's ratings as bars and the predictions as a line, on the scale of all films."""
    both = all_means[["label", "called"]].to_numpy()
    scale = (RATED - 3) / max(both.max() - both.min(), 1e-9)
    values = means[["label", "called"]].to_numpy()
    heights = 1 + scale * (values - both.min())
    outline = ""
    line = ""
    for start, end, rating, predicted in np.hstack([spans, heights]).tolist():
        if np.isnan(rating):
            continue
        outline += f"M{start:g} {RATED}V{RATED - rating:.1f}H{end:g}V{RATED}z"
        line += f" {(start + end) / 2:g},{RATED - predicted:.1f}"
    paths = html('<path class="l3" d="{}"/><polyline points="{}"/>', outline, line.strip())
    return _svg(paths, longest, RATED)


def _svg(paths: str, longest: float, height: int) -> Html:
    return html(
        '<svg class="strip" viewBox="0 0 {} {}" style="height: {}px" preserveAspectRatio="none" '
        'aria-hidden="true">{}</svg>',
        f"{longest:g}",
        height,
        height + 2,
        Html(paths),
    )
