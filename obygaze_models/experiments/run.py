"""Run an experiment and keep all that came of it in a folder.

======================  ==================================================================
``run.json``            experiment, data and their digests, join, fits, scores, versions
``predictions.csv``     a row for each clip of each test set, model and run
``history.jsonl``       a line for each epoch of each model
``models.jsonl``        a line for each model: its folder, what it chose, what it was given
``clips.csv``           the annotated clips, those that took no part too, and why not
``explanations.jsonl``  what the models made of each test clip's concepts
``models/``             a folder for each model, which `load_model` reads
======================  ==================================================================

The same experiment on the same machine writes the same bytes, but for ``started`` and
``seconds`` in ``run.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from obygaze_features.common.files import new_folder, sha256_of, write_text
from obygaze_features.common.tables import format_table
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_features.manifests import Manifest
from obygaze_models.dataset import ClipDataset
from obygaze_models.experiments.clip_table import clip_table
from obygaze_models.experiments.evaluate import Prediction, Trained, evaluate
from obygaze_models.experiments.experiment import Experiment, Problem, folder_name
from obygaze_models.experiments.explanations import explain_models
from obygaze_models.experiments.make_record import about_features, about_model, make_record
from obygaze_models.experiments.plan import Plan, make_plan
from obygaze_models.experiments.record import MAKE, RECORD, RunRecord, read_record, write_record
from obygaze_models.protocols import Fold
from obygaze_models.stores import open_stores

__all__ = [
    "FILES",
    "Run",
    "read_run",
    "run_experiment",
    "saved_models",
]

FILES = ("predictions.csv", "clips.csv", "explanations.jsonl", "models.jsonl")
"""Those whose digests ``run.json`` keeps: its scores and its page are of these and no others."""


@dataclass(frozen=True)
class Run:
    """A run folder and what its ``run.json`` says."""

    folder: Path
    record: RunRecord


def run_experiment(experiment: Experiment, output: Path, *, overwrite: bool = False) -> Run:
    """Train and test what `experiment` says, and write the folder `output`.

    Parameters
    ----------
    experiment
        See `Experiment`; `load_experiment` reads one from a file.
    output
        The run folder; it appears complete or not at all.
    overwrite
        Replace an earlier run that lies there.
    """
    from obygaze_models.persistence import save_model

    started, clock = datetime.now(UTC), time.monotonic()
    _refuse_to_lose(output)
    with new_folder(output, overwrite=overwrite, marker=RECORD, allow_missing=True) as folder:
        manifest = Manifest.load(experiment.manifest)
        scheme = manifest.label_scheme(experiment.labels)
        experiment = experiment.in_codes(scheme)
        store = open_stores(experiment.store)
        problems = experiment.problems(scheme)
        plan = make_plan(experiment, manifest, problems)
        wanted = set.union(
            *(task.levels for problem in problems for task in (problem.train, *problem.tests))
        )
        known, joined = plan.join(experiment, manifest, store, wanted)
        features = about_features(experiment, store)
        models: list[dict[str, Any]] = []
        every: list[Trained] = []

        def keep(trained: Trained) -> None:
            every.append(trained)
            name = _model_name(trained)
            about = about_model(
                trained.model, experiment, trained.task, trained.fitted, known, manifest, features
            )
            save_model(
                trained.fitted.model,
                folder / name,
                {**about, "fit": trained.draw.index},
                durable=False,
            )
            long = ("features", "seen", "footage", "warnings")
            brief = {key: value for key, value in about.items() if key not in long}
            models.append(
                {"folder": name, **brief, "fit": trained.draw.index, "seed": trained.draw.seed}
            )

        evaluation = evaluate(
            known,
            problems,
            lambda problem: _draws(experiment, plan, known, problem),
            experiment.learners,
            keep=keep,
        )
        write_text(folder / "predictions.csv", _table(known, evaluation.predictions))
        write_text(folder / "history.jsonl", _lines(evaluation.history))
        write_text(folder / "models.jsonl", _lines(models))
        labels = manifest.labels(experiment.labels)
        write_text(folder / "clips.csv", clip_table(manifest, labels, plan.fold_of, joined, wanted))
        write_text(folder / "explanations.jsonl", explain_models(known, every))
        record = make_record(
            experiment,
            manifest,
            store,
            plan,
            problems,
            joined,
            evaluation,
            models,
            files={name: sha256_of(folder / name) for name in FILES},
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 1),
        )
        write_record(folder, record)
    return read_run(output)


def _draws(experiment: Experiment, plan: Plan, known: ClipDataset, problem: Problem) -> list[Fold]:
    """The protocol's runs, once for each seed, numbered through."""
    seeds = experiment.seeds or (experiment.seed,)
    every = [
        replace(draw, name=f"{draw.name}, seed {seed}") if len(seeds) > 1 else draw
        for seed in seeds
        for draw in plan.folds(known, problem, seed=seed)
    ]
    return [replace(draw, index=run) for run, draw in enumerate(every)]


