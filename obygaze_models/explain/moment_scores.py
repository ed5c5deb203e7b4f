"""Moments and frame scores, judged by the segments that annotators marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, did_you_mean, format_time, join_some
from obygaze_features.errors import ExperimentError
from obygaze_models.explain.frame_scores import AxisFrames
from obygaze_models.explain.moment_measures import (
    TIOUS,
    AnnotatedFilm,
    guess_constant,
    guess_random,
    measure,
    read_guess,
)
from obygaze_models.explain.moments import Moments, cut
from obygaze_models.scoring.intervals import MIN_FILMS, REPLICATES, draw_films, percentile_interval

if TYPE_CHECKING:
    from obygaze_features import Timelines


SEEDS = 20
"""How many random scorers are averaged."""
MEASURES = {
    "frame_average_precision": "frame AP",
    "frame_auroc": "frame AUROC",
    **{f"map_{tiou:g}": f"mAP at tIoU {tiou:g}" for tiou in TIOUS},
    "map_mean": "mAP, mean of these",
}
"""Every measure by its key, and its name."""


@dataclass(frozen=True)
class MeasureScore:
    """A measure over films, of the model and of two that know nothing.

    Parameters
    ----------
    value
        Of frames the mean over films, of moments the average precision over all; None where it
        is undefined.
    interval
        Its middle 95% over draws of films; None where there are fewer than three.
    constant
        What a scorer gets that gives all frames the same probability: one moment, everything.
    random
        The mean of 20 that give frames a random probability, and put moments of the model's
        lengths at random times.
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
        Its name.
    seconds, positive_seconds
        What clips cover of it, and what positive segments cover of that.
    segments, outside
        How many positive segments there are, cut where clips end, and how many more are outside of
        the clips.
    moments
        How many were found.
    scores
        By the keys of `MEASURES`.
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
    """The scores by one annotator's segments: of each film, and over films."""

    annotator: str
    films: list[FilmScores]
    scores: dict[str, MeasureScore]

    def describe(self, positives: Sequence[str]) -> str:
        """What this annotator's segments say: the measures over films, then each film."""
        segments = sum(film.segments for film in self.films)
        seconds = sum(film.seconds for film in self.films)
        share = sum(film.positive_seconds for film in self.films) / seconds
        title = (
            f"{cut(self.annotator, 30)}: {counted(segments, 'segment')} of "
            f"{cut(' or '.join(positives), 30)} in {counted(len(self.films), 'film')}, "
            f"{share:.1%} of {format_time(round(seconds))}"
        )
        rows = [
            [
                MEASURES[key],
                _number(score.value),
                " to ".join(map(_number, score.interval)) if score.interval else "too few films",
                _number(score.constant),
                _number(score.random),
            ]
            for key, score in self.scores.items()
        ]
        by_film = [
            [
                cut(film.film, 24),
                f"{film.positive_seconds / film.seconds:.1%}",
                film.segments,
                film.moments,
                *(_number(film.scores[key]) for key in MEASURES if key != "map_mean"),
            ]
            for film in self.films
        ]
        header = ["film", "positive", "segments", "moments", "frame AP", "AUROC"]
        header += [f"mAP {tiou:g}" for tiou in TIOUS]
        table = align(["measure", "the model", "95% interval", "constant", "random"], rows)
        return f"{title}\n{table}\n\n{align(header, by_film)}"


