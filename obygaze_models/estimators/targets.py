"""Which clips show a concept, which do not, and which take no part: the paper's three readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.errors import ExperimentError

__all__ = ["NEGATIVES", "concept_targets"]

#: The paper's three sets of negatives (its solid bars, its hatched ones, and a third), in short.
NEGATIVES = {"a": "EN", "b": "all without", "c": "HN+S without"}


def concept_targets(levels: Sequence[str], concepts: NDArray[Any], negatives: str) -> NDArray[Any]:
    """1 where a clip shows a concept, 0 where it is a negative of it, else -1; [N, K].

    Not Sure clips take no part, nor does an Easy Negative that is marked with the concept.
    """
    if negatives not in NEGATIVES:
        raise ExperimentError(
            f"negatives {negatives!r} are not known; choose "
            + "; ".join(f"{name} ({what})" for name, what in NEGATIVES.items())
        )
    shown = np.asarray(concepts, dtype=bool)
    easy = (np.array(levels) == "EN")[:, None]
    annotated = np.isin(levels, ("HN", "S"))[:, None]
    among = {"a": easy, "b": easy | annotated, "c": annotated}[negatives]
    targets = np.full(shown.shape, -1, dtype=np.int8)
    targets[among & ~shown] = 0
    targets[annotated & shown] = 1
    return targets
