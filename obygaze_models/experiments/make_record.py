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
from numpy.typing import NDArray

from obygaze_features.common.text import counted, redact_url
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.splits import overlapping
from obygaze_features.manifests.statistics import film_titles
from obygaze_features.store import Store
from obygaze_features.store.remote import is_url
from obygaze_models.data.dataset import ClipDataset, Join
from obygaze_models.data.leaks import find_leaks, footage_of
from obygaze_models.data.protocols import BALANCED_PROTOCOLS, FILM_CLIPS, Fold
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.tasks import Task, official_measure, uses_external_data
from obygaze_models.data.warnings import origin_warnings
from obygaze_models.estimators.plugins import PluginError, plugin_versions
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.evaluate import Evaluation
from obygaze_models.experiments.experiment import Experiment, Problem
from obygaze_models.experiments.fit import Fit
from obygaze_models.experiments.outside import OutsideModel
from obygaze_models.experiments.plan import Plan
from obygaze_models.experiments.record import (
    Features,
    Films,
    FitRecord,
    Intervals,
    LeakCount,
    Machine,
    ManifestRecord,
    Official,
    RunRecord,
    StoreRecord,
)
from obygaze_models.experiments.run_warnings import warnings_of_run
from obygaze_models.experiments.scores import class_counts, score_models, score_test_sets
from obygaze_models.scoring.intervals import LEVEL, REPLICATES
from obygaze_models.scoring.metrics import TREC

__all__ = ["about_features", "about_model", "describe_films", "make_record"]


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
        warnings=warnings_of_run(
            experiment,
            manifest,
            attributes,
            plan,
            joined,
            evaluation,
            models,
            leaked,
            outside,
            official=measure is not None,
        ),
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
                drawn_from=fold.drawn_from,
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
        films=describe_films(
            [fold for folds in evaluation.folds.values() for fold in folds],
            data,
            manifest,
            problems,
            plan,
        ),
        tests=score_test_sets(
            evaluation.predictions,
            {task.name: task.classes for task in tasks},
            seed=experiment.seed,
        ),
        scores=score_models(
            evaluation.predictions,
            dict(zip(data.ids, data.groups.tolist(), strict=True)),
            seed=experiment.seed,
            trec=measure == TREC,
        ),
        intervals=Intervals(level=LEVEL, draws_of_films=REPLICATES, seed=experiment.seed),
        versions=versions,
        machine=Machine(system=platform.platform(), cores=os.cpu_count()),
        files=files,
        started=started,
        seconds=seconds,
        balance=experiment.balance or BALANCED_PROTOCOLS.get(plan.protocol, ""),
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
            asdict(warning) for warning in origin_warnings(manifest.items, store.attributes)
        ],
    }


def _ablated(models: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each hybrid its mean accuracy on validation, with and without its concepts."""
    accuracies: dict[str, list[Mapping[str, float]]] = {}
    for model in models:
        if isinstance(values := model["facts"].get("accuracy"), dict):
            parts = {key: value for key, value in values.items() if isinstance(value, float)}
            accuracies.setdefault(model["model"], []).append(parts)
    return {
        name: {
            key: float(np.mean([fit[key] for fit in fits]))
            for key in fits[0]
            if all(key in fit for fit in fits)
        }
        for name, fits in accuracies.items()
    }


def describe_films(
    folds: Sequence[Fold],
    data: ClipDataset,
    manifest: Manifest,
    problems: Sequence[Problem],
    plan: Plan,
) -> Films:
    """How many films the test clips are of, how many of those train in the same fold, and why the
    others are not tested.
    """
    films, titles = data.groups.tolist(), film_titles(manifest)
    tested: set[str] = set()
    also_trained: set[str] = set()
    for fold in folds:
        test_films = {films[row] for rows in fold.tests.values() for row in rows.tolist()} - {""}
        tested |= test_films
        also_trained |= test_films & {films[row] for row in fold.train.tolist()}
    tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
    return Films(
        tested=len(tested),
        also_trained=len(also_trained),
        titles={film: titles.get(film, film) for film in sorted(tested)},
        untested={
            titles.get(film, film): _why_untested(data, data.groups == film, tasks, plan)
            for film in sorted(set(films) - tested - {""})
        },
    )


def _why_untested(
    data: ClipDataset, of_film: NDArray[np.bool_], tasks: Sequence[Task], plan: Plan
) -> str:
    """Why the clips of a film are not tested."""
    for task in tasks:
        labels = task.labels(data)[of_film]
        sizes = {name: int((labels == code).sum()) for code, name in enumerate(task.classes)}
        rarest = min(sizes, key=sizes.__getitem__)
        if plan.protocol == "leave-film-out" and sizes[rarest] < FILM_CLIPS:
            clips = counted(sizes[rarest], "clip")
            return f"{clips} of {rarest}; {FILM_CLIPS} are needed to test"
        if len(sizes) == 2 and not sizes[rarest]:
            return f"no clip of {rarest}"
    return "not in a test fold"
