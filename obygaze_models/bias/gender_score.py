"""The gender score of captions: how far the object in an image supports the gender that is said.

GS = P ** alpha, alpha = ((1 - sim) / (1 + sim)) ** (1 - P(c)): P is the caption's mean token
probability, sim its similarity to the object's label, P(c) how sure the object's classifier is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from obygaze_features.errors import BiasError

__all__ = ["TIE", "gender_score", "leanings"]

Array = NDArray[Any]
TIE = "tie"
#: Cosines of 32-bit vectors are a little over 1.
ROUNDING = 1e-6


def gender_score(probability: ArrayLike, similarity: ArrayLike, confidence: ArrayLike) -> Array:
    """The gender score of each caption.

    Parameters
    ----------
    probability
        P, from 0 to 1.
    similarity
        sim, over -1 and up to 1; at -1 there is no score.
    confidence
        P(c), from 0 to 1.

    Examples
    --------
    >>> round(float(gender_score(0.12759140133857727, 0.5452305674552917, 0.2183)), 12)
    0.453207141502
    """
    p, sim, sure = (np.asarray(one, dtype=float) for one in (probability, similarity, confidence))
    for name, values in (("probability", p), ("confidence", sure)):
        _refuse(name, values, ~((values >= 0) & (values <= 1)), "is not from 0 to 1")
    _refuse("similarity", sim, ~((sim >= -1) & (sim <= 1 + ROUNDING)), "is not from -1 to 1")
    _refuse("similarity", sim, sim == -1, "has no gender score: 1 + similarity is divided by")
    sim = np.minimum(sim, 1)
    return np.asarray(p ** (((1 - sim) / (1 + sim)) ** (1 - sure)))


def _refuse(name: str, values: Array, bad: Array, why: str) -> None:
    if bad.any():
        raise BiasError(f"{name} {values[bad].flat[0]:g} {why}")


def leanings(man: Array, woman: Array) -> tuple[list[str], Array]:
    """What each caption leans to, man or woman or `TIE`; and its ratio man / (man + woman).

    The ratio is NaN where both scores are 0.
    """
    said = np.where(man > woman, "man", np.where(woman > man, "woman", TIE)).tolist()
    total = man + woman
    return said, np.divide(man, total, out=np.full(len(man), np.nan), where=total > 0)
