"""Scores of moments and frames against the segments that annotators marked.

Frames are scored by average precision and AUROC in each film, and the scores are averaged over
films. Each frame's time span is weighted by its length, and split where a segment starts or ends.

Moments of all films are ranked together and scored by average precision at a temporal IoU, as in
ActivityNet. From the highest score down, each moment is matched with the unmatched segment that it
overlaps most. Precision is interpolated. Moments with the same score share a rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, did_you_mean, format_time, join_some
from obygaze_features.errors import ExperimentError
from obygaze_models.explain.frame_scores import (
    AxisFrames,
    join_spans,
    overlapping_parts,
    to_microseconds,
)
from obygaze_models.explain.moments import Moments, cut
from obygaze_models.saved.about import SEEN_BY_OTHERS, SEEN_RENAMED
from obygaze_models.scoring.intervals import (
    clip_interval,
    estimate_mean,
    jackknife,
    leave_each_out,
)
from obygaze_models.scoring.metrics import Array, ranking_scores
from obygaze_models.scoring.values import none_if_nan

if TYPE_CHECKING:
    from obygaze_features import Timelines


Spans = list[tuple[int, int]]
"""The start and end of each span, in microseconds."""
TIOUS = (0.3, 0.5, 0.7)
SEEDS = 20
"""The number of random scorers, whose scores are averaged."""
MEASURES = {
    "frame_average_precision": "frame AP",
    "frame_auroc": "frame AUROC",
    **{f"map_{tiou:g}": f"mAP at tIoU {tiou:g}" for tiou in TIOUS},
    "map_mean": "mAP, mean of these",
}
"""The name of each measure, by key."""


@dataclass(frozen=True)
class MeasureScore:
    """A measure over films, for the model and for two scorers that only guess.

    Parameters
    ----------
    value
        The model's score: for frames, the mean over films; for moments, the score of all films'
        moments together. None if undefined.
    interval
        The 95% interval of `value` over films: a t interval for frames, and a jackknife interval
        for moments. None if there are fewer than five films.
    constant
        The score of a scorer that gives all frames the same probability, and covers each unbroken
        stretch of clips with one moment.
    random
        The mean score of `SEEDS` scorers that give frames random probabilities, and put moments of
        the model's lengths at random times.
    """

    value: float | None
    interval: tuple[float, float] | None
    constant: float | None
    random: float | None


@dataclass(frozen=True)
class FilmScores:
    """A film's scores.

    Parameters
    ----------
    film
        The film's name.
    seconds, positive_seconds
        The time that clips cover, and the time that both clips and positive segments cover.
    segments, outside
        The number of positive segments inside the clips, split at gaps between clips, and the
        number of positive segments outside the clips.
    moments
        The number of moments that the model found.
    scores
        The scores by the keys of `MEASURES`.
    """

    film: str
    seconds: float
    positive_seconds: float
    segments: int
    outside: int
    moments: int
    scores: dict[str, float | None]


@dataclass(frozen=True)
class AnnotatorScores:
    """The scores against an annotator's segments, for each film and for all films."""

    annotator: str
    films: list[FilmScores]
    scores: dict[str, MeasureScore]

    def describe(self, positives: Sequence[str]) -> str:
        """Return a table of the measures over films, and a table of each film's scores."""
        segments = sum(film.segments for film in self.films)
        seconds = sum(film.seconds for film in self.films)
        positive = sum(film.positive_seconds for film in self.films) / seconds
        title = (
            f"{cut(self.annotator, 30)}: {counted(segments, 'segment')} of "
            f"{cut(' or '.join(positives), 30)} in {counted(len(self.films), 'film')}, "
            f"{positive:.1%} of {format_time(round(seconds))}"
        )
        rows = []
        for key, score in self.scores.items():
            interval = " to ".join(map(_number, score.interval or ())) or "too few films"
            random = _number(score.constant), _number(score.random)
            rows.append([MEASURES[key], _number(score.value), interval, *random])
        by_film = []
        for film in self.films:
            share = f"{film.positive_seconds / film.seconds:.1%}"
            numbers = [_number(film.scores[key]) for key in MEASURES if key != "map_mean"]
            by_film.append([cut(film.film, 24), share, film.segments, film.moments, *numbers])
        header = ["film", "positive", "segments", "moments", "frame AP", "AUROC"]
        header += [f"mAP {tiou:g}" for tiou in TIOUS]
        table = align(["measure", "the model", "95% interval", "constant", "random"], rows)
        return f"{title}\n{table}\n\n{align(header, by_film)}"


