"""Compare models with each of several annotators, by agreement beyond chance.

Models and annotators are compared on the clips that all annotators labelled and all models
predicted. The difference between a model's agreement with the annotators and the annotators'
agreement with each other has an interval over films.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from obygaze_features.annotations.agreement_measures import cohen_kappas
from obygaze_models.scoring.intervals import (
    estimate_weighted,
    group_columns,
    shortage,
    weigh_groups,
)
from obygaze_models.scoring.number_scores import Array, none_if_nan


class Rater(msgspec.Struct, frozen=True):
    """A model or an annotator.

    Parameters
    ----------
    name, kind
        The name, and the kind: ``model`` or ``annotator``.
    kappa
        The kappa with each annotator; for an annotator, with each other annotator.
    difference, interval
        For models: the mean kappa with the annotators, minus the annotators' mean kappa with each
        other; and the interval of this difference, unless there is too little data.
    """

    name: str
    kind: str
    kappa: dict[str, float | None]
    difference: float | None = None
    interval: tuple[float, float] | None = None


class AnnotatorComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of models and annotators on a test set; see `compare_with_annotators`.

    `clips` is the number of clips that all annotators labelled and all models predicted.
    """

    annotators: list[str]
    clips: int
    raters: list[Rater]


def compare_with_annotators(
    votes: Mapping[str, Array],
    predictions: Mapping[str, Array],
    films: Sequence[str],
    classes: int,
    *,
    cross_validated: bool = False,
) -> AnnotatorComparison | None:
    """Compare models with each annotator, and annotators with each other.

    Parameters
    ----------
    votes
        Each annotator's class code for each of N clips, from 0; -1 if unlabelled.
    predictions
        Each model's class codes [N]; NaN for clips without a prediction.
    films
        The film of each clip, or "". Clips without a film do not count in intervals.
    classes
        The number of classes.
    cross_validated
        True if fits of the models are trained on clips that other fits test; see `estimate_mean`.

    Returns
    -------
    The comparison on clips that all annotators labelled and all models predicted, or None if there
    are no such clips or fewer than two annotators.
    """
    answered = [codes >= 0 for codes in votes.values()]
    answered += [np.isfinite(values) for values in predictions.values()]
    rows = np.flatnonzero(np.logical_and.reduce(answered))
    if not len(rows) or len(votes) < 2:
        return None

    film, count = group_columns([films[row] for row in rows.tolist()])
    weights = weigh_groups(count)[:, film]
    labels = {name: codes[rows] for name, codes in votes.items()}

    pairs = []
    with_others: dict[str, dict[str, float | None]] = {name: {} for name in labels}
    for first, second in combinations(labels, 2):
        kappas = nominal_kappa(labels[first], labels[second], weights)
        pairs.append(kappas)
        with_others[first][second] = none_if_nan(kappas[0])
        with_others[second][first] = none_if_nan(kappas[0])
    agreement = np.mean(pairs, axis=0)

    counts = [np.bincount(codes, minlength=classes) for codes in labels.values()]
    too_few = shortage(np.min(counts, axis=0).tolist(), count)
    raters = []
    for name, values in predictions.items():
        kappa = {}
        own = []
        for who, codes in labels.items():
            kappas = nominal_kappa(codes, values[rows], weights)
            own.append(kappas)
            kappa[who] = none_if_nan(kappas[0])
        differences = np.mean(own, axis=0) - agreement
        estimate = estimate_weighted(differences, folds=count if cross_validated else 1)
        interval = None
        if not too_few:
            interval = estimate.interval
        raters.append(Rater(name, "model", kappa, estimate.value, interval))
    for name, kappa in with_others.items():
        raters.append(Rater(name, "annotator", kappa))

    return AnnotatorComparison(annotators=[*votes], clips=len(rows), raters=raters)


def nominal_kappa(labels: Array, predictions: Array, weights: Array) -> Array:
    """Return Cohen's kappa of two raters' class codes [N], for each row of weights [draws, N].

    Examples
    --------
    >>> nominal_kappa(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.ones((1, 4)))
    array([0.5])
    """
    classes = 1 + int(max(labels.max(), predictions.max()))
    cells = labels * classes + predictions.astype(np.int64)
    counts = weights @ np.eye(classes**2)[cells]
    return cohen_kappas(counts.reshape(-1, classes, classes))
