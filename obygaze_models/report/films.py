"""An overview of the films with a strip for each film, sorted by model scores or annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import itemgetter
from statistics import fmean

from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.text import format_time
from obygaze_features.page.html import Html, draw_lanes, html, number
from obygaze_models.experiments.published import published_film
from obygaze_models.explain.clips import Clip
from obygaze_models.report.film_timelines import by_film, is_timed
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ScoreRow
from obygaze_models.scoring.metrics import METRICS, Scores, baselines

TICK_S = 1800


@dataclass(frozen=True)
class FilmStrip:
    """A film's id, title, lanes as SVG, and numbers by column.

    `ticks` are the times below the lanes: the position (a share of the width) and the text of each.
    """

    film: str
    title: str
    lanes: Html
    ticks: tuple[tuple[float, str], ...]
    numbers: dict[str, Html]


@dataclass(frozen=True)
class FilmStrips:
    """The strips of all films, sorted by the column `rank`.

    `lanes` has the names of the lanes, `levels` the colours and names of the levels, and `counted`
    the levels that are counted. `model` is the scored model, or "".
    """

    films: tuple[FilmStrip, ...]
    lanes: tuple[str, ...]
    levels: tuple[tuple[str, str], ...]
    counted: str
    rank: str
    model: str

    @cached_property
    def columns(self) -> list[str]:
        """The names of the numbers that at least one film has."""
        return [*dict.fromkeys(name for strip in self.films for name in strip.numbers)]


def film_strips(head: Headline, ordered: Sequence[Clip]) -> FilmStrips | None:
    """Return the strips of the first screen's source; None for concepts, or if no clip has a film.

    Parameters
    ----------
    head
        The scores of the first screen. The headline model gets a lane.
    ordered
        All clips, film by film, in scene order.
    """
    row = head.row if head.rows else None
    source = row.run if row else head.source
    clips, annotators = source.clips, head.annotators
    films = by_film(clips[clip.id] for clip in ordered if clip.id in clips and clip.film)
    if not films or source.kind == "concepts":
        return None
    names, counted = source.about.levels, source.positives
    colours = level_colour_names(list(names))
    lanes = _lanes(head, dict(zip(names, colours, strict=True)))
    names_of_counted = " or ".join(names.get(code, code) for code in counted)
    share = names_of_counted + (" to at least one" if annotators and annotators.merged else "")
    means = row.results.predictions if row else None
    label_of = {} if means is None else dict(zip(means["id"], means["label"], strict=True))
    strips, longest = [], {True: 0.0, False: 0.0}
    timed_films = {film: is_timed(same) for film, same in films.items()}
    for film, timed in timed_films.items():
        longest[timed] = max(longest[timed], _end(films[film], timed=timed))
    for film, same in films.items():
        ids, timed = [clip.id for clip in same], timed_films[film]
        length = longest[timed]
        spans = {
            clip.id: (clip.start or 0.0, clip.end or 0.0) if timed else (float(index), index + 1.0)
            for index, clip in enumerate(same)
        }
        order = sum(clip.level in counted for clip in same) / len(same)
        numbers = {share: number(order, form="%")}
        if annotators is not None:
            numbers["Same level"] = number(annotators.equal_levels(ids), form="%")
            numbers["Gamma"] = number(annotators.gammas.get(film))
        if row:
            ranked = _scores_of_film(row, film).get("auroc")
            order = -1.0 if ranked is None else ranked
            labels = [label_of[clip] for clip in ids if clip in label_of]
            numbers |= _numbers_of_film(row, film, len(ids), labels)
        lane = draw_lanes(spans, list(lanes.values()), film, length)
        ticks = _ticks(same, length) if timed else ()
        strips.append((-order, FilmStrip(film, same[0].title or film, lane, ticks, numbers)))
    return FilmStrips(
        tuple(strip for _, strip in sorted(strips, key=itemgetter(0))),
        tuple(lanes),
        tuple(zip(colours, names.values(), strict=True)),
        names_of_counted,
        METRICS["auroc"].title if row else share,
        row.who if row else "",
    )


def _lanes(head: Headline, colour_of: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the colours of clips in each lane: annotators, the model, and differences."""
    row, annotators = head.row if head.rows else None, head.annotators
    clips = (row.run if row else head.source).clips
    lanes = {
        name: {clip: colour_of.get(level, "") for clip, level in levels.items()}
        for name, levels in head.levels_by_annotator.items()
    }
    if row:
        means = row.results.predictions
        called = means["called"] == len(row.results.classes) - 1
        untested = dict.fromkeys(clips.keys() - {*means["id"]}, "untested")
        lanes[row.who.removeprefix("the ")] = untested | dict.fromkeys(
            means.loc[called, "id"], "model"
        )
        wrong = means["called"] != means["label"]
        lanes["differs"] = untested | dict.fromkeys(means.loc[wrong, "id"], "differs")
    elif annotators is not None:
        differ = annotators.differ
        lanes["differ"] = dict.fromkeys(compress(differ, differ.values()), "differs")
    return lanes


def _numbers_of_film(
    row: ScoreRow, film: str, clips: int, labels: Sequence[int]
) -> dict[str, Html]:
    """Return a model's scores on a film, a guess's score, and the paper's score.

    `labels` are the labels of the clips that were tested.
    """
    metric = "f1" if row.run.kind == "levels" else "f1_weighted"
    scores = _scores_of_film(row, film)
    counts = number(len(labels), form=","), number(clips, form=",")
    numbers = {
        "Clips tested": html("{} of {}", *counts),
        METRICS[metric].title: number(scores.get(metric)),
    }
    if guess := row.best_guess(metric):
        has_both = any(labels) and not all(labels)
        guesses = baselines(fmean(labels))[guess[0]] if has_both else {}
        numbers[f"Guess: {guess[0]}"] = number(guesses.get(metric))
    numbers[METRICS["auroc"].title] = number(scores.get("auroc"))
    train = row.run.record.trained_on(row.entry.test)
    if paper := published_film(row.run.run, row.model, train, row.entry.test, film):
        numbers["Paper"] = number(paper.mean)
    return numbers


def _scores_of_film(row: ScoreRow, film: str) -> Scores:
    """Return the scores on a film, or {} if the film was not tested or lacks a class."""
    if row.entry.pooled and len(row.run.record.tested_groups) == 1:
        return row.entry.mean
    return row.entry.groups.get(film, {})


def _end(clips: Sequence[Clip], *, timed: bool) -> float:
    """Return the length of a film, in seconds if it is timed, else in clips."""
    return max(clip.end or 0.0 for clip in clips) if timed else float(len(clips))


def _ticks(clips: Sequence[Clip], length: float) -> tuple[tuple[float, str], ...]:
    """Return ticks at half hours and the film's end: position (a share of `length`) and text.

    Half hours close to the end are left out, so that texts do not touch on a phone.
    """
    end = _end(clips, timed=True)
    times = [*range(0, int(end - 0.18 * length), TICK_S), end]
    if end < 3600:
        return tuple((t / length, f"{round(t) // 60}:{round(t) % 60:02}") for t in times)
    return tuple((seconds / length, format_time(seconds).rpartition(":")[0]) for seconds in times)