@dataclass(frozen=True)
class MomentScores:
    """The result of `evaluate_moments`.

    Parameters
    ----------
    timelines
        The name of the timelines.
    positives
        The names of the levels that count.
    annotators
        The scores against each annotator.
    notes
        Sentences on what was left out, and on what limits the scores.
    """

    timelines: str
    positives: list[str]
    annotators: list[AnnotatorScores]
    notes: list[str]

    def describe(self) -> str:
        """Return the scores as tables."""
        return "\n\n".join(entry.describe(self.positives) for entry in self.annotators)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each annotator, film ("" for all films), scorer and measure."""
        rows = []
        for entry in self.annotators:
            for key, score in entry.scores.items():
                low, high = score.interval or (None, None)
                row = {"annotator": entry.annotator, "film": "", "measure": key}
                rows += [
                    {**row, "scorer": "model", "value": score.value, "low": low, "high": high},
                    {**row, "scorer": "constant", "value": score.constant},
                    {**row, "scorer": "random", "value": score.random},
                ]
            for film in entry.films:
                row = {"annotator": entry.annotator, "film": film.film, "scorer": "model"}
                rows += [{**row, "measure": key, "value": v} for key, v in film.scores.items()]
        return rows


def evaluate_moments(
    moments: Moments,
    timelines: Timelines,
    *,
    positives: Sequence[str] = (),
    seed: int = 0,
) -> MomentScores:
    """Score moments and frames against each annotator's segments separately.

    Parameters
    ----------
    moments
        The result of `find_moments`, or of `Moments.from_csv`.
    timelines
        The annotators' segments.
    positives
        The levels whose segments a model should find; by default, the highest of the scheme.
    seed
        The seed of the random scorers.
    """
    scheme = timelines.scheme
    levels = list(dict.fromkeys(map(scheme.level, positives))) or [scheme.codes[-1]]
    names = [scheme.name_of[level] for level in levels]
    frames = {axis.film: film for axis, film in moments.frames.by_axis.items() if not axis.clip}
    timelines = timelines.named_as(frames)
    notes = _check_films(frames, moments, timelines)
    if not positives:
        notes.append(
            f"only segments of {names[0]} count, the highest level of {join_some(scheme.codes)}. "
            "If the model predicts another level, choose that level with --positives"
        )
    annotators = []
    for annotator in timelines.annotators:
        marked = {
            film: [(s.start, s.end) for s in segments[annotator] if s.level in levels]
            for film, segments in timelines.by_film.items()
            if film in frames and annotator in segments
        }
        if any(marked.values()):
            films = [AnnotatedFilm(film, frames[film], spans) for film, spans in marked.items()]
            annotators.append(_score_annotator(annotator, films, moments, seed))
        elif marked:
            notes.append(f"{annotator} has no scores: no {' or '.join(names)} in these films")
    if not annotators:
        raise ExperimentError(
            f"the timelines {timelines.name} have no segments labelled {' or '.join(names)} in "
            f"these films. Choose a level with --positives: {', '.join(scheme.name_of.values())}"
        )
    if outside := sum(film.outside for entry in annotators for film in entry.films):
        notes.append(f"left out {counted(outside, 'segment')} outside clips with probabilities")
    return MomentScores(timelines.name, names, annotators, notes)


def _check_films(
    frames: Mapping[str, AxisFrames], moments: Moments, timelines: Timelines
) -> list[str]:
    """Return notes on the films and clips left out; raise if nothing can be scored."""
    table = moments.frames
    if not frames:
        raise ExperimentError(
            "frame times count from the start of each clip, but segment times from the start of "
            "the film. Add the clips' start and end: obygaze models moments --manifest FOLDER"
        )
    annotated = timelines.by_film
    if not set(frames) & set(annotated):
        raise ExperimentError(
            f"the timelines {timelines.name} have other films ({join_some(list(annotated))}) "
            f"than the frames ({join_some(list(frames))}){did_you_mean(frames, annotated)}"
        )
    notes = []
    if without := [film for film in annotated if film not in frames]:
        notes.append(f"annotated films without frames were left out: {join_some(without)}")
    if without := [film for film in frames if film not in annotated]:
        notes.append(f"films without annotations were left out: {join_some(without)}")
    if clips := {axis.clip for axis in table.axes if axis.clip}:
        notes.append(f"left out {counted(len(clips), 'clip')} without a position in the film")
    states = zip(table.ids, table.seen, strict=True)
    seen = {clip for clip, state in states if state in ("yes", SEEN_RENAMED)}
    if seen:
        clips = set(table.ids)
        notes.append(
            f"the model was trained on {len(seen):,} of {counted(len(clips), 'clip')}; scores on "
            "clips used in training are not a fair test"
        )
    return notes


def _score_annotator(
    annotator: str, films: Sequence[AnnotatedFilm], moments: Moments, seed: int
) -> AnnotatorScores:
    chance = np.random.default_rng(seed)
    once, crossed = np.ones((1, len(films))), SEEN_BY_OTHERS in moments.frames.seen
    pairs = [(film, read_guess(film, moments)) for film in films]
    model = measure(films, [guess for _, guess in pairs], leave_each_out(len(films)))
    constant = measure(films, list(map(guess_constant, films)), once)
    randoms = [
        measure(films, [guess_random(film, guess, chance) for film, guess in pairs], once)
        for _ in range(SEEDS)
    ]
    by_film = []
    for film, guess in pairs:
        own = {k: none_if_nan(v[0]) for k, v in measure([film], [guess], np.ones((1, 1))).items()}
        seconds = float(film.seconds.sum()), float(film.seconds @ film.labels)
        counts = len(film.segments), film.outside, len(guess.moments)
        by_film.append(FilmScores(film.name, *seconds, *counts, own))
    scores = {}
    for key, values in model.items():
        if key.startswith("frame_"):
            of_films = np.array([own.scores[key] for own in by_film], dtype=float)
            estimate = estimate_mean(of_films, cross_validated=crossed)
        else:
            estimate = jackknife(values, cross_validated=crossed)
        chance_value = np.mean([random[key][0] for random in randoms])
        ignorant = none_if_nan(constant[key][0]), none_if_nan(chance_value)
        scores[key] = MeasureScore(estimate.value, clip_interval(estimate).interval, *ignorant)
    return AnnotatorScores(annotator, by_film, scores)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


class AnnotatedFilm:
    """A film's frames, split where positive segments start and end.

    Only the parts of segments inside clips count. If a segment has two parts in separate spans of
    clips, it counts as two segments.
    """

    def __init__(
        self, name: str, frames: AxisFrames, segments: Sequence[tuple[float, float]]
    ) -> None:
        self.name, self.frames = name, frames
        marked: Spans = [tuple(span) for span in to_microseconds(segments).tolist()]
        parts_shown = [
            [(max(s, low), min(e, high)) for low, high in frames.unbroken if s < high and low < e]
            for s, e in marked
        ]
        self.segments = list(chain.from_iterable(parts_shown))
        self.outside = parts_shown.count([])
        joined = np.array(join_spans(sorted(self.segments)), np.int64).reshape(-1, 2)
        edges = np.unique(np.concatenate([frames.edges, joined.ravel()]))
        labels = np.zeros(len(edges) - 1, np.int64)
        labels[overlapping_parts(edges, *joined.T)[1]] = 1
        parts = np.searchsorted(frames.edges, edges[:-1], side="right") - 1
        covered = ~np.isnan(frames.probabilities[parts])
        self.parts, self.labels = parts[covered], labels[covered]
        self.seconds = np.diff(edges)[covered] / 1e6


@dataclass(frozen=True, eq=False)
class Guess:
    """A scorer's output for a film: probabilities as in `AxisFrames`, and moments with scores."""

    probabilities: Array
    moments: Spans
    scores: Array


