"""The folds inside a fit, by which a search tunes or a stacker learns: films are kept whole."""

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
"""The code of a warning that inner folds have films on both sides."""
BY_GROUP = "groups"
"""The value of an option ``cv`` that asks for folds of whole groups, which are the default."""
N_INNER = 5
"""scikit-learn's number of folds where an estimator is given none."""
Folds = list[tuple[Array, Array]]


def name_groups(groups: Any, order: Any, count: int) -> Array:
    """Return the group of each row. A clip without a group is a group of its own.

    Parameters
    ----------
    groups
        The film of each row, or "" where it is unknown; None where nothing is known.
    order
        A number for each clip, as a clip may have several rows.
    count
        How many rows there are.
    """
    numbers = np.arange(count) if order is None else np.asarray(order)
    clips = np.char.add("clip ", numbers.astype(str))
    films = np.full(count, "") if groups is None else np.asarray(groups).astype(str)
    return np.where(films == "", clips, films)


@contextmanager
def whole_groups(
    model: Any, y: Array, groups: Any, order: Any = None, *, random_state: Any = None
) -> Iterator[list[RunWarning]]:
    """Let the cross-validation inside an estimator hold out whole groups while it is fitted.

    Without groups nothing changes.

    Every part with a parameter ``cv`` is given its folds as rows, because most of scikit-learn's
    estimators do not hand groups on. Yields a warning for each part that divides groups still.

    Parameters
    ----------
    model
        An unfitted estimator.
    y, groups, order
        The labels of the rows that it is fitted to, and as in `name_groups`.
    random_state
        For splitters that shuffle and have none of their own.
    """
    parameters, notes = model.get_params(deep=True), list[RunWarning]()
    replaced: dict[str, Any] = {}
    keys = [key for key in parameters if key == "cv" or key.endswith("__cv")]
    for key in keys if groups is not None else ():
        path = key.removesuffix("cv").removesuffix("__")
        owner = parameters[path] if path else model
        if "groups" in keywords(model.fit) & keywords(owner.fit):
            continue  # it is given the groups by name
        name = type(owner).__name__
        if parameters[key] == "prefit":
            continue
        if path:  # it is fitted to some of the rows
            text = f"{name} is not told the films inside another estimator: its folds divide them."
            notes.append(RunWarning(DIVIDED, "", text))
            continue
        folds, note = _find_folds(parameters[key], y, groups, order, random_state)
        if folds is not None:
            replaced[key] = folds
        if note:
            text = f"{name} tunes on folds that divide films: {note}."
            notes.append(RunWarning(DIVIDED, "", text))
    model.set_params(**replaced)
    try:
        yield notes
    finally:  # a saved model needs neither rows nor a splitter
        kept = {key: parameters[key] for key in replaced}
        kept = {key: None if hasattr(v, "get_n_splits") else v for key, v in kept.items()}
        model.set_params(**kept)


def _find_folds(
    cv: Any, y: Array, groups: Any, order: Any, random_state: Any
) -> tuple[Folds | None, str]:
    """Return the folds that a value of ``cv`` means; and why they divide films, if they do.

    No folds: the estimator makes its own.
    """
    films = name_groups(groups, order, len(y))
    if cv is None or isinstance(cv, Integral):
        named = np.setdiff1d(films, name_groups(None, order, len(y)))
        if not len(named):
            return None, "no training clip names its film"
        if len(named) < 2:
            return None, "the training clips are of one film"
        folds = _group_folds(y, films, N_INNER if cv is None else int(cv))
        return folds, "" if folds else "no folds of whole films have clips of every class"
    if isinstance(cv, str | float):
        return None, f"cv = {cv!r} does"
    if getattr(cv, "random_state", 0) is None:
        cv = copy(cv)
        cv.random_state = random_state
    folds = list(check_cv(cv).split(np.zeros((len(y), 1)), y, films))
    divides = any(np.isin(films[train], films[test]).any() for train, test in folds)
    return folds, f'{type(cv).__name__} does; cv = "{BY_GROUP}" keeps them whole' if divides else ""


def _group_folds(y: Array, groups: Array, count: int) -> Folds | None:
    """Return folds of whole groups that can be trained, and tested if possible."""
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