def read_run(folder: Path) -> Run:
    """Read a run folder that `run_experiment` wrote."""
    return Run(folder, read_record(folder))


def saved_models(run: Run) -> list[dict[str, Any]]:
    """The lines of a run's ``models.jsonl``; each ``folder`` lies within the run's."""
    path = run.folder / "models.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise ExperimentError(
            f"{path} cannot be read ({problem}); run it again with: {MAKE}"
        ) from None
    models = []
    for number, line in enumerate(lines, start=1):
        try:
            said = json.loads(line)
            inside = (run.folder / said["folder"]).resolve().is_relative_to(run.folder.resolve())
            known = isinstance(said["facts"], dict) and said.keys() >= {"model", "task", "fit"}
        except (ValueError, KeyError, TypeError):
            inside = known = False
        if not (inside and known):
            raise ExperimentError(
                f"{path}, line {number}: not a model of this run; the file is damaged or cut "
                f"short, run it again with: {MAKE}"
            )
        models.append(said)
    return models


def _refuse_to_lose(output: Path) -> None:
    """Other models take the place of earlier ones; what is not of a run is not lost unasked."""
    own = {
        RECORD, "predictions.csv", "history.jsonl", "models.jsonl", "clips.csv",
        "explanations.jsonl", "models", "report.html",
    }  # fmt: skip
    if (output / RECORD).is_file() and (
        other := sorted({path.name for path in output.iterdir()} - own)
    ):
        raise OutputExists(
            f"{output} holds {other[0]}, which is not of a run; move it elsewhere, or choose "
            "another name"
        )


def _model_name(trained: Trained) -> str:
    """``models/mlp/HN-vs-S-0``: letters, digits and a few signs, on any file system."""
    model, task = map(folder_name, (trained.model, trained.task.name))
    return f"models/{model}/{task}-{trained.draw.index}"


def _table(known: ClipDataset, predictions: Sequence[Prediction]) -> str:
    """Two classes: the label as 0 or 1 and the probability of 1; more: both by class."""
    classes = predictions[0].test.classes
    columns: dict[str, list[Any]] = {name: [] for name in ("id", "model", "fit", "test", "label")}
    said = ["probability"] if len(classes) == 2 else [f"probability_{name}" for name in classes]
    columns |= {name: [] for name in said}
    for one in predictions:
        columns["id"] += [known.ids[row] for row in one.rows.tolist()]
        columns["model"] += [one.model] * len(one.rows)
        columns["fit"] += [str(one.draw.index)] * len(one.rows)
        columns["test"] += [one.test.name] * len(one.rows)
        labels = one.labels.tolist()
        columns["label"] += (
            list(map(str, labels)) if len(classes) == 2 else [classes[label] for label in labels]
        )
        of = one.probabilities[:, 1:] if len(classes) == 2 else one.probabilities
        for name, column in zip(said, of.T.tolist(), strict=True):
            columns[name] += map(repr, column)
    return format_table({**columns})


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
