"""Metrics, the scores of predictions, and the scores of guessing.

`weighted_scores` computes the metrics for many weightings of the clips at once, for resampling: a
clip that was drawn twice has the weight 2. `score` uses the weight 1 for all clips. Tests compare
the values with those of other libraries. Undefined metrics are ``None`` (NaN in arrays), without a
warning.

Two F1 scores are always reported together. The authors' code scores networks by the
support-weighted F1 and concept models by the F1 of the positive class. For the same predictions,
the two can differ widely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from obygaze_features.common.arrays import Array
from obygaze_models.scoring.number_scores import NUMBER, none_if_nan, ratio, score_values

CLASSES = "classes"
"""The kind of target for classes."""
Scores = dict[str, float | None]
"""Metric key -> value, or None if undefined."""

TREC = "trec_average_precision"
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Metric:
    """A metric: its name, and where it is used.

    Parameters
    ----------
    title
        The name.
    binary, multiclass
        True if score tables for two classes, or for more classes, have a column for it.
    numeric
        True if score tables for numbers have a column for it.
    official
        True if it can be a benchmark's official measure.
    lower_is_better
        True if lower scores are better.
    skewed
        True if a few films have much higher scores than the rest when positive clips are rare.
    bounded
        True if scores are between 0 and 1.
    """

    title: str
    binary: bool = False
    multiclass: bool = False
    numeric: bool = False
    official: bool = False
    lower_is_better: bool = False
    skewed: bool = False
    bounded: bool = True


METRICS = {
    # How well positive clips are found: the harmonic mean of precision and recall.
    "f1": Metric("F1 positive", binary=True),
    # The mean of the classes' F1, with all classes weighted equally.
    "f1_macro": Metric("F1 macro", multiclass=True),
    # The mean of the classes' F1, weighted by their numbers of clips. If few clips are positive, it
    # is usually much larger than the F1 of the positive class: do not compare the two.
    "f1_weighted": Metric("F1 weighted", binary=True, multiclass=True),
    # The share of positive predictions that are correct.
    "precision": Metric("Precision", skewed=True),
    # The share of positive clips that are predicted positive.
    "recall": Metric("Recall", skewed=True),
    # The share of clips that are classified correctly.
    ACCURACY: Metric("Accuracy", official=True),
    # The mean over classes of the share of clips that are predicted correctly.
    "balanced_accuracy": Metric("Balanced accuracy", multiclass=True),
    # How often a positive clip gets a higher probability than a negative clip; .5 is chance. With
    # more than two classes, it is the mean over classes, each against the rest.
    "auroc": Metric("AUROC", binary=True, multiclass=True),
    # The mean precision at the ranks of the positive clips; chance is the share of positives.
    "average_precision": Metric("AP", binary=True, skewed=True),
    # The mean squared difference between the probabilities and the true classes.
    "brier": Metric("Brier", lower_is_better=True, bounded=False),
    # The mean negative logarithm of the probability of the true class.
    "log_loss": Metric("Log loss", lower_is_better=True, bounded=False),
    # Average precision as computed by the benchmark's own program: clips with the same score are
    # ordered by id.
    TREC: Metric("AP (trec_eval)", official=True),
    # The explained share of the variance within a film; below 0, the film's own mean would be a
    # better prediction.
    "r2": Metric("R2", numeric=True, bounded=False),
    # The mean distance of predictions from the truth, in the unit of the number.
    "mae": Metric("MAE", numeric=True, lower_is_better=True, bounded=False),
    # How well predictions rank the clips; 0 is chance.
    "spearman": Metric("Spearman", numeric=True, bounded=False),
    # How close predictions are to a linear function of the truth; 0 is chance.
    "pearson": Metric("Pearson", numeric=True, bounded=False),
}
"""All metrics by key, in the order of columns."""


def column_titles(use: str) -> dict[str, str]:
    """Return the titles of a score table's columns by key.

    `use` is ``binary``, ``multiclass`` or ``numeric``; see `Metric`.
    """
    return {key: metric.title for key, metric in METRICS.items() if getattr(metric, use)}


def predicted_classes(probabilities: Array) -> Array:
    """Return the most probable class of each clip. With two classes, the threshold is 0.5.

    Parameters
    ----------
    probabilities
        The probabilities [N] of the positive class, or [N, classes].
    """
    if probabilities.ndim == 2:
        return np.asarray(probabilities.argmax(axis=1))
    return (probabilities > 0.5).astype(np.int64)


def score(
    labels: Array,
    probabilities: Array,
    trec: Array | None = None,
    target_key: str = CLASSES,
) -> Scores:
    """Return all scores of a set of predictions.

    Parameters
    ----------
    labels
        The class codes of N clips, from 0. If there are two classes, 1 is positive.
    probabilities
        The probabilities [N] of the positive class, or [N, classes] for more than two classes.
    trec
        The clips' `trec_ranks`, if trec_eval's average precision is requested. Every clip must have
        a rank.
    target_key
        The kind of target. If it is not classes, labels and predictions are numbers.
    """
    values = weighted_scores(labels, probabilities, np.ones((1, len(labels))), trec, target_key)
    scores = {key: none_if_nan(values[key][0]) for key in METRICS if key in values}
    if probabilities.ndim == 2:
        areas = [auroc(labels == code, column) for code, column in enumerate(probabilities.T)]
        mean = np.array(areas, dtype=np.float64).mean()  # NaN if an area is None
        scores["auroc"] = none_if_nan(mean)
    return scores


def auroc(labels: Array, scores: Array) -> float | None:
    """Return the area under the ROC curve of 0/1 labels, or None if a class is missing."""
    values = ranking_scores(labels, scores, np.ones((1, len(labels))))
    return none_if_nan(values["auroc"][0])


def trec_ranks(ids: Sequence[str], scores: Array) -> Array:
    """Return ranks that order clips as trec_eval does, without ties; the highest rank is best.

    Scores are rounded to 32 bits. Among clips with the same score, the later id ranks higher.
    """
    with np.errstate(over="ignore"):  # like trec_eval, treat overflow as infinite
        rounded = scores.astype(np.float32)
    order = np.lexsort((np.array(ids, dtype=str), rounded))
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks


def weighted_scores(
    labels: Array,
    probabilities: Array,
    weights: Array,
    trec: Array | None = None,
    target_key: str = CLASSES,
) -> dict[str, Array]:
    """Return the metrics of `score` for many weightings, except the AUROC of several classes.

    Parameters
    ----------
    labels, probabilities, trec, target_key
        See `score`.
    weights
        Weights [draws, N], which are not negative.

    Returns
    -------
    scores
        Metric key -> scores [draws], NaN if undefined.
    """
    if target_key == NUMBER:
        return score_values(labels, probabilities, weights)
    scores = _own_scores(labels, probabilities, weights)
    if trec is not None:
        scores[TREC] = ranking_scores(labels, trec, weights)["average_precision"]
    return scores


def _own_scores(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    is_binary = probabilities.ndim == 1
    classes = 2 if is_binary else probabilities.shape[1]
    confusion = confuse(labels, predicted_classes(probabilities), classes, weights)
    f1 = _f1(confusion)
    scores = {
        "f1_weighted": _mean_by_size(f1, confusion),
        "balanced_accuracy": _balanced_accuracy(confusion),
        **_losses(labels, probabilities, weights),
    }

    if is_binary:
        hits = confusion[:, 1, 1]
        scores["f1"] = f1[:, 1]
        scores["precision"] = ratio(hits, confusion[:, :, 1].sum(axis=1))
        scores["recall"] = ratio(hits, confusion[:, 1].sum(axis=1))
        return scores | ranking_scores(labels, probabilities, weights)

    correct = np.trace(confusion, axis1=1, axis2=2)
    occurring = ~np.isnan(f1)
    scores["f1_macro"] = ratio(np.nan_to_num(f1).sum(axis=1), occurring.sum(axis=1))
    scores[ACCURACY] = ratio(correct, weights.sum(axis=1))
    return scores


def ranking_scores(labels: Array, scores: Array, weights: Array) -> dict[str, Array]:
    """Return AUROC and average precision for many weightings. Equal scores share a rank."""
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
    ordered = weights[:, order]
    is_positive = labels[order] == 1
    positive = np.add.reduceat(ordered * is_positive, starts, axis=1)
    negative = np.add.reduceat(ordered * ~is_positive, starts, axis=1)
    above = np.cumsum(positive, axis=1)
    all_above = np.cumsum(positive + negative, axis=1)
    positives = positive.sum(axis=1)
    negatives = negative.sum(axis=1)
    won = (negative * (above - positive / 2)).sum(axis=1)
    precision = np.nan_to_num(ratio(above, all_above))
    at_positives = (positive * precision).sum(axis=1)
    return {
        "auroc": ratio(won, positives * negatives),
        "average_precision": ratio(at_positives, positives),
    }


def confuse(labels: Array, predictions: Array, classes: int, weights: Array) -> Array:
    """Return the summed weights by label and prediction [draws, classes, classes]."""
    cells = np.eye(classes * classes)[labels * classes + predictions]
    confusion: Array = (weights @ cells).reshape(len(weights), classes, classes)
    return confusion


def _f1(confusion: Array) -> Array:
    """Return each class's F1 [draws, classes]; NaN for classes that do not occur at all."""
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    return ratio(2 * hits, confusion.sum(axis=1) + confusion.sum(axis=2))


