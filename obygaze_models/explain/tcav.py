"""TCAV: whether a network uses concepts more than directions fitted to shuffled labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from obygaze_features.common.arrays import Array
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.fusion import open_pipeline
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.svm_solver import inner_products, part_of
from obygaze_models.saved.model import as_model
from obygaze_models.scoring.intervals import holm


def tcav(
    model: Any,
    X: Array,
    bank: ConceptBank,
    X_bank: Array,
    Y_bank: Array,
    *,
    code: int = -1,
    runs: int = 200,
    random_state: int | None = None,
) -> pd.DataFrame:
    """Score a network's use of each concept of a bank for a class.

    Parameters
    ----------
    model
        A fitted `MLPProbe`, a pipeline that ends in one, or a `Model` or the folder of either.
    X
        The features [N, D] of the clips to score: clips of the class, unseen by the network.
    bank
        A concept bank fitted on the same features; in a pipeline, on the input of its last step.
    X_bank, Y_bank
        The clips that the bank was fitted on: their features, as the model reads them, and whether
        they show each of ``bank.names_`` (1, 0, or -1 for unknown).
    code
        The index of the class in ``model.classes_``; by default, the last.
    runs
        The number of random directions, fitted like concepts but to shuffled labels. No p is below
        1 / (runs + 1).
    random_state
        The seed of the shuffles.

    Returns
    -------
    A row per ``concept``. ``score`` is the share of clips whose logit rises along the concept's
    direction, and ``random_score`` its mean for random directions. ``p`` is the share of directions
    that score at least as far from one half as the concept, and ``p_holm`` corrects it for the
    number of concepts. ``slope`` is the logit's mean slope, with its own p values. In a nearly
    linear network, even random directions score nearly 0 or 1, so use the slope.
    """
    estimator = as_model(model).estimator
    network, X = open_pipeline(estimator, X)
    _, X_bank = open_pipeline(estimator, X_bank)
    random = random_label_cavs(bank, X_bank, Y_bank, runs=runs, random_state=random_state)
    gradients = logit_gradients(network, X)[code]
    along = gradients @ bank.cavs_.T
    by_chance = gradients @ random.T
    scores = _rising(along)
    random_scores = _rising(by_chance)
    slopes = along.mean(axis=0)
    random_slopes = by_chance.mean(axis=0)
    # A reversed direction turns a score s into 1 - s and a slope into its negative, so chance is
    # centred on one half and on 0.
    p = _permutation_p(np.abs(scores - 0.5), np.abs(random_scores - 0.5))
    slope_p = _permutation_p(np.abs(slopes), np.abs(random_slopes))
    return pd.DataFrame(
        {
            "concept": bank.names_,
            "score": scores,
            "random_score": random_scores.mean(),
            "p": p,
            "p_holm": holm(p),
            "slope": slopes,
            "slope_p": slope_p,
            "slope_p_holm": holm(slope_p),
        }
    )


def logit_gradients(model: MLPProbe, X: Array) -> Array:
    """Return the derivatives of a network's logits with respect to X, [classes, N, D].

    They are in float64, as in prediction, and without temperature.
    """
    *hidden, last = zip(model.coefs_, model.intercepts_, strict=True)
    outputs = [np.asarray(X, dtype=np.float64)]
    for weight, offset in hidden:
        outputs.append(np.maximum(outputs[-1] @ weight + offset, 0))
    gradients: Array = last[0].T.astype(np.float64)[:, None]
    for (weight, _), output in zip(reversed(hidden), reversed(outputs), strict=False):
        gradients = (gradients * (output > 0)) @ weight.T
    return gradients


def random_label_cavs(
    bank: ConceptBank,
    X: Array,
    Y: Array,
    *,
    runs: int,
    random_state: int | None,
) -> Array:
    """Return unit directions [runs, D] fitted to shuffled labels with the bank's settings.

    Run i shuffles the labels of concept i, starting over after the last concept.
    """
    X = np.asarray(X, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.int8)
    chance = check_random_state(random_state)
    products = inner_products(X)
    cavs = []
    for run in range(runs):
        concept = run % len(bank.names_)
        labels = Y[:, concept].copy()
        known = labels >= 0
        labels[known] = chance.permutation(labels[known])
        rows = bank.draw_rows(labels, chance)
        fit = bank.fit_again(concept, X[rows], labels[rows], part_of(products, rows))
        cavs.append(fit.coef / np.linalg.norm(fit.coef))
    return np.array(cavs)


def _permutation_p(observed: Array, null: Array) -> Array:
    """Return the share of values at least as large as each observed one, which counts itself."""
    # Equal values may differ in the last bit.
    as_large = np.sum(null >= observed[:, None] - 1e-12, axis=1)
    return np.asarray((1 + as_large) / (1 + len(null)))


def _rising(derivatives: Array) -> Array:
    """Return the share of clips with a positive derivative along each direction; 0 counts half."""
    return np.asarray((np.sign(derivatives) + 1).mean(axis=0) / 2)