def read_guess(film: AnnotatedFilm, moments: Moments) -> Guess:
    """Return the model's probabilities and moments for a film."""
    of_film = [m for m in moments.moments if m.axis.film == film.name and not m.axis.clip]
    spans = to_microseconds([(moment.start, moment.end) for moment in of_film]).reshape(-1, 2)
    scores = np.array([moment.score for moment in of_film])
    return Guess(film.frames.probabilities, [(s, e) for s, e in spans.tolist()], scores)


def guess_constant(film: AnnotatedFilm) -> Guess:
    """Return the same probability for all frames, and moments that cover all clips."""
    spans = film.frames.unbroken
    return Guess(np.zeros(len(film.frames.probabilities)), spans, np.zeros(len(spans)))


def guess_random(film: AnnotatedFilm, model: Guess, chance: np.random.Generator) -> Guess:
    """Return random probabilities, and moments of the model's lengths at random times in clips."""
    lows, highs = np.array(film.frames.unbroken).T
    moments = []
    for start, end in model.moments:
        length = min(end - start, int((highs - lows).max()))
        rooms = np.maximum(highs - lows - length + 1, 0)  # possible starts in each span
        drawn, reached = int(chance.integers(rooms.sum())), np.cumsum(rooms)
        stretch = int(np.searchsorted(reached, drawn, side="right"))
        first = int(highs[stretch]) - length - (int(reached[stretch]) - 1 - drawn)
        moments.append((first, first + length))
    probabilities = chance.random(len(film.frames.probabilities))
    return Guess(probabilities, moments, chance.random(len(moments)))


