"""Make the record of a run: its data, fits, scores and warnings."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.text import counted, join_some, redact_url
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.splits import overlapping
from obygaze_features.store import Store
from obygaze_features.store.remote import is_url
from obygaze_models.dataset import ClipDataset, Join
from obygaze_models.estimators.plugins import PluginError, plugin_versions
from obygaze_models.estimators.registry import ignored_plugins, make_estimator
from obygaze_models.experiments.evaluate import Evaluation
from obygaze_models.experiments.experiment import Experiment, Problem
from obygaze_models.experiments.fit import Fit
from obygaze_models.experiments.outside import OutsideModel
from obygaze_models.experiments.plan import RELEASED_CONCEPTS, Plan
from obygaze_models.experiments.record import (
    Features,
    Films,
    FitRecord,
    Intervals,
    LeakCount,
    ManifestRecord,
    Official,
    RunRecord,
    StoreRecord,
)
from obygaze_models.experiments.scores import class_counts, score_models, score_test_sets
from obygaze_models.intervals import LEVEL, REPLICATES
from obygaze_models.leaks import Leak, find_leaks, footage_of
from obygaze_models.metrics import TREC
from obygaze_models.model_card import unreliable_concepts
from obygaze_models.protocols import Fold
from obygaze_models.stores import store_fingerprint
from obygaze_models.tasks import Task, official_measure, uses_external_data
from obygaze_models.warnings import RunWarning, synthetic_warnings

__all__ = ["about_features", "about_model", "make_record"]

#: Of what was skipped so many are named among the warnings; run.json has them all.
SHOWN = 10


def make_record(
    experiment: Experiment,
    manifest: Manifest,
    store: Store,
    plan: Plan,
    problems: Sequence[Problem],
    joined: Join,
    evaluation: Evaluation,
    models: Sequence[Mapping[str, Any]],
    *,
    outside: Sequence[OutsideModel] = (),
    versions: dict[str, str],
    files: dict[str, str],
    started: str,
    seconds: float,
) -> RunRecord:
    """All of ``run.json``."""
    data, scheme = evaluation.data, manifest.label_scheme(experiment.labels)
    tasks = [task for problem in problems for task in problem.tests]
    measure = official_measure(manifest.labels(experiment.labels), scheme, tasks)
    leaked = {
        problem.train.name: find_leaks(
            evaluation.folds[problem.train.name],
            data.ids,
            seen={r: rows for (t, r), rows in evaluation.seen.items() if t == problem.train.name},
            meet=partial(overlapping, manifest.items),
        )
        for problem in problems
    }
    attributes = store.attributes
    return RunRecord(
        experiment=describe_experiment(experiment),
        goal=experiment.goal,
        models=[*experiment.learners, *(model.name for model in outside)],
        protocol=plan.protocol,
        split=plan.split,
        warnings=[
            *_warnings(manifest, attributes, evaluation, leaked),
            *(_without_features(plan, joined) if measure else []),
            *_concept_warnings(experiment, plan, models),
            *evaluation.warnings,
            *_unsaved_warnings(models),
            *_ignored_warnings(experiment),
            *map(_outside_warning, outside),
        ],
        ablated=_ablated(models),
        manifest=ManifestRecord(
            name=manifest.name,
            version=manifest.version,
            digest=manifest.digest,
            labels=manifest.labels(experiment.labels).name,
            levels={level.code: level.name for level in scheme.levels},
            licence=manifest.licence,
            citation=manifest.citation,
        ),
        official=Official(measure=measure, external_data=uses_external_data(attributes["backbone"]))
        if measure
        else None,
        store=StoreRecord(
            name=attributes["name"],
            items_digest=attributes["items_digest"],
            backbone=attributes["backbone"],
            preprocessing=attributes["preprocessing"],
            precision=attributes["precision"],
            fingerprint=store_fingerprint(store),
        ),
        features=Features(**about_features(experiment, store), frames=experiment.frame_array),
        join=joined,
        fits=[
            FitRecord(
                task=problem.train.name,
                fit=fold.index,
                name=fold.name,
                seed=fold.seed,
                train=class_counts(labels[fold.train], problem.train.classes),
                validation=class_counts(labels[fold.validation], problem.train.classes),
            )
            for problem in problems
            for labels in [problem.train.labels(data)]
            for fold in evaluation.folds[problem.train.name]
        ],
        skipped=evaluation.skipped,
        leaked=sorted({clip for leaks in leaked.values() for leak in leaks for clip in leak.ids}),
        leaks=[
            LeakCount(
                task=task,
                fit=leak.fold,
                test=leak.test,
                clips=leak.clips,
                train=len(leak.train),
                validation=len(leak.validation),
                otherwise=len(leak.otherwise),
            )
            for task, leaks in leaked.items()
            for leak in leaks
        ],
        films=_films(evaluation),
        tests=score_test_sets(evaluation.predictions, seed=experiment.seed),
        scores=score_models(
            evaluation.predictions,
            data.groups.tolist(),
            seed=experiment.seed,
            trec_ids=data.ids if measure == TREC else None,
        ),
        intervals=Intervals(level=LEVEL, draws_of_films=REPLICATES, seed=experiment.seed),
        versions=versions,
        machine={"system": platform.platform(), "cores": os.cpu_count()},
        files=files,
        started=started,
        seconds=seconds,
    )


def describe_experiment(experiment: Experiment) -> dict[str, Any]:
    """Every setting as JSON values; paths have slashes, and URLs no secrets."""
    values: dict[str, Any] = asdict(experiment)
    stores = [
        redact_url(store) if is_url(store) else Path(store).as_posix()
        for store in experiment.stores
    ]
    values["manifest"] = experiment.manifest.as_posix()
    values["store"] = stores if isinstance(experiment.store, tuple) else stores[0]
    values["predictions"] = [path.as_posix() for path in experiment.predictions]
    return values


def library_versions(experiment: Experiment) -> dict[str, str]:
    """Python, ours, and the libraries that decide the numbers; those of its estimators, too."""
    names = ("obygaze", "numpy", "scikit-learn", "torch")
    versions = {"python": platform.python_version(), **{name: version(name) for name in names}}
    for spec in experiment.learners.values():
        with suppress(PluginError):  # of which each fit tells
            versions |= plugin_versions(make_estimator(spec.name, spec.options))
    return versions


def about_features(experiment: Experiment, store: Store, *, frames: bool = False) -> dict[str, Any]:
    """What a saved model must know of the features, or frames, it fits, to refuse others."""
    attributes = store.attributes
    array = experiment.frames if frames else experiment.array
    return {
        "backbone": attributes["backbone"],
        "preprocessing": attributes["preprocessing"],
        "array": array,
        "shape": next(list(spec.shape) for spec in store.specs if spec.name == array),
        "pooling": None if frames else experiment.pooling,
    }


def about_model(
    name: str,
    experiment: Experiment,
    task: Task,
    fit: Fit,
    data: ClipDataset,
    manifest: Manifest,
    store: Store,
) -> dict[str, Any]:
    """What is kept with a saved model: what it tells apart, by what, and from which clips."""
    features = about_features(experiment, store, frames=fit.reads == "frames")
    seen = sorted(data.ids[row] for row in fit.seen.tolist())
    return {
        "model": name,
        "estimator": experiment.learners[name].name,
        "options": experiment.learners[name].table,
        "reads": fit.reads,
        "task": task.name,
        "learns": dict(vars(task)),
        "classes": list(task.classes),
        "facts": fit.facts,
        "features": features,
        # Whoever scores it again can see which clips it has seen, also under other ids.
        "seen": seen,
        "footage": footage_of(manifest.items, seen),
        "warnings": [
            asdict(warning) for warning in synthetic_warnings(manifest.items, features["backbone"])
        ],
    }


def _warnings(
    manifest: Manifest,
    attributes: Mapping[str, Any],
    evaluation: Evaluation,
    leaked: Mapping[str, Sequence[Leak]],
) -> list[RunWarning]:
    """What a reader must know before any score."""
    warnings = synthetic_warnings(manifest.items, attributes["backbone"])
    for task, leaks in leaked.items():
        tests = dict.fromkeys(leak.test for leak in leaks)
        warnings += [_leak_warning(test, evaluation.folds[task], leaks) for test in tests]
    warnings += [
        RunWarning("skipped", skip.task, f"{skip.task}, {skip.what}: {skip.why}.")
        for skip in evaluation.skipped[:SHOWN]
    ]
    if (more := len(evaluation.skipped) - SHOWN) > 0:
        warnings.append(RunWarning("skipped", "", f"{more} more, which run.json names."))
    return warnings


def _without_features(plan: Plan, joined: Join) -> list[RunWarning]:
    """Test clips that the official measure would hold against the run."""
    if plan.protocol != "official":
        return []
    lost = [clip for clip in joined.without_features if plan.fold_of.get(clip) == plan.last]
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


def _concept_warnings(
    experiment: Experiment, plan: Plan, models: Sequence[Mapping[str, Any]]
) -> list[RunWarning]:
    """How many concepts bottlenecks could not learn, or learnt badly; and from which file."""
    warnings = []
    for name in experiment.learners:
        facts_of_fits = [model["facts"] for model in models if model["model"] == name]
        unreliable = {name for facts in facts_of_fits for name in unreliable_concepts(facts)}
        skipped = {name for facts in facts_of_fits for name in facts.get("skipped", {})}
        parts = [f"{counted(len(unreliable), 'concept is', 'concepts are')} unreliable"]
        parts = parts * bool(unreliable)
        parts += [f"{counted(len(skipped), 'is', 'are')} left out"] * bool(skipped)
        if parts:
            warnings.append(
                RunWarning(
                    "concepts",
                    name,
                    f"{name}: in one or more of {counted(len(facts_of_fits), 'model')} "
                    f"{' and '.join(parts)}; models.jsonl says which, and why.",
                )
            )
    bottlenecks = [model for model in models if "concepts" in model["facts"]]
    if plan.protocol == "released" and bottlenecks and plan.split != RELEASED_CONCEPTS:
        warnings.append(
            RunWarning(
                "released-concepts",
                "",
                f"The bottlenecks learnt their concepts from {plan.split}; the authors learnt "
                f"them from {RELEASED_CONCEPTS}: give these an experiment of their own, with that "
                "split.",
            )
        )
    return warnings


def _ablated(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each hybrid its mean accuracy on validation, with and without its concepts."""
    accuracies: dict[str, list[Mapping[str, float]]] = {}
    for model in models:
        if "accuracy" in model["facts"]:
            values = model["facts"]["accuracy"]
            parts = {key: value for key, value in values.items() if isinstance(value, float)}
            accuracies.setdefault(model["model"], []).append(parts)
    return {
        name: {key: float(np.mean([fit[key] for fit in fits])) for key in fits[0]}
        for name, fits in accuracies.items()
    }


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


def _films(evaluation: Evaluation) -> Films:
    """How many films the test clips are of, and how many of those also train in the same fold."""
    films = evaluation.data.groups.tolist()
    tested: set[str] = set()
    also_trained: set[str] = set()
    for folds in evaluation.folds.values():
        for fold in folds:
            test_films = {films[row] for rows in fold.tests.values() for row in rows.tolist()}
            tested |= test_films - {""}
            also_trained |= (test_films - {""}) & {films[row] for row in fold.train.tolist()}
    return Films(tested=len(tested), also_trained=len(also_trained))
