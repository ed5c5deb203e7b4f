"""Average precision exactly as trec_eval computes it, which MediaEval's violence task is scored by.

Scores are rounded to 32 bits, clips of one score are ordered by their ids, later ones first, and
positive clips that a run does not return count against it. `average_precision` lets clips of one
score share a rank instead: where scores are tied the two may lie far apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_models.experiments.metrics.average_precision import average_precision

__all__ = ["trec_average_precision", "trec_ranks"]


def trec_ranks(ids: Sequence[str], scores: NDArray[Any]) -> NDArray[Any]:
    """A whole number for each clip, no two alike: the highest is the clip that comes first."""
    with np.errstate(over="ignore"):  # what 32 bits cannot hold is infinite there, too
        rounded = scores.astype(np.float32)
    ranks = np.empty(len(ids), np.int64)
    ranks[np.lexsort((np.array(ids, dtype=str), rounded))] = np.arange(len(ids))
    return ranks


def trec_average_precision(
    ids: Sequence[str], scores: NDArray[Any], positives: Collection[str]
) -> float | None:
    """Mean precision over the ranks of all positive clips; None where there are none.

    Parameters
    ----------
    ids, scores
        What a run returns, in any order; no id comes twice.
    positives
        The ids of the positive clips. What is returned besides is negative.

    Examples
    --------
    >>> scores = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    >>> round(trec_average_precision(["v1", "v2", "v3", "v4", "v5"], scores, ["v1", "v3"]), 4)
    0.8333
    """
    wanted = set(positives)
    if not wanted:
        return None
    hits = np.array([one in wanted for one in ids], dtype=np.int64)
    of_returned = average_precision(hits, trec_ranks(ids, scores))
    return 0.0 if of_returned is None else of_returned * int(hits.sum()) / len(wanted)
