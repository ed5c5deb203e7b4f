"""The estimators that an experiment can name. A new one: its file, and one line here."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["ESTIMATORS", "make_estimator"]

ESTIMATORS = {
    "mlp": "obygaze_models.estimators.mlp:MLPClassifier",
}


def make_estimator(name: str, *, random_state: int) -> Any:
    """A fresh estimator: ``fit(X, y, X_val, y_val)``, ``predict_proba(X)``, ``history_``."""
    module, _, attribute = ESTIMATORS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(random_state=random_state)
