"""The contributions of concepts to predictions in the fits of a run, and their means.

A part is a concept's contribution to the log-odds of a class. A positive part favours the class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

INTERCEPT = "(intercept)"
"""The `concept` of rows with the intercept, whose `value` is missing."""


def name_log_odds(classes: Sequence[str]) -> str:
    """Return the name of the sum of the parts, such as "log-odds of Sure"."""
    return f"log-odds of {classes[1]}" if len(classes) == 2 else "logit of the predicted class"


def values_of(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that are clips' scores on concepts, not a tree's questions."""
    return reasons[reasons["value"].notna() & reasons["step"].isna()]


def questions(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that are questions on a tree's path, with their answers."""
    return reasons[reasons["above"].notna()]


def mean_parts(reasons: pd.DataFrame, ids: list[str]) -> list[list[tuple[str, float]]]:
    """Return the parts of the clips `ids`, averaged over fits: the largest first.

    The intercept's part is the last. The list of a clip is empty if no fit explains the clip, or if
    the clip's fits explain different classes (of more than two).
    """
    sums = reasons[reasons["kind"] == "sum"]
    concepts = values_of(sums)["concept"].unique().tolist()
    tested = sums[(sums["class"] != "") & sums["id"].isin(ids)]
    of_clip = tested.groupby("id", observed=True)
    of_one_class = of_clip["class"].nunique() == 1
    fits = of_clip["fit"].nunique().where(of_one_class).reindex(ids)
    cells = values_of(tested).groupby(["id", "concept"], observed=True)
    amounts = (
        cells["part"]
        .sum()
        .unstack()
        .reindex(index=ids, columns=concepts)
        .fillna(0)
        .div(fits, axis=0)
        .to_numpy()
    )
    at_rest = tested[tested["value"].isna()].groupby("id", observed=True)
    intercepts = at_rest["part"].sum().reindex(ids).fillna(0).div(fits).tolist()

    has_intercept = sums["value"].isna().any()
    lists = []
    for own_amounts, intercept in zip(amounts, intercepts, strict=True):
        contributions = []
        if not math.isnan(intercept):
            for column in np.argsort(-np.abs(own_amounts), kind="stable").tolist():
                contributions.append((concepts[column], float(own_amounts[column])))
            if has_intercept:
                contributions.append(("at rest (intercept)", intercept))
        lists.append(contributions)
    return lists
