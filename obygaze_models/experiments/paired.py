"""Two models' scores of the same clips, and how sure it is which is the better one.

Both are scored on the same draws of films: what makes a film hard for both falls out of their
difference, whose interval is narrower than their own two would let one think.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.intervals import CELLS, REPLICATES, draw_films, middle
from obygaze_models.experiments.metrics import score, score_classes
from obygaze_models.experiments.metrics.weighted import weighted_scores

__all__ = ["Difference", "paired_differences"]

LOWER_IS_BETTER = {"calibration_error"}
Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """One score of two models on the same clips.

    Parameters
    ----------
    first, second, difference
        The scores, and the first less the second; None where undefined.
    interval
        The middle 95% of the difference over draws of films; None where there is one film only,
        or for a score that is not resampled (the AUROC of three classes and more).
    ahead
        The share of draws in which the first is the better one; a tie counts half.
    """

    first: float | None
    second: float | None
    difference: float | None
    interval: tuple[float, float] | None
    ahead: float | None


def paired_differences(
    labels: Array,
    first: Array,
    second: Array,
    films: Sequence[str],
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> dict[str, Difference]:
    """A `Difference` for each score.

    Parameters
    ----------
    labels
        A class from 0 on for each clip.
    first, second
        Two models' probabilities: [N] of the positive class, or [N, classes].
    films
        Each clip's; films are drawn with replacement, and all their clips with them.
    seed, replicates
        Of the draws.
    """
    scored = score_classes if first.ndim == 2 else score
    mine, theirs = scored(labels, first), scored(labels, second)
    names, column = np.unique(films, return_inverse=True)
    if len(names) == 1:
        return {
            name: Difference(value, theirs[name], _less(value, theirs[name]), None, None)
            for name, value in mine.items()
        }
    drawn = draw_films(len(names), seed=seed, replicates=replicates)
    step = max(1, CELLS // len(labels))
    by_draw: dict[str, list[Array]] = {}
    for at in range(0, replicates, step):
        weights = drawn[at : at + step, column].astype(np.float64)
        ours, others = (weighted_scores(labels, said, weights) for said in (first, second))
        for name, values in ours.items():
            by_draw.setdefault(name, []).append(values - others[name])
    found = {}
    for name, value in mine.items():
        draws = np.concatenate(by_draw[name]) if name in by_draw else np.full(1, np.nan)
        interval = middle(draws)
        ahead = None if interval is None else _ahead(name, draws[~np.isnan(draws)])
        other = theirs[name]
        found[name] = Difference(value, other, _less(value, other), interval, ahead)
    return found


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _ahead(name: str, differences: Array) -> float:
    better = differences < 0 if name in LOWER_IS_BETTER else differences > 0
    return float(better.mean() + (differences == 0).mean() / 2)
