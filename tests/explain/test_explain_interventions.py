from dataclasses import replace

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, f1_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import as_logits
from obygaze_models.explain.analyses import intervene
from tests.kit.clips import logistic_on, tree_on, with_output

DRAWS = 4
MODELS = {
    "tree": lambda bank: tree_on(bank, max_depth=4),
    "decisions": lambda bank: logistic_on(with_output(bank, "decision"), C=1),
    "three classes": lambda bank: logistic_on(bank, C=10),
    "hybrid": lambda bank: om.HybridBottleneck(FrozenEstimator(bank), om.LogisticProbe(C=1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_interventions_are_those_done_clip_by_clip(clips, name):
    model, y = MODELS[name](clips.bank), clips.levels if name == "three classes" else clips.y
    concepts, names = clips.data.concepts, clips.data.concept_names
    train, test = clips.data.folds < 5, np.flatnonzero(clips.data.folds == 5)
    model.fit(clips.X[train], y[train])
    known, asked = (clips.data.select(rows) for rows in (train, test))
    result = intervene(model, known, asked, y[test], draws=DRAWS, random_state=6)
    assert (result.concepts, result.clips) == (names, len(test))

    scale = clips.bank.scales_ if model.bank_.output == "decision" else np.ones(3)
    distances = clips.bank.transform(clips.X)
    absent, present = (
        [(distances * scale)[train & (column == shown), k].mean()
         for k, column in enumerate(concepts.T)]
        for shown in (False, True)
    )  # fmt: skip
    assert result.present == pytest.approx(present)
    assert result.absent == pytest.approx(absent)

    def predict(row, corrected):
        measured = distances[row] * scale
        for concept in corrected:
            measured[concept] = (present if concepts[row, concept] else absent)[concept]
        if name == "hybrid":
            scores = as_logits(model.head_.decision_function(measured[None]))
            outputs = scores + model.residual_logits(clips.X[[row]])
        else:
            outputs = model.head_.predict_proba(measured[None])
        return model.classes_[outputs.argmax()]

    def score(order_of):
        calls = [[predict(row, order_of(row)[:count]) for row in test] for count in range(4)]
        average = "binary" if len(model.classes_) == 2 else "macro"
        accuracy = [accuracy_score(y[test], call) for call in calls]
        return accuracy, [f1_score(y[test], call, average=average) for call in calls]

    chance = np.random.RandomState(6)
    orders = [chance.permutation(3).tolist() for _ in range(DRAWS)]
    runs = np.array([score(lambda row, order=order: order) for order in orders])
    random, uncertain = result.curves
    assert (random.order, random.draws) == ("random", DRAWS)
    assert [random.accuracy, random.f1] == [pytest.approx(row) for row in runs.mean(axis=0)]
    assert [random.accuracy_std, random.f1_std] == [pytest.approx(row) for row in runs.std(axis=0)]
    nearest = score(lambda row: np.argsort(abs(distances[row]), kind="stable").tolist())
    assert (uncertain.order, uncertain.draws) == ("uncertainty", 1)
    assert [uncertain.accuracy, uncertain.f1] == [pytest.approx(row) for row in nearest]

    # Untouched it is the model itself; with all corrected the order does not matter.
    own = accuracy_score(y[test], model.predict(clips.X[test]))
    assert random.accuracy[0] == uncertain.accuracy[0] == pytest.approx(own)
    assert random.accuracy[-1] == uncertain.accuracy[-1]
    assert max(random.accuracy_std[1:3]) > 0


@pytest.fixture(scope="module")
def linear(clips):
    return logistic_on(clips.bank, C=1).fit(clips.X, clips.y)


def test_the_annotations_columns_are_found_by_name(clips, linear):
    names, marks = clips.data.concept_names, clips.data.concepts
    turned = np.column_stack([np.ones(240, bool), marks[:, ::-1]])
    turned = replace(clips.data, concepts=turned, concept_names=("other", *names[::-1]))
    first = intervene(linear, clips.data, clips.data, clips.y, draws=2)
    assert intervene(linear, turned, turned, clips.y, draws=2) == first


def test_refuses_what_cannot_be_corrected(clips, linear):
    known, other = clips.data, replace(clips.data, concept_names=("Type of plan", "b", "c"))
    bare = replace(known, concepts=known.concepts * [1, 0, 1])
    meaningless = logistic_on(om.RandomDirections(2, random_state=0).fit(clips.X))
    meaningless.fit(clips.X, clips.y)
    for model, train, message in (
        (linear, other, "have no concept 'Look'"),
        (linear, bare, "all 240 training clips are not marked with 'Body'"),
        (meaningless, known, "no concept 'random 1'"),
    ):
        with pytest.raises(ExperimentError, match=message):
            intervene(model, train, known, clips.y)
