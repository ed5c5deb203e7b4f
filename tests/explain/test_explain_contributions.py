import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.bottlenecks import HybridBottleneck
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.attributions import attribute
from obygaze_models.explain.clips import explain_clip, nearest_clips
from tests.estimators.clips import logistic_on, tree_on, with_output
from tests.explain.conftest import torch_logits


def logit(probabilities):
    return np.log(probabilities[1] / probabilities[0])


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize("head", ["logistic", "elastic-net"])
def test_a_linear_heads_parts_add_up_to_its_logit(clips, head, output):
    bank = with_output(clips.bank, output)
    model = logistic_on(bank, l1_ratio=0.5 * (head == "elastic-net"))
    model.fit(clips.X, clips.y)
    for x, expected in zip(clips.X[:20], model.predict_proba(clips.X[:20]), strict=True):
        found = explain_clip(model, x, classes=("rest", "S"))
        why = found.why
        assert why.label == "S"  # even where "rest" is predicted
        assert why.residual is None
        assert found.label == ("rest", "S")[expected.argmax()]
        assert why.intercept + sum(one.amount for one in why.contributions) == pytest.approx(
            logit(expected)
        )
        assert why.logit == pytest.approx(logit(expected))
        for one, measured in zip(why.contributions, model.concept_scores([x])[0], strict=True):
            assert one.amount == pytest.approx(one.weight * measured)
        assert [one.concept for one in why.contributions] == list(clips.known.concept_names)


def test_of_several_classes_the_predicted_ones_logit_is_explained(clips):
    model = logistic_on(clips.bank, C=10).fit(clips.X, clips.levels)
    for x in clips.X[:20]:
        found = explain_clip(model, x, classes=("EN", "HN", "S"))
        code = ("EN", "HN", "S").index(found.label)
        assert found.why.label == found.label
        expected = model.head_.decision_function(model.concept_scores([x]))[0, code]
        assert found.why.logit == pytest.approx(expected)
        others = max(share for name, share in found.probabilities.items() if name != found.label)
        assert found.probabilities[found.label] >= others


@pytest.mark.parametrize("several", [False, True])
def test_a_hybrids_residual_is_a_part_of_its_own(clips, several):
    model = HybridBottleneck(FrozenEstimator(clips.bank), LogisticProbe(C=1))
    model.fit(clips.X, clips.levels if several else clips.y)
    for x in clips.X[:20]:
        why = explain_clip(model, x).why
        full = model.predict_proba([x])[0]
        if several:
            others = [one for one in range(3) if one != full.argmax()]
            bare = model._logits(np.asarray([x], np.float64))[0]
            assert why.logit == pytest.approx(bare.max())
            assert (bare[others] <= why.logit).all()
        else:
            assert why.logit == pytest.approx(logit(full))
            concepts = model.head_.decision_function(model.concept_scores([x])).item()
            assert why.logit - why.residual == pytest.approx(concepts)


def test_a_trees_path_is_scikit_learns(clips):
    measured = clips.bank.transform(clips.X)
    theirs = DecisionTreeClassifier(max_depth=5, random_state=3).fit(measured, clips.levels)
    model = tree_on(clips.bank, max_depth=5, random_state=3)
    model.fit(clips.X, clips.levels)
    lengths = set()
    for row, x in enumerate(clips.X[:40]):
        found = explain_clip(model, x, classes=("EN", "HN", "S"))
        *inner, leaf = theirs.decision_path(measured[[row]]).indices.tolist()
        assert [(step.concept, step.threshold, step.above) for step in found.why.steps] == [
            (
                clips.known.concept_names[theirs.tree_.feature[node]],
                theirs.tree_.threshold[node],
                after == theirs.tree_.children_right[node],
            )
            for node, after in zip(inner, [*inner[1:], leaf], strict=True)
        ]
        columns = theirs.tree_.feature[inner]
        values = measured[row, columns].tolist()
        assert [step.value for step in found.why.steps] == pytest.approx(values)
        assert found.why.leaf == leaf
        shares = theirs.predict_proba(measured[[row]])[0]
        assert found.why.shares == found.probabilities
        assert list(found.why.shares.values()) == pytest.approx(shares.tolist())
        lengths.add(len(inner))
    assert len(lengths) > 1


