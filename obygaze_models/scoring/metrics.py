"""Metrics, the scores of guessing, and those of predictions for many weightings of the clips.

`weighted_scores` computes all metrics for many weightings of the clips at once, as resampling
needs: a clip that was drawn twice has weight 2. `score` uses weight 1 for every clip. The tests
check that the values equal scikit-learn's, in about a tenth of its time. An undefined metric is
``None`` (NaN in arrays), never a warning and never 0.

Two averages of F1 are always reported side by side. The authors' code scores its networks by the
support-weighted F1 and its concept models by the F1 of the positive class. On the same predictions
these can differ widely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.values import NUMBER, ORDERED, none_if_nan, score_values

Array = NDArray[Any]
CLASSES, CONCEPTS = "classes", "concepts"
"""The kinds of targets that tell classes apart, and that detect several concepts by one fit."""
Scores = dict[str, float | None]
"""A metric's key -> its value, or None if undefined."""

TREC, ACCURACY = "trec_average_precision", "accuracy"
CALIBRATION_BINS = 10


@dataclass(frozen=True)
class Metric:
    """A metric, and how it is printed.

    Parameters
    ----------
    title, name
        The name as a column heading, and within a sentence.
    sentence
        What it means.
    binary, multiclass
        True if score tables have a column for it with two classes, or with more.
    kinds
        The other kinds of targets whose score tables have a column of it.
    official
        True if a label set can name it as its benchmark's measure.
    lower_is_better
        True if the lower of two scores is better.
    ranks
        True if it measures the ranking by probability, not which clips are called positive.
    skewed
        True if a few films score far higher than the rest when positive clips are rare.
    bounded
        True if it lies between 0 and 1.
    compute
        A function that returns the scores [draws] of labels, probabilities and weights, as
        `weighted_scores` takes them. None if `weighted_scores` computes it with others.
    """

    title: str
    name: str
    sentence: str
    binary: bool = False
    multiclass: bool = False
    kinds: tuple[str, ...] = ()
    official: bool = False
    lower_is_better: bool = False
    ranks: bool = False
    skewed: bool = False
    bounded: bool = True
    compute: Callable[[Array, Array, Array], Array] | None = None

    def __post_init__(self) -> None:
        if self.compute and not (self.binary or self.multiclass):
            raise ValueError(
                f"the metric {self.title!r} applies to no task. Pass binary=True or multiclass=True"
            )


METRICS = {
    "f1": Metric(
        "F1 positive",
        "positive-class F1",
        "how well the positive clips are found: the harmonic mean of precision (how many of the "
        "clips called positive are) and recall (how many of the positive clips are called so)",
        binary=True,
    ),
    "f1_macro": Metric(
        "F1 macro",
        "macro F1",
        "the mean of the classes’ F1, each class counting alike",
        multiclass=True,
    ),
    "f1_weighted": Metric(
        "F1 weighted",
        "weighted F1",
        "the mean of the classes’ F1, each weighted by its clips. Where few clips are positive it "
        "is much larger than the F1 of the positive class: compare it only with its like",
        binary=True,
        multiclass=True,
    ),
    "precision": Metric(
        "Precision", "precision", "how many of the clips called positive are", skewed=True
    ),
    "recall": Metric(
        "Recall", "recall", "how many of the positive clips are called positive", skewed=True
    ),
    ACCURACY: Metric(
        "Accuracy", "accuracy", "the share of the clips that get their class", official=True
    ),
    "balanced_accuracy": Metric(
        "Balanced accuracy",
        "balanced accuracy",
        "the mean over the classes of the share of their clips that get their class",
        multiclass=True,
    ),
    "auroc": Metric(
        "AUROC",
        "AUROC",
        "how often a positive clip gets a higher probability than a negative clip; .5 is chance. "
        "With more than two classes: the mean over each class against the rest",
        binary=True,
        multiclass=True,
        ranks=True,
    ),
    "average_precision": Metric(
        "AP",
        "AP",
        "average precision: the mean precision over all cuts of the ranked clips; the share of "
        "positives is chance",
        binary=True,
        ranks=True,
        skewed=True,
    ),
    "calibration_error": Metric(
        "Calibration error",
        "calibration error",
        "how far the probabilities are from the shares of clips for which they come true",
        lower_is_better=True,
    ),
    "brier": Metric(
        "Brier",
        "Brier score",
        "the mean squared distance of the probabilities from what came true",
        lower_is_better=True,
        bounded=False,
    ),
    "log_loss": Metric(
        "Log loss",
        "log loss",
        "the mean of minus the logarithm of the probability of what came true",
        lower_is_better=True,
        bounded=False,
    ),
    TREC: Metric(
        "AP (trec_eval)",
        "AP (trec_eval)",
        "average precision as the benchmark’s own program computes it: clips of the same score are "
        "ordered by their ids",
        official=True,
        ranks=True,
    ),
    "weighted_kappa": Metric(
        "Weighted kappa",
        "weighted kappa",
        "how well the predicted levels agree with the annotated ones beyond chance, where a miss "
        "counts by the square of its levels; 0 is chance, 1 is perfect",
        kinds=(ORDERED,),
        bounded=False,
    ),
    "r2": Metric(
        "R2",
        "R2",
        "the share of the variance within a film that is explained; below 0 the film’s own mean "
        "would be nearer",
        kinds=(NUMBER,),
        bounded=False,
    ),
    "mae": Metric(
        "MAE",
        "mean absolute error",
        "how far predictions are from the truth on average, in levels or in the unit of the number",
        kinds=(ORDERED, NUMBER),
        lower_is_better=True,
        bounded=False,
    ),
    "spearman": Metric(
        "Spearman",
        "Spearman’s correlation",
        "how well the predictions order the clips; 0 is chance",
        kinds=(ORDERED, NUMBER),
        ranks=True,
        bounded=False,
    ),
    "pearson": Metric(
        "Pearson",
        "Pearson’s correlation",
        "how near the predictions are to a line of the truth; 0 is chance",
        kinds=(NUMBER,),
        bounded=False,
    ),
}
"""Every metric by its key, in the order of columns. A metric added here is scored everywhere."""


