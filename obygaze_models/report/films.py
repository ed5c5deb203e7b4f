"""The films on one screen: a strip each, sorted by how much of it annotators were sure of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import itemgetter
from statistics import fmean

import numpy as np

from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.text import format_time
from obygaze_features.page.html import Html, html, number
from obygaze_features.page.pictures import draw_lanes
from obygaze_models.experiments.published import published_film
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.report.film_timelines import by_film, is_timed
from obygaze_models.report.findings import Headline
from obygaze_models.scoring.metrics import METRICS, score

TICK_S = 1800


@dataclass(frozen=True)
class FilmStrip:
    """A film: its link into the explorer, title, lanes as SVG, and numbers. `ticks` are the half
    hours below the lanes, as shares of the width and words.
    """

    film: str
    title: str
    share: Html
    lanes: Html
    ticks: tuple[tuple[float, str], ...]
    agreement: Html | None
    tested: Html | None = None
    score: Html | None = None
    paper: Html | None = None


@dataclass(frozen=True)
class FilmStrips:
    """All films, the names of their lanes, what is counted, and whose score by which metric."""

    films: tuple[FilmStrip, ...]
    lanes: tuple[str, ...]
    levels: tuple[tuple[str, str], ...]
    counted: str
    model: str
    metric: str


def film_strips(head: Headline, ordered: Sequence[Clip]) -> FilmStrips | None:
    """The strips of the explorer's first run; None where no films are named.

    Parameters
    ----------
    head
        The scores of the first screen; its best model of that run has a lane.
    ordered
        All clips, film by film, in scene order.
    """
    row = head.best if head.rows else None
    source = row.run if row else head.source
    clips, annotators = source.clips, head.annotators
    films = by_film(clips[clip.id] for clip in ordered if clip.id in clips and clip.film)
    if not films or source.kind == "concepts":
        return None
    names, counted = source.about.levels, source.positives
    colours = level_colour_names(list(names))
    colour_of = dict(zip(names, colours, strict=True))
    label_sets = {"annotators": {clip.id: clip.level for clip in clips.values()}}
    if annotators is not None:
        label_sets = {name: dict(levels) for name, levels in annotators.levels.items()}
    lanes = {
        name: {clip: colour_of.get(level, "") for clip, level in levels.items()}
        for name, levels in label_sets.items()
    }
    metric, means = "f1" if source.kind == "levels" else "f1_weighted", None
    if row:
        means = row.results.predictions
        called = means.called == len(row.results.classes) - 1
        untested = dict.fromkeys(clips.keys() - {*means.ids}, "untested")
        lanes[row.model] = untested | dict.fromkeys(compress(means.ids, called), "model")
        lanes["differs"] = untested | dict.fromkeys(compress(means.ids, means.wrong), "differs")
    elif annotators is not None:
        differ = annotators.differ
        lanes["differ"] = dict.fromkeys(compress(differ, differ.values()), "differs")
    strips = []
    for film, same in films.items():
        ids, timed = [clip.id for clip in same], is_timed(same)
        spans = {
            clip.id: (clip.start or 0.0, clip.end or 0.0) if timed else (float(place), place + 1.0)
            for place, clip in enumerate(same)
        }
        strip = FilmStrip(
            film,
            same[0].title or film,
            number(fmean(clip.level in counted for clip in same), form="%"),
            draw_lanes(spans, list(lanes.values()), film),
            _ticks(same) if timed else (),
            None if annotators is None else number(annotators.equal_levels(ids), form="%"),
        )
        if row and means:
            tested = np.isin(means.ids, ids)
            # By mean probabilities, as drawn; where no clip is positive, nothing could be found.
            labels = means.labels[tested]
            scores = score(labels, means.probabilities[tested]) if labels.any() else {}
            train = row.run.record.trained_on(row.entry.test)
            paper = published_film(row.run.record, row.model, train, row.entry.test, film)
            strip = replace(
                strip,
                tested=html("{} of {}", number(tested.sum(), form=","), number(len(ids), form=",")),
                score=number(scores.get(metric)),
                paper=number(paper.mean) if paper else None,
            )
        strips.append((-fmean(clip.level in counted for clip in same), strip))
    return FilmStrips(
        tuple(strip for _, strip in sorted(strips, key=itemgetter(0))),
        tuple(lanes),
        tuple(zip(colours, names.values(), strict=True)),
        " or ".join(names.get(code, code) for code in counted),
        row.model if row else "",
        METRICS[metric].title,
    )


def _ticks(clips: Sequence[Clip]) -> tuple[tuple[float, str], ...]:
    """Half hours, as shares of the film's length; and its end, to the second in a short film."""
    end = max(clip.end or 0.0 for clip in clips)
    times = [*range(TICK_S, int(0.85 * end), TICK_S), end]
    if end < 3600:
        return tuple((t / end, f"{round(t) // 60}:{round(t) % 60:02}") for t in times)
    return tuple((seconds / end, format_time(seconds).rpartition(":")[0]) for seconds in times)