def test_a_trees_questions_are_joined_as_percentiles(clips):
    model = tree_on(clips.bank, max_depth=6, random_state=3).fit(clips.X, clips.levels)
    scores = model.concept_scores(clips.X)
    kinds = set()
    for x, own in zip(clips.X[:40], scores, strict=False):
        path = explain_clip(model, x, compared=clips.X).why
        assert len(path.conditions) == len({step.concept for step in path.steps})
        for condition in path.conditions:
            column = clips.known.concept_names.index(condition.concept)
            asked = [step for step in path.steps if step.concept == condition.concept]
            allowed = np.array(
                [
                    all((value > step.threshold) == step.above for step in asked)
                    for value in scores[:, column]
                ]
            )
            low = 0 if condition.low is None else condition.low
            high = 100 if condition.high is None else condition.high
            assert high - low == pytest.approx(100 * allowed.mean())
            assert low <= condition.percentile <= high
            lower = np.mean(scores[:, column] < own[column])
            assert condition.percentile == pytest.approx(100 * lower, abs=100 / len(scores) + 1e-9)
            kinds.add(condition.words.removesuffix(f" {condition.concept}"))
    assert kinds == {"with", "without", "some"}


@pytest.mark.parametrize("several", [False, True])
def test_a_networks_parts_are_its_derivatives_along_the_concepts(clips, several):
    import torch

    y = clips.levels if several else clips.y
    model = MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1).fit(clips.X, y)
    network = torch_logits(model, 0)
    measured = clips.bank.transform(clips.X)
    for row, x in enumerate(clips.X[:10]):
        parts = attribute(model, x[None], bank=clips.bank)
        leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        logits = network(leaf)
        target = logits.max() if several else logits[1] - logits[0]
        target.backward()
        assert parts.logit[0] == pytest.approx(target.item())
        slopes = clips.bank.cavs_ @ leaf.grad.numpy()
        assert parts.weights[0] == pytest.approx(slopes)
        assert parts.amounts[0] == pytest.approx(slopes * measured[row])


def test_without_concepts_there_is_no_why(clips):
    network = MLPProbe(max_iter=1).fit(clips.X, clips.y)
    votes = KNeighborsClassifier(metric="cosine").fit(clips.X, clips.y)
    for model in (network, votes):
        found = explain_clip(model, clips.X[0])
        assert found.why is None
        assert list(found.probabilities.values()) == model.predict_proba(clips.X[:1])[0].tolist()


def test_refuses_a_bank_of_other_features(clips):
    network = MLPProbe(max_iter=1).fit(clips.X[:, :4], clips.y)
    with pytest.raises(ExperimentError, match="16 dimensions, the clip's features 4"):
        attribute(network, clips.X[:1, :4], bank=clips.bank)


def test_the_nearest_clips_are_those_of_the_greatest_cosine(clips):
    ids, features = clips.known.ids, clips.X * np.arange(1, 241)[:, None]
    cosines = cosine_similarity(clips.X[:1], features)[0]
    found = nearest_clips(clips.X[0], ids, features, 7)
    order = sorted(range(len(ids)), key=lambda row: -cosines[row])[:7]
    assert [one.id for one in found] == [ids[row] for row in order]
    assert [one.cosine for one in found] == pytest.approx(cosines[order].tolist(), abs=1e-6)


def test_a_clip_of_zeros_is_like_none(clips):
    features = np.vstack([np.zeros(16), -clips.X[0]])
    found = nearest_clips(clips.X[0], ["zeros", "opposite"], features)
    assert [(one.id, round(one.cosine, 6)) for one in found] == [("zeros", 0), ("opposite", -1)]
