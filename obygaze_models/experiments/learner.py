"""A model to cross-validate: an estimator, and how a run uses it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sklearn.base import is_regressor

from obygaze_features.errors import ExperimentError
from obygaze_models.data.splitters import Splitter
from obygaze_models.data.tasks import Task
from obygaze_models.estimators.baselines import GUESSES
from obygaze_models.estimators.classes import keywords, reads_of
from obygaze_models.estimators.registry import (
    class_path,
    modules_of,
    plugin_errors,
    require_estimator,
)


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

    @property
    def reads(self) -> str:
        """The input of the estimator: ``features``, ``frames`` or ``groups``."""
        with plugin_errors(modules_of(self.estimator)):
            return reads_of(self.estimator)

    @property
    def is_guess(self) -> bool:
        """True if the estimator ignores features. It is then fitted before balancing."""
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
        """True if the estimator, or the choice of its threshold, uses validation clips."""
        return bool(self.threshold) or any(name.endswith("_val") for name in self.accepts)


def folder_name(text: str) -> str:
    """Replace all but letters, digits, ``_``, ``+`` and ``.`` with dashes."""
    return re.sub(r"[^\w+.]+", "-", text)


def require_usable(models: Mapping[Any, Learner], tasks: Collection[Task], cv: Splitter) -> None:
    """Raise `ExperimentError` unless models can be listed by name, and can learn the tasks."""
    for name, learner in models.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ExperimentError(f"{name!r} cannot be the name of a model. Use a line of text")
        for task in tasks:
            if is_regressor(learner.estimator) != task.target.is_numeric:
                raise ExperimentError(
                    f"{name} cannot predict {task.key}: classifiers predict classes (in arrays: "
                    "integers or text), and regressors numbers (floats). Use another model"
                )
            if learner.threshold and not (cv.validates and task.is_binary):
                raise ExperimentError(
                    f"{name}: threshold needs two classes, and a protocol that keeps validation "
                    f"clips, such as leave-film-out (got {task.key}, {cv}). Leave threshold out"
                )