@dataclass(frozen=True)
class MomentScores:
    """What `evaluate_moments` gives.

    Parameters
    ----------
    timelines
        The name of the timelines.
    positives
        The names of the levels that count.
    annotators
        One by one.
    notes
        What was left out, and what limits the scores.
    """

    timelines: str
    positives: list[str]
    annotators: list[AnnotatorScores]
    notes: list[str]

    def describe(self) -> str:
        """The scores as tables."""
        return "\n\n".join(entry.describe(self.positives) for entry in self.annotators)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each annotator, film (empty: over films), scorer and measure."""
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
    replicates: int = REPLICATES,
) -> MomentScores:
    """Score moments and frames by annotators' segments, each annotator on their own.

    Parameters
    ----------
    moments
        From `find_moments`, or read from their tables.
    timelines
        The annotators' segments.
    positives
        Levels whose segments a model should find; by default the highest of the scheme.
    seed, replicates
        Of the random scorers and the draws of films.
    """
    scheme = timelines.scheme
    levels = list(dict.fromkeys(map(scheme.level, positives))) or [scheme.codes[-1]]
    names = [scheme.name_of[level] for level in levels]
    frames = {axis.film: film for axis, film in moments.frames.by_axis.items() if not axis.clip}
    notes = _check_films(frames, moments, timelines)
    annotators = []
    for annotator in timelines.annotators:
        marked = {
            film: [(s.start, s.end) for s in segments[annotator] if s.level in levels]
            for film, segments in timelines.by_film.items()
            if film in frames and annotator in segments
        }
        if any(marked.values()):
            films = [AnnotatedFilm(film, frames[film], spans) for film, spans in marked.items()]
            annotators.append(_score_annotator(annotator, films, moments, seed, replicates))
        elif marked:
            notes.append(f"{annotator} marked no {' or '.join(names)} in these films: no scores")
    if not annotators:
        raise ExperimentError(
            f"the timelines {timelines.name} have no segment of {' or '.join(names)} in these "
            f"films; choose among {', '.join(scheme.name_of.values())} by --positives"
        )
    if outside := sum(film.outside for entry in annotators for film in entry.films):
        notes.append(
            f"{counted(outside, 'segment')} outside of the clips with frame probabilities left out"
        )
    return MomentScores(timelines.name, names, annotators, notes)


def _check_films(
    frames: Mapping[str, AxisFrames], moments: Moments, timelines: Timelines
) -> list[str]:
    """Raise where nothing can be scored; what is left out, and what limits the scores."""
    table = moments.frames
    if not frames:
        raise ExperimentError(
            "the frames have times within their clips, and the segments within films; give the "
            "clips a start and an end: obygaze models moments --manifest FOLDER"
        )
    annotated = timelines.by_film
    if not set(frames) & set(annotated):
        raise ExperimentError(
            f"the timelines {timelines.name} are of other films ({join_some(list(annotated))}) "
            f"than the frames ({join_some(list(frames))}){did_you_mean(frames, annotated)}"
        )
    notes = []
    if without := [film for film in annotated if film not in frames]:
        notes.append(f"annotated films without frames left out: {join_some(without)}")
    if without := [film for film in frames if film not in annotated]:
        notes.append(f"films that nobody annotated left out: {join_some(without)}")
    if clips := {axis.clip for axis in table.axes if axis.clip}:
        notes.append(f"{counted(len(clips), 'clip')} without a position in the film left out")
    seen = {clip for clip, was in zip(table.ids, table.seen, strict=True) if was not in ("", "no")}
    if seen:
        clips = set(table.ids)
        notes.append(
            f"{len(seen):,} of {counted(len(clips), 'clip')} were used to train the model: "
            "scores on these test nothing"
        )
    return notes


def _score_annotator(
    annotator: str, films: Sequence[AnnotatedFilm], moments: Moments, seed: int, replicates: int
) -> AnnotatorScores:
    chance = np.random.default_rng(seed)
    once, drawn = np.ones((1, len(films))), draw_films(len(films), seed=seed, replicates=replicates)
    pairs = [(film, read_guess(film, moments)) for film in films]
    model = measure(films, [guess for _, guess in pairs], np.concatenate([once, drawn]))
    constant = measure(films, list(map(guess_constant, films)), once)
    randoms = [
        measure(films, [guess_random(film, guess, chance) for film, guess in pairs], once)
        for _ in range(SEEDS)
    ]
    scores = {
        key: MeasureScore(
            _defined(values[0]),
            percentile_interval(values[1:]) if len(films) >= MIN_FILMS else None,
            _defined(constant[key][0]),
            _defined(np.mean([random[key][0] for random in randoms])),
        )
        for key, values in model.items()
    }
    by_film = [
        FilmScores(
            film.name,
            float(film.seconds.sum()),
            float(film.seconds @ film.labels),
            len(film.segments),
            film.outside,
            len(guess.moments),
            {k: _defined(v[0]) for k, v in measure([film], [guess], np.ones((1, 1))).items()},
        )
        for film, guess in pairs
    ]
    return AnnotatorScores(annotator, by_film, scores)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
