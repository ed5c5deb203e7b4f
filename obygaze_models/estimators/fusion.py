"""The features of several stores side by side: their scaling, and models that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError


@dataclass(eq=False, repr=False)
class BlockScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that centres columns, and scales blocks of columns, such as each store's.

    The variances of the columns of a block sum to 1 on the training clips, so no block dominates.

    Parameters
    ----------
    sizes
        The number of columns of each block by name, in order, as in `ClipDataset.stores`.

    Attributes
    ----------
    mean_, scale_
        The mean and the scale of each column.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"sizes": [Mapping]}

    sizes: Mapping[str, int]

    def fit(self, X: Any, y: Any = None) -> BlockScaler:
        """Learn the mean of each column of X [N, D] and the scale of each block."""
        self._validate_params()
        X = validate_data(self, X, dtype=np.float64)
        sizes = [*self.sizes.values()]
        if X.shape[1] != sum(sizes):
            raise ExperimentError(
                f"X needs the blocks' {sum(sizes)} columns, side by side (got {X.shape[1]})"
            )
        blocks = np.split(X, np.cumsum(sizes)[:-1], axis=1)
        self.mean_ = np.concatenate([block.mean(axis=0) for block in blocks])
        spreads = [np.sqrt(block.var(axis=0).sum()) or 1.0 for block in blocks]
        self.scale_ = np.repeat(spreads, sizes)
        return self

    def transform(self, X: Any) -> Array:
        """Return the centred and scaled features."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray((np.asfortranarray(X) - self.mean_) / self.scale_)


def open_pipeline(model: Any, X: Any = None) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline and its input; return other models unchanged."""
    while isinstance(model, Pipeline):
        if X is not None and len(model) > 1:
            X = model[:-1].transform(X)
        model = model[-1]
    return model, X
