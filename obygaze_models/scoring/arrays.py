"""Scores of arrays, for those who only want the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_consistent_length, column_or_1d

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.intervals import (
    OVER,
    Estimate,
    ScoredClips,
    estimate_mean,
    estimate_scores,
    score_groups,
)
from obygaze_models.scoring.metrics import CLASSES
from obygaze_models.scoring.number_scores import NUMBER


def score(y: Any, p: Any, groups: Any = None, *, folds: Any = None) -> pd.DataFrame:
    """Return each score within groups and across groups, with its 95% interval.

    Parameters
    ----------
    y
        The class of each clip, or its number as a float. Of two classes, the second in sorted order
        is positive.
    p
        The probability [N] of the positive class, the probabilities [N, classes], or the predicted
        numbers.
    groups
        The film, or other group, of each clip. Without groups, all clips are scored together, and
        there are no intervals.
    folds
        The fold of each clip, if each was predicted by a model of the other folds. Predictions of
        different folds are not compared with each other.

    Examples
    --------
    >>> import numpy as np
    >>> y, p = np.tile([0, 1], 50), np.tile([0.2, 0.4, 0.3, 0.1, 0.6, 0.7, 0.5, 0.9, 0.8, 1], 10)
    >>> scores = score(y, p, groups=np.repeat(["a", "b", "c", "d", "e"], 20))
    >>> scores.loc["within"].loc["auroc", ["mean", "groups"]].round(2).tolist()
    [0.64, 5.0]
    """
    labels = column_or_1d(y)
    p = np.asarray(p, dtype=np.float64)
    names = [""] * len(labels)
    if groups is not None:
        names = pd.Series([*groups], dtype=object).fillna("").astype(str).tolist()
    if folds is not None:
        folds = np.asarray(folds)
    check_consistent_length(labels, p, names, folds)
    target_key = NUMBER
    classes = 2
    if labels.dtype.kind != "f":
        target_key = CLASSES
        values, labels = np.unique(labels, return_inverse=True)
        classes = len(values)
        if p.ndim == 2 and classes == 2:
            p = p[:, -1]
        columns = (classes,) if classes > 2 else ()
        is_share = ((p >= 0) & (p <= 1)).all()
        if classes < 2 or p.shape[1:] != columns or not is_share:
            raise ExperimentError(
                "y needs two classes or more, and p probabilities from 0 to 1: of the positive "
                f"class, or a column for each class (got {classes} in y, p of shape {p.shape})"
            )
    clips = ScoredClips(
        ids=[*map(str, range(len(labels)))],
        labels=labels,
        probabilities=p,
        groups=names,
        classes=classes,
        target_key=target_key,
        fits=folds,
    )
    estimates = estimate_scores(score_groups(clips))
    rows = []
    for over, by_metric in zip(OVER, estimates, strict=True):
        for key, estimate in by_metric.items():
            low, high = estimate.interval or (np.nan, np.nan)
            rows.append(
                {
                    "over": over,
                    "metric": key,
                    "mean": estimate.value,
                    "low": low,
                    "high": high,
                    "clips": estimate.clips,
                    "groups": estimate.groups,
                    "effective": estimate.effective,
                }
            )
    return pd.DataFrame(rows).set_index(["over", "metric"])


def mean_over_groups(scores: Any, *, folds: int = 1) -> Estimate:
    """Return the mean of the scores of groups, such as AUROCs of films, with its 95% interval.

    The interval is a t interval over groups; five are needed. If each group was scored by a model
    of the other folds, the groups trained the models of each other. The variance is then multiplied
    as in Nadeau and Bengio (2003), "Inference for the generalization error", Machine Learning 52.

    Parameters
    ----------
    scores
        The score of each group. NaN is left out.
    folds
        The number of folds; 1 if a single model was tested on other groups.

    Examples
    --------
    >>> estimate = mean_over_groups([0.5, 0.6, 0.7, 0.6, 0.8], folds=5)
    >>> round(estimate.value, 2), [round(end, 2) for end in estimate.interval]
    (0.64, [0.43, 0.85])
    """
    values = np.asarray(scores, dtype=np.float64)
    return estimate_mean(values, cross_validated=folds > 1)
