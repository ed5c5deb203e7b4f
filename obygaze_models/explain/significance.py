"""Tests of whether concepts rank clips better than chance, or affect a network (TCAV)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.utils import check_random_state

from obygaze_models.estimators.concepts import ConceptBank, fit_direction
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.svm_solver import GRAM_ROWS
from obygaze_models.explain.attributions import logits_and_gradients
from obygaze_models.scoring.intervals import holm
from obygaze_models.scoring.metrics import Array


@dataclass(frozen=True)
class Significance:
    """A comparison of a concept's direction with directions fitted to its shuffled labels.

    Parameters
    ----------
    name
        The name of the concept.
    auc
        The AUC of the concept's direction on the held-out clips.
    random_auc, random_auc_95
        The mean and the 95th percentile of the AUC of the random directions.
    p, p_holm
        The share of directions, including the concept's, that rank clips at least as well as the
        concept's direction; and this share, corrected for the number of concepts (Holm).
    runs
        The number of random directions. No p is below 1 / (runs + 1).
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

    The labels are shuffled `runs` times, and a direction is fitted to each shuffle with the bank's
    settings and C. Concepts are left out if all held-out clips show them or none does, because
    their AUC is undefined. Clips of a film are alike, so p tends to be too small.

    Parameters
    ----------
    bank
        The fitted bank.
    X, Y
        The features, and the concepts (1, 0, or -1 for unknown), of the clips in the fit.
    X_held, Y_held
        The features and concepts of clips that were not in the fit, ideally those of a test set.
    runs
        The number of random directions. No p is below 1 / (runs + 1), and Holm's correction
        multiplies the lowest p by the number of concepts.
    random_state
        The seed of the shuffles.
    """
    shuffle, results = _Shuffles(bank, X, Y, random_state), []
    for concept, (name, cav, column) in enumerate(
        zip(bank.names_, bank.cavs_, bank.columns_, strict=True)
    ):
        held = np.flatnonzero(Y_held[:, column] >= 0)
        truth, clips = Y_held[held, column], np.asarray(X_held, dtype=np.float64)[held]
        if not 0 < truth.sum() < len(truth):
            continue
        null = [roc_auc_score(truth, clips @ shuffle.direction(concept)) for _ in range(runs)]
        results.append((name, float(roc_auc_score(truth, clips @ cav)), np.array(null)))
    ps = [permutation_p(auc, null) for _, auc, null in results]
    return [
        Significance(
            name, auc, float(null.mean()), float(np.quantile(null, 0.95)), p, corrected, runs
        )
        for (name, auc, null), p, corrected in zip(results, ps, _holm(ps), strict=True)
    ]


def random_label_cavs(
    bank: ConceptBank, X: Array, Y: Array, *, runs: int = 500, random_state: int | None = None
) -> Array:
    """Return unit directions [runs, D] fitted to shuffled labels with the bank's settings.

    Run i shuffles the labels of concept i, starting over after the last concept. TCAV scores must
    be compared with directions that are fitted in the same way. Other random directions are
    distributed differently and would make the test too strict or too lax.
    """
    shuffle = _Shuffles(bank, X, Y, random_state)
    cavs = [shuffle.direction(run % len(bank.names_)) for run in range(runs)]
    return np.array([cav / np.linalg.norm(cav) for cav in cavs])


class _Shuffles:
    """Directions of a bank's concepts, with labels shuffled among the labelled clips."""

    def __init__(self, bank: ConceptBank, X: Array, Y: Array, random_state: int | None) -> None:
        self.bank, self.X, self.Y = bank, np.asarray(X, dtype=np.float64), Y
        self.chance = check_random_state(random_state)
        self.products = self.X @ self.X.T if len(X) <= GRAM_ROWS else None

    def direction(self, concept: int) -> Array:
        """Return the direction for a new shuffle, fitted with the bank's settings."""
        targets = self.Y[:, self.bank.columns_[concept]]
        rows = np.flatnonzero(targets >= 0)
        shuffled = self.chance.permutation(targets[rows])
        if self.bank.balance == "subsample":
            kinds = [np.flatnonzero(shuffled == code) for code in (0, 1)]
            fewer = min(map(len, kinds))
            picked = [self.chance.choice(kind, fewer, replace=False) for kind in kinds]
            rows, shuffled = rows[np.concatenate(picked)], shuffled[np.concatenate(picked)]
        part = None if self.products is None else self.products[np.ix_(rows, rows)]
        return fit_direction(self.bank, concept, self.X[rows], shuffled, part).coef


