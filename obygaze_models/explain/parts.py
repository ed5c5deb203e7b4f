"""The mean contributions of concepts to predictions, and their quality, over the fits of a run.

A part is a concept's contribution to the log-odds of a class. A positive part favours the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

INTERCEPT = "(intercept)"
"""The `concept` of rows with the intercept, whose `value` is missing."""


def name_log_odds(classes: Sequence[str]) -> str:
    """Return the name of the sum of the parts, such as "log-odds of Sure"."""
    return f"log-odds of {classes[1]}" if len(classes) == 2 else "logit of the predicted class"


def values_of(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that are clips' scores on concepts, not a tree's questions."""
    return reasons[reasons["value"].notna() & reasons["step"].isna()]


def questions(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that are questions on a tree's path."""
    return reasons[reasons["step"].notna()]


def measured(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return a fit's scores as a table with a row per clip and a column per concept."""
    values = values_of(reasons)
    table = values.pivot(index="id", columns="concept", values="value")
    return table.reindex(index=values["id"].unique(), columns=values["concept"].unique())


@dataclass(frozen=True, eq=False)
class MeanParts:
    """The scores of N clips on K concepts, and the parts of their log-odds.

    Parameters
    ----------
    concepts
        The names of the concepts.
    values, amounts
        The clips' scores on the concepts, and the concepts' parts, [N, K].
    intercept
        The intercept's part, [N]; None if the model has no intercept.
    """

    concepts: list[str]
    values: NDArray[Any]
    amounts: NDArray[Any]
    intercept: NDArray[Any] | None

    @property
    def order(self) -> NDArray[Any]:
        """The indices of each clip's concepts, [N, K], by absolute part, largest first."""
        return np.argsort(-np.abs(self.amounts), axis=1, kind="stable")

    def listed(self) -> list[list[tuple[str, float]]]:
        """Return each clip's parts with their names, the largest first, then the intercept.

        The list of a clip is empty if its parts are NaN.
        """
        lists = []
        for row, indices in enumerate(self.order.tolist()):
            parts = [(self.concepts[i], float(self.amounts[row, i])) for i in indices]
            if self.intercept is not None:
                parts.append(("at rest (intercept)", float(self.intercept[row])))
            lists.append([] if np.isnan([amount for _, amount in parts]).any() else parts)
        return lists


def mean_parts(reasons: pd.DataFrame, ids: list[str]) -> MeanParts:
    """Return the scores of the clips `ids`, and the parts of their log-odds, averaged over fits.

    A clip's parts are NaN if no fit explains the clip, or if the clip's fits explain different
    classes (of more than two).
    """
    sums = reasons[reasons["kind"] == "sum"]
    concepts = values_of(sums)["concept"].unique().tolist()
    own = sums[(sums["class"] != "") & sums["id"].isin(ids)]
    of_clip = own.groupby("id", observed=True)
    fits = of_clip["fit"].nunique().where(of_clip["class"].nunique() == 1).reindex(ids)
    cells = values_of(own).groupby(["id", "concept"], observed=True)
    values, amounts = (
        table.unstack().reindex(index=ids, columns=concepts).fillna(0)
        for table in (cells["value"].mean(), cells["part"].sum())
    )
    intercept = None
    if sums["value"].isna().any():
        at_rest = own[own["value"].isna()].groupby("id", observed=True)["part"].sum()
        intercept = at_rest.reindex(ids).fillna(0).div(fits).to_numpy()
    return MeanParts(concepts, values.to_numpy(), amounts.div(fits, axis=0).to_numpy(), intercept)
