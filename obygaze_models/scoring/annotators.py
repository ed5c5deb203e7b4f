"""Compare models with any number of annotators, by agreement beyond chance.

Models and annotators are compared on the clips that two annotators or more labelled and all models
predicted; each kappa is of the clips that both called. The difference between a model's mean kappa
with the annotators and the annotators' mean kappa with each other has an interval over films.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from obygaze_features.annotations.agreement_measures import cohen_kappas
from obygaze_features.common.arrays import Array
from obygaze_models.scoring.intervals import (
    estimate_weighted,
    group_columns,
    shortage,
    weigh_groups,
)
from obygaze_models.scoring.metrics import confuse
from obygaze_models.scoring.number_scores import none_if_nan, ratio


class ModelComparison(msgspec.Struct, frozen=True):
    """A model beside annotators.

    Parameters
    ----------
    name
        The model's name.
    kappas, mean
        The kappa with each annotator, and the mean of those that are defined.
    difference, interval
        The mean minus the annotators' mean kappa with each other; and the interval of this
        difference, unless there is too little data.
    """

    name: str
    kappas: list[float | None]
    mean: float | None
    difference: float | None
    interval: tuple[float, float] | None


class AnnotatorComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of models and annotators on a test set; see `compare_with_annotators`.

    Parameters
    ----------
    annotators, clips
        The names of the annotators, and the number of compared clips.
    kappas, mean
        The kappa of each annotator with each annotator (None with themselves, and where it is
        undefined), and the mean of those that are defined.
    models
        The models.
    """

    annotators: list[str]
    clips: int
    kappas: list[list[float | None]]
    mean: float | None
    models: list[ModelComparison]


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
    The comparison on clips that two annotators or more labelled and all models predicted, or None
    if there are no such clips.
    """
    labels = np.array([*votes.values()])
    chosen = (labels >= 0).sum(axis=0) > 1
    for values in predictions.values():
        chosen &= np.isfinite(values)
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return None

    film, count = group_columns([films[row] for row in rows.tolist()])
    weights = weigh_groups(count)[:, film]
    labels = labels[:, rows]
    table = np.full((len(labels), len(labels)), np.nan)
    pairs = []
    for first, second in combinations(range(len(labels)), 2):
        kappas = nominal_kappa(labels[first], labels[second], weights)
        table[first, second] = table[second, first] = kappas[0]
        pairs.append(kappas)
    agreement = _mean_of_defined(pairs)

    counts = [np.bincount(codes[codes >= 0], minlength=classes) for codes in labels]
    too_few = shortage(np.min(counts, axis=0).tolist(), count)
    models = []
    for name, values in predictions.items():
        kappas_by_annotator = [nominal_kappa(codes, values[rows], weights) for codes in labels]
        mean = _mean_of_defined(kappas_by_annotator)
        estimate = estimate_weighted(mean - agreement, folds=count if cross_validated else 1)
        interval = None
        if not too_few:
            interval = estimate.interval
        with_each = [none_if_nan(kappas[0]) for kappas in kappas_by_annotator]
        models.append(
            ModelComparison(name, with_each, none_if_nan(mean[0]), estimate.value, interval)
        )
    return AnnotatorComparison(
        annotators=[*votes],
        clips=len(rows),
        kappas=[list(map(none_if_nan, row)) for row in table],
        mean=none_if_nan(agreement[0]),
        models=models,
    )


def _mean_of_defined(kappas: Sequence[Array]) -> Array:
    """Return the mean of kappas that are defined, for each row of weights."""
    values = np.array(kappas)
    return ratio(np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0))


def nominal_kappa(labels: Array, predictions: Array, weights: Array) -> Array:
    """Return Cohen's kappa of two raters' class codes [N], for each row of weights [draws, N].

    Clips that a rater did not call have a negative code, and do not count.

    Examples
    --------
    >>> nominal_kappa(np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 1, 1]), np.ones((1, 5)))
    array([0.5])
    """
    classes = 1 + int(max(labels.max(), predictions.max()))
    both = (labels >= 0) & (predictions >= 0)
    called = predictions[both].astype(np.int64)
    return cohen_kappas(confuse(labels[both], called, classes, weights[:, both]))
