"""What a reader of a run must know before its scores, as warnings in its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from obygaze_features.common.text import counted, join_some
from obygaze_models.data.folds import Fold, Leak
from obygaze_models.data.warnings import RunWarning, origin_warnings, unique_warnings
from obygaze_models.estimators.plugins import PluginError
from obygaze_models.estimators.registry import ignored_plugins
from obygaze_models.experiments.division import RELEASED_CONCEPTS
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import class_weight_options
from obygaze_models.experiments.outcome import Outcome
from obygaze_models.experiments.outside import OutsideModel
from obygaze_models.experiments.plan import Plan
from obygaze_models.experiments.record import Skipped
from obygaze_models.saved.about import unreliable_concepts

#: So many reasons for skipped fits are named among the warnings; run.json has them all.
SHOWN = 10


def warnings_of_run(
    plan: Plan, outcome: Outcome, leaked: Mapping[str, Sequence[Leak]], *, official: bool
) -> list[RunWarning]:
    """All of them; `leaked` is by task, `official` whether the task has an official measure."""
    return [
        *origin_warnings(plan.manifest.items, plan.store.attributes),
        *(
            _leak_warning(test, plan.folds[task], leaks)
            for task, leaks in leaked.items()
            for test in dict.fromkeys(leak.test for leak in leaks)
        ),
        *_skipped_warnings(outcome.skipped),
        *(_without_features(plan) if official else []),
        *_concept_warnings(plan, outcome.models),
        *_balance_warnings(plan.experiment),
        *unique_warnings(outcome.warnings),
        *_unsaved_warnings(outcome.models),
        *_ignored_warnings(plan.experiment),
        *map(_outside_warning, plan.outside),
    ]


def _skipped_warnings(skipped: Sequence[Skipped]) -> list[RunWarning]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for skip in skipped:
        by_reason.setdefault((skip.task, skip.why), []).append(skip.what)
    warnings = [
        RunWarning("skipped", task, f"{task}, {join_some(subjects, 3)}: {why}.")
        for (task, why), subjects in list(by_reason.items())[:SHOWN]
    ]
    if (more := len(by_reason) - SHOWN) > 0:
        warnings.append(RunWarning("skipped", "", f"{more} more, which run.json names."))
    return warnings


def _without_features(plan: Plan) -> list[RunWarning]:
    """Test clips that the official measure would hold against the run."""
    division = plan.division
    if division.protocol != "official":
        return []
    absent = plan.join.without_features
    lost = [clip for clip in absent if division.fold_of.get(clip) == division.last]
    if not lost:
        return []
    clips = counted(len(lost), "test clip has", "test clips have")
    return [
        RunWarning(
            "no-features",
            "",
            f"{clips} no features ({join_some(lost, 3)}): left out here, and counted against a run "
            "file by the official measure (obygaze models write-run and score-run).",
        )
    ]


def _concept_warnings(plan: Plan, models: Sequence[Mapping[str, Any]]) -> list[RunWarning]:
    """How many concepts bottlenecks could not learn, or learnt badly; and from which file."""
    warnings = []
    for name in plan.experiment.learners:
        facts_of_fits = [model["facts"] for model in models if model["model"] == name]
        unreliable = {name for facts in facts_of_fits for name in unreliable_concepts(facts)}
        skipped = {name for facts in facts_of_fits for name in facts.get("skipped", {})}
        parts = [f"{counted(len(unreliable), 'concept is', 'concepts are')} unreliable"]
        parts = parts * bool(unreliable)
        parts += [f"{counted(len(skipped), 'is', 'are')} left out"] * bool(skipped)
        among = f" in some of {len(facts_of_fits)} fits" if len(facts_of_fits) > 1 else ""
        if parts:
            warnings.append(
                RunWarning(
                    "concepts",
                    name,
                    f"{name}: {' and '.join(parts)}{among}; the report names them, and why.",
                )
            )
    bottlenecks = [model for model in models if "concepts" in model["facts"]]
    division = plan.division
    if division.protocol == "released" and bottlenecks and division.split != RELEASED_CONCEPTS:
        warnings.append(
            RunWarning(
                "released-concepts",
                "",
                f"The bottlenecks learnt their concepts from {division.split}; the authors learnt "
                f"them from {RELEASED_CONCEPTS}: give these an experiment of their own, with that "
                "split.",
            )
        )
    return warnings


def _unsaved_warnings(models: Sequence[Mapping[str, Any]]) -> list[RunWarning]:
    """The estimators whose models could not be saved."""
    reasons = {model["model"]: model["not_saved"] for model in models if "not_saved" in model}
    return [
        RunWarning("not-saved", name, f"{name} is not among the saved models: {reason}.")
        for name, reason in reasons.items()
    ]


def _ignored_warnings(experiment: Experiment) -> list[RunWarning]:
    """The entry points that have the name of an estimator of the experiment, and are not it."""
    names = {spec.name for spec in experiment.learners.values()}
    return [
        RunWarning(
            "plug-in",
            plugin.name,
            f"the {plugin.name} of {plugin.package} is ignored: its entry point has the name of "
            f"another; name it {plugin.path}.",
        )
        for plugin in ignored_plugins()
        if plugin.name in names
    ]


def _outside_warning(model: OutsideModel) -> RunWarning:
    return RunWarning(
        "outside",
        model.name,
        f"{model.name} is from {model.path.name}: which clips it was trained on is not data.",
    )


def _leak_warning(test: str, folds: Sequence[Fold], leaks: Sequence[Leak]) -> RunWarning:
    by_fold = {leak.fold: leak for leak in leaks if leak.test == test}
    ids = sorted({clip for leak in by_fold.values() for clip in leak.ids})
    clips = {row for fold in folds for row in fold.tests.get(test, ())}
    counts = [len(by_fold[fold.index].ids) if fold.index in by_fold else 0 for fold in folds]
    span = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{max(counts)}"
    return RunWarning(
        "leak",
        test,
        f"{len(ids)} of the {len(clips)} test clips of {test} are in a training or "
        f"validation set ({span} in a single run), such as {', '.join(ids[:2])}",
    )


def _balance_warnings(experiment: Experiment) -> list[RunWarning]:
    """The estimators that cannot weigh classes, where the experiment asks for it."""
    if experiment.balance != "weights":
        return []
    warnings = []
    for name, spec in experiment.learners.items():
        with suppress(PluginError):  # of which each fit tells
            if class_weight_options(spec) is None:
                text = f'{name} has no class weights: balance = "weights" trains it as "none" does.'
                warnings.append(RunWarning("balance", name, text))
    return warnings
