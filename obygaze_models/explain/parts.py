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

from obygaze_models.data.tasks import concept_targets
from obygaze_models.scoring.metrics import auroc, average_precision

if TYPE_CHECKING:
    from obygaze_models.experiments.run_folder import Clip

INTERCEPT = "(intercept)"
"""What stands in place of a concept for what a clip has before any concept counts."""
AT_REST = "at rest (intercept)"
"""The title of that."""


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


def mean_parts(reasons: pd.DataFrame, ids: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what clips measure, and the parts of their log-odds: means over a model's fits.

    Both are tables of the clips `ids` by concepts; that of the parts ends with the intercept, if
    there is one, and its rows add up. They are NaN for clips without a fit, and for those whose
    fits predict different ones of several classes: they are of different sums.
    """
    sums = reasons[reasons["kind"].isin(["sum", "stores"])]
    names = sums["concept"].unique().tolist()
    concepts = [name for name in names if name != INTERCEPT]
    own = sums[(sums["class"] != "") & sums["id"].isin(ids)]
    of_clip = own.groupby("id", observed=True)
    fits = of_clip["fit"].nunique().where(of_clip["class"].nunique() == 1)
    cells = own.groupby(["id", "concept"], observed=True)
    values, parts = cells["value"].mean().unstack(), cells["part"].sum().unstack()
    values = values.reindex(index=ids, columns=concepts).fillna(0)
    parts = parts.reindex(index=ids, columns=[*concepts, *{INTERCEPT}.intersection(names)])
    return values, parts.fillna(0).div(fits.reindex(ids), axis=0)


def largest_first(parts: pd.DataFrame) -> NDArray[Any]:
    """Return the places of each clip's concepts in `mean_parts` by the size of the part, [N, K]."""
    amounts = parts.drop(columns=INTERCEPT, errors="ignore").to_numpy()
    return np.argsort(-np.abs(amounts), axis=1, kind="stable")


def list_parts(parts: pd.DataFrame) -> list[list[tuple[str, float]]]:
    """Return each clip's parts of `mean_parts`, the largest first, then the intercept.

    They add up. A clip whose parts are NaN has none.
    """
    names = parts.rename(columns={INTERCEPT: AT_REST}).columns.tolist()
    lists = []
    for amounts, order in zip(parts.to_numpy(), largest_first(parts).tolist(), strict=True):
        places = [*order, *range(len(order), len(names))]
        of_clip = [(names[place], float(amounts[place])) for place in places]
        lists.append([] if np.isnan(amounts).any() else of_clip)
    return lists


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
