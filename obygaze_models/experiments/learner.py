"""A model to cross-validate: an estimator, and how a run uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sklearn.base import is_regressor

from obygaze_features.common.formatting import shorten
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.baselines import GUESSES
from obygaze_models.estimators.classes import keywords, reads_of
from obygaze_models.estimators.registry import (
    class_path,
    modules_of,
    plugin_errors,
    require_estimator,
)

NAME = re.compile(r"[^\W_].*")
MAX_NAME_BYTES = 200
"""The maximum length of a model's folder name. File systems allow 255 bytes."""


@dataclass(frozen=True)
class Learner:
    """An unfitted estimator, and how it is used.

    Parameters
    ----------
    estimator
        Any scikit-learn regressor, or classifier with `predict_proba`; also a pipeline or a search.
    name, options
        The name and options in an experiment; by default the path of the class, and none.
    negatives
        The set of negatives of its concepts (see `Task`), or "" for the default.
    threshold
        ``validation`` chooses the threshold for the second of two classes on validation clips.
    """

    estimator: Any
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    negatives: Literal["", "a", "b", "c"] = ""
    threshold: Literal["validation"] | None = None

    def __post_init__(self) -> None:
        require_estimator(self.estimator)
        if not self.name:
            object.__setattr__(self, "name", class_path(type(self.estimator)))

    def require_target(self, task: Task) -> None:
        """Raise `ExperimentError` if the estimator cannot learn a task."""
        is_numeric = task.target.is_numeric
        if is_regressor(self.estimator) == is_numeric:
            return
        if is_numeric:
            raise ExperimentError(
                f"{self.name} does not predict numbers. If {task.key} has classes, pass them as "
                "integers or text, not as floats"
            )
        raise ExperimentError(f"{self.name} does not predict classes. Use a classifier")

    @property
    def reads(self) -> str:
        """The input of the estimator: ``features``, ``frames`` or ``groups``."""
        with plugin_errors(modules_of(self.estimator)):
            return reads_of(self.estimator)

    @property
    def is_guess(self) -> bool:
        """True if the estimator counts classes, and so is fitted before balancing."""
        return isinstance(self.estimator, GUESSES)

    @property
    def accepts(self) -> frozenset[str]:
        """The names of the arguments that the estimator's `fit` gets.

        Classes of scikit-learn get validation clips only if they stop early.
        """
        names = keywords(self.estimator.fit)
        is_foreign = type(self.estimator).__module__.startswith("sklearn.")
        if is_foreign and getattr(self.estimator, "early_stopping", False) is not True:
            names -= {"X_val", "y_val"}
        return names

    @property
    def uses_validation(self) -> bool:
        """True if the estimator uses validation clips to stop early, choose settings or learn."""
        return bool(self.threshold) or any(name.endswith("_val") for name in self.accepts)


def folder_name(text: str) -> str:
    """Replace all but letters, digits, ``_``, ``+`` and ``.`` with dashes."""
    return re.sub(r"[^\w+.]+", "-", text)


def require_names(names: Iterable[str]) -> None:
    """Raise `ExperimentError` unless each model of a run can have a folder of its own."""
    folders = set()
    for name in names:
        folder = folder_name(str(name)).casefold()
        if folder in folders:
            raise ExperimentError(
                f"two models have (nearly) the same name, {name!r}. Rename one (in an experiment: "
                'set "as")'
            )
        is_name = isinstance(name, str) and NAME.fullmatch(name)
        if not is_name or len(folder.encode()) > MAX_NAME_BYTES:
            raise ExperimentError(
                f"{shorten(str(name))} cannot be the name of a model in a run. Start with a letter "
                f"or digit, and use at most {MAX_NAME_BYTES} bytes"
            )
        folders.add(folder)
