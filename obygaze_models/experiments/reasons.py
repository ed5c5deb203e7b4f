"""The reasons that bottlenecks give, as rows of ``reasons.csv``.

There is a row for each fit, clip and concept: the clip's score on the concept (``value``), and the
concept's contribution (``part``) to the logit of a ``class`` (a key). The class is empty if the
clip's features are all zero, as in a clip without speech. The row of an intercept has no value.
Trees have no parts. They have a row for each question on a clip's path: the number of the ``step``,
and whether the value was ``above`` the ``threshold``. Numbers have six significant digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from obygaze_models.explain.attributions import Attribution, attribute, bank_of
from obygaze_models.explain.parts import INTERCEPT, questions
from obygaze_models.scoring.metrics import Array

COLUMNS = {
    "model": "category", "task": "category", "fit": "int64", "kind": "category",
    "id": "category", "class": "category", "concept": "category",
    "value": "float64", "part": "float64",
    "step": "Int64", "above": "boolean", "threshold": "float64",
}  # fmt: skip
"""The columns of ``reasons.csv`` and their types."""
NUMBERS = ["value", "part", "threshold"]


def explain_fit(
    estimator: Any, X: Array, ids: list[str], classes: Sequence[str], cut: float
) -> pd.DataFrame | None:
    """Return the reasons of a fitted estimator for clips X [N, D], or None if it gives none."""
    if bank_of(estimator) is None:
        return None
    attribution = attribute(estimator, X, classes=classes, cut=cut)
    if attribution is None:
        return None
    labels = np.where(X.any(axis=1), attribution.labels, "").tolist()
    return tabulate_reasons(ids, labels, attribution)


def join_reasons(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the reasons of all fits, with the types of `COLUMNS`."""
    return pd.concat(tables, ignore_index=True)[[*COLUMNS]].astype(COLUMNS)


def tabulate_reasons(ids: list[str], labels: list[str], attribution: Attribution) -> pd.DataFrame:
    """Return a fit's rows of ``reasons.csv``, without ``model``, ``task`` and ``fit``.

    `labels` has the class key of each clip, or "".
    """
    rows = np.arange(len(ids))
    concepts = attribution.concepts
    values = attribution.values
    measured = {"row": np.repeat(rows, len(concepts)), "concept": np.tile(concepts, len(ids))}
    blocks = [pd.DataFrame({**measured, "value": values.ravel()})]
    if attribution.steps is None:
        blocks[0]["part"] = (attribution.weights * values).ravel()
        intercept = {"row": rows, "concept": INTERCEPT, "part": attribution.intercept}
        blocks.append(pd.DataFrame(intercept))
    else:
        answers = [
            (row, step.concept, step.value, number, step.above, step.threshold)
            for row, path in enumerate(attribution.steps)
            for number, step in enumerate(path)
        ]
        names = ["row", "concept", "value", "step", "above", "threshold"]
        blocks.append(pd.DataFrame(answers, columns=names))
    table = pd.concat(blocks).sort_values("row", kind="stable", ignore_index=True)
    table = table.reindex(columns=["row", *COLUMNS])
    table[NUMBERS] = table[NUMBERS].apply(_round)
    row = table.pop("row").to_numpy(dtype=np.intp)
    table["id"] = np.array(ids, dtype=object)[row]
    table["class"] = np.array(labels, dtype=object)[row]
    return table.assign(kind=attribution.kind)


def _round(numbers: pd.Series[Any]) -> Array:
    """Round numbers to six significant digits."""
    return np.char.mod("%.6g", numbers.to_numpy(dtype=np.float64)).astype(np.float64)


def check_reasons(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return a table of reasons; raise `ValueError` if a page could not show it."""
    if questions(reasons)["above"].isna().any():
        raise ValueError("a question has no answer")
    if np.isinf(reasons[NUMBERS].to_numpy()).any():
        raise ValueError("a number is infinite")
    return reasons
