"""Make the warnings that limit a run's conclusions, from its plan and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pandas as pd

from obygaze_features.common.text import counted, group_by, join_some
from obygaze_features.items.items import group_noun
from obygaze_models.data.protocols import FILM_CLIPS
from obygaze_models.data.run_warning import (
    RunWarning,
    leak_warning,
    origin_warnings,
    unique_warnings,
)
from obygaze_models.estimators.classes import keywords
from obygaze_models.estimators.outputs import Facts
from obygaze_models.experiments.fit import WEIGHTS
from obygaze_models.experiments.plan import RELEASED_CONCEPTS, Plan
from obygaze_models.experiments.scores import split_by
from obygaze_models.experiments.tables import Skipped


def run_warnings(
    plan: Plan,
    tables: Mapping[str, pd.DataFrame],
    skipped: Sequence[Skipped],
    of_fits: Sequence[RunWarning],
) -> list[RunWarning]:
    """Return all warnings about a run."""
    predictions = tables["predictions"]
    return unique_warnings(
        [
            *_leaks(tables["clips"], predictions),
            *plan_warnings(plan),
            *_untested(plan, tables),
            *_skipped(skipped),
            *_concepts(plan, tables["fits"]),
            *of_fits,
            *_models(plan, tables),
            *origin_warnings(plan.manifest.items, plan.store.attributes),
        ]
    )


def plan_warnings(plan: Plan) -> Iterator[RunWarning]:
    """Yield the warnings that are known before training."""
    division = plan.division
    if division.near:
        yield RunWarning("neighbours", "", f"{division.near}; gap = 5 keeps them apart.")
    lost = plan.clips.loc[plan.clips["used"] == "no-features", "id"].tolist()
    if lost:
        count = counted(len(lost), "labelled clip has", "labelled clips have")
        text = f"{count} no features and cannot take part: {join_some(lost, 3)}"
        for name, store in zip(plan.store.names, plan.store.stores, strict=True):
            lacks = {*lost} - {*store.done_ids()}
            if lacks:
                text += f"; {name} lacks {counted(len(lacks), 'clip')}"
        yield RunWarning("no-features", "", f"{text}.")
    for name, learner in plan.experiment.learners.items():
        has_weights = {*WEIGHTS} & learner.estimator.get_params(deep=True).keys()
        if plan.experiment.balance == "weights" and not (has_weights or learner.is_guess):
            text = f'{name} has no class weights, so balance = "weights" has no effect on it.'
            yield RunWarning("balance", name, text)


def _skipped(skipped: Sequence[Skipped]) -> Iterator[RunWarning]:
    """Yield a warning for each reason why fits or tests were skipped."""
    for (task, why), own in group_by(skipped, lambda skip: (skip.task, skip.why)).items():
        what = join_some([skip.what for skip in own], 3)
        yield RunWarning("skipped", task, f"{task}, {what}: {why}.")


def _leaks(clips: pd.DataFrame, predictions: pd.DataFrame) -> Iterator[RunWarning]:
    leaked = clips.loc[clips["leaked"], "id"]
    for test, own in split_by(predictions, "test").items():
        ids = own["id"].drop_duplicates()
        used = int(ids.isin(leaked).sum())
        if used:
            yield leak_warning(test, f"{used:,} of the {len(ids):,} test clips", "the same fit")


def _untested(plan: Plan, tables: Mapping[str, pd.DataFrame]) -> Iterator[RunWarning]:
    """Yield warnings about clips and films that have no scores, or only zeros as features."""
    clips = tables["clips"]
    tested = clips["id"].isin(tables["predictions"]["id"])
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
        if "min_clips" in keywords(plan.protocol.parts):
            needed = plan.experiment.protocol_options.get("min_clips", FILM_CLIPS)
            why = f"fewer than min_clips = {needed} clips of a class"
        total = counted(usable["group"].nunique(), noun)
        text = (
            f"Tested {len(groups)} of {total}, but not {join_some(lacking.unique().tolist(), 3)} "
            f"({why})."
        )
        yield RunWarning("films", "", text)


def _concepts(plan: Plan, fits: pd.DataFrame) -> Iterator[RunWarning]:
    """Yield warnings about concepts that bottlenecks skipped, or learned unreliably."""
    learned = False
    for name, own in split_by(fits, "model").items():
        facts = [msgspec.json.decode(cell, type=Facts) for cell in own["facts"]]
        unreliable = {concept for each in facts for concept in each.unreliable}
        skipped = {concept for each in facts for concept in each.skipped}
        learned |= any(each.concepts for each in facts)
        if unreliable or skipped:
            text = (
                f"{name} learned {counted(len(unreliable), 'concept')} unreliably and "
                f"left out {len(skipped)} in one or more of {counted(len(own), 'fit')}."
            )
            yield RunWarning("concepts", name, text)
    split = plan.division.split
    if plan.division.runs.runs and learned and split != RELEASED_CONCEPTS:
        text = (
            f"The bottlenecks learned their concepts from {split}. The authors' bottlenecks used "
            f"{RELEASED_CONCEPTS}. Use a separate experiment with the authors' split."
        )
        yield RunWarning("released-concepts", "", text)


def _models(plan: Plan, tables: Mapping[str, pd.DataFrame]) -> Iterator[RunWarning]:
    """Yield warnings about models that were not saved, and about models from elsewhere."""
    fits = tables["fits"]
    for model, own in split_by(fits[fits["not_saved"] != ""], "model").items():
        yield RunWarning("not-saved", model, f"{model} was not saved: {own['not_saved'].iloc[0]}.")
    for model in tables["predictions"]["model"].unique():
        if model not in plan.experiment.learners:
            text = f"{model} is from elsewhere. The clips it was trained on are not recorded."
            yield RunWarning("outside", model, text)
