"""Folds of whole films for the cross-validation inside a fit, such as a search for parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from obygaze_features.common.arrays import Array
from obygaze_models.estimators.classes import keywords

N_INNER = 5
"""The default number of folds, as in scikit-learn."""


def inner_groups(groups: Any) -> Array:
    """Return a number for each row's group; a row without a group ("") is a group of its own.

    Examples
    --------
    >>> inner_groups(["b", "", "a", "", "b"])
    array([2, 4, 1, 6, 2])
    """
    names, numbers = np.unique(np.asarray(groups), return_inverse=True)
    alone = len(names) + np.arange(len(numbers))
    return np.where(names[numbers] == "", alone, numbers)


def group_folds(y: Array, count: int, groups: Any) -> list[tuple[Array, Array]]:
    """Return the rows of at most `count` folds of whole groups; [] if there are too few groups."""
    numbers = inner_groups(groups)
    count = min(count, len(np.unique(numbers)))
    if count < 2:
        return []
    return [*StratifiedGroupKFold(count).split(np.zeros((len(y), 1)), y, numbers)]


@contextmanager
def keep_groups_whole(model: Any, y: Array, groups: Any) -> Iterator[None]:
    """Make the cross-validation inside an estimator hold out whole groups in a fit.

    If the estimator's ``cv`` is None or a number and its `fit` takes no groups, ``cv`` becomes the
    rows of each fold. Otherwise, ``cv`` is used as it is.

    Parameters
    ----------
    model
        An unfitted estimator.
    y, groups
        The labels of the rows to fit, and their groups. If `groups` is None, nothing changes.
    """
    cv = model.get_params(deep=False).get("cv", "none")
    has_default = cv is None or isinstance(cv, Integral)
    if groups is None or not has_default or "groups" in keywords(model.fit):
        yield
        return

    folds = group_folds(y, N_INNER if cv is None else int(cv), groups)
    if folds:
        model.set_params(cv=folds)
    try:
        yield
    finally:  # a saved model should contain no rows
        model.set_params(cv=cv)
