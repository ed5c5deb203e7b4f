"""What guessing scores, in closed form at a share of positives.

The paper's baselines. Its v1 prints their positive-class F1 and its v2 the support-weighted
one, at the share of positives of the whole dataset; a model is scored on a test fold that has
another share. So a baseline is a function of the share that was scored.
"""

from __future__ import annotations

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Scores


def baselines(share: float) -> dict[str, Scores]:
    """Return every baseline's scores where `share` of the clips are positive."""
    return {
        # A fair coin: half of either class is called positive.
        "random": _scores(share, called_positive=0.5),
        "all positive": _scores(share, called_positive=1.0),
        # Every clip is given the commoner class; the positive one where both are equal.
        "majority": _scores(share, called_positive=1.0 if share >= 0.5 else 0.0),
    }


def _scores(share: float, *, called_positive: float) -> Scores:
    """Return the scores of calling each clip positive with the same chance."""
    if not 0 < share < 1:
        raise ExperimentError(f"a share of positives lies between 0 and 1, not at {share}")
    positive = _f1(precision=share, recall=called_positive)
    negative = _f1(precision=1 - share, recall=1 - called_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if called_positive else None,
        "recall": called_positive,
        # One score for all clips ranks nothing: half of the pairs, precision = share throughout.
        "auroc": 0.5,
        "average_precision": share,
    }


def _f1(*, precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
