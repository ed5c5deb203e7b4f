"""What a bottleneck's concepts and a network's directions tell: scores, chance, corrections."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models import ConceptBank, MLPProbe
from obygaze_models.estimators.classes import as_logits
from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.run_folder import Clip
from obygaze_models.explain.analyses import intervene
from obygaze_models.explain.attributions import logits_and_gradients
from obygaze_models.explain.parts import concept_quality
from obygaze_models.explain.significance import concept_significance, holm, tcav
from tests.kit.clips import logistic_on, tree_on, with_output

#: Clip: its level and concepts. Clip e is marked all the same: neither with nor without.
MARKED = {
    "a": ("S", "Look", "Body"), "b": ("HN", "Look"), "c": ("S", "Body"), "d": ("EN",),
    "e": ("EN", "Look"), "f": ("NS", "Look"), "g": ("HN",),
}  # fmt: skip
CLIPS = {
    name: Clip(name, "tt1", "A film", "", None, None, level, concepts, 9, "")
    for name, (level, *concepts) in MARKED.items()
}


def explained(ids, looks, run=0, **more):
    values = np.column_stack([looks, np.zeros(len(ids))])
    given = {"model": "pcbm-tree", "task": "t", "kind": "path", "concepts": ("Look", "Body")}
    labels = ["S"] * len(ids)
    return Explained(**given | more, fit=run, ids=list(ids), labels=labels, values=values)


def test_clips_with_a_concept_against_clips_without():
    look, body = concept_quality([explained("abcdefg", [3, 1, 2, 0, 9, -9, -1])], CLIPS)
    # Look: a, b against c, d, g; b alone lies below one of them.
    assert (look.concept, look.clips, look.positives, look.runs) == ("Look", 5, 2, 1)
    assert look.auroc == pytest.approx(5 / 6)
    assert look.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert look.share == pytest.approx(2 / 5)
    # Body: a, c against b, d, e, g, none of which is measured otherwise than another.
    assert (body.clips, body.positives, body.auroc) == (6, 2, 0.5)
    assert body.average_precision == pytest.approx(body.share) == pytest.approx(1 / 3)
    look, body = concept_quality([explained("dg", [1, 2]), explained("ab", [1, 2], run=1)], CLIPS)
    assert (look.auroc, look.average_precision, look.auroc_std, look.share) == (None,) * 4
    assert (look.clips, look.positives, look.runs) == (4, 2, 0)
    assert (body.runs, body.auroc) == (1, 0.5)
    assert concept_quality([explained("", [])], CLIPS)[0].clips == 0


def test_p_against_every_permutation():
    """Three of seven clips can be positive in 35 ways: all of them, against the drawn ones."""
    chance = np.random.default_rng(3)
    y, truth = np.array([1, 1, 1, 0, 0, 0, 0]), np.repeat([1, 0], 10)
    X = chance.normal(size=(7, 4)) + 0.8 * y[:, None]
    held = chance.normal(size=(20, 4)) + 0.8 * truth[:, None]

    def auc(labels):
        return roc_auc_score(truth, held @ (X[labels].mean(0) - X[~labels].mean(0)))

    ways = [np.isin(np.arange(7), rows) for rows in combinations(range(7), 3)]
    exact = np.mean([auc(labels) >= auc(y == 1) - 1e-12 for labels in ways])
    bank = ConceptBank("mean-difference").fit(X, y[:, None])
    (result,) = concept_significance(
        bank, X, y[:, None], held, truth[:, None], runs=150, random_state=0
    )
    assert result.auc == pytest.approx(auc(y == 1))
    assert 0.01 < exact < 0.5
    assert result.p == pytest.approx(exact, abs=3 * np.sqrt(exact / 150))
    assert result.runs == 150


def test_a_signal_is_significant_and_noise_is_not():
    chance = np.random.default_rng(0)
    Y = chance.integers(0, 2, size=(120, 3))
    Y[:, 1] = 0
    X = chance.normal(size=(120, 6))
    X[:, 0] += 2 * Y[:, 0]
    bank = ConceptBank(C=0.1).fit(X[:60], Y[:60])
    assert list(bank.skipped_) == ["concept 2"]
    signal, noise = concept_significance(
        bank, X[:60], Y[:60], X[60:], Y[60:], runs=39, random_state=0
    )
    assert (signal.p, signal.p_holm) == (1 / 40, 2 / 40)
    assert signal.auc > signal.random_auc_95
    assert noise.p > 0.05
    assert signal.random_auc == pytest.approx(0.5, abs=0.1)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=6, unique=True))
def test_holm_by_its_definition(ps):
    """The most that this and all smaller ones need, each times how many are not smaller."""
    needed = {p: p * sum(other >= p for other in ps) for p in ps}
    expected = [min(1, max(needed[other] for other in ps if other <= p)) for p in ps]
    assert holm(ps) == pytest.approx(expected)


def test_p_counts_random_directions_that_are_as_far(clips, network):
    null = om.RandomDirections(60, random_state=3).fit(clips.X).cavs_
    result = tcav(network, clips.X, 0, clips.bank.cavs_, clips.bank.names_, null)
    gradients = logits_and_gradients(network, clips.X)[1][0]
    for concept, cav in zip(result, clips.bank.cavs_, strict=True):
        assert concept.score == (gradients @ cav > 0).mean()
        far = abs(concept.score - 0.5)
        as_far = sum(abs(float((gradients @ v > 0).mean()) - 0.5) >= far - 1e-9 for v in null)
        assert concept.p == pytest.approx((1 + as_far) / 61)
        steep = abs((gradients @ cav).mean())
        as_steep = sum(abs((gradients @ v).mean()) >= steep - 1e-9 for v in null)
        assert concept.slope_p == pytest.approx((1 + as_steep) / 61)
        assert abs(concept.slope) == pytest.approx(steep)
    assert [concept.p_holm for concept in result] == holm([concept.p for concept in result])


def test_where_a_clip_has_no_gradient_it_counts_half(clips):
    model = MLPProbe((4,), early_stopping=False, max_iter=1, random_state=0).fit(clips.X, clips.y)
    model.intercepts_[0] = np.full(4, -1e6, np.float32)
    (result,) = tcav(model, clips.X, 1, np.eye(16)[:1], ["dead"], np.eye(16)[1:])
    assert (result.score, result.p) == (0.5, 1.0)


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


def test_annotations_are_found_by_name_or_refused(clips, linear):
    names, marks = clips.data.concept_names, clips.data.concepts
    turned = np.column_stack([np.ones(240, bool), marks[:, ::-1]])
    turned = replace(clips.data, concepts=turned, concept_names=("other", *names[::-1]))
    first = intervene(linear, clips.data, clips.data, clips.y, draws=2)
    assert intervene(linear, turned, turned, clips.y, draws=2) == first
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
