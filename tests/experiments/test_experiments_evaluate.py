"""The heart of experiments, on arrays alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from obygaze_features.errors import ExperimentError
from obygaze_models.dataset import ClipDataset
from obygaze_models.experiments.evaluate import evaluate
from obygaze_models.experiments.experiment import Problem
from obygaze_models.experiments.fit import EstimatorSpec
from obygaze_models.experiments.plan import Plan
from obygaze_models.tasks import ConceptTask, LevelTask

KNOWN = ClipDataset(
    ids=[f"clip-{row:02}" for row in range(24)],
    levels=["S", "EN"] * 12,
    concepts=np.tile([[True, True], [False, False]], (12, 1)),
    concept_names=("Look", "Body"),
    groups=np.array(["a", "a", "b", "b"] * 6),
    folds=np.repeat([0, 1, 2, 3], 6),
    X=np.tile(np.float32([[1, 0], [0, 1]]), (12, 1)),
)
TASK = LevelTask(positives=("S",), negatives=("EN",))
PLAN = Plan("leak-free", "four", last=3)
MLP = {"mlp": EstimatorSpec("mlp")}


def run(known, *tasks):
    problems = [Problem(task, (task,)) for task in tasks]
    return evaluate(known, problems, partial(PLAN.folds, known, seed=0), MLP)


def test_features_that_are_no_numbers_are_named():
    features = KNOWN.X.copy()
    features[5, 1] = np.nan
    with pytest.raises(ExperimentError, match=r"1 clip has features .* such as clip-05;"):
        run(replace(KNOWN, X=features), TASK)


def test_arrays_alone_can_be_evaluated():
    evaluation = run(KNOWN, TASK)
    assert len(evaluation.predictions) == 3
    for one in evaluation.predictions:
        assert [KNOWN.ids[row] for row in one.rows] == KNOWN.ids[18:]
        assert (one.probabilities.argmax(axis=1) == one.labels).all()


def test_a_concept_without_positives_in_a_fold_is_named_and_skipped():
    concepts = KNOWN.concepts.copy()
    concepts[:6, 1] = False  # nobody's Body in fold 0
    known = replace(KNOWN, concepts=concepts)
    evaluation = run(known, ConceptTask("Look", "b"), ConceptTask("Body", "b"))
    assert [(one.task, one.fit, one.why) for one in evaluation.skipped] == [
        ("Body vs all without", 0, "the validation set has no clip of Body")
    ]
    assert [(one.task, one.fold.index) for one in evaluation.predictions] == [
        ("Look vs all without", 0),
        ("Look vs all without", 1),
        ("Look vs all without", 2),
        ("Body vs all without", 1),
        ("Body vs all without", 2),
    ]


def test_a_concept_that_nobody_shows_leaves_the_others():
    concepts = KNOWN.concepts.copy()
    concepts[:, 1] = False
    known = replace(KNOWN, concepts=concepts)
    evaluation = run(known, ConceptTask("Body"), ConceptTask("Look"))
    assert {one.task for one in evaluation.skipped} == {"Body vs EN"}
    assert {one.task for one in evaluation.predictions} == {"Look vs EN"}
    with pytest.raises(ExperimentError, match="nothing can be learnt: in Body vs EN, validation"):
        run(known, ConceptTask("Body"))
