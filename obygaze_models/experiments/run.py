"""Run an experiment, and write its folder (see `run_folder`).

The same experiment on the same machine writes the same bytes, but for ``started`` and
``seconds`` in ``run.json``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from obygaze_features.common.files import new_folder, sha256_of, write_text
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_features.manifests import Manifest
from obygaze_models.dataset import ClipDataset
from obygaze_models.experiments.evaluate import Prediction, Trained, evaluate
from obygaze_models.experiments.experiment import Experiment, Problem, folder_name, load_experiment
from obygaze_models.experiments.explanations import explain_models
from obygaze_models.experiments.make_record import about_features, about_model, make_record
from obygaze_models.experiments.plan import Plan, make_plan
from obygaze_models.experiments.record import RECORD, write_record
from obygaze_models.experiments.run_folder import (
    FILES,
    FitPredictions,
    Run,
    format_clips,
    format_lines,
    format_predictions,
    load_run,
)
from obygaze_models.protocols import Fold
from obygaze_models.stores import open_stores

__all__ = ["run_experiment"]


def run_experiment(
    experiment: Experiment | str | Path, output: str | Path, *, overwrite: bool = False
) -> Run:
    """Train and test what `experiment` says, and write the folder `output`.

    Parameters
    ----------
    experiment
        An `Experiment`, or the TOML file of one.
    output
        The run folder; it appears complete or not at all.
    overwrite
        Replace an earlier run that lies there.
    """
    from obygaze_models.persistence import save_model

    if not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    output = Path(output)
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
            long = ("features", "seen", "footage", "warnings")
            brief = {key: value for key, value in about.items() if key not in long}
            index, seed = trained.draw.index, trained.draw.seed
            line = {"folder": name, **brief, "fit": index, "seed": seed}
            try:
                save_model(
                    trained.fitted.model, folder / name, {**about, "fit": index}, durable=False
                )
            except ExperimentError as problem:  # its scores stay
                line["not_saved"] = str(problem)
            models.append(line)

        evaluation = evaluate(
            known,
            problems,
            lambda problem: _draws(experiment, plan, known, problem),
            experiment.learners,
            keep=keep,
        )
        fits = [_fit_predictions(known, prediction) for prediction in evaluation.predictions]
        classes = evaluation.predictions[0].test.classes
        write_text(folder / "predictions.csv", format_predictions(classes, fits))
        write_text(folder / "history.jsonl", format_lines(evaluation.history))
        write_text(folder / "models.jsonl", format_lines(models))
        labels = manifest.labels(experiment.labels)
        write_text(
            folder / "clips.csv", format_clips(manifest, labels, plan.fold_of, joined, wanted)
        )
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
    return load_run(output)


def _draws(experiment: Experiment, plan: Plan, known: ClipDataset, problem: Problem) -> list[Fold]:
    """The protocol's runs, once for each seed, numbered through."""
    seeds = experiment.seeds or (experiment.seed,)
    every = [
        replace(draw, name=f"{draw.name}, seed {seed}") if len(seeds) > 1 else draw
        for seed in seeds
        for draw in plan.folds(known, problem, seed=seed)
    ]
    return [replace(draw, index=run) for run, draw in enumerate(every)]


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


def _fit_predictions(known: ClipDataset, prediction: Prediction) -> FitPredictions:
    table = prediction.probabilities
    return FitPredictions(
        prediction.model,
        prediction.draw.index,
        prediction.test.name,
        [known.ids[row] for row in prediction.rows.tolist()],
        prediction.labels,
        table[:, 1] if table.shape[1] == 2 else table,
    )
