"""The heart of an experiment: arrays in, predictions out; no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from obygaze_features.common.progress import progress
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.registry import make_estimator
from obygaze_models.experiments.protocol import Draw, leak_free_draws, leaks, rows_to_test
from obygaze_models.experiments.task import LevelTask

__all__ = ["Clips", "Evaluation", "Prediction", "evaluate"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Clips:
    """What is known of each clip, row by row."""

    ids: list[str]
    levels: list[str]
    folds: Array
    features: Array


@dataclass(frozen=True)
class Prediction:
    """What one model of one run said about one clip of one test set."""

    id: str
    model: str
    run: int
    test: str
    label: int
    probability: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that came of training and testing."""

    clips: Clips
    draws: list[Draw]
    predictions: list[Prediction]
    history: list[dict[str, Any]]
    leaked: list[str]


def evaluate(
    clips: Clips,
    train: LevelTask,
    tests: Sequence[LevelTask],
    *,
    fold_names: Sequence[int],
    estimators: Sequence[str],
    seed: int,
) -> Evaluation:
    """Train every estimator in every run, and let it predict every test set."""
    broken = np.flatnonzero(~np.isfinite(clips.features).all(axis=1))
    if len(broken):
        names = ", ".join(clips.ids[row] for row in broken[:5])
        raise ExperimentError(
            f"{len(broken)} clips have features that are not finite numbers, such as {names}; "
            "verify the store and extract them again"
        )
    labels = train.labels(clips.levels)
    draws = leak_free_draws(clips.folds, labels, fold_names=fold_names, seed=seed)
    test_labels = {task.name: task.labels(clips.levels) for task in tests}
    test_sets = {
        name: rows_to_test(clips.folds, values, fold_names=fold_names)
        for name, values in test_labels.items()
    }
    tested = np.unique(np.concatenate(list(test_sets.values())))

    predictions, history = [], []
    todo = [(name, draw) for name in estimators for draw in draws]
    # Steps this small are faster on one thread than on several.
    with threadpool_limits(1):
        for name, draw in progress(todo, "train", unit="model"):
            model = make_estimator(name, random_state=draw.seed)
            model.fit(
                clips.features[draw.train],
                labels[draw.train],
                clips.features[draw.validation],
                labels[draw.validation],
            )
            history += [{"model": name, "run": draw.run, **epoch} for epoch in model.history_]
            said = dict(zip(tested, model.predict_proba(clips.features[tested])[:, 1], strict=True))
            predictions += [
                Prediction(
                    clips.ids[row],
                    name,
                    draw.run,
                    test,
                    int(test_labels[test][row]),
                    float(said[row]),
                )
                for test, rows in test_sets.items()
                for row in rows
            ]
    return Evaluation(clips, draws, predictions, history, leaks(draws, clips.ids, tested))
