"""Models beside each of several annotators: whom they agree with, and how much beyond chance.

All are compared on the same clips, those that every annotator labelled: there a model, an annotator
and a guess are raters alike, and whether a model agrees with the annotators as much as they agree
with each other is a difference of two numbers, with an interval over films.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import counted, format_signed
from obygaze_models.scoring.intervals import (
    REPLICATES,
    draw_films,
    percentile_interval,
    too_few,
)
from obygaze_models.scoring.metrics import auroc, predicted_classes

Array = NDArray[Any]
ESTIMATE = "estimated truth"
"""The name of Dawid and Skene's estimate among those whom a rater is compared with."""
CONSTANT = "same for all clips"
"""The guess that no clip tells anything: the share of each class in all annotators' labels."""
_MAX_STEPS, _STEP = 10_000, 1e-9
_LEAST = 1e-15
"""What a probability of 0 counts as in the cross-entropy, as scikit-learn has it."""


class Rater(msgspec.Struct, frozen=True, kw_only=True):
    """A model, an annotator, or a guess, beside the annotators and the estimated truth.

    Parameters
    ----------
    name, kind
        ``kind`` is ``model``, ``annotator`` or ``guess``.
    kappa, f1, auroc
        Against each of the others: Cohen's kappa; F1 of the second of two classes, the same
        whichever of the two is taken as true; and AUROC of a model's probabilities.
    brier, cross_entropy
        Of its probabilities against the labels of all annotators, each label counting alike.
    difference, interval
        A model's mean kappa against the annotators, minus theirs with each other.
    """

    name: str
    kind: str
    kappa: dict[str, float | None]
    f1: dict[str, float | None] = {}
    auroc: dict[str, float | None] = {}
    brier: float | None = None
    cross_entropy: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None


class BesideAnnotators(msgspec.Struct, frozen=True, kw_only=True):
    """A test set on which models and annotators are compared; see `compare_with_annotators`.

    `few` says why nothing should be concluded; `between` is the annotators' mean kappa.
    """

    annotators: list[str]
    clips: int
    films: int
    few: str
    between: float | None
    raters: list[Rater]

    def sentence(self, model: str) -> str:
        """Whether a model agrees with each annotator as much as they agree with each other."""
        rater = next(rater for rater in self.raters if (rater.name, rater.kind) == (model, "model"))
        if self.between is None or rater.difference is None:
            return ""
        each = " and ".join(f"{name} ({_number(rater.kappa[name])})" for name in self.annotators)
        numbers = f"difference {format_signed(rater.difference)}"
        verdict, certainty = "as much as", f" as far as {counted(self.films, 'film')} can tell"
        if rater.interval is not None:
            low, high = rater.interval
            numbers += f", 95% {format_signed(low)} to {format_signed(high)}"
            if high < 0 or low > 0:
                verdict, certainty = "less than" if high < 0 else "more than", ""
        return (
            f"{model} agrees with {each.replace('(', '(kappa ', 1)} {verdict} they agree with each "
            f"other ({_number(self.between)}){f', {self.few}' if self.few else certainty}: "
            f"{numbers}, on {counted(self.clips, 'clip')} that all labelled."
        )


