"""Folds of whole films for the cross-validation inside a fit, such as a search for parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.classes import keywords
from obygaze_models.scoring.metrics import Array

DIVIDED = "inner-folds"
"""The code of the warning that inner folds split films between training and test rows."""
BY_GROUP = "groups"
"""The value of a ``cv`` option that selects folds of whole groups, the default."""
N_INNER = 5
"""The default number of folds, as in scikit-learn."""
Folds = list[tuple[Array, Array]]


def name_groups(groups: Any, order: Any, count: int) -> Array:
    """Return the group of each row. Each clip without a group is a group of its own.

    Parameters
    ----------
    groups
        The film of each row, or "" if it is unknown; None if no film is known.
    order
        The number of each row's clip; by default, each row is a clip.
    count
        The number of rows.
    """
    numbers = np.arange(count) if order is None else np.asarray(order)
    clips = np.char.add("clip ", numbers.astype(str))
    films = np.full(count, "") if groups is None else np.asarray(groups).astype(str)
    return np.where(films == "", clips, films)


@contextmanager
def whole_groups(
    model: Any, y: Array, groups: Any, order: Any = None, *, random_state: Any = None
) -> Iterator[list[RunWarning]]:
    """Make the cross-validation inside an estimator hold out whole groups while it is fitted.

    The folds are passed as rows in the ``cv`` parameter, because most of scikit-learn's estimators
    do not pass groups on. Yield a list with a warning for each part of the estimator that still
    splits groups. If `groups` is None, nothing changes.

    Parameters
    ----------
    model
        An unfitted estimator.
    y, groups, order
        The labels of the rows to fit, and their groups and order as in `name_groups`.
    random_state
        The random state for splitters that shuffle but have no random state.
    """
    parameters, notes = model.get_params(deep=True), list[RunWarning]()
    replaced: dict[str, Any] = {}
    keys = [key for key in parameters if key == "cv" or key.endswith("__cv")]
    for key in keys if groups is not None else ():
        path = key.removesuffix("cv").removesuffix("__")
        owner = parameters[path] if path else model
        if "groups" in keywords(model.fit) & keywords(owner.fit):
            continue  # it gets the groups by keyword
        name = type(owner).__name__
        if parameters[key] == "prefit":
            continue
        if path:  # it is fitted on only some rows
            text = f"{name} inside another estimator cannot get films, so its folds split films."
            notes.append(RunWarning(DIVIDED, "", text))
            continue
        folds, note = _find_folds(parameters[key], y, groups, order, random_state)
        if folds is not None:
            replaced[key] = folds
        if note:
            text = f"{name} tunes on folds that split films ({note})."
            notes.append(RunWarning(DIVIDED, "", text))
    model.set_params(**replaced)
    try:
        yield notes
    finally:  # a saved model should contain no rows or splitter
        original = {key: parameters[key] for key in replaced}
        original = {key: None if hasattr(v, "get_n_splits") else v for key, v in original.items()}
        model.set_params(**original)


def _find_folds(
    cv: Any, y: Array, groups: Any, order: Any, random_state: Any
) -> tuple[Folds | None, str]:
    """Return the folds for a value of ``cv``, and the reason if they split films.

    The folds are None if the estimator makes its own folds.
    """
    films = name_groups(groups, order, len(y))
    if cv is None or isinstance(cv, Integral):
        named = np.setdiff1d(films, name_groups(None, order, len(y)))
        if not len(named):
            return None, "no training clip has a film"
        if len(named) < 2:
            return None, "all training clips are from one film"
        folds = _group_folds(y, films, N_INNER if cv is None else int(cv))
        return folds, "" if folds else "no folds of whole films have clips of every class"
    if isinstance(cv, str | float):
        return None, f"cv = {cv!r}"
    if getattr(cv, "random_state", 0) is None:
        cv = copy(cv)
        cv.random_state = random_state
    folds = list(check_cv(cv).split(np.zeros((len(y), 1)), y, films))
    divides = any(np.isin(films[train], films[test]).any() for train, test in folds)
    return folds, f'use cv = "{BY_GROUP}", not {type(cv).__name__}' if divides else ""


def _group_folds(y: Array, groups: Array, count: int) -> Folds | None:
    """Return folds of whole groups with every class in training, and in testing if possible."""
    count = min(count, len(np.unique(groups)))
    classes = len(np.unique(y))
    trained = None
    for kind in (GroupKFold, StratifiedGroupKFold):
        folds = list(kind(count).split(np.zeros((len(y), 1)), y, groups))
        complete = [[len(np.unique(y[part])) == classes for part in fold] for fold in folds]
        if all(map(all, complete)):
            return folds
        if trained is None and all(train for train, _ in complete):
            trained = folds
    return trained
