"""A decision tree as plain arrays, so that it can be saved, explained and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError


@dataclass(frozen=True, eq=False)
class TreeArrays(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A decision tree with a row for each node, the root first.

    It has the same predictions as scikit-learn's tree. Whatever the arrays contain, a prediction
    never accesses memory outside them.

    Parameters
    ----------
    left, right
        The children of each node, which come after their parent; -1 for a leaf.
    feature, threshold
        The column and the threshold of each node. A clip goes left if the column, as float32, is at
        most the threshold.
    value
        The shares of the classes among the training clips in the node, [nodes, classes].
    width
        The number of columns.
    missing_left
        True for nodes where a clip goes left if the column is NaN; False if there are none.
    classes
        The classes in sorted order; None for the integers from 0.
    """

    left: Array
    right: Array
    feature: Array
    threshold: Array
    value: Array
    width: int
    missing_left: Any = False
    classes: Any = None

    def __post_init__(self) -> None:
        nodes = len(self.left)
        arrays = (self.left, self.right, self.feature, self.threshold)
        shapes = {array.shape for array in arrays} | {self.value.shape[:-1]}
        types = {array.dtype.kind for array in arrays[:3]}
        if not nodes or shapes != {(nodes,)} or types != {"i"}:
            raise ExperimentError(
                "a tree needs integer children and columns, and a row of each array for each node"
            )
        inner = self.left != -1
        children = np.stack([self.left, self.right])
        # Children come after their parents, so every path ends.
        in_order = (children > np.arange(nodes)) & (children < nodes)
        in_columns = (self.feature >= 0) & (self.feature < self.width)
        if not np.where(inner, in_order & in_columns, children == -1).all():
            raise ExperimentError(
                f"each node of a tree needs one of its {self.width} columns and two later nodes "
                f"(of {nodes}) as children, or no children"
            )

    def fit(self, Z: Array, y: Array) -> TreeArrays:
        """Return the tree as it is."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def apply(self, Z: Array) -> Array:
        """Return the leaf of each clip, [N]."""
        columns = np.asarray(Z, dtype=np.float32)
        if columns.shape[1] != self.width:
            raise ExperimentError(
                f"a tree needs rows of length {self.width} (got {columns.shape[1]})"
            )
        missing_left = np.broadcast_to(self.missing_left, len(self.left))
        nodes = np.zeros(len(columns), dtype=np.int64)
        rows = np.arange(len(columns))
        while (inside := self.left[nodes] != -1).any():
            parents = nodes[inside]
            values = columns[rows[inside], self.feature[parents]]
            at_most = values <= self.threshold[parents]
            go_left = np.where(np.isnan(values), missing_left[parents], at_most)
            nodes[inside] = np.where(go_left, self.left[parents], self.right[parents])
        return nodes

    @property
    def classes_(self) -> Array:
        """The classes, in sorted order."""
        return np.arange(self.value.shape[1]) if self.classes is None else self.classes

    def predict_proba(self, Z: Array) -> Array:
        """Return the shares of the classes in each clip's leaf, [N, classes]."""
        return self.value[self.apply(Z)]

    def predict(self, Z: Array) -> Array:
        """Return the class of each clip."""
        return np.asarray(self.classes_[self.predict_proba(Z).argmax(axis=1)])


def as_tree(head: Any) -> TreeArrays | None:
    """Return a fitted tree classifier as arrays, or None for any other model."""
    if isinstance(head, TreeArrays):
        return head
    if not (hasattr(head, "tree_") and is_classifier(head)):
        return None
    tree = head.tree_
    return TreeArrays(
        left=tree.children_left.copy(),
        right=tree.children_right.copy(),
        feature=tree.feature.copy(),
        threshold=np.nan_to_num(tree.threshold),  # infinite where only NaN goes right
        value=tree.value[:, 0].copy(),
        width=tree.n_features,
        missing_left=tree.missing_go_to_left.astype(bool),
        classes=head.classes_,
    )
