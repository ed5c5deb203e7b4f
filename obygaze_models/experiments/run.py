"""Run an experiment and keep all that came of it in a folder.

======================  ==================================================================
``run.json``            experiment, data and their digests, join, draws, scores, versions
``predictions.csv``     a row for each clip of each test set, model and run
``history.jsonl``       a line for each epoch of each model
======================  ==================================================================

The same experiment on the same machine writes the same bytes, but for ``started`` and
``seconds`` in ``run.json``.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from obygaze_features.common.files import new_folder, to_json, write_text
from obygaze_features.common.headers import read_format
from obygaze_features.common.tables import format_table
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store
from obygaze_models.experiments.evaluate import Prediction, evaluate
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.join import join
from obygaze_models.experiments.record import make_record

__all__ = ["FORMAT_VERSION", "Run", "read_run", "run_experiment"]

FORMAT = "obygaze-run"
FORMAT_VERSION = 1
RECORD = "run.json"
KEYS = (
    "experiment", "protocol", "cautions", "manifest", "store", "join", "draws", "leaked", "films",
    "tests", "scores", "versions", "machine", "started", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run folder and what its ``run.json`` says."""

    folder: Path
    record: dict[str, Any]


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
    started, clock = datetime.now(UTC), time.monotonic()
    with new_folder(output, overwrite=overwrite, marker=RECORD) as folder:
        manifest = Manifest.load(experiment.manifest)
        store = open_store(experiment.store)
        clips, joined = join(experiment, manifest, store)
        evaluation = evaluate(
            clips,
            experiment.train_task,
            experiment.test_tasks,
            fold_names=manifest.split(experiment.split).folds,
            estimators=experiment.estimators,
            seed=experiment.seed,
        )
        record = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **make_record(experiment, manifest, store, joined, evaluation),
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - clock, 1),
        }
        write_text(folder / "predictions.csv", _table(evaluation.predictions))
        write_text(folder / "history.jsonl", _lines(evaluation.history))
        write_text(folder / RECORD, to_json(record))
    return read_run(output)


def read_run(folder: Path) -> Run:
    """Read a run folder that `run_experiment` wrote."""
    make = "obygaze models run EXPERIMENT.toml"
    record = read_format(folder / RECORD, FORMAT, FORMAT_VERSION, ExperimentError, make=make)
    missing = [key for key in KEYS if key not in record]
    if missing:
        raise ExperimentError(f"{folder / RECORD} is not complete: it has no {missing[0]}")
    return Run(folder, record)


def _table(predictions: list[Prediction]) -> str:
    return format_table(
        {
            "id": [p.id for p in predictions],
            "model": [p.model for p in predictions],
            "run": [str(p.run) for p in predictions],
            "test": [p.test for p in predictions],
            "label": [str(p.label) for p in predictions],
            "probability": [repr(p.probability) for p in predictions],
        }
    )


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
