"""What decides at the end of a bottleneck: a tree or a linear rule, as plain arrays.

scikit-learn fits them; what is kept are their arrays, which can be read, explained and saved,
and which predict what scikit-learn's own objects predict.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.calibration import as_logits, softmax

__all__ = ["Head", "HeadKind", "LinearHead", "TreeHead", "fit_head", "fit_logistic", "fit_tree"]

Array = NDArray[Any]
HeadKind = Literal["tree", "logistic", "elastic-net"]


@dataclass(frozen=True, eq=False)
class TreeHead:
    """A decision tree: a node a row, the first one the root.

    Parameters
    ----------
    left, right
        Each node's children; -1 at a leaf. They always come after their parent.
    feature, threshold
        A clip goes left where this column, as float32, is not above the threshold.
    value
        The shares of the classes among the training clips in the node, [nodes, classes].
    width
        How many columns a clip has.
    """

    left: Array
    right: Array
    feature: Array
    threshold: Array
    value: Array
    width: int

    def __post_init__(self) -> None:
        nodes = len(self.left)
        arrays = (self.left, self.right, self.feature, self.threshold)
        if nodes == 0 or any(array.shape != (nodes,) for array in arrays):
            raise ExperimentError("a tree's arrays are not of one length")
        if self.value.ndim != 2 or len(self.value) != nodes:
            raise ExperimentError(f"a tree of {nodes} nodes has values of {self.value.shape}")
        if any(array.dtype.kind != "i" for array in arrays[:3]):
            raise ExperimentError("a tree's nodes are not numbered by whole numbers")
        inner = self.left != -1
        if ((self.right != -1) != inner).any():
            raise ExperimentError("a tree's node has one child; it takes two or none")
        after = np.flatnonzero(inner)
        # Children after their parents: every path ends, whatever a file says.
        for children in (self.left[inner], self.right[inner]):
            if (children <= after).any() or (children >= nodes).any():
                raise ExperimentError(f"a tree's child is out of the range of its {nodes} nodes")
        if ((self.feature[inner] < 0) | (self.feature[inner] >= self.width)).any():
            raise ExperimentError(f"a tree asks for a column out of its {self.width}")

    def leaves(self, Z: Array) -> Array:
        """The leaf in which each clip ends, [N]."""
        columns = np.asarray(Z, dtype=np.float32)
        at, rows = np.zeros(len(columns), dtype=np.int64), np.arange(len(columns))
        while (moving := self.left[at] != -1).any():
            here = at[moving]
            goes_left = columns[rows[moving], self.feature[here]] <= self.threshold[here]
            at[moving] = np.where(goes_left, self.left[here], self.right[here])
        return at

    def probabilities(self, Z: Array) -> Array:
        """The shares of the classes in each clip's leaf, [N, classes]."""
        return np.asarray(self.value[self.leaves(Z)])


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A linear rule.

    Parameters
    ----------
    coef, intercept
        A row for two classes, else one a class.
    """

    coef: Array
    intercept: Array

    def __post_init__(self) -> None:
        if self.coef.ndim != 2 or self.intercept.shape != (len(self.coef),):
            raise ExperimentError(
                f"offsets of {self.intercept.shape} do not fit coefficients of {self.coef.shape}"
            )

    def logits(self, Z: Array) -> Array:
        """Scores whose softmax are the probabilities, [N, classes]."""
        return as_logits(Z @ self.coef.T + self.intercept)

    def probabilities(self, Z: Array) -> Array:
        """The probability of each class, [N, classes]."""
        return softmax(self.logits(Z))


Head = TreeHead | LinearHead


def fit_head(
    kind: HeadKind,
    Z: Array,
    y: Array,
    *,
    max_depth: int | None,
    min_samples_leaf: int,
    C: float,
    l1_ratio: float,
    seed: int,
) -> Head:
    """Fit a head on what clips measure along concepts; ``elastic-net`` looks at `l1_ratio`."""
    if kind == "tree":
        return fit_tree(Z, y, max_depth=max_depth, min_samples_leaf=min_samples_leaf, seed=seed)
    if kind in ("logistic", "elastic-net"):
        return fit_logistic(Z, y, C=C, l1_ratio=l1_ratio, seed=seed)
    raise ExperimentError(f"unknown head {kind!r}; known are tree, logistic, elastic-net")


def fit_tree(
    Z: Array,
    y: Array,
    *,
    max_depth: int | None,
    min_samples_leaf: int,
    seed: int,
) -> TreeHead:
    """scikit-learn's decision tree."""
    fitted = DecisionTreeClassifier(
        max_depth=max_depth, min_samples_leaf=min_samples_leaf, random_state=seed
    ).fit(Z, y)
    tree = fitted.tree_
    return TreeHead(
        left=tree.children_left.copy(),
        right=tree.children_right.copy(),
        feature=tree.feature.copy(),
        threshold=tree.threshold.copy(),
        value=tree.value[:, 0].copy(),
        width=Z.shape[1],
    )


def fit_logistic(Z: Array, y: Array, *, C: float, l1_ratio: float, seed: int) -> LinearHead:
    """scikit-learn's logistic regression, penalised by `l1_ratio` of l1 and the rest of l2.

    Two classes and one penalty: liblinear, as in the released code. Else lbfgs (l2) or saga.
    """
    if len(np.unique(y)) == 2 and l1_ratio in (0, 1):
        solver = "liblinear"
    else:
        solver = "saga" if l1_ratio else "lbfgs"
    model = LogisticRegression(
        **_penalty(l1_ratio), C=C, solver=solver, random_state=seed, max_iter=5000
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(Z, y)
    except ConvergenceWarning:
        raise ExperimentError(
            f"the logistic regression did not converge in {model.max_iter} steps; "
            f"lower C ({C:g}), or scale the features"
        ) from None
    return LinearHead(model.coef_.astype(np.float64), model.intercept_.astype(np.float64))


def _penalty(l1_ratio: float) -> dict[str, Any]:
    """scikit-learn 1.8 took ``penalty`` out of use, and earlier ones want it."""
    if LogisticRegression().penalty == "deprecated":
        return {"l1_ratio": l1_ratio}
    if 0 < l1_ratio < 1:
        return {"penalty": "elasticnet", "l1_ratio": l1_ratio}
    return {"penalty": "l1" if l1_ratio else "l2"}