def compare_with_annotators(
    votes: Mapping[str, Array],
    models: Mapping[str, Array],
    films: Sequence[str],
    *,
    seed: int = 0,
) -> BesideAnnotators | None:
    """Compare models with each annotator, and these with each other.

    Parameters
    ----------
    votes
        Each annotator's class of each of N clips, from 0; -1 where there is none.
    models
        Each model's probabilities: [N] of the second of two classes, or [N, classes]. NaN where
        it was not asked.
    films
        The film of each clip.
    seed
        Of the draws of films.

    Returns
    -------
    On the clips that all annotators labelled and all models were asked about; None if there are
    none.
    """
    asked = [np.isfinite(table.reshape(len(table), -1)).all(axis=1) for table in models.values()]
    chosen = np.logical_and.reduce([*(labels >= 0 for labels in votes.values()), *asked])
    if not chosen.any() or len(votes) < 2 or not models:
        return None
    labels = {name: given[chosen] for name, given in votes.items()}
    shares = {
        name: np.column_stack([1 - table, table]) if table.ndim == 1 else table
        for name, table in ((name, table[chosen]) for name, table in models.items())
    }
    classes = next(iter(shares.values())).shape[1]
    given = np.stack([*labels.values()])
    truth = dawid_skene(given, classes)
    targets = labels | {ESTIMATE: truth.argmax(axis=1)}
    constant = np.bincount(given.ravel(), minlength=classes) / given.size
    guesses = {CONSTANT: np.tile(constant, (given.shape[1], 1)), ESTIMATE: truth}
    called = {name: predicted_classes(models[name][chosen]) for name in models}
    raters: list[tuple[str, str, Array, Any]] = [
        (name, "model", called[name], shares[name]) for name in models
    ]
    raters += [(name, "annotator", own, None) for name, own in labels.items()]
    raters += [(name, "guess", table.argmax(axis=1), table) for name, table in guesses.items()]

    names, film = np.unique(np.array(films)[chosen], return_inverse=True)
    draws = draw_films(len(names), seed=seed, replicates=REPLICATES).astype(np.float64)
    weights = np.vstack([np.ones(len(names)), draws if len(names) > 1 else draws[:0]])

    def kappas(first: Array, second: Array) -> Array:
        cells = np.zeros((len(names), classes, classes))
        np.add.at(cells, (film, first, second), 1)
        return cohen_kappas(np.einsum("df,fij->dij", weights, cells))

    between = np.mean([kappas(*pair) for pair in combinations(labels.values(), 2)], axis=0)
    rows = []
    for name, kind, own, table in raters:
        others = {key: target for key, target in targets.items() if key != name}
        against = {key: kappas(own, target) for key, target in others.items()}
        row: dict[str, Any] = {"kappa": {key: _defined(value[0]) for key, value in against.items()}}
        if classes == 2:
            row["f1"] = {key: f1_of_two(own, target) for key, target in others.items()}
            if kind == "model":
                row["auroc"] = {key: auroc(to, table[:, 1]) for key, to in others.items()}
        if table is not None:
            row |= {"brier": brier(given, table), "cross_entropy": cross_entropy(given, table)}
        if kind == "model":
            differences = np.mean([against[key] for key in labels], axis=0) - between
            row["difference"] = _defined(differences[0])
            row["interval"] = percentile_interval(differences[1:]) if len(names) > 1 else None
        rows.append(Rater(name=name, kind=kind, **row))
    counts = [np.bincount(own, minlength=classes) for own in labels.values()]
    return BesideAnnotators(
        annotators=[*votes],
        clips=int(chosen.sum()),
        films=len(names),
        few=too_few(np.min(counts, axis=0).tolist(), len(names)),
        between=_defined(between[0]),
        raters=rows,
    )


def dawid_skene(votes: Array, classes: int) -> Array:
    """The probability of each class of each clip [N, classes], if annotators differ in habits.

    Dawid and Skene's estimate (1979): each annotator has a habit, the share of each label that they
    give to clips of each true class; habits and truth are estimated in turn until neither changes,
    from the shares of labels on. Of two annotators the labels alone do not decide the habits: the
    estimate is then the one nearest to that start.

    Parameters
    ----------
    votes
        [annotators, N], -1 where an annotator gave none; each clip has one at least.

    Examples
    --------
    >>> votes = np.array([[1, 1, 0, 0, 1], [1, 1, 0, 0, 0], [1, 1, 0, 1, 0]])
    >>> dawid_skene(votes, 2)[:, 1].round(2)
    array([1., 1., 0., 0., 0.])
    """
    given = np.eye(classes + 1)[votes][:, :, :classes]  # the last class is "none"
    truth = given.sum(axis=0)
    truth /= truth.sum(axis=1, keepdims=True)
    for _ in range(_MAX_STEPS):
        prior = truth.mean(axis=0)
        habits = np.einsum("nt,ank->atk", truth, given)
        habits /= np.maximum(habits.sum(axis=2, keepdims=True), _LEAST)
        logs = np.einsum("ank,atk->nt", given, np.log(np.maximum(habits, _LEAST)))
        logs += np.log(np.maximum(prior, _LEAST))
        new = np.exp(logs - logs.max(axis=1, keepdims=True))
        new /= new.sum(axis=1, keepdims=True)
        moved, truth = abs(new - truth).max(), new
        if moved < _STEP:
            break
    return np.asarray(truth)


def cohen_kappas(tables: Array) -> Array:
    """Cohen's kappa of each table of counts [..., K, K]; NaN where chance alone agrees in all."""
    total = tables.sum(axis=(-1, -2))
    with np.errstate(invalid="ignore", divide="ignore"):
        equal = np.trace(tables, axis1=-2, axis2=-1) / total
        chance = (tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1) / total**2
        kappas: Array = (equal - chance) / (1 - chance)
    return np.where(np.isfinite(kappas), kappas, np.nan)


def f1_of_two(first: Array, second: Array) -> float | None:
    """F1 of class 1 between two raters; None where neither gives it."""
    positives = int((first == 1).sum() + (second == 1).sum())
    return 2 * int(((first == 1) & (second == 1)).sum()) / positives if positives else None


def brier(votes: Array, table: Array) -> float:
    """The mean square of what probabilities [N, classes] lack to each label of votes [A, N]."""
    squares = ((np.eye(table.shape[1])[votes] - table) ** 2).sum(axis=-1).mean()
    return float(squares / 2 if table.shape[1] == 2 else squares)


def cross_entropy(votes: Array, table: Array) -> float:
    """The mean of minus the logarithm of the probability that each label of votes got."""
    safe = np.clip(table / table.sum(axis=1, keepdims=True), _LEAST, 1)
    return float(-np.log(safe[np.arange(votes.shape[1]), votes]).mean())


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"
