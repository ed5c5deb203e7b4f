"""What guessing scores, in closed form at a share of positives.

The paper's baselines. Its v1 prints their positive-class F1 and its v2 the support-weighted
one, at the share of positives of the whole dataset; a model is scored on a test fold that has
another share. So a baseline is a function of the share that was scored.
"""

from __future__ import annotations

import numpy as np

from obygaze_features.errors import ExperimentError

__all__ = ["DRAWS", "all_positive", "baselines", "majority", "random_guess", "simulated"]

Scores = dict[str, float | None]
DRAWS = 10_000
"""How often the coin is thrown for every clip."""


def baselines(share: float) -> dict[str, Scores]:
    """Every baseline's scores where `share` of the clips are positive."""
    return {
        "random": random_guess(share),
        "all positive": all_positive(share),
        "majority": majority(share),
    }


def random_guess(share: float) -> Scores:
    """A fair coin: half of either class is called positive."""
    return _scores(share, said_positive=0.5)


def all_positive(share: float) -> Scores:
    """Every clip is called positive."""
    return _scores(share, said_positive=1.0)


def majority(share: float) -> Scores:
    """Every clip is given the commoner class; the positive one where both are equal."""
    return _scores(share, said_positive=1.0 if share >= 0.5 else 0.0)


def simulated(clips: int, positives: int, *, seed: int, draws: int = DRAWS) -> dict[str, Scores]:
    """Mean and standard deviation of what a fair coin scores on so many clips.

    The closed form is what endless clips would give; on a few dozen the mean of F1 lies beside it,
    and its deviation says how far chance alone carries a score.
    """
    chance = np.random.default_rng(seed)
    hits = chance.binomial(positives, 0.5, draws)
    false = chance.binomial(clips - positives, 0.5, draws)
    said, missed, right = hits + false, positives - hits, clips - positives - false
    with np.errstate(invalid="ignore"):  # nothing called positive has no precision
        f1 = 2 * hits / (2 * hits + false + missed)
        other = 2 * right / (2 * right + false + missed)
        scores = {
            "f1": f1,
            "f1_weighted": (positives * f1 + (clips - positives) * other) / clips,
            "precision": hits / said,
            "recall": hits / positives,
        }
    return {
        "mean": {name: float(np.nanmean(of)) for name, of in scores.items()},
        "std": {name: float(np.nanstd(of)) for name, of in scores.items()},
    }


def _scores(share: float, *, said_positive: float) -> Scores:
    """Scores of one who calls a clip positive with a fixed chance, whatever it shows."""
    if not 0 < share < 1:
        raise ExperimentError(f"a share of positives lies between 0 and 1, not at {share}")
    positive = _f1(precision=share, recall=said_positive)
    negative = _f1(precision=1 - share, recall=1 - said_positive)
    return {
        "f1": positive,
        "f1_weighted": share * positive + (1 - share) * negative,
        "precision": share if said_positive else None,
        "recall": said_positive,
        # One score for all clips ranks nothing: half of the pairs, precision = share throughout.
        "auroc": 0.5,
        "average_precision": share,
    }


def _f1(*, precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall)