def measure(
    films: Sequence[AnnotatedFilm], guesses: Sequence[Guess], weights: Array
) -> dict[str, Array]:
    """Return each measure for each row of weights [draws, films]; NaN if undefined."""
    pairs = list(zip(films, guesses, strict=True))
    frames = [
        ranking_scores(film.labels, guess.probabilities[film.parts], film.seconds[None])
        for film, guess in pairs
    ]
    measures = {}
    for name in ("average_precision", "auroc"):
        values = np.concatenate([scores[name] for scores in frames])
        is_defined = ~np.isnan(values)
        total = weights[:, is_defined] @ values[is_defined]
        measures[f"frame_{name}"] = _divide(total, weights[:, is_defined].sum(axis=1))
    hits = np.concatenate([_find_hits(film.segments, guess) for film, guess in pairs])
    scores = np.concatenate([guess.scores for guess in guesses])
    film_of_moment = np.repeat(np.arange(len(films)), [len(guess.scores) for guess in guesses])
    segments = weights @ np.array([len(film.segments) for film in films])
    for column, tiou in enumerate(TIOUS):
        measures[f"map_{tiou:g}"] = interpolated_precision(
            hits[:, column], scores, weights[:, film_of_moment], segments
        )
    measures["map_mean"] = np.mean([measures[f"map_{tiou:g}"] for tiou in TIOUS], axis=0)
    return measures


def _find_hits(segments: Spans, guess: Guess) -> Array:
    """Return True for moments that hit a segment, [moments, TIOUS]. A segment is hit only once."""
    starts, ends = np.array(segments, float).reshape(-1, 1, 2).T
    moments = np.array(guess.moments, float).reshape(-1, 2)
    begins, stops = moments[:, :1], moments[:, 1:]
    shared = np.maximum(np.minimum(stops, ends) - np.maximum(begins, starts), 0)
    tious = shared / ((stops - begins) + (ends - starts) - shared)
    hits = np.zeros((len(moments), len(TIOUS)), bool)
    if not segments:
        return hits
    for column, tiou in enumerate(TIOUS):
        free = np.ones(len(segments), bool)
        for row in np.argsort(-guess.scores, kind="stable").tolist():
            # Of equal values, take the last, as in ActivityNet's evaluation.
            best = int(len(free) - 1 - np.where(free, tious[row], -1)[::-1].argmax())
            if free[best] and tious[row, best] >= tiou:
                free[best], hits[row, column] = False, True
    return hits


def interpolated_precision(hits: Array, scores: Array, weights: Array, segments: Array) -> Array:
    """Return the average precision of moments for each row of weights [draws, moments]."""
    if not len(scores):
        return np.where(segments > 0, 0.0, np.nan)
    order = np.argsort(-scores, kind="stable")
    ranks = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
    right = np.add.reduceat((weights * hits)[:, order], ranks, axis=1)
    total = np.add.reduceat(weights[:, order], ranks, axis=1)
    precision = np.nan_to_num(_divide(np.cumsum(right, axis=1), np.cumsum(total, axis=1)))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return _divide((right * best).sum(axis=1), segments)


def _divide(top: Array, bottom: Array) -> Array:
    ratio: Array = np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)
    return ratio
