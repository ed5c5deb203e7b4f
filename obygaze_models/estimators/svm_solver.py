"""Linear support vector machines by scikit-learn, and the choice of their C.

Up to `GRAM_ROWS` clips, an SVM is ``SVC`` on the clips' inner products, which all values of C
share. With more clips, it is ``LinearSVC``, which needs less memory. Its loss is the squared hinge.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC, LinearSVC
from sklearn.utils._param_validation import Interval
from sklearn.utils.class_weight import compute_sample_weight

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.estimators.inner_folds import group_folds
from obygaze_models.scoring.metrics import auroc

# The values from which C is chosen by default.
DEFAULT_CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
FOLDS = Interval(Integral, 2, None, closed="left")
# The maximum number of clips whose inner products are computed: they take 0.8 GB.
GRAM_ROWS = 10_000
# The maximum number of libsvm's steps per clip. Informative features take 1 to 10.
STEPS_PER_CLIP = 50


@dataclass(frozen=True, eq=False)
class LinearSVMFit:
    """A hyperplane. ``X @ coef + intercept`` is above 0 on the side of the positive clips.

    Parameters
    ----------
    coef, intercept
        The normal [D] and the offset of the hyperplane.
    C
        The cost of a clip on the wrong side.
    bounded
        The share of the training clips whose dual is at its bound; 0 for ``LinearSVC``. If it is 1,
        the fit is degenerate: the difference of the classes' means, with an arbitrary offset.
    converged
        False if the solver stopped at its maximum number of steps.
    """

    coef: Array
    intercept: float
    C: float
    converged: bool
    bounded: float = 0.0

    @property
    def degenerate(self) -> bool:
        """True if every dual is at its bound."""
        return self.bounded > 1 - 1e-9

    def decide(self, X: Array) -> Array:
        """Return decision values [N], in float64."""
        return np.asarray(X, dtype=np.float64) @ self.coef + self.intercept


def loss_warnings(clips: int) -> list[RunWarning]:
    """Return a warning if there are so many clips that the loss is the squared hinge."""
    if clips <= GRAM_ROWS:
        return []
    text = (
        f"linear SVMs of more than {GRAM_ROWS:,} training clips have the squared hinge loss, "
        "instead of the hinge loss"
    )
    return [RunWarning("loss", "", text)]


def inner_products(X: Array) -> Array | None:
    """Return ``X @ X.T``, or None if there are too many clips."""
    return X @ X.T if len(X) <= GRAM_ROWS else None


def part_of(products: Array | None, rows: Array) -> Array | None:
    """Return the inner products of some rows, or None without `products`."""
    if products is None or len(rows) == len(products):
        return products
    return products.take(rows, axis=0).take(rows, axis=1)


def fit_svm(
    X: Array,
    y: Array,
    C: float,
    weights: Array,
    products: Array | None,
) -> LinearSVMFit:
    """Fit an SVM to features [N, D] in float64 and a boolean label per clip.

    Parameters
    ----------
    X, y, C
        The features, whether each clip is positive, and the cost of a clip on the wrong side.
    weights
        The weight of each clip.
    products
        The `inner_products` of X, or None to use ``LinearSVC``.
    """
    if products is None:
        linear = LinearSVC(C=C, dual=False).fit(X, y, weights)
        is_done = linear.n_iter_ < linear.max_iter
        return LinearSVMFit(linear.coef_[0], float(linear.intercept_[0]), C, converged=is_done)

    # Steps with few clips are fast, so fewer than 1,000 clips get as many steps as 1,000 clips.
    steps = STEPS_PER_CLIP * max(len(X), 1_000)
    model = SVC(kernel="precomputed", C=C, max_iter=steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(products, y, weights)

    duals = model.dual_coef_[0]
    rows = model.support_
    coef = duals @ X[rows]
    if not coef.any():
        raise ExperimentError(
            "an SVM needs features in which positives and negatives differ. Use other features"
        )
    at_bound = np.abs(duals) / (C * weights[rows]) >= 1 - 1e-9
    return LinearSVMFit(
        coef,
        float(model.intercept_[0]),
        C,
        bounded=float(at_bound.sum() / len(X)),
        converged=model.fit_status_ == 0,
    )


@dataclass(frozen=True, eq=False)
class ChosenSVM:
    """An SVM, and the way its C was chosen.

    Parameters
    ----------
    fit
        The hyperplane.
    by
        The method: ``validation``, ``cross-validation``, ``given`` (there was only one C), or
        ``default`` (too few clips to choose, so C is the middle value).
    aucs
        The AUC of each C on the clips used to choose C; empty if there was no choice.
    held_out
        The held-out decision values of the training clips, [N], NaN for clips that no usable fold
        held out; None unless cross-validation chose C.
    """

    fit: LinearSVMFit
    by: str
    aucs: dict[float, float]
    held_out: Array | None = None


def choose_svm(
    X: Array,
    y: Array,
    Cs: Sequence[float],
    *,
    class_weight: Any,
    products: Array | None,
    validation: tuple[Array, Array] | None,
    cv: int,
    groups: Array | None,
) -> ChosenSVM:
    """Fit an SVM with the C that ranks held-out clips best.

    If several C rank equally well, a C whose fit is not degenerate is preferred, and then the
    smallest. The signs of decision values are ignored, because all have the same sign if C is too
    small.

    Parameters
    ----------
    X, y
        The features [N, D] in float64, and whether each clip is positive.
    Cs
        One C, or several to choose from. If there are too few clips to choose, the middle value is
        used.
    class_weight
        ``"balanced"``, None, or the weight of each clip.
    products
        The `inner_products` of X.
    validation
        The features and labels of validation clips; by default, C is chosen by cross-validation.
    cv, groups
        The maximum number of folds of cross-validation, and the group of each clip. Each group
        stays in a single fold; see `group_folds`.
    """
    Cs = sorted(Cs)
    weights = clip_weights(class_weight, y)
    if len(Cs) == 1:
        return ChosenSVM(fit_svm(X, y, Cs[0], weights, products), "given", {})

    if validation is not None and has_both(validation[1]):
        fits = [fit_svm(X, y, C, weights, products) for C in Cs]
        scores = [_auc(validation[1], fit.decide(validation[0])) for fit in fits]
        best = _best(scores, [fit.degenerate for fit in fits])
        return ChosenSVM(fits[best], "validation", dict(zip(Cs, scores, strict=True)))

    folds = [] if validation is not None else split_folds(y, cv, groups)
    if not folds:
        middle = Cs[(len(Cs) - 1) // 2]
        return ChosenSVM(fit_svm(X, y, middle, weights, products), "default", {})

    values = np.full((len(Cs), len(X)), np.nan)
    aucs = np.zeros((len(folds), len(Cs)))
    degenerate = np.zeros(len(Cs), bool)
    for fold, (train, test) in enumerate(folds):
        learned = X[train]
        of_class = class_weight[train] if isinstance(class_weight, np.ndarray) else class_weight
        of_clip = clip_weights(of_class, y[train])
        part = part_of(products, train)
        for index, C in enumerate(Cs):
            fit = fit_svm(learned, y[train], C, of_clip, part)
            values[index, test] = fit.decide(X[test])
            aucs[fold, index] = _auc(y[test], values[index, test])
            degenerate[index] |= fit.degenerate
    means = aucs.mean(axis=0).tolist()
    best = _best(means, degenerate.tolist())
    fit = fit_svm(X, y, Cs[best], weights, products)
    auc_of = dict(zip(Cs, means, strict=True))
    return ChosenSVM(fit, "cross-validation", auc_of, values[best])


def clip_weights(class_weight: Any, y: Array) -> Array:
    """Return the weight of each clip."""
    if isinstance(class_weight, np.ndarray):
        return class_weight
    return np.asarray(compute_sample_weight(class_weight, y))


def split_folds(y: Array, cv: int, groups: Array | None) -> list[tuple[Array, Array]]:
    """Return each fold's training and test rows; [] if clips or groups are too few."""
    count = min(cv, int(np.bincount(y, minlength=2).min()))
    if count < 2:
        return []
    if groups is None:
        folds = [*StratifiedKFold(count).split(np.zeros((len(y), 1)), y)]
    else:
        folds = group_folds(y, count, groups)
    return [fold for fold in folds if all(has_both(y[part]) for part in fold)]


def as_cs(C: float | Sequence[float]) -> list[float]:
    """Convert C, a number or several, to a list; raise if a value is not above 0."""
    try:
        Cs: list[float] = np.atleast_1d(np.asarray(C, dtype=np.float64)).tolist()
    except (TypeError, ValueError):
        Cs = []
    if not Cs or not all(np.isfinite(value) and value > 0 for value in Cs):
        raise ExperimentError(f"C must be a number above 0, or several such numbers (got {C!r})")
    return Cs


def _auc(y: Array, values: Array) -> float:
    # scikit-learn's checks take as long as an SVM with a few hundred clips.
    return auroc(y, values) or 0.0


def has_both(y: Array) -> bool:
    """Return True if some clips are positive and some are negative."""
    return bool(0 < y.sum() < len(y))


def _best(aucs: Sequence[float], degenerate: Sequence[bool]) -> int:
    # Round, so that equal rankings are equal numbers; `max` returns the first of equals.
    ranks = [(round(auc, 12), not bad) for auc, bad in zip(aucs, degenerate, strict=True)]
    return ranks.index(max(ranks))
