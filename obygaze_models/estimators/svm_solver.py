"""An exact linear support vector machine for any number of clips, and the choice of its C.

For up to `GRAM_ROWS` clips, libsvm solves the dual from the clips' inner products, with the same
result as ``SVC(kernel="linear")``. For more clips, or if libsvm does not converge, Newton's method
solves the same problem (hinge loss, unpenalised intercept, class weights) by linear systems with a
row per feature. It uses the augmented Lagrangian method: the hinge is smoothed over a width around
1 and shifted by the last duals, so that the solutions converge to the exact solution while the
width stays large enough for Newton's method. The duality gap of every fit is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.svm import _libsvm
from sklearn.utils.class_weight import compute_sample_weight
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.scoring.metrics import Array, auroc

# The values from which C is chosen by default.
DEFAULT_CS = (0.01, 0.05, 0.1, 0.5, 1.0, 10.0)
# The maximum number of clips for which libsvm solves the dual: their inner products take 128 MB.
GRAM_ROWS = 4_000
# The maximum number of libsvm's steps per clip. Informative features take 1 to 10.
STEPS_PER_CLIP = 50
# Newton's method stops at this duality gap, relative to the primal objective.
GAP = 3e-6
# Widths of the smoothed hinge: the initial width from a cold start and from a warm start, and the
# minimum while the gap shrinks.
WIDE, WARM, NARROW = 4.0, 0.4, 0.002
OUTER_STEPS, NEWTON_STEPS = 200, 50
CHUNK = 8_192


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
        The share of the training clips whose dual is at its bound. If it is 1, the fit is
        degenerate: the difference of the classes' means, with an arbitrary offset.
    solver
        ``libsvm`` or ``newton``.
    duality_gap
        (primal - dual) / primal, an upper bound on the objective's relative distance from the
        optimum.
    """

    coef: Array
    intercept: float
    C: float
    bounded: float
    solver: str
    duality_gap: float

    @property
    def degenerate(self) -> bool:
        """True if every dual is at its bound."""
        return self.bounded > 1 - 1e-9

    def decide(self, X: Array) -> Array:
        """Return decision values [N], in float64."""
        return np.asarray(X, dtype=np.float64) @ self.coef + self.intercept


class LinearSVM:
    """The linear SVM of a two-class problem, which can be fitted with several values of C.

    Fits are fastest if C ascends, because each fit starts from the last solution.

    Parameters
    ----------
    X
        The features [N, D], in float64.
    y
        True for each positive clip.
    class_weight
        ``"balanced"``, None, or an array with the weight of each clip.
    products
        ``X @ X.T``, if it was already computed for another problem.
    """

    def __init__(
        self, X: Array, y: Array, class_weight: Any = "balanced", *, products: Array | None = None
    ) -> None:
        self.X, self.y, self._weight = X, np.asarray(y).astype(np.int64), class_weight
        self._is_small, self._products = len(X) <= GRAM_ROWS, products
        self._costs = _weigh_clips(class_weight, self.y)
        self._signs = 2.0 * self.y - 1
        self._newton: _Newton | None = None

    def products(self) -> Array:
        """Return ``X @ X.T``, computed at most once."""
        if self._products is None:
            self._products = self.X @ self.X.T
        return self._products

    def part(self, rows: Array) -> LinearSVM:
        """Return the problem for some of the clips."""
        weight = self._weight[rows] if isinstance(self._weight, np.ndarray) else self._weight
        products = None
        if self._is_small:  # twice as fast as ``np.ix_``
            products = self.products().take(rows, axis=0).take(rows, axis=1)
        return LinearSVM(self.X[rows], self.y[rows], weight, products=products)

    def fit(self, C: float) -> LinearSVMFit:
        """Fit the SVM with this C."""
        fit = self._fit_libsvm(C) if self._is_small and self._newton is None else None
        fit = fit or self._fit_newton(C)
        if not np.any(fit.coef):
            raise ExperimentError("an SVM needs features in which positives and negatives differ")
        return fit

    def _fit_libsvm(self, C: float) -> LinearSVMFit | None:
        """Fit with libsvm; return None if it takes more than `STEPS_PER_CLIP` steps per clip.

        libsvm takes this many steps if the classes are far from separable. A larger C would take
        even longer, so later fits use Newton's method.
        """
        # Steps with few clips are fast, so fewer than 1,000 clips get as many steps as 1,000 clips.
        steps = STEPS_PER_CLIP * max(len(self.X), 1_000)
        # Bypass `SVC`, whose checks take a millisecond. The callers have checked the arrays.
        _libsvm.set_verbosity_wrap(0)
        support, _, _, duals, intercepts, _, _, status, _ = _libsvm.fit(
            np.ascontiguousarray(self.products()),
            self.y.astype(np.float64),
            kernel="precomputed",
            C=C,
            sample_weight=np.asarray(self._costs, dtype=np.float64),
            max_iter=steps,
            cache_size=200,
        )
        if status != 0:
            return None
        duals = -duals[0]  # for libsvm, the first class is the positive class
        coef = duals @ self.X[support]
        shares = np.zeros(len(self.X))
        shares[support] = np.abs(duals) / (C * self._costs[support])
        return self._describe(coef, -float(intercepts[0]), C, shares, "libsvm")

    def _fit_newton(self, C: float) -> LinearSVMFit:
        if self._newton is None:
            self._newton = _Newton(self.X, self._signs)
        # Systems this small take several times longer when threads wait for each other.
        with threadpool_limits(1):
            self._newton.solve(C * self._costs)
        shares = self._newton.shares
        return self._describe(self._newton.normal, self._newton.intercept, C, shares, "newton")

    def _describe(
        self, coef: Array, intercept: float, C: float, shares: Array, solver: str
    ) -> LinearSVMFit:
        """Return the facts about a fit. `shares` has each dual as a share of its bound."""
        costs = C * self._costs
        gap = _duality_gap(self.X, self._signs, costs, coef, intercept, self.X @ coef, shares)
        bounded = float((shares >= 1 - 1e-9).mean())
        return LinearSVMFit(coef, intercept, float(C), bounded, solver, max(0.0, gap))


