"""TCAV: how often a class's logit rises along a concept, compared with random directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.attributions import logit_gradients
from obygaze_models.explain.significance import holm, permutation_p

Array = NDArray[Any]


@dataclass(frozen=True)
class TCAV:
    """A concept's score for a class.

    Parameters
    ----------
    name
        The name of the concept.
    score
        The share of the clips whose logit rises along the concept's direction; a clip whose
        logit does not change counts half.
    random_score
        The mean score of the random directions; `random_spread` is their standard deviation.
    p, p_holm
        Two-sided: the share of directions whose score is at least as far from one half, the
        concept's included; and corrected for the number of concepts (Holm).
    slope
        How steeply the logit rises along the direction, on average over the clips.
    slope_p, slope_p_holm
        As `p`, for the size of the slope. In a nearly linear network random directions score
        nearly 0 or 1, too: then look at the slope.
    clips, runs
        The numbers of clips and of random directions: no p is below 1 / (runs + 1).
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

    A logit is linear in the last hidden layer, so every score there is 0 or 1, also that of random
    directions: look at the slope, or at an earlier layer.

    Parameters
    ----------
    model
        A fitted network.
    X
        Features [N, D] of the clips to score: in TCAV those of the class.
    code
        The class of the logit: its index in ``model.classes_``.
    cavs, names
        Directions [K, units of the layer], such as a bank's ``cavs_``, and their names.
    random
        Directions [R, units of the layer] to compare with, such as `random_label_cavs`.
    layer
        0 for the features, 1 and up for a hidden layer.
    """
    if not len(X):
        raise ExperimentError("TCAV needs clips of the class (got none)")
    if not len(random):
        raise ExperimentError("TCAV needs random directions to compare with (got none)")
    gradients = logit_gradients(model, X, code, layer=layer)
    for kind, directions in (("concepts'", cavs), ("random", random)):
        if directions.shape[1] != gradients.shape[1]:
            raise ExperimentError(
                f"the {kind} directions have {directions.shape[1]} dimensions, layer {layer} of "
                f"the network {gradients.shape[1]}; fit them on that layer"
            )
    along, by_chance = gradients @ cavs.T, gradients @ random.T
    scores, random_scores = _rising(along), _rising(by_chance)
    slopes, random_slopes = along.mean(axis=0), by_chance.mean(axis=0)
    # Reversing a direction mirrors its score at one half and its slope at 0: these are the
    # centres of chance.
    p = [permutation_p(abs(s - 0.5), np.abs(random_scores - 0.5)) for s in scores.tolist()]
    slope_p = [permutation_p(abs(s), np.abs(random_slopes)) for s in slopes.tolist()]
    p_holm, slope_p_holm = holm(p), holm(slope_p)
    return [
        TCAV(
            name,
            float(scores[index]),
            float(random_scores.mean()),
            float(random_scores.std()),
            p[index],
            p_holm[index],
            float(slopes[index]),
            slope_p[index],
            slope_p_holm[index],
            clips=len(X),
            runs=len(random),
        )
        for index, name in enumerate(names)
    ]


def _rising(derivatives: Array) -> Array:
    """The share of clips with a positive derivative along each direction."""
    rising, flat = (derivatives > 0).sum(axis=0), (derivatives == 0).sum(axis=0)
    return np.asarray((rising + flat / 2) / len(derivatives))