def permutation_p(observed: float, null: Array) -> float:
    """Return the share of values that are at least `observed`, counting `observed` as a value.

    Examples
    --------
    >>> permutation_p(0.9, np.array([0.5, 0.6, 0.95]))
    0.5
    """
    # Equal AUCs may differ in the last bit.
    return float((1 + np.sum(null >= observed - 1e-12)) / (1 + len(null)))


def _holm(ps: Sequence[float]) -> list[float]:
    return [corrected for corrected in holm(ps) if corrected is not None]


@dataclass(frozen=True)
class TCAV:
    """A concept's score for a class.

    Parameters
    ----------
    name
        The name of the concept.
    score
        The share of clips whose logit rises along the concept's direction. A clip whose logit does
        not change counts half.
    random_score, random_spread
        The mean and the standard deviation of the scores of the random directions.
    p, p_holm
        The share of directions, including the concept's, whose score is at least as far from one
        half as the concept's (two-sided); and this share, corrected for the number of concepts
        (Holm).
    slope
        The mean slope of the logit along the direction, over the clips.
    slope_p, slope_p_holm
        The same as `p` and `p_holm`, for the size of the slope. In a nearly linear network, even
        random directions score nearly 0 or 1, so use the slope.
    clips, runs
        The numbers of clips and of random directions. No p is below 1 / (runs + 1).
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
    model: MLPProbe, X: Array, code: int, cavs: Array, names: Sequence[str], random: Array
) -> list[TCAV]:
    """Score each concept for a class, compared with random directions.

    Parameters
    ----------
    model
        A fitted network.
    X
        The features [N, D] of the clips to score; in TCAV, the clips of the class.
    code
        The index of the class in ``model.classes_``.
    cavs, names
        The directions [K, D], such as a bank's ``cavs_``, and their names.
    random
        The random directions [R, D], such as the result of `random_label_cavs`.
    """
    gradients = logits_and_gradients(model, X)[1][code]
    along, by_chance = gradients @ cavs.T, gradients @ random.T
    scores, random_scores = _rising(along), _rising(by_chance)
    slopes, random_slopes = along.mean(axis=0), by_chance.mean(axis=0)
    # Reversing a direction turns score s into 1 - s and reverses the sign of its slope, so chance
    # is centred on one half and on 0.
    p = [permutation_p(abs(s - 0.5), np.abs(random_scores - 0.5)) for s in scores.tolist()]
    slope_p = [permutation_p(abs(s), np.abs(random_slopes)) for s in slopes.tolist()]
    p_holm, slope_p_holm = _holm(p), _holm(slope_p)
    chance = random_scores.mean().item(), random_scores.std().item()
    counts = len(X), len(random)
    columns = scores.tolist(), p, p_holm, slopes.tolist(), slope_p, slope_p_holm
    return [
        TCAV(name, share, *chance, p, p_holm, slope, slope_p, slope_p_holm, *counts)
        for name, share, p, p_holm, slope, slope_p, slope_p_holm in zip(
            names, *columns, strict=True
        )
    ]


def _rising(derivatives: Array) -> Array:
    """Return the share of clips with a positive derivative along each direction."""
    rising, flat = (derivatives > 0).sum(axis=0), (derivatives == 0).sum(axis=0)
    return np.asarray((rising + flat / 2) / len(derivatives))