@dataclass(frozen=True, eq=False)
class ChosenSVM:
    """An SVM, and the way its C was chosen.

    Parameters
    ----------
    fit
        The hyperplane.
    aucs
        The AUC of each C on the clips used to choose C; empty if there was no choice.
    held_out
        The held-out decision values of the training clips, [N]; None unless cross-validation chose
        C.
    by
        The method: ``validation``, ``cross-validation``, ``given`` (there was only one C), or
        ``default`` (too few clips to choose, so C is the middle value).
    """

    fit: LinearSVMFit
    aucs: dict[float, float]
    held_out: Array | None
    by: str


def choose_svm(
    problem: LinearSVM,
    Cs: Sequence[float],
    *,
    validation: tuple[Array, Array] | None = None,
    cv: Any = 5,
    groups: Array | None = None,
) -> ChosenSVM:
    """Fit the SVM with the C that ranks held-out clips best.

    If several C rank equally well, a C whose fit is not degenerate is preferred, and then the
    smallest. The signs of decision values are ignored, because all have the same sign if C is too
    small.

    Parameters
    ----------
    problem
        The SVM to fit.
    Cs
        One C, or several to choose from. If there are too few clips to choose, the middle value is
        used.
    validation
        The features and labels of validation clips; by default, C is chosen by cross-validation.
    cv, groups
        The folds of cross-validation (see `as_cv`), and the group of each clip, so that each group
        stays in a single fold.
    """
    X, y = problem.X, problem.y
    Cs = sorted(Cs)
    if len(Cs) == 1:
        return ChosenSVM(problem.fit(Cs[0]), {}, None, "given")
    if validation is not None and _has_both(validation[1]):
        fits = [problem.fit(C) for C in Cs]
        aucs = [_auc(validation[1], fit.decide(validation[0])) for fit in fits]
        best = _best(aucs, [fit.degenerate for fit in fits])
        by_c = {fit.C: auc for fit, auc in zip(fits, aucs, strict=True)}
        return ChosenSVM(fits[best], by_c, None, "validation")
    folds = None if validation is not None else split_folds(y, cv, groups)
    if not folds:
        return ChosenSVM(problem.fit(Cs[(len(Cs) - 1) // 2]), {}, None, "default")
    values = np.full((len(Cs), len(X)), np.nan)
    scores, degenerate = np.zeros((len(folds), len(Cs))), np.zeros(len(Cs), bool)
    for fold, (train, test) in enumerate(folds):
        inner = problem.part(train)
        for index, C in enumerate(Cs):
            fit = inner.fit(C)
            values[index, test] = fit.decide(X[test])
            scores[fold, index] = _auc(y[test], values[index, test])
            degenerate[index] |= fit.degenerate
    means = scores.mean(axis=0).tolist()
    best = _best(means, degenerate.tolist())
    by_c = dict(zip(Cs, means, strict=True))
    return ChosenSVM(problem.fit(Cs[best]), by_c, values[best], "cross-validation")


def split_folds(y: Array, cv: Any, groups: Array | None) -> list[tuple[Array, Array]]:
    """Return each fold's training and test rows, or [] if there are too few clips for two folds."""
    if isinstance(cv, Integral):
        count = min(int(cv), int(np.bincount(y, minlength=2).min()))
        if groups is not None:
            count = min(count, len(np.unique(groups)))
        if count < 2:
            return []
        cv = StratifiedKFold(count) if groups is None else StratifiedGroupKFold(count)
    folds = check_cv(cv).split(np.zeros((len(y), 1)), y, groups)
    return [fold for fold in folds if all(_has_both(y[part]) for part in fold)]


def as_cv(cv: Any) -> Any:
    """Convert a `cv` parameter to a number of folds, a splitter, or a list of the folds' rows."""
    if cv is None:
        return 5
    return cv if isinstance(cv, Integral) or hasattr(cv, "split") else list(cv)


def as_cs(C: float | Sequence[float]) -> list[float]:
    """Convert a parameter C, a number or several, to a list; raise if a value is not above 0."""
    Cs: list[float] = np.atleast_1d(np.asarray(C, dtype=np.float64)).tolist()
    if not Cs or not all(np.isfinite(value) and value > 0 for value in Cs):
        raise ExperimentError(f"C must be a number above 0, or several such numbers (got {C!r})")
    return Cs


def _auc(y: Array, values: Array) -> float:
    # scikit-learn's checks take as long as an SVM with a few hundred clips.
    return auroc(y, values) or 0.0


def _has_both(y: Array) -> bool:
    return bool(0 < y.sum() < len(y))


def _best(aucs: Sequence[float], degenerate: Sequence[bool]) -> int:
    # Round, so that equal rankings are equal numbers; `max` returns the first of equals.
    return max(range(len(aucs)), key=lambda index: (round(aucs[index], 12), not degenerate[index]))


class _Newton:
    """A solver using the augmented Lagrangian and Newton's method, starting from the last solution.

    If there are fewer clips than features, the clips are first expressed in a basis of their span.
    """

    def __init__(self, X: Array, signs: Array) -> None:
        self.basis = None
        if len(X) < X.shape[1]:
            self.basis, triangle = np.linalg.qr(X.T)
            X = np.ascontiguousarray(triangle.T)
        self.X, self.signs, self.first_width = X, signs, WIDE
        self.coef, self.intercept = np.zeros(X.shape[1]), 0.0
        self.values = np.zeros(len(X))  # X @ coef
        self.shares: Array = np.full(len(X), 0.5)  # the duals as shares of their bounds

    @property
    def normal(self) -> Array:
        """The hyperplane's normal in the original features."""
        return self.coef if self.basis is None else np.asarray(self.basis @ self.coef)

    def solve(self, costs: Array) -> None:
        """Fit the hyperplane, where `costs` has the C of each clip."""
        width, shares, self.first_width = self.first_width, self.shares, WARM
        best = (np.inf, self.coef, self.intercept, shares)
        for _ in range(OUTER_STEPS):
            shares = self._minimise(costs, shares, width)
            intercept = _best_intercept(self.values, self.signs, costs)
            gap = _duality_gap(self.X, self.signs, costs, self.coef, intercept, self.values, shares)
            shrinks = gap < 0.7 * best[0]
            if gap < best[0]:
                best = gap, self.coef, intercept, shares
            if gap <= GAP:
                break
            width = max(width / 2, NARROW) if shrinks or width > NARROW else width / 2
        _, self.coef, self.intercept, self.shares = best
        self.values = self.X @ self.coef

    def _minimise(self, costs: Array, prior: Array, width: float) -> Array:
        """Minimise the smoothed objective, and return the duals as shares of their bounds.

        A clip's loss is ``max(s * z - width / 2 * (s - prior)**2 for s in [0, 1])``, where z is the
        clip's distance on the wrong side of the margin. The maximising s is the clip's share.
        """
        signs, size = self.signs, self.X.shape[1]
        for step in range(NEWTON_STEPS):
            lag = prior + (1 - signs * (self.values + self.intercept)) / width
            shares = np.clip(lag, 0, 1)
            duals = costs * shares * signs
            gradient = np.append(self.coef - self.X.T @ duals, -duals.sum())
            between = np.flatnonzero((shares > 0) & (shares < 1))
            hessian = self._hessian(between, costs[between] / width, 1e-10 * costs.sum())
            direction = -_solve_positive(hessian, gradient)
            decrease = -float(gradient @ direction)
            slack = (lag - prior) * width
            losses = costs * (shares * slack - width / 2 * (shares - prior) ** 2)
            value = self.coef @ self.coef / 2 + losses.sum()
            if step and decrease < 1e-3 * GAP * abs(value):
                break
            along, rise = direction[:size], direction[size]
            change = self.X @ along
            moves = signs * (change + rise) / width
            length = self._step_length(costs, lag, moves, along, width, decrease)
            self.coef = self.coef + length * along
            self.intercept += length * float(rise)
            self.values = self.values + length * change
        return np.clip(prior + (1 - signs * (self.values + self.intercept)) / width, 0, 1)

    def _hessian(self, rows: Array, weights: Array, ridge: float) -> Array:
        """Return the smoothed objective's Hessian with respect to the normal and the offset."""
        size = self.X.shape[1]
        hessian = np.zeros((size + 1, size + 1))
        for start in range(0, len(rows), CHUNK):
            roots = np.sqrt(weights[start : start + CHUNK])[:, None]
            part = self.X[rows[start : start + CHUNK]] * roots
            hessian[:size, :size] += part.T @ part
            hessian[size, :size] += roots[:, 0] @ part
        hessian[size, size] = weights.sum() + ridge
        hessian[np.arange(size), np.arange(size)] += 1
        return hessian  # only the lower triangle is used

    def _step_length(
        self, costs: Array, lag: Array, moves: Array, along: Array, width: float, decrease: float
    ) -> float:
        """Return the step length at which the slope of the convex objective is 0."""
        linear, quadratic = float(self.coef @ along), float(along @ along)
        weights = costs * moves * width

        def slope(length: float) -> float:
            shares = np.clip(lag - length * moves, 0, 1)
            return linear + length * quadratic - float(weights @ shares)

        low, high = 0.0, 1.0
        at_high = slope(high)
        if abs(at_high) <= 0.3 * decrease:
            return high
        while at_high < 0 and high < 1e9:
            low, high = high, 2 * high
            at_high = slope(high)
        length = high
        for _ in range(60):
            length = (low + high) / 2
            at = slope(length)
            if abs(at) <= 0.1 * decrease:
                break
            low, high = (length, high) if at < 0 else (low, length)
        return length


def _solve_positive(matrix: Array, vector: Array) -> Array:
    """Solve a positive definite system from its lower triangle.

    If rounding makes the matrix indefinite, its diagonal is raised. The result is still a descent
    direction.
    """
    raised = 0.0
    while True:
        try:
            factor = cho_factor(matrix, lower=True, check_finite=False)
            return np.asarray(cho_solve(factor, vector, check_finite=False))
        except LinAlgError:
            raised = 100 * raised or 1e-14 * float(np.diagonal(matrix).max())
            matrix[np.diag_indices_from(matrix)] += raised


def _weigh_clips(class_weight: Any, y: Array) -> Array:
    """Return the weight of each clip."""
    if isinstance(class_weight, np.ndarray):
        return class_weight
    counts = np.bincount(y, minlength=2)
    if isinstance(class_weight, str) and class_weight == "balanced" and counts.all():
        return np.asarray((len(y) / (2 * counts))[y])  # the same bits as scikit-learn, but faster
    return np.asarray(compute_sample_weight(class_weight, y))


def _duality_gap(
    X: Array,
    signs: Array,
    costs: Array,
    coef: Array,
    intercept: float,
    values: Array,
    shares: Array,
) -> float:
    """Return the gap between the primal and the dual objective, as a share of the primal.

    The duals of both classes must have the same sum, so the duals of the larger side are scaled
    down.
    """
    slack = np.maximum(0, 1 - signs * (values + intercept))
    primal = float(coef @ coef) / 2 + float(costs @ slack)
    duals = costs * np.clip(shares, 0, 1)
    positive = signs > 0
    above, below = duals[positive].sum(), duals[~positive].sum()
    if above and below:
        duals = duals * np.where(positive, min(1, below / above), min(1, above / below))
    else:
        duals = np.zeros_like(duals)
    normal = X.T @ (duals * signs)
    dual = float(duals.sum() - normal @ normal / 2)
    return (primal - dual) / primal if primal > 0 else 0.0


def _best_intercept(values: Array, signs: Array, costs: Array) -> float:
    """Return the offset with the least hinge loss, or the middle of several, like libsvm."""
    turns = signs - values  # the offsets at which each clip's loss starts or ends
    order = np.argsort(turns)
    slopes = np.cumsum(costs[order]) - costs[signs > 0].sum()
    tiny = 1e-12 * costs.sum()
    first, last = np.searchsorted(slopes, -tiny), np.searchsorted(slopes, tiny, side="right")
    ends = turns[order[np.minimum([first, last], len(turns) - 1)]]
    return float(ends.mean())
