"""Fits of one estimator on given rows, as in a run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import obygaze_models as om


@dataclass(eq=False, repr=False, kw_only=True)
class GivenRows(om.EveryFold):
    """A splitter of a single fit on given rows, which tests its training clips."""

    train: Any
    validation: Any

    def folds(self, clips: Any, tests: Any) -> Iterator[Any]:
        first = next(super().folds(clips, tests))
        rows = {"train": self.train, "validation": self.validation}
        yield replace(first, **rows, tests=dict.fromkeys(tests, self.train))


def fit_on(
    learner: om.Learner,
    data: om.ClipDataset,
    train: Any,
    validation: Any,
    labels: Any,
) -> om.Model:
    """Return the model of these labels, which are classes from 0, or -1."""
    classes = np.arange(labels.max() + 1)
    [task] = om.dataset(np.ones((len(classes), 1)), classes).labels
    cv = GivenRows(train=train, validation=validation)
    run = om.cross_validate(learner, replace(data, labels={task: labels}), cv=cv)
    [model] = run.fitted.values()
    return model
