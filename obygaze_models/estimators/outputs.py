"""The outputs of a fitted estimator: predictions as a table, and facts about concepts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import check_probabilities
from obygaze_models.scoring.metrics import CLASSES, Array
from obygaze_models.scoring.values import NUMBER


def predict_outputs(
    estimator: Any, X: Any, kind: str, classes: int, where: str = "", **arguments: Any
) -> Array:
    """Return the probability of each class, [N, classes], or numbers, [N, 1]."""
    start = f"{where}: " if where else ""
    if kind == NUMBER:
        values = np.asarray(estimator.predict(X), dtype=np.float64).reshape(-1, 1)
        check_outputs(values, (len(X), 1), kind, f"{start}predict")
        return values
    shares = np.asarray(estimator.predict_proba(X, **arguments), dtype=np.float64)
    check_probabilities(shares, (len(X), len(estimator.classes_)), f"{start}predict_proba")
    table = np.zeros((len(X), classes))
    table[:, estimator.classes_] = shares
    return table


def check_outputs(table: Array, shape: tuple[int, int], kind: str, where: str = "predict") -> None:
    """Raise unless a table has this shape and valid values for this kind of target."""
    if kind == CLASSES:
        check_probabilities(table, shape, where)
    elif table.shape != shape or not np.isfinite(table).all():
        raise ExperimentError(
            f"{where} returned shape {table.shape}, or numbers that are not finite. "
            f"Return finite numbers of shape {shape}"
        )


class _FactsWarning(msgspec.Struct):
    subject: str
    text: str


class _Quality(msgspec.Struct):
    auc: float


class Facts(msgspec.Struct):
    """An estimator's facts about concepts. All other facts are only shown to readers."""

    concepts: dict[str, _Quality] = {}
    skipped: dict[str, str] = {}
    warnings: list[_FactsWarning] = []

    @property
    def unreliable(self) -> list[str]:
        """The concepts whose directions are unreliable; `warnings` has the reasons."""
        subjects = {warning.subject for warning in self.warnings}
        return [name for name in self.concepts if name in subjects]
