"""Make the record of a run: its data, fits, scores and warnings."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from obygaze_features.manifests.splits import overlapping
from obygaze_models.data.folds import find_leaks
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.data.stores import store_fingerprint
from obygaze_models.data.tasks import official_measure, uses_external_data
from obygaze_models.experiments.outcome import Outcome
from obygaze_models.experiments.plan import Plan, about_features, describe_experiment
from obygaze_models.experiments.record import (
    Features,
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


def make_record(
    plan: Plan, outcome: Outcome, *, files: dict[str, str], started: str, seconds: float
) -> RunRecord:
    """All of ``run.json``."""
    experiment, manifest, store, data = plan.experiment, plan.manifest, plan.store, plan.data
    labels, scheme = manifest.labels(experiment.labels), manifest.label_scheme(experiment.labels)
    tests = [task for problem in plan.problems for task in problem.tests]
    measure = official_measure(labels, scheme, tests)
    leaked = {
        task: find_leaks(
            folds,
            data.ids,
            seen={fit: rows for (of, fit), rows in outcome.seen.items() if of == task},
            meet=partial(overlapping, manifest.items),
        )
        for task, folds in plan.folds.items()
    }
    attributes = store.attributes
    return RunRecord(
        experiment=describe_experiment(experiment),
        goal=experiment.goal,
        models=[*experiment.learners, *(model.name for model in plan.outside)],
        protocol=plan.division.protocol,
        split=plan.division.split,
        warnings=warnings_of_run(plan, outcome, leaked, official=measure is not None),
        ablated=_ablated(outcome.models),
        manifest=ManifestRecord(
            name=manifest.name,
            version=manifest.version,
            digest=manifest.digest,
            labels=labels.name,
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
        join=plan.join,
        fits=[
            FitRecord(
                task=problem.train.name,
                fit=fold.index,
                name=fold.name,
                seed=fold.seed,
                train=class_counts(codes[fold.train], problem.train.classes),
                validation=class_counts(codes[fold.validation], problem.train.classes),
                drawn_from=fold.drawn_from,
            )
            for problem in plan.problems
            for codes in [problem.train.labels(data)]
            for fold in plan.folds[problem.train.name]
        ],
        skipped=outcome.skipped,
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
        films=plan.films,
        tests=score_test_sets(
            outcome.predictions,
            {task.name: task.classes for task in tests},
            seed=experiment.seed,
        ),
        scores=score_models(
            outcome.predictions,
            dict(zip(data.ids, data.groups.tolist(), strict=True)),
            seed=experiment.seed,
            trec=measure == TREC,
        ),
        intervals=Intervals(level=LEVEL, draws_of_films=REPLICATES, seed=experiment.seed),
        versions=plan.identity["versions"],
        machine=Machine(system=platform.platform(), cores=os.cpu_count()),
        files=files,
        started=started,
        seconds=seconds,
        balance=experiment.balance or PROTOCOLS[plan.division.protocol].default_balance,
    )


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
