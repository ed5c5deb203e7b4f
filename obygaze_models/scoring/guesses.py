"""The scores of guessing, in closed form for any share of positives.

These are the paper's baselines. Its v1 prints their positive-class F1, its v2 the support-weighted
F1, both for the share of positives of the whole dataset. Test folds have other shares, so a
baseline is a function of the share in the clips that were scored.
"""

from __future__ import annotations

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Scores


def baselines(share: float) -> dict[str, Scores]:
    """Return the scores of every baseline if `share` of the clips are positive."""
    return {
        # A fair coin: half of each class is called positive.
        "random": _scores(share, called_positive=0.5),
        "all positive": _scores(share, called_positive=1.0),
        # Every clip gets the more common class, or the positive class in a tie.
        "majority": _scores(share, called_positive=1.0 if share >= 0.5 else 0.0),
    }


def _scores(share: float, *, called_positive: float) -> Scores:
    """Return the scores of calling each clip positive with the same probability."""
    if not 0 < share < 1:
        raise ExperimentError(f"the share of positives must be between 0 and 1 (got {share})")
    positive = _f1(precision=share, recall=called_positive)
    negative = _f1(precision=1 - share, recall=1 - called_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if called_positive else None,
        "recall": called_positive,
        # With one score for all clips, half of the pairs are in order, and precision equals share.
        "auroc": 0.5,
        "average_precision": share,
    }


def _f1(*, precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
