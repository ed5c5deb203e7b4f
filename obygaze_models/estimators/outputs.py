"""The outputs of a fitted estimator: predictions as a table, and facts about concepts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from obygaze_features.errors import ExperimentError
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.scoring.metrics import Array
from obygaze_models.scoring.number_scores import NUMBER

TOLERANCE = 1e-3
"""The tolerance for probabilities below 0, and for the distance of their sums from 1."""


def predict_outputs(estimator: Any, X: Any, kind: str, classes: int, **arguments: Any) -> Array:
    """Return the probability of each class, [N, classes], or numbers, [N, 1]."""
    if kind == NUMBER:
        values = np.asarray(estimator.predict(X), dtype=np.float64).reshape(-1, 1)
        if len(values) != len(X) or not np.isfinite(values).all():
            raise ExperimentError("predict must return a finite number for each clip")
        return values

    shares = np.asarray(estimator.predict_proba(X, **arguments), dtype=np.float64)
    shape = (len(X), len(estimator.classes_))
    if shares.shape != shape:
        raise ExperimentError(f"predict_proba returned shape {shares.shape}, not {shape}")
    sums_to_1 = abs(shares.sum(axis=1) - 1) < TOLERANCE
    if not (shares >= -TOLERANCE).all() or not sums_to_1.all():
        raise ExperimentError(
            "predict_proba must return probabilities that sum to 1 for each clip "
            f"(got {shares.min():.3g} to {shares.max():.3g})"
        )
    table = np.zeros((len(X), classes))
    table[:, estimator.classes_] = shares
    return table


class Facts(msgspec.Struct):
    """An estimator's facts about concepts. All other facts are only shown to readers."""

    concepts: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    warnings: list[RunWarning] = []

    @property
    def unreliable(self) -> list[str]:
        """The concepts whose directions are unreliable; `warnings` has the reasons."""
        subjects = {warning.subject for warning in self.warnings}
        return [name for name in self.concepts if name in subjects]