def ranking_keys(*, multiclass: bool) -> list[str]:
    """Return the keys of the scores that can rank models."""
    return [
        key
        for key, metric in METRICS.items()
        if (metric.multiclass if multiclass else metric.binary) and not metric.lower_is_better
    ]


def value_keys(kind: str) -> list[str]:
    """Return the keys of the scores that models of numbers can be ranked by."""
    return [key for key, own in METRICS.items() if kind in own.kinds and not own.lower_is_better]


def column_titles(scores: Mapping[str, Any], measure: str | None = None) -> dict[str, str]:
    """Return the titles of a score table's columns by key, an official measure first.

    Parameters
    ----------
    scores
        Scores by key: they tell whether there are two classes or more.
    measure
        The task's official measure, if it has one.
    """
    keys = [] if measure is None else [measure]
    for key, metric in METRICS.items():
        # Runs from before a metric was added have no scores for it.
        of_classes = metric.binary if "f1" in scores else metric.multiclass
        if key in scores and (metric.kinds or of_classes):
            keys.append(key)
    return {key: METRICS[key].title for key in keys}


def f1_titles(*, multiclass: bool) -> dict[str, str]:
    """Return the titles of the two averages of F1 that are shown side by side, by key."""
    keys = ("f1_weighted", "f1_macro" if multiclass else "f1")
    return {key: METRICS[key].title for key in keys}


def predicted_classes(probabilities: Array) -> Array:
    """Return the most probable class of each clip; of two classes, the second above .5.

    Parameters
    ----------
    probabilities
        [N] of the positive class, or [N, classes].
    """
    if probabilities.ndim == 2:
        return np.asarray(probabilities.argmax(axis=1))
    return (probabilities > 0.5).astype(np.int64)


def score(
    labels: Array, probabilities: Array, trec: Array | None = None, kind: str = CLASSES
) -> Scores:
    """Return all scores of a set of predictions.

    Parameters
    ----------
    labels
        A class from 0 on for each of N clips; of two classes 1 is the positive one.
    probabilities
        [N] for the positive class, or [N, classes] for more than two.
    trec
        The clips' `trec_ranks`, where trec_eval's average precision is wanted. Every clip here is
        ranked: positive clips that are not count against `trec_average_precision` alone.
    kind
        That of the target; of others than classes, labels and predictions are numbers.
    """
    values = weighted_scores(labels, probabilities, np.ones((1, len(labels))), trec, kind)
    scores = {key: none_if_nan(values[key][0]) for key in METRICS if key in values}
    if probabilities.ndim == 2:
        areas = [auroc(labels == code, column) for code, column in enumerate(probabilities.T)]
        defined = [area for area in areas if area is not None]
        scores["auroc"] = float(np.mean(defined)) if len(defined) == len(areas) else None
    return scores


def auroc(labels: Array, scores: Array) -> float | None:
    """Return the area under the ROC curve of 0/1 labels, or None if a class is missing."""
    return none_if_nan(ranking_scores(labels, scores, np.ones((1, len(labels))))["auroc"][0])


