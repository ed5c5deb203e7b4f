"""What the fits of a run say of concepts: their mean parts in predictions, and their quality.

Parts are of log-odds, with one sign wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obygaze_models.data.targets import concept_targets
from obygaze_models.scoring.metrics import auroc, average_precision

if TYPE_CHECKING:
    from obygaze_models.experiments.run_folder import Clip

INTERCEPT = "(intercept)"
"""What files have for a concept in rows of an intercept, which are those without a value."""


def name_log_odds(classes: Sequence[str]) -> str:
    """What parts add up to: of two classes always the second's, whichever is predicted."""
    return f"log-odds of {classes[1]}" if len(classes) == 2 else "logit of the predicted class"


def values_of(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that say what clips measure along concepts, without questions."""
    return reasons[reasons["value"].notna() & reasons["step"].isna()]


def questions(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of reasons that are questions on trees' paths."""
    return reasons[reasons["step"].notna()]


def measured(reasons: pd.DataFrame) -> pd.DataFrame:
    """Return what the clips of one fit measure: clips by concepts, both in the fit's order."""
    values = values_of(reasons)
    rows, ids = pd.factorize(values["id"])
    columns, concepts = pd.factorize(values["concept"])
    table = np.full((len(ids), len(concepts)), np.nan)
    table[rows, columns] = values["value"]
    return pd.DataFrame(table, index=ids.tolist(), columns=concepts.tolist())


@dataclass(frozen=True, eq=False)
class MeanParts:
    """What N clips measure along K concepts, and the parts of their log-odds.

    Parameters
    ----------
    concepts
        Their names.
    values, amounts
        What clips measure, and the concepts' parts, [N, K].
    intercept
        What a clip has before any concept counts, [N]; None for a model without it.
    """

    concepts: list[str]
    values: NDArray[Any]
    amounts: NDArray[Any]
    intercept: NDArray[Any] | None

    @property
    def total(self) -> NDArray[Any]:
        """What the parts add up to, [N]."""
        rest = 0.0 if self.intercept is None else self.intercept
        return np.asarray(self.amounts.sum(axis=1) + rest)

    @property
    def order(self) -> NDArray[Any]:
        """The places of each clip's concepts by the size of the part, [N, K]."""
        return np.argsort(-np.abs(self.amounts), axis=1, kind="stable")

    def listed(self) -> list[list[tuple[str, float]]]:
        """Return each clip's parts by title, the largest first, then the intercept.

        They add up. A clip whose parts are NaN has none.
        """
        lists = []
        for row, places in enumerate(self.order.tolist()):
            of_clip = [(self.concepts[place], float(self.amounts[row, place])) for place in places]
            if self.intercept is not None:
                of_clip.append(("at rest (intercept)", float(self.intercept[row])))
            lists.append([] if np.isnan([amount for _, amount in of_clip]).any() else of_clip)
        return lists


def mean_parts(reasons: pd.DataFrame, ids: list[str]) -> MeanParts:
    """Return what the clips `ids` measure, and the parts of their log-odds: means over the fits.

    Parts are NaN for clips without a fit, and for those whose fits predict different ones of
    several classes: they are of different sums.
    """
    sums = reasons[reasons["kind"].isin(["sum", "stores"])]
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


@dataclass(frozen=True)
class ConceptQuality:
    """How well a model's scores of a concept rank test clips with it above those without.

    Parameters
    ----------
    model, task, concept
        The model, its task, and the concept.
    clips, positives
        The number of test clips over all fits, and how many of them show the concept.
    share
        The mean share of positives over fits: the average precision of chance.
    auroc, auroc_std, average_precision, average_precision_std
        Mean and standard deviation over fits; None if no fit has clips of both kinds.
    runs
        The number of fits with clips of both kinds.
    """

    model: str
    task: str
    concept: str
    clips: int
    positives: int
    share: float | None
    auroc: float | None
    auroc_std: float | None
    average_precision: float | None
    average_precision_std: float | None
    runs: int


def concept_quality(
    reasons: pd.DataFrame, clips: Mapping[str, Clip], *, is_obygaze: bool = True
) -> list[ConceptQuality]:
    """Score the concepts of bottlenecks on test clips: a row for each model, task and concept.

    Hard Negative and Sure clips with a concept are compared with all clips without it; Not Sure
    clips are ignored. Where the levels are not ObyGaze's, all clips count. Networks are left out:
    they are explained by a bottleneck's concepts.
    """
    values = values_of(reasons[reasons["kind"].isin(["sum", "path"])])
    rows, ids = pd.factorize(values["id"])
    columns, concepts = pd.factorize(values["concept"])
    tested = [clips[clip] for clip in ids.tolist()]
    marks = np.array([[name in clip.concepts for name in concepts] for clip in tested], dtype=bool)
    levels = [clip.level for clip in tested]
    targets = concept_targets(
        levels, marks.reshape(len(ids), len(concepts)), "b", is_obygaze=is_obygaze
    )
    values = values.assign(target=targets[rows, columns])
    by_concept = values.groupby(["model", "task", "concept"], observed=True, sort=False)
    return [_quality(key, own[own["target"] >= 0]) for key, own in by_concept]


def _quality(key: Any, values: pd.DataFrame) -> ConceptQuality:
    model, task, concept = key
    scores = []
    for _, fit in values.groupby("fit", sort=False):
        truth, measures = fit["target"].to_numpy(), fit["value"].to_numpy()
        if 0 < truth.sum() < len(truth):
            area, precision = auroc(truth, measures), average_precision(truth, measures)
            scores.append((area, precision, truth.mean()))
    means: list[float | None] = [None] * 3
    stds = means
    if scores:
        table = np.array(scores, dtype=np.float64)
        means, stds = table.mean(axis=0).tolist(), table.std(axis=0).tolist()
    return ConceptQuality(
        model,
        task,
        concept,
        clips=values["id"].nunique(),
        positives=values.loc[values["target"] == 1, "id"].nunique(),
        share=means[2],
        auroc=means[0],
        auroc_std=stds[0],
        average_precision=means[1],
        average_precision_std=stds[1],
        runs=len(scores),
    )
