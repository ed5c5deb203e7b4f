"""The reasons that bottlenecks give, as rows of ``reasons.csv``.

There is a row for each fit, clip and concept: the clip's score on the concept (``value``), and the
concept's contribution (``part``) to the logit of the ``class``. ``class`` is the key of the second
of two classes, or else of the predicted class (in a tree, of the last class). It is empty if the
clip's features are all zero, as in a clip without speech. The row of an intercept has no value.
Trees have no parts and no intercept, but they have a row for each question on a clip's path: the
number of the ``step``, and whether the value was ``above`` the ``threshold``. Numbers have six
significant digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from obygaze_models.explain.attributions import Attribution
from obygaze_models.explain.parts import INTERCEPT

COLUMNS = {
    "model": "category", "task": "category", "fit": "int64", "kind": "category",
    "id": "category", "class": "category", "concept": "category",
    "value": "float64", "part": "float64",
    "step": "Int64", "above": "boolean", "threshold": "float64",
}  # fmt: skip
"""The columns of ``reasons.csv`` and their types."""
NUMBERS = ["value", "part", "threshold"]


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
    numbers = table[NUMBERS].to_numpy(dtype=np.float64)
    table[NUMBERS] = np.char.mod("%.6g", numbers).astype(np.float64)
    row = table.pop("row").to_numpy(dtype=np.intp)
    table["id"] = np.array(ids, dtype=object)[row]
    table["class"] = np.array(labels, dtype=object)[row]
    return table.assign(kind=attribution.kind)
