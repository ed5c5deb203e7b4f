"""Compare models with each of several annotators, by agreement beyond chance.

Models, annotators and guesses are all called raters. They are compared on the clips that all
annotators labelled (and that a model predicted). The difference between a model's agreement with
the annotators and the annotators' agreement with each other has an interval over films.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from obygaze_features.annotations.measures import cohen_kappas
from obygaze_features.common.text import counted, format_signed
from obygaze_models.scoring.intervals import (
    clip_interval,
    estimate_weighted,
    group_columns,
    too_few,
    weigh_groups,
)
from obygaze_models.scoring.metrics import Array, auroc, clip_losses, predicted_classes
from obygaze_models.scoring.values import none_if_nan

ESTIMATE = "estimated truth"
"""The name of Dawid and Skene's estimate in a rater's scores."""
CONSTANT = "same for all clips"
"""The guess that predicts the shares of classes among all annotators' labels for every clip."""
ALL_POSITIVE = "all positive"
"""The guess that predicts the second of two classes for every clip."""
_MAX_STEPS, _STEP = 10_000, 1e-9
_LEAST = 1e-15
"""The minimum probability in the cross-entropy, as in scikit-learn."""


class Rater(msgspec.Struct, frozen=True, kw_only=True):
    """A rater: a model, an annotator, a guess or the estimated truth.

    Parameters
    ----------
    name, kind
        The name, and the kind: ``model``, ``annotator``, ``guess`` or ``estimate``.
    clips
        The number of clips that it rated.
    kappa, f1, auroc
        Scores against each annotator and the estimated truth: Cohen's kappa; F1 of the second of
        two classes, which does not depend on which rater is taken as true; and for models, the mean
        AUROC over films.
    f1_interval
        The interval of each F1, from a jackknife over films.
    brier, cross_entropy
        Losses of the rater's probabilities on all annotators' labels, each weighted equally.
    difference, interval
        For models: the mean kappa with the annotators, minus the annotators' mean kappa with each
        other; and the interval of this difference.
    """

    name: str
    kind: str
    clips: int
    kappa: dict[str, float | None]
    f1: dict[str, float | None] = {}
    f1_interval: dict[str, tuple[float, float] | None] = {}
    auroc: dict[str, float | None] = {}
    brier: float | None = None
    cross_entropy: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None


class AnnotatorComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of models and annotators on a test set; see `compare_with_annotators`.

    `clips` is the number of clips that all annotators assigned to one of the `classes`, and `films`
    the number of their films. `too_few` is the reason why nothing can be concluded, or "".
    `agreement` is the annotators' mean kappa with each other, and `f1` their mean F1.
    """

    annotators: list[str]
    classes: list[str]
    clips: int
    films: int
    too_few: str
    agreement: float | None
    raters: list[Rater]
    f1: float | None = None
    f1_interval: tuple[float, float] | None = None

    @property
    def which_clips(self) -> str:
        """A description of the compared clips."""
        return (
            f"{counted(self.clips, 'clip')} that all annotators called {' or '.join(self.classes)}"
        )

    def _model(self, name: str) -> Rater:
        return next(rater for rater in self.raters if (rater.name, rater.kind) == (name, "model"))

    def f1_sentence(self, model: str, name: str = "") -> str:
        """Return a sentence with a model's F1 and the annotators' F1, or "" if undefined.

        `name` replaces the model's name. The result is "" for models that predicted only some of
        the clips.
        """
        rater = self._model(model)
        if self.f1 is None or rater.clips < self.clips:
            return ""

        texts = []
        for value, ends in (
            *((rater.f1[who], rater.f1_interval.get(who)) for who in self.annotators),
            (self.f1, self.f1_interval),
        ):
            interval = "" if self.too_few or ends is None else " ({:.2f} to {:.2f})".format(*ends)
            texts.append(_number(value) + interval)
        f1s = map(" against ".join, zip(texts, self.annotators, strict=False))
        return (
            f"F1 of {name or model}: {', '.join(f1s)}; annotator against annotator {texts[-1]} "
            f"(pooled over {self.which_clips})."
        )

    def sentence(self, model: str, noun: str = "film", *, name: str = "", minus: str = "-") -> str:
        """Describe a model's agreement with annotators next to their agreement with each other.

        `name` replaces the model's name.
        """
        rater = self._model(model)
        if self.agreement is None or rater.difference is None:
            return ""
        kappas = [f"{who} ({_number(rater.kappa[who], minus)})" for who in self.annotators]
        kappas[0] = kappas[0].replace("(", "(kappa ", 1)
        names = " and ".join(kappas)
        start = f"{name or model} agrees with {names}"
        others = f"each other ({_number(self.agreement, minus)}) on {self.which_clips}"
        if rater.clips < self.clips:
            return f"{start} on the {counted(rater.clips, 'clip')} that it predicted."
        if self.too_few or rater.interval is None:
            return f"{start}; these agree with {others}: {self.too_few or f'too few {noun}s'}."
        low, high = rater.interval
        signed = (format_signed(v).replace("-", minus) for v in (rater.difference, low, high))
        numbers = "mean difference {} (95% {} to {})".format(*signed)
        if low <= 0 <= high:
            films = counted(self.films, noun)
            verdict = f"With {films}, the comparison is inconclusive: {numbers}"
            return f"{start}; these agree with {others}. {verdict}."
        verdict = "less" if high < 0 else "more"
        numbers = numbers[0].upper() + numbers[1:]
        return (
            f"{name or model} agrees {verdict} with {names} than they do with {others}. {numbers}."
        )


def compare_with_annotators(
    votes: Mapping[str, Array],
    models: Mapping[str, Array],
    films: Sequence[str],
    classes: Sequence[str],
    *,
    cross_validated: bool = False,
) -> AnnotatorComparison | None:
    """Compare models with each annotator, and annotators with each other.

    Parameters
    ----------
    votes
        Each annotator's class code for each of N clips, from 0; -1 if unlabelled.
    models
        Each model's probabilities: [N] of the second of two classes, or [N, classes]. NaN for clips
        without a prediction.
    films
        The film of each clip, or "". Clips without a film do not count in intervals.
    classes
        The names of the classes.
    cross_validated
        True if fits of the models are trained on clips that other fits test; see `estimate_mean`.

    Returns
    -------
    The comparison on clips that all annotators labelled and at least one model predicted, or None
    if there are no such clips or fewer than two annotators. Models that predicted only some of
    these clips are compared on the clips that they predicted.
    """
    tables = {
        name: np.column_stack([1 - table, table]) if table.ndim == 1 else table
        for name, table in models.items()
    }
    answered = {name: np.isfinite(table).all(axis=1) for name, table in tables.items()}
    labelled = np.logical_and.reduce([labels >= 0 for labels in votes.values()])
    rows = np.flatnonzero(labelled & np.logical_or.reduce([*answered.values()]))
    if not len(rows) or len(votes) < 2:
        return None
    annotators = _Annotators.of(
        {name: codes[rows] for name, codes in votes.items()},
        [films[row] for row in rows.tolist()],
        len(classes),
        cross_validated,
    )
    all_clips = np.ones(len(rows), dtype=bool)
    raters = [
        annotators.rate(
            name, "model", predicted_classes(models[name][rows]), table=table[rows], part=part
        )
        for name, table in tables.items()
        if (part := answered[name][rows]).any()
    ]
    raters += [
        annotators.rate(name, "annotator", codes) for name, codes in annotators.labels.items()
    ]
    raters += annotators.guesses()
    truth = annotators.truth
    raters.append(annotators.rate(ESTIMATE, "estimate", truth.argmax(axis=1), table=truth))
    scores = annotators.agreement(f1_of_tables, all_clips) if len(classes) == 2 else None
    counts = [np.bincount(codes, minlength=len(classes)) for codes in annotators.labels.values()]
    return AnnotatorComparison(
        annotators=[*votes],
        classes=[*classes],
        clips=len(rows),
        films=annotators.count,
        too_few=too_few(np.min(counts, axis=0).tolist(), annotators.count),
        agreement=none_if_nan(annotators.agreement(cohen_kappas, all_clips)[0]),
        raters=raters,
        f1=None if scores is None else none_if_nan(scores[0]),
        f1_interval=None if scores is None else clip_interval(estimate_weighted(scores)).interval,
    )


@dataclass(frozen=True, eq=False)
class _Annotators:
    """The annotators' labels of N clips, and the weights of films for intervals.

    `film` is the column of each clip's film in `weights`, and `count` the number of films.
    `cross_validated` applies to the models that the annotators are compared with.
    """

    labels: dict[str, Array]
    classes: int
    truth: Array
    film: Array
    count: int
    weights: Array
    cross_validated: bool

    @classmethod
    def of(
        cls, labels: dict[str, Array], films: Sequence[str], classes: int, cross_validated: bool
    ) -> _Annotators:
        """Make an instance from labels and films, and estimate the truth."""
        film, count = group_columns(films)
        truth = dawid_skene(np.stack([*labels.values()]), classes)
        return cls(labels, classes, truth, film, count, weigh_groups(count), cross_validated)

    def tables(self, first: Array, second: Array, part: Array) -> Array:
        """Count each pair of classes that two raters gave to a clip, for each row of weights."""
        cells = np.zeros((self.count + 1, self.classes, self.classes))
        np.add.at(cells, (self.film[part], first[part], second[part]), 1)
        return np.asarray(np.einsum("df,fij->dij", self.weights, cells))

    def agreement(self, measure: Callable[[Array], Array], part: Array) -> Array:
        """Return the mean of a measure over all pairs of annotators, for each row of weights."""
        pairs = combinations(self.labels.values(), 2)
        return np.asarray(np.mean([measure(self.tables(*pair, part)) for pair in pairs], axis=0))

    def guesses(self) -> Iterator[Rater]:
        """Yield raters that guess without looking at clips."""
        stacked = np.stack([*self.labels.values()])
        shares = np.bincount(stacked.ravel(), minlength=self.classes) / stacked.size
        constant = np.tile(shares, (len(self.film), 1))
        yield self.rate(CONSTANT, "guess", constant.argmax(axis=1), table=constant)
        if self.classes == 2:
            yield self.rate(ALL_POSITIVE, "guess", np.ones(len(self.film), int))

    def rate(
        self,
        name: str,
        kind: str,
        codes: Array,
        *,
        table: Array | None = None,
        part: Array | None = None,
    ) -> Rater:
        """Compare a rater's classes and probabilities with annotators' labels, on some clips."""
        part = np.ones(len(codes), dtype=bool) if part is None else part
        crossed = self.cross_validated and kind == "model"
        targets = dict(self.labels)
        if kind != "estimate":
            targets[ESTIMATE] = self.truth.argmax(axis=1)
        if kind == "annotator":
            del targets[name]
        tables = {key: self.tables(codes, target, part) for key, target in targets.items()}
        kappas = {key: cohen_kappas(counts) for key, counts in tables.items()}
        numbers: dict[str, Any] = {"kappa": _firsts(kappas)}
        if self.classes == 2:
            scores = {key: f1_of_tables(counts) for key, counts in tables.items()}
            numbers["f1"] = _firsts(scores)
            numbers["f1_interval"] = {
                key: clip_interval(estimate_weighted(values, cross_validated=crossed)).interval
                for key, values in scores.items()
            }
        if table is not None and kind != "estimate":
            losses = clip_losses(np.stack([*self.labels.values()])[:, part], table[part])
            brier, cross_entropy = (float(losses[key].mean()) for key in ("brier", "log_loss"))
            numbers |= {"brier": brier, "cross_entropy": cross_entropy}
        if kind == "model":
            if table is not None and self.classes == 2:
                numbers["auroc"] = {
                    key: _mean_auroc(to[part], table[part, 1], self.film[part])
                    for key, to in targets.items()
                }
            mean = np.mean([kappas[key] for key in self.labels], axis=0)
            differences = mean - self.agreement(cohen_kappas, part)
            numbers["difference"] = none_if_nan(differences[0])
            estimate = estimate_weighted(differences, cross_validated=crossed)
            numbers["interval"] = estimate.interval
        return Rater(name=name, kind=kind, clips=int(part.sum()), **numbers)


def dawid_skene(votes: Array, classes: int) -> Array:
    """Estimate the probabilities of each clip's true class [N, classes].

    This is the method of Dawid and Skene (1979). Each annotator has habits: the share of each label
    among the clips of each true class. Starting from the shares of labels, habits and truth are
    estimated in turn until they converge. The labels of two annotators do not determine the habits.
    In that case, the result is the solution reached from the shares of labels.

    Parameters
    ----------
    votes
        The class codes [annotators, N], -1 for no label. Each clip needs at least one label.

    Examples
    --------
    >>> votes = np.array([[1, 1, 0, 0, 1], [1, 1, 0, 0, 0], [1, 1, 0, 1, 0]])
    >>> dawid_skene(votes, 2)[:, 1].round(2)
    array([1., 1., 0., 0., 0.])
    """
    indicators = np.eye(classes + 1)[votes][:, :, :classes]  # the last class is "none"
    truth = indicators.sum(axis=0)
    truth /= truth.sum(axis=1, keepdims=True)
    for _ in range(_MAX_STEPS):
        prior = truth.mean(axis=0)
        habits = np.einsum("nt,ank->atk", truth, indicators)
        habits /= np.maximum(habits.sum(axis=2, keepdims=True), _LEAST)
        logs = np.einsum("ank,atk->nt", indicators, np.log(np.maximum(habits, _LEAST)))
        logs += np.log(np.maximum(prior, _LEAST))
        new = np.exp(logs - logs.max(axis=1, keepdims=True))
        new /= new.sum(axis=1, keepdims=True)
        moved, truth = abs(new - truth).max(), new
        if moved < _STEP:
            break
    return np.asarray(truth)


def f1_of_tables(counts: Array) -> Array:
    """Return the F1 of class 1 from tables of counts [..., 2, 2]; NaN if no rater gave class 1."""
    total = counts[..., 1, :].sum(axis=-1) + counts[..., :, 1].sum(axis=-1)
    return np.where(total > 0, 2 * counts[..., 1, 1] / np.where(total > 0, total, 1), np.nan)


def _mean_auroc(labels: Array, scores: Array, films: Array) -> float | None:
    """Return the mean AUROC over the films where it is defined."""
    areas = [auroc(labels[films == film], scores[films == film]) for film in np.unique(films)]
    defined = [area for area in areas if area is not None]
    return float(np.mean(defined)) if defined else None


def _number(value: float | None, minus: str = "-") -> str:
    return "undefined" if value is None else f"{value:.2f}".replace("-", minus)


def _firsts(scores: Mapping[str, Array]) -> dict[str, float | None]:
    """Return the scores on all clips (the first of each array), with None for undefined scores."""
    return {name: none_if_nan(own[0]) for name, own in scores.items()}
