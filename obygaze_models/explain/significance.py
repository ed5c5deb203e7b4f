"""Whether a concept's direction ranks clips better than directions of shuffled labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from obygaze_models.estimators.concepts import ConceptBank, fit_direction
from obygaze_models.estimators.svm_solver import GRAM_ROWS

Array = NDArray[Any]


@dataclass(frozen=True)
class Significance:
    """A concept, compared with directions fitted to its shuffled labels.

    Parameters
    ----------
    name
        The name of the concept.
    auc
        How well its direction ranks the held-out clips.
    random_auc
        The mean AUC of the random directions; their 95th percentile is ``random_auc_95``.
    p, p_holm
        The share of directions that rank as well or better, the true one included; and corrected
        for the number of concepts (Holm).
    runs
        The number of random directions: no p is below 1 / (runs + 1).
    """

    name: str
    auc: float
    random_auc: float
    random_auc_95: float
    p: float
    p_holm: float
    runs: int


def concept_significance(
    bank: ConceptBank,
    X: Array,
    Y: Array,
    X_held: Array,
    Y_held: Array,
    *,
    runs: int = 1000,
    random_state: int | None = None,
) -> list[Significance]:
    """Test each direction of a bank on held-out clips.

    The labels are shuffled `runs` times, and a direction is fitted to each shuffle as the bank's
    own was, at its C. Concepts without held-out clips of both kinds are left out: their AUC is
    undefined.

    Parameters
    ----------
    bank
        Fitted on `X` and `Y`.
    X, Y
        The features, and the concepts (1, 0, or -1 for unknown), that it was fitted on.
    X_held, Y_held
        Clips that were not used in the fit, best those of a test set.
    runs
        The number of random directions. No p is below 1 / (runs + 1), and Holm multiplies it by
        the number of concepts. Clips of a film are alike, so shuffling clips gives p values that
        are rather too small.
    random_state
        Fixes the shuffles.
    """
    check_is_fitted(bank)
    X, chance = np.asarray(X, dtype=np.float64), check_random_state(random_state)
    products = X @ X.T if len(X) <= GRAM_ROWS else None
    held_features = np.asarray(X_held, dtype=np.float64)
    results = []
    for name, C, cav, column in zip(bank.names_, bank.C_, bank.cavs_, bank.columns_, strict=True):
        targets, held_targets = Y[:, column], Y_held[:, column]
        held = np.flatnonzero(held_targets >= 0)
        truth, clips = held_targets[held], held_features[held]
        if not 0 < truth.sum() < len(truth):
            continue
        null = [
            roc_auc_score(truth, clips @ _random_direction(bank, X, products, targets, C, chance))
            for _ in range(runs)
        ]
        results.append((name, float(roc_auc_score(truth, clips @ cav)), np.array(null)))
    ps = [permutation_p(auc, null) for _, auc, null in results]
    return [
        Significance(
            name, auc, float(null.mean()), float(np.quantile(null, 0.95)), p, corrected, runs
        )
        for (name, auc, null), p, corrected in zip(results, ps, holm(ps), strict=True)
    ]


def random_label_cavs(
    bank: ConceptBank, X: Array, Y: Array, *, runs: int = 500, random_state: int | None = None
) -> Array:
    """Unit directions [runs, D] of shuffled labels, fitted as the bank's own were.

    The concepts take turns. TCAV scores are compared with these: directions of another kind are
    distributed otherwise, and make the test too strict or too lax.
    """
    check_is_fitted(bank)
    X, chance = np.asarray(X, dtype=np.float64), check_random_state(random_state)
    products = X @ X.T if len(X) <= GRAM_ROWS else None
    concepts = list(zip(bank.C_, bank.columns_, strict=True))
    cavs = []
    for run in range(runs):
        C, column = concepts[run % len(concepts)]
        cavs.append(_random_direction(bank, X, products, Y[:, column], C, chance))
    return np.array([cav / np.linalg.norm(cav) for cav in cavs])


def _random_direction(
    bank: ConceptBank,
    X: Array,
    products: Array | None,
    targets: Array,
    C: float | None,
    chance: np.random.RandomState,
) -> Array:
    """The direction of a concept's labels, shuffled among the clips that have them."""
    rows = np.flatnonzero(targets >= 0)
    shuffled = chance.permutation(targets[rows])
    picked = np.arange(len(rows))
    if bank.balance == "subsample":
        kinds = [np.flatnonzero(shuffled == code) for code in (0, 1)]
        fewer = min(map(len, kinds))
        picked = np.concatenate([chance.choice(kind, fewer, replace=False) for kind in kinds])
    chosen = rows[picked]
    part = None if products is None else products[np.ix_(chosen, chosen)]
    return fit_direction(bank, X[chosen], shuffled[picked], C, part).coef


def permutation_p(observed: float, null: Array) -> float:
    """The share of `null` and `observed` itself that is at least as large as `observed`.

    Examples
    --------
    >>> permutation_p(0.9, np.array([0.5, 0.6, 0.95]))
    0.5
    """
    # AUCs that are equal as fractions may differ in their last bit.
    return float((1 + np.sum(null >= observed - 1e-12)) / (1 + len(null)))


def holm(ps: Sequence[float]) -> list[float]:
    """Probabilities p corrected for their number by Holm's step-down, in the order given.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return corrected
