import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.frozen import FrozenEstimator
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.bottlenecks import ConceptBottleneck, HybridBottleneck
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.explain.attributions import attribute, join_steps
from obygaze_models.explain.clips import explain_clip, explain_rows, nearest_clips
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
        measured = dict(zip(clips.known.concept_names, model.concept_scores([x])[0], strict=True))
        assert {part.concept for part in why.contributions} == set(measured)
        for part in why.contributions:
            assert part.amount == pytest.approx(part.weight * measured[part.concept])


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
    explanations = explain_rows(model, clips.X, range(40))
    for path, own in zip([found.why for found in explanations], scores, strict=False):
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
            compared = scores[:, column].astype(np.float32)  # as the tree does
            lower = (compared < np.float32(own[column])).mean()
            up_to = (compared <= np.float32(own[column])).mean()
            assert condition.percentile == pytest.approx(50 * (lower + up_to))
            kinds.add(condition.words.removesuffix(f" {condition.concept}"))
    assert kinds == {"enough", "not too much", "enough, not too much"}


#: Scores as a tree may meet them: equal, equal but for the last bits, and far apart.
NEAR = [1.0, 1 + 1e-9, 1 + 2**-23, 1 + 2**-24, 0.123456, 0.1234564, 0.1234561, -2.0, 0.0]
SCORES = st.sampled_from([*NEAR, -3.0, 2.0, 3.0, 1e3])


@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=SCORES),
    arrays(np.float64, 15, elements=SCORES),
    arrays(np.int64, 15, elements=st.integers(0, 1)),
)
def test_a_paths_words_agree_with_the_branches_taken(scores, thresholds, asked):
    """Of any tree, its scores as the model has them, and as a run's file has rounded them."""
    places = np.arange(15)
    left, right = (np.where(places < 7, 2 * places + side, -1) for side in (1, 2))
    tree = TreeArrays(left, right, asked, thresholds, np.full((15, 2), 0.5), 2)
    model = ConceptBottleneck()
    model.bank_, model.head_, model.classes_ = FunctionTransformer(), tree, np.array(["EN", "S"])
    model.bank_.get_feature_names_out = lambda: ["Look", "Body"]
    rounded = np.array([[float(f"{value:.6g}") for value in row] for row in scores])
    for row, found in enumerate(explain_rows(model, scores, range(len(scores)))):
        assert found.why.leaf == tree.apply(scores)[row]
        saved = [
            replace(step, threshold=float(f"{step.threshold:.6g}")) for step in found.why.steps
        ]
        for condition in (
            *found.why.conditions,
            *join_steps(saved, ("Look", "Body"), rounded, row),
        ):
            text = condition.sentence("the clips")
            own = float(re.search(r"more of it than in (\d+)%", text)[1])
            low, high = (re.search(rf"(\d+)% or {side}", text) for side in ("more", "less"))
            branches = {s.above for s in found.why.steps if s.concept == condition.concept}
            assert branches == {side for side, bound in ((True, low), (False, high)) if bound}
            assert (float(low[1]) if low else 0) <= own <= (float(high[1]) if high else 100)
            assert condition.low is None or condition.low < condition.percentile
            assert condition.high is None or condition.percentile < condition.high


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
