"""Fits of one estimator on given rows, as in a run."""

from dataclasses import replace
from typing import Any

import obygaze_models as om

# The rows of a single fit are given, which no public splitter lets a test do.
from obygaze_models.data.folds import Fold
from obygaze_models.data.tasks import Class, Task
from obygaze_models.experiments.fit import fit_fold


def fit_on(
    learner: om.Learner,
    data: om.ClipDataset,
    train: Any,
    validation: Any,
    labels: Any,
) -> om.Model:
    """Return the model of these labels, which are classes from 0, or -1."""
    names = [f"level:{code}" for code in range(int(labels.max()) + 1)]
    task = Task("task", "task", tuple(Class(name, name, name) for name in names))
    fold = Fold(0, "fold", 0, train, validation, {})
    return fit_fold(replace(data, labels={task: labels}), task, learner, fold)
