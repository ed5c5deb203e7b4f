"""The measures of frames and moments of films, for many weightings of the films at a time.

Frames: average precision and AUROC of a film, each stretch of time weighted by its length and split
where a segment starts or ends, so that edges count exactly; then the mean over films.

Moments of all films are ranked together: average precision at a temporal IoU, as of ActivityNet. A
moment, the best first, takes the segment that it overlaps most of those that are free; precision
is interpolated. Moments of the same score share a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.explain.frame_scores import (
    AxisFrames,
    join_spans,
    overlapping_parts,
    to_microseconds,
)
from obygaze_models.explain.moments import Moments
from obygaze_models.scoring.metrics import ranking_scores

Array = NDArray[Any]
Spans = list[tuple[int, int]]
"""Starts and ends, in microseconds."""
TIOUS = (0.3, 0.5, 0.7)


class AnnotatedFilm:
    """A film's frames, split where positive segments start and end.

    Of segments only what clips show counts; where two stretches of clips show it, as two.
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
    """A scorer's answer for a film: probabilities as `AxisFrames` has them, and moments."""

    probabilities: Array
    moments: Spans
    scores: Array


def read_guess(film: AnnotatedFilm, moments: Moments) -> Guess:
    """The model's answer for a film."""
    of_film = [m for m in moments.moments if m.axis.film == film.name and not m.axis.clip]
    spans = to_microseconds([(moment.start, moment.end) for moment in of_film]).reshape(-1, 2)
    scores = np.array([moment.score for moment in of_film])
    return Guess(film.frames.probabilities, [(s, e) for s, e in spans.tolist()], scores)


def guess_constant(film: AnnotatedFilm) -> Guess:
    """The same probability everywhere, and a moment that is everything."""
    spans = film.frames.unbroken
    return Guess(np.zeros(len(film.frames.probabilities)), spans, np.zeros(len(spans)))


def guess_random(film: AnnotatedFilm, model: Guess, chance: np.random.Generator) -> Guess:
    """Random probabilities, and moments of the model's lengths at random times of clips."""
    lows, highs = np.array(film.frames.unbroken).T
    moments = []
    for start, end in model.moments:
        length = min(end - start, int((highs - lows).max()))
        rooms = np.maximum(highs - lows - length + 1, 0)  # how many starts each stretch has
        drawn, reached = int(chance.integers(rooms.sum())), np.cumsum(rooms)
        stretch = int(np.searchsorted(reached, drawn, side="right"))
        first = int(highs[stretch]) - length - (int(reached[stretch]) - 1 - drawn)
        moments.append((first, first + length))
    probabilities = chance.random(len(film.frames.probabilities))
    return Guess(probabilities, moments, chance.random(len(moments)))


def measure(
    films: Sequence[AnnotatedFilm], guesses: Sequence[Guess], weights: Array
) -> dict[str, Array]:
    """Every measure [draws], where films have weights [draws, films]; NaN where undefined."""
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
        measures[f"map_{tiou:g}"] = _interpolated_precision(
            hits[:, column], scores, weights[:, film_of_moment], segments
        )
    measures["map_mean"] = np.mean([measures[f"map_{tiou:g}"] for tiou in TIOUS], axis=0)
    return measures


def _find_hits(segments: Spans, guess: Guess) -> Array:
    """Which moments find a segment at each of `TIOUS` [moments, 3]; each segment once."""
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
            # Of equal ones the last, as in ActivityNet's evaluation.
            best = int(len(free) - 1 - np.where(free, tious[row], -1)[::-1].argmax())
            if free[best] and tious[row, best] >= tiou:
                free[best], hits[row, column] = False, True
    return hits


def _interpolated_precision(hits: Array, scores: Array, weights: Array, segments: Array) -> Array:
    """Average precision of ranked moments for weights [draws, moments] and counts of segments."""
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