def _mean_by_size(f1: Array, confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    return ratio((np.nan_to_num(f1) * sizes).sum(axis=1), sizes.sum(axis=1))


def _balanced_accuracy(confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    recalls = np.nan_to_num(ratio(np.diagonal(confusion, axis1=1, axis2=2), sizes))
    present = (sizes > 0).sum(axis=1)
    return np.where(present > 1, ratio(recalls.sum(axis=1), present), np.nan)


def _losses(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    """Return the Brier score and log loss, as defined by scikit-learn."""
    is_binary = probabilities.ndim == 1
    table = probabilities
    if is_binary:
        table = np.column_stack([1 - probabilities, probabilities])
    truth = np.eye(table.shape[1])[labels]
    squares = ((truth - table) ** 2).sum(axis=1)
    if is_binary:
        squares /= 2
    true_class = table[np.arange(len(table)), labels]
    true_class = np.maximum(true_class, np.finfo(np.float64).eps)
    total = weights.sum(axis=1)
    return {
        "brier": ratio(weights @ squares, total),
        "log_loss": ratio(weights @ -np.log(true_class), total),
    }


def baselines(share: float) -> dict[str, Scores]:
    """Return the scores of each way of guessing if `share` of the clips are positive.

    All are computed from expected counts. The first two are the paper's baselines, up to .01:
    version 1 has their positive-class F1 and version 2 the support-weighted F1, both for the share
    of positives in the whole dataset. Test folds have different shares, so baselines depend on the
    scored clips.
    """
    return {
        # A fair coin: half of each class is predicted positive.
        "random": _guess_scores(share, called_positive=0.5),
        "all positive": _guess_scores(share, called_positive=1.0),
        # Every clip gets the more common class, or the positive class in a tie.
        "majority": _guess_scores(share, called_positive=1.0 if share >= 0.5 else 0.0),
    }


def _guess_scores(share: float, *, called_positive: float) -> Scores:
    """Return the scores of predicting positive with the same probability for each clip.

    The share of positives is above 0 and below 1.
    """
    positive = _harmonic_mean(share, called_positive)
    negative = _harmonic_mean(1 - share, 1 - called_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if called_positive else None,
        "recall": called_positive,
        # If all scores are equal, half of the pairs are in order, and precision equals share.
        "auroc": 0.5,
        "average_precision": share,
    }


def _harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
