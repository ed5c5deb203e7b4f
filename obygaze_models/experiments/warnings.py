"""Make the warnings that limit a run's conclusions, from its plan and its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd
from sklearn.preprocessing import normalize

from obygaze_features.common.formatting import counted, elide, join_some
from obygaze_features.common.grouping import group_by
from obygaze_features.items.items import group_noun
from obygaze_models.data.run_warning import (
    RunWarning,
    leak_warning,
    origin_warnings,
    unique_warnings,
)
from obygaze_models.estimators.concepts import Facts
from obygaze_models.experiments.experiment import WEIGHTS
from obygaze_models.experiments.plan import Plan
from obygaze_models.results.run import Skipped, not_saved
from obygaze_models.results.scores import split_by

ALIKE = 0.98
"""The cosine above which two clips may be the same."""
MIN_FEATURES = 16
"""The minimum number of features. With fewer, many clips are as alike by chance."""
MAX_COMPARED = 20_000
ROWS_COMPARED = 1_024
"""The maximum number of clips to compare with each other, and of clips compared at a time."""


def run_warnings(
    plan: Plan,
    tables: Mapping[str, pd.DataFrame],
    skipped: Sequence[Skipped],
    of_fits: Sequence[RunWarning],
) -> list[RunWarning]:
    """Return all warnings about a run."""
    predictions = tables["predictions"]
    clips = tables["clips"]
    fits = tables["fits"]
    warnings = []
    leaked = clips.loc[clips["leaked"], "id"]
    for test, tested in split_by(predictions, "test").items():
        ids = tested["id"].drop_duplicates()
        used = int(ids.isin(leaked).sum())
        if used:
            count = f"{used:,} of the {len(ids):,} test clips"
            warnings.append(leak_warning(test, count, "the same fit"))

    warnings += plan_warnings(plan)
    warnings += _untested(plan, tables, skipped)
    for (task, why), skips in group_by(skipped, lambda skip: (skip.task, skip.why)).items():
        what = join_some([skip.what for skip in skips], 3)
        warnings.append(RunWarning("skipped", task, f"{task}, {what}: {why}."))

    warnings += _concepts(plan, fits)
    warnings += of_fits
    for model, not_kept in split_by(fits[fits["not_saved"] != ""], "model").items():
        warnings.append(not_saved(model, not_kept["not_saved"].iloc[0]))
    for model in predictions["model"].unique():
        if model not in plan.models:
            text = f"{model} is from elsewhere. The clips it was trained on are not recorded."
            warnings.append(RunWarning("outside", model, text))

    record = plan.data.record
    warnings += origin_warnings(record.manifest.items, record.attributes)
    return unique_warnings(warnings)


def _look_alikes(plan: Plan) -> Iterator[RunWarning]:
    """Yield a warning about the two films with the most clips that look alike, if there are any.

    With random networks and few features, all clips look alike, so they are not compared. Nor are
    more clips than `MAX_COMPARED`.
    """
    data = plan.data
    config = data.record.attributes["backbone"].get("config", {})
    rows = np.flatnonzero(data.X.any(axis=1) & (data.groups != ""))
    too_narrow = data.X.shape[1] < MIN_FEATURES
    if too_narrow or config.get("synthetic") or not 0 < len(rows) <= MAX_COMPARED:
        return
    groups = data.groups[rows]
    X = normalize(np.nan_to_num(data.X[rows].astype(np.float32)))
    best = np.zeros(len(rows), dtype=np.float32)
    nearest = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), ROWS_COMPARED):
        block = slice(start, start + ROWS_COMPARED)
        cosines = X[block] @ X.T
        cosines[groups[block, None] == groups] = -1
        nearest[block] = cosines.argmax(axis=1)
        best[block] = cosines.max(axis=1)
    distances = 1 - best
    alike = (best > ALIKE) & (distances < np.median(distances) / 10)
    first = groups[alike].tolist()
    second = groups[nearest[alike]].tolist()
    pairs = Counter(zip(first, second, strict=True))
    for (group, other), count in pairs.most_common(1):
        noun = group_noun(data.grouped_by)
        text = (
            f"{counted(count, 'clip')} of {group} look like clips of {other} (cosine above "
            f"{ALIKE}). If this is one {noun} under two names, use one name."
        )
        yield RunWarning("look-alikes", "", text)


def plan_warnings(plan: Plan) -> Iterator[RunWarning]:
    """Yield the warnings that are known before training."""
    if plan.neighbours:
        yield RunWarning("neighbours", "", f"{plan.neighbours}; gap = 5 keeps them apart.")
    lost = plan.clips.loc[plan.clips["used"] == "no-features", "id"].tolist()
    if lost:
        count = counted(len(lost), "labelled clip has", "labelled clips have")
        text = f"{count} no features and cannot take part: {join_some(lost, 3)}"
        text += plan.data.record.describe_missing(lost)
        yield RunWarning("no-features", "", f"{text}.")
    yield from _look_alikes(plan)
    for name, learner in plan.models.items():
        has_weights = {*WEIGHTS} & learner.estimator.get_params(deep=True).keys()
        if plan.balance == "weights" and not (has_weights or learner.is_guess):
            text = f"{name} has no class weights, so balancing by weights has no effect on it."
            yield RunWarning("balance", name, text)


def _untested(
    plan: Plan,
    tables: Mapping[str, pd.DataFrame],
    skipped: Sequence[Skipped],
) -> Iterator[RunWarning]:
    """Yield warnings about clips and films that have no scores, or only zeros as features."""
    clips = tables["clips"]
    tested = clips["id"].map(set(tables["predictions"]["id"]).__contains__)
    blank = int((clips["blank"] & tested).sum())
    if blank:
        text = (
            f"the features of {blank:,} of {counted(int(tested.sum()), 'tested clip')} are all "
            "zero: there is no speech or picture that could be read."
        )
        yield RunWarning("zeros", "", text)
    noun = group_noun(plan.data.grouped_by)
    usable = clips[(clips["used"] == "") & (clips["group"] != "")].sort_values("group")
    groups = {*clips.loc[tested, "group"]} - {""}
    lacking = usable.loc[~usable["group"].isin(groups), "title" if noun == "film" else "group"]
    if len(lacking):
        why = "in no tested fold"
        if hasattr(plan.cv, "min_clips") and not skipped:
            why = f"fewer than min_clips = {plan.cv.min_clips} clips of a class"
        total = counted(usable["group"].nunique(), noun)
        text = (
            f"Tested {len(groups)} of {total}, but not "
            f"{join_some([*map(elide, lacking.unique())], 3)} "
            f"({why})."
        )
        yield RunWarning("films", "", text)


def _concepts(plan: Plan, fits: pd.DataFrame) -> Iterator[RunWarning]:
    """Yield warnings about concepts that bottlenecks skipped, or learned unreliably."""
    learned = False
    for name, of_model in split_by(fits, "model").items():
        facts = [msgspec.json.decode(cell, type=Facts) for cell in of_model["facts"]]
        unreliable = {concept for each in facts for concept in each.unreliable}
        skipped = {concept for each in facts for concept in each.skipped}
        learned |= any(each.concepts for each in facts)
        if unreliable or skipped:
            text = (
                f"{name} learned {counted(len(unreliable), 'concept')} unreliably and "
                f"left out {len(skipped)} in one or more of {counted(len(of_model), 'fit')}."
            )
            yield RunWarning("concepts", name, text)
    note = getattr(plan.cv, "concepts_note", "")
    if learned and note:
        yield RunWarning("released-concepts", "", note)
