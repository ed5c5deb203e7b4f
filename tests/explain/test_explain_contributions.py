import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.frozen import FrozenEstimator
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.trees import TreeArrays
from obygaze_models.explain.attributions import attribute, explain_rows, join_steps
from tests.kit.clips import logistic_on, torch_logits, with_output


def explain_clip(model, x, **options):
    return explain_rows(model, np.asarray(x)[None], [0], **options)[0]


def logit(probabilities):
    return np.log(probabilities[1] / probabilities[0])


@pytest.mark.parametrize("output", ["distance", "decision"])
@pytest.mark.parametrize("l1_ratio", [0, 0.5])
def test_a_linear_heads_parts_add_up_to_its_logit(clips, l1_ratio, output):
    model = logistic_on(with_output(clips.bank, output), l1_ratio=l1_ratio).fit(clips.X, clips.y)
    for x, expected in zip(clips.X[:10], model.predict_proba(clips.X[:10]), strict=True):
        result = explain_clip(model, x, classes=("rest", "S"))
        why = result["why"]
        assert (why["label"], why["residual"]) == ("S", None)  # even where "rest" is predicted
        assert result["label"] == ("rest", "S")[expected.argmax()]
        total = why["intercept"] + sum(part["amount"] for part in why["contributions"])
        assert total == pytest.approx(logit(expected)) == pytest.approx(why["logit"])
        measured = dict(zip(clips.data.concept_names, model.concept_scores([x])[0], strict=True))
        assert {part["concept"] for part in why["contributions"]} == set(measured)
        for part in why["contributions"]:
            assert part["amount"] == pytest.approx(part["weight"] * measured[part["concept"]])


@pytest.mark.parametrize("several", [False, True])
def test_a_hybrids_residual_is_a_part_of_its_own(clips, several):
    """Of several classes the predicted one's logit is explained."""
    model = om.HybridBottleneck(FrozenEstimator(clips.bank), om.LogisticProbe(C=1))
    model.fit(clips.X, clips.levels if several else clips.y)
    for x in clips.X[:10]:
        result, full = explain_clip(model, x), model.predict_proba([x])[0]
        why, rest = result["why"], model.residual_logits([x])[0]
        concepts = model.head_.decision_function(model.concept_scores([x]))[0]
        if several:
            assert why["label"] == result["label"] == str(full.argmax())
            assert why["residual"] == pytest.approx(rest[full.argmax()])
            assert why["logit"] == pytest.approx((concepts + rest).max())
        else:
            assert why["logit"] == pytest.approx(logit(full))
            assert why["logit"] - why["residual"] == pytest.approx(concepts)


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
    model = om.ConceptBottleneck()
    model.bank_, model.head_, model.classes_ = FunctionTransformer(), tree, np.array(["EN", "S"])
    model.bank_.get_feature_names_out = lambda: ["Look", "Body"]
    rounded = np.array([[float(f"{value:.6g}") for value in row] for row in scores])
    for row, result in enumerate(explain_rows(model, scores, range(len(scores)))):
        assert result["why"]["leaf"] == tree.apply(scores)[row]
        saved = [
            replace(step, threshold=float(f"{step.threshold:.6g}"))
            for step in result["why"]["steps"]
        ]
        read_again = join_steps(saved, ("Look", "Body"), rounded, row)
        for condition in result["why"]["conditions"]:
            compared = np.float64(np.float32(scores[:, ("Look", "Body").index(condition.concept)]))
            asked_of = [s for s in result["why"]["steps"] if s.concept == condition.concept]
            allowed = np.all([(compared > s.threshold) == s.above for s in asked_of], axis=0)
            high = 100 if condition.high is None else condition.high
            assert high - (condition.low or 0) == pytest.approx(100 * allowed.mean())
        for condition in (*result["why"]["conditions"], *read_again):
            text = condition.sentence("the clips")
            own = float(re.search(r"more of it than in (\d+)%", text)[1])
            low, high = (re.search(rf"(\d+)% or {side}", text) for side in ("more", "less"))
            branches = {s.above for s in result["why"]["steps"] if s.concept == condition.concept}
            assert branches == {side for side, bound in ((True, low), (False, high)) if bound}
            assert (float(low[1]) if low else 0) <= own <= (float(high[1]) if high else 100)
            assert condition.low is None or condition.low < condition.percentile
            assert condition.high is None or condition.percentile < condition.high


@pytest.mark.parametrize("several", [False, True])
def test_a_networks_parts_are_derivatives_along_concepts(clips, network, several):
    if not several:
        network = om.MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1)
        network.fit(clips.X, clips.y)
    forward = torch_logits(network)
    measured = clips.bank.transform(clips.X)
    for row, x in enumerate(clips.X[:10]):
        parts = attribute(network, x[None], bank=clips.bank)
        leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        logits = forward(leaf)
        target = logits.max() if several else logits[1] - logits[0]
        target.backward()
        assert parts.logit[0] == pytest.approx(target.item())
        slopes = clips.bank.cavs_ @ leaf.grad.numpy()
        assert parts.weights[0] == pytest.approx(slopes)
        assert parts.amounts[0] == pytest.approx(slopes * measured[row])


def test_without_concepts_there_is_no_why(clips, network):
    votes = KNeighborsClassifier(metric="cosine").fit(clips.X, clips.y)
    for model in (network, votes):
        result = explain_clip(model, clips.X[0])
        assert result["why"] is None
        assert [*result["probabilities"].values()] == model.predict_proba(clips.X[:1])[0].tolist()
    narrow = om.MLPProbe(max_iter=1).fit(clips.X[:, :4], clips.y)
    with pytest.raises(ExperimentError, match="16 dimensions, the clip's features 4"):
        attribute(narrow, clips.X[:1, :4], bank=clips.bank)
