"""What ``run.json`` says of a run: its data, its draws, its scores, and what to beware of."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.manifests import Manifest
from obygaze_features.store import FeatureStore
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.evaluate import Evaluation, Prediction
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.join import Join
from obygaze_models.experiments.metrics import score
from obygaze_models.experiments.protocol import PROTOCOL

__all__ = ["make_record"]


def make_record(
    experiment: Experiment,
    manifest: Manifest,
    store: FeatureStore,
    joined: Join,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """All of ``run.json`` but the times."""
    labels = experiment.train_task.labels(evaluation.clips.levels)
    return {
        "experiment": {
            key: value.as_posix() if isinstance(value, Path) else value
            for key, value in asdict(experiment).items()
        },
        "protocol": PROTOCOL,
        "cautions": _cautions(manifest, store.attributes, evaluation.leaked),
        "manifest": {
            "name": manifest.name,
            "version": manifest.version,
            "digest": manifest.digest,
            "labels": manifest.labels(experiment.labels).name,
            "levels": _level_names(manifest),
            "licence": manifest.licence,
            "citation": manifest.citation,
        },
        "store": {
            key: store.attributes[key]
            for key in ("name", "items_digest", "backbone", "preprocessing", "precision")
        },
        "join": asdict(joined),
        "draws": [
            {
                "run": draw.run,
                "seed": draw.seed,
                "validation_fold": draw.validation_fold,
                "train": _counts(labels[draw.train]),
                "validation": _counts(labels[draw.validation]),
            }
            for draw in evaluation.draws
        ],
        "leaked": evaluation.leaked,
        "films": _films(manifest, evaluation),
        "tests": _tests(evaluation.predictions),
        "scores": _scores(evaluation.predictions),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("obygaze", "numpy", "scikit-learn", "torch")},
        },
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
    }


def _cautions(manifest: Manifest, attributes: Mapping[str, Any], leaked: list[str]) -> list[str]:
    """What a reader must know before any score."""
    said = {
        ("clips", "are"): " / ".join(dict.fromkeys(manifest.items.extra.get("synthetic", []))),
        ("backbone", "is"): attributes["backbone"]["config"].get("synthetic"),
    }
    cautions = [
        f"Not a real result: the {what} {verb} synthetic ({text})."
        for (what, verb), text in said.items()
        if text
    ]
    if leaked:
        cautions.append(
            f"LEAKAGE: {len(leaked)} test clips are in a training or validation set, "
            f"such as {', '.join(leaked[:5])}"
        )
    return cautions


def _level_names(manifest: Manifest) -> dict[str, str]:
    """Level code -> its name in words."""
    assert manifest.scheme is not None, "labels were read by it"
    return {level.code: level.name for level in manifest.scheme.levels}


def _films(manifest: Manifest, evaluation: Evaluation) -> dict[str, int]:
    """How many films the test clips are of, and how many of those are in training, too."""
    ids = evaluation.clips.ids
    tested = {manifest[p.id].film for p in evaluation.predictions}
    trained = {manifest[ids[row]].film for draw in evaluation.draws for row in draw.train}
    return {"tested": len(tested), "also_trained": len(tested & trained)}


def _tests(predictions: Iterable[Prediction]) -> dict[str, Any]:
    """Each test set's size, and what guessing scores at its share of positives."""
    label_of: dict[str, dict[str, int]] = {}
    for p in predictions:
        label_of.setdefault(p.test, {})[p.id] = p.label
    tests = {}
    for name, labels in label_of.items():
        share = sum(labels.values()) / len(labels)
        tests[name] = {
            **_counts(list(labels.values())),
            "share": share,
            "baselines": baselines(share),
        }
    return tests


def _scores(predictions: Iterable[Prediction]) -> list[dict[str, Any]]:
    """For each model and test set the scores of each run, their mean and standard deviation.

    The deviation is that of these very runs (divided by n), as numpy gives it.
    """
    runs: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    for (model, _, test), group in groupby(predictions, lambda p: (p.model, p.run, p.test)):
        pairs = np.array([(p.label, p.probability) for p in group])
        runs.setdefault((model, test), []).append(score(pairs[:, 0].astype(int), pairs[:, 1]))
    return [
        {
            "model": model,
            "test": test,
            "mean": _over(np.mean, of),
            "std": _over(np.std, of),
            "runs": of,
        }
        for (model, test), of in runs.items()
    ]


def _over(statistic: Any, runs: list[dict[str, float | None]]) -> dict[str, float | None]:
    """A statistic of each metric over the runs in which it is defined; None if in none."""
    result: dict[str, float | None] = {}
    for metric in runs[0]:
        values = [run[metric] for run in runs if run[metric] is not None]
        result[metric] = float(statistic(values)) if values else None
    return result


def _counts(labels: Any) -> dict[str, int]:
    return {"clips": len(labels), "positives": int(np.sum(labels))}
