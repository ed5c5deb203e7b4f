"""TCAV: how often a class's logit rises along a concept, and whether chance does as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.significance import holm, permutation_p
from obygaze_models.explain.gradients import logit_gradients

__all__ = ["TCAV", "random_cavs", "tcav"]

Array = NDArray[Any]


@dataclass(frozen=True)
class TCAV:
    """A concept's score for a class.

    Parameters
    ----------
    name
        The concept.
    score
        The share of the clips whose logit rises along the concept's direction; a clip whose
        logit stays exactly as it is counts half.
    random_score
        The mean score of the random directions; `random_spread` is their standard deviation.
    p, p_holm
        Two-sided: the share of random directions whose score lies as far from one half or
        farther, the concept counted among them; and corrected for the number of concepts (Holm).
    slope
        How steeply the logit rises along the direction, on average over the clips.
    slope_p, slope_p_holm
        As `p`, of the slope's size. Where a network is nearly linear, random directions score
        nearly 0 or 1, too: then only the slope can be told from chance.
    clips, runs
        How many clips, and how many random directions: no p is below 1 / (runs + 1).
    """

    name: str
    score: float
    random_score: float
    random_spread: float
    p: float
    p_holm: float
    slope: float
    slope_p: float
    slope_p_holm: float
    clips: int
    runs: int


def random_cavs(X: Array, runs: int = 500, *, random_state: int = 0) -> Array:
    """Directions of concepts that do not exist, [runs, D], of length 1.

    Each leads from the mean of one random half of the clips to that of the other. So they lie
    where the clips spread, as a concept's direction does, not anywhere in space.

    Parameters
    ----------
    X
        Features, or a hidden layer's `activations`, [N, D].
    runs
        How many.
    random_state
        Fixes the halves.
    """
    if len(X) < 4:
        raise ExperimentError(f"random directions take at least 4 clips, not {len(X)}")
    X = np.asarray(X, dtype=np.float64)
    chance, half = check_random_state(random_state), len(X) // 2
    directions = np.empty((runs, X.shape[1]))
    for run in range(runs):
        order = chance.permutation(len(X))
        directions[run] = X[order[:half]].mean(axis=0) - X[order[half : 2 * half]].mean(axis=0)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    if not lengths.all():
        raise ExperimentError("random halves of the clips have the very same mean: all are alike")
    return np.asarray(directions / lengths)


def tcav(
    model: MLPProbe,
    X: Array,
    code: int,
    cavs: Array,
    names: Sequence[str],
    random: Array,
    *,
    layer: int = 0,
) -> list[TCAV]:
    """Score each concept for a class, against random directions.

    After the last hidden layer a logit is linear, so that every score is 0 or 1 there, that of
    random directions too: look at the slope, or at an earlier layer.

    Parameters
    ----------
    model
        A fitted network.
    X
        Features [N, D] of the clips to score, in TCAV those of the class.
    code
        The class whose logit is looked at: its place in ``model.classes_``.
    cavs, names
        Directions [K, units of the layer], such as a bank's ``cavs_``, and their names.
    random
        Directions [R, units of the layer] to compare with; see `random_cavs`.
    layer
        0 for the features, 1 and up for a hidden layer.
    """
    if not len(X):
        raise ExperimentError("TCAV scores take clips of the class, and there are none")
    if not len(random):
        raise ExperimentError("TCAV scores take random directions to compare with; see random_cavs")
    gradients = logit_gradients(model, X, code, layer=layer)
    for what, directions in (("concepts'", cavs), ("random", random)):
        if directions.shape[1] != gradients.shape[1]:
            raise ExperimentError(
                f"the {what} directions have {directions.shape[1]} numbers, layer {layer} of the "
                f"network {gradients.shape[1]}; fit them on that layer"
            )
    along, by_chance = gradients @ cavs.T, gradients @ random.T
    scores, random_scores = _rising(along), _rising(by_chance)
    slopes, random_slopes = along.mean(axis=0), by_chance.mean(axis=0)
    # Turning a direction round turns its score round one half, and its slope round 0: these are
    # the middles of chance.
    p = [permutation_p(abs(one - 0.5), np.abs(random_scores - 0.5)) for one in scores.tolist()]
    slope_p = [permutation_p(abs(one), np.abs(random_slopes)) for one in slopes.tolist()]
    p_holm, slope_p_holm = holm(p), holm(slope_p)
    return [
        TCAV(
            name,
            float(scores[place]),
            float(random_scores.mean()),
            float(random_scores.std()),
            p[place],
            p_holm[place],
            float(slopes[place]),
            slope_p[place],
            slope_p_holm[place],
            clips=len(X),
            runs=len(random),
        )
        for place, name in enumerate(names)
    ]


def _rising(derivatives: Array) -> Array:
    """The share of clips with a positive derivative along each direction."""
    rising, still = (derivatives > 0).sum(axis=0), (derivatives == 0).sum(axis=0)
    return np.asarray((rising + still / 2) / len(derivatives))