def roc_area(labels: Array, scores: Array) -> float:
    """Return the area under the ROC curve to the bit as scikit-learn, which takes 30 times as long.

    `auroc` counts pairs, so its last bit may differ. There must be labels of both classes.
    """
    order = np.argsort(-scores, kind="stable")
    last_of_score = np.flatnonzero(np.diff(scores[order], append=np.nan))
    hits = np.cumsum(labels[order], dtype=np.float64)[last_of_score]
    misses = 1 + last_of_score - hits
    # Points on a straight line between others change the sum's last bit.
    is_corner = np.ones(len(hits), dtype=bool)
    is_corner[1:-1] = (np.diff(hits, 2) != 0) | (np.diff(misses, 2) != 0)
    height = np.concatenate([[0.0], hits[is_corner] / hits[-1]])
    width = np.diff(misses[is_corner] / misses[-1], prepend=0.0)
    return float((width * (height[1:] + height[:-1]) / 2).sum())


def average_precision(labels: Array, scores: Array) -> float | None:
    """Return the mean precision over the ranks of the positive clips, or None without any.

    Clips with the same score share a rank.
    """
    values = ranking_scores(labels, scores, np.ones((1, len(labels))))
    return none_if_nan(values["average_precision"][0])


def trec_ranks(ids: Sequence[str], scores: Array) -> Array:
    """Return the ranks of clips as trec_eval orders them, without ties, the highest first.

    Scores are rounded to 32 bits. Of clips with the same score, the later id comes first.
    """
    with np.errstate(over="ignore"):  # like trec_eval, treat overflow as infinite
        rounded = scores.astype(np.float32)
    ranks = np.empty(len(ids), np.int64)
    ranks[np.lexsort((np.array(ids, dtype=str), rounded))] = np.arange(len(ids))
    return ranks


def weighted_scores(
    labels: Array,
    probabilities: Array,
    weights: Array,
    trec: Array | None = None,
    kind: str = CLASSES,
) -> dict[str, Array]:
    """Return the metrics of `score` for many weightings, except the AUROC of several classes.

    Parameters
    ----------
    labels, probabilities, trec, kind
        As in `score`.
    weights
        [draws, N], not negative.

    Returns
    -------
    scores
        A metric's key -> [draws]; NaN where it is undefined.
    """
    if kind in (ORDERED, NUMBER):
        return score_values(labels, probabilities, weights, kind)
    scores = _own_scores(labels, probabilities, weights)
    for key, metric in METRICS.items():
        if metric.compute and (metric.binary if probabilities.ndim == 1 else metric.multiclass):
            values = np.asarray(metric.compute(labels, probabilities, weights), dtype=np.float64)
            if values.shape != (len(weights),):
                raise ValueError(
                    f"the metric {key!r} returned the shape {values.shape} for {len(weights)} rows "
                    f"of weights. Return one score per row: ({len(weights)},)"
                )
            scores[key] = values
    if trec is not None:
        scores[TREC] = ranking_scores(labels, trec, weights)["average_precision"]
    return scores


def _own_scores(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    predictions = predicted_classes(probabilities)
    losses = _losses(labels, probabilities, weights)
    if probabilities.ndim == 2:
        confusion = _confusion(labels, predictions, probabilities.shape[1], weights)
        correct = (predictions == labels).astype(float)
        f1 = _f1(confusion)
        occurring = (confusion.sum(axis=1) + confusion.sum(axis=2)) > 0
        return {
            "f1_macro": _ratio(np.nan_to_num(f1).sum(axis=1), occurring.sum(axis=1)),
            "f1_weighted": _mean_by_size(f1, confusion),
            ACCURACY: _ratio(weights @ correct, weights.sum(axis=1)),
            "balanced_accuracy": _balanced_accuracy(confusion),
            "calibration_error": _calibration_error(correct, probabilities.max(axis=1), weights),
            **losses,
        }
    confusion = _confusion(labels, predictions, 2, weights)
    f1, hits = _f1(confusion), confusion[:, 1, 1]
    return {
        "f1": f1[:, 1],
        "f1_weighted": _mean_by_size(f1, confusion),
        "precision": _ratio(hits, confusion[:, :, 1].sum(axis=1)),
        "recall": _ratio(hits, confusion[:, 1].sum(axis=1)),
        **ranking_scores(labels, probabilities, weights),
        "balanced_accuracy": _balanced_accuracy(confusion),
        "calibration_error": _calibration_error(labels, probabilities, weights),
        **losses,
    }


def ranking_scores(labels: Array, scores: Array, weights: Array) -> dict[str, Array]:
    """Return AUROC and average precision for many weightings. Clips with the same score tie."""
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=np.inf))
    positive, negative = (
        np.add.reduceat((weights * (labels == code))[:, order], starts, axis=1) for code in (1, 0)
    )
    above, all_above = np.cumsum(positive, axis=1), np.cumsum(positive + negative, axis=1)
    positives, negatives = positive.sum(axis=1), negative.sum(axis=1)
    won = (negative * (above - positive / 2)).sum(axis=1)
    precision = np.nan_to_num(_ratio(above, all_above))
    return {
        "auroc": _ratio(won, positives * negatives),
        "average_precision": _ratio((positive * precision).sum(axis=1), positives),
    }


def _confusion(labels: Array, predictions: Array, classes: int, weights: Array) -> Array:
    """Return the summed weights by label and prediction [draws, classes, classes]."""
    cells = np.eye(classes * classes)[labels * classes + predictions]
    confusion: Array = (weights @ cells).reshape(len(weights), classes, classes)
    return confusion


def _f1(confusion: Array) -> Array:
    """Return each class's F1 [draws, classes]; NaN for a class without clips and predictions."""
    hits = np.diagonal(confusion, axis1=1, axis2=2)
    return _ratio(2 * hits, confusion.sum(axis=1) + confusion.sum(axis=2))


def _mean_by_size(f1: Array, confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    return _ratio((np.nan_to_num(f1) * sizes).sum(axis=1), sizes.sum(axis=1))


def _balanced_accuracy(confusion: Array) -> Array:
    sizes = confusion.sum(axis=2)
    recalls = np.nan_to_num(_ratio(np.diagonal(confusion, axis1=1, axis2=2), sizes))
    present = (sizes > 0).sum(axis=1)
    return np.where(present > 1, _ratio(recalls.sum(axis=1), present), np.nan)


def _calibration_error(labels: Array, probabilities: Array, weights: Array) -> Array:
    """Return the mean over clips of |mean probability - share of positives| in each clip's bin."""
    bins = np.minimum((probabilities * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    gaps = np.eye(CALIBRATION_BINS)[bins] * (probabilities - labels)[:, None]
    return _ratio(np.abs(weights @ gaps).sum(axis=1), weights.sum(axis=1))


def clip_losses(labels: Array, table: Array) -> dict[str, Array]:
    """Return the Brier score and log loss of each clip, as defined by scikit-learn.

    Parameters
    ----------
    labels
        A class from 0 on for each clip [N], or by annotator and clip [A, N].
    table
        Probabilities [N, classes].
    """
    classes = table.shape[1]
    squares = ((np.eye(classes)[labels] - table) ** 2).sum(axis=-1)
    true_class = np.maximum(table[np.arange(len(table)), labels], np.finfo(np.float64).eps)
    return {"brier": squares / 2 if classes == 2 else squares, "log_loss": -np.log(true_class)}


def _losses(labels: Array, probabilities: Array, weights: Array) -> dict[str, Array]:
    binary = probabilities.ndim == 1
    table = np.column_stack([1 - probabilities, probabilities]) if binary else probabilities
    total = weights.sum(axis=1)
    return {
        key: _ratio(weights @ losses, total) for key, losses in clip_losses(labels, table).items()
    }


def _ratio(top: Array, bottom: Array) -> Array:
    ratio: Array = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom != 0)
    return ratio


def baselines(share: float) -> dict[str, Scores]:
    """Return the scores of every way of guessing if `share` of the clips are positive.

    These are the paper's baselines, in closed form. Its v1 prints their positive-class F1, its v2
    the support-weighted F1, both for the share of positives of the whole dataset. Test folds have
    other shares, so a baseline is a function of the share in the clips that were scored.
    """
    return {
        # A fair coin: half of each class is called positive.
        "random": _guess_scores(share, called_positive=0.5),
        "all positive": _guess_scores(share, called_positive=1.0),
        # Every clip gets the more common class, or the positive class in a tie.
        "majority": _guess_scores(share, called_positive=1.0 if share >= 0.5 else 0.0),
    }


def _guess_scores(share: float, *, called_positive: float) -> Scores:
    """Return the scores of calling each clip positive with the same probability."""
    if not 0 < share < 1:
        raise ExperimentError(f"the share of positives must be between 0 and 1 (got {share})")
    positive = _harmonic_mean(share, called_positive)
    negative = _harmonic_mean(1 - share, 1 - called_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if called_positive else None,
        "recall": called_positive,
        # With one score for all clips, half of the pairs are in order, and precision equals share.
        "auroc": 0.5,
        "average_precision": share,
    }


def _harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
