"""Sequence models: what they learn from clips, which frames they find, and how they are used."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import f1_score

import obygaze_models as om

MODELS = [
    om.AttentionProbe(random_state=0),
    om.AttentionProbe("gated", heads=2, position=True, random_state=0),
    om.FrameMIL(random_state=0),
    om.FrameMIL("max", random_state=0),
    om.FrameMIL("noisy-or", random_state=0),
    om.FrameMIL(hidden_layer_sizes=(16,), random_state=0),
]


@pytest.fixture(scope="module")
def drawn():
    chance = np.random.default_rng(0)
    X = chance.standard_normal((60, 6, 5)).astype(np.float32)
    y = np.array(["no", "yes", "sure"])[np.arange(60) % 3]
    X[y == "yes", 2] += 3
    X[y == "sure", 4] -= 3
    X[::4, 5:] = np.nan
    return X, y


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_clip_counts_by_itself_and_without_absent_frames(drawn, model):
    """Alone as among others, with any padding, from any seed's own draw."""
    X, y = drawn
    model = clone(model).set_params(max_iter=3).fit(X, y)
    together = model.predict_proba(X)
    assert together.shape == (60, 3)
    np.testing.assert_allclose(together.sum(axis=1), 1)
    alone = np.concatenate([model.predict_proba(X[[row]]) for row in range(0, 60, 5)])
    np.testing.assert_allclose(together[::5], alone, atol=1e-6)
    assert set(model.predict(X)) <= set(y)
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(together, other.predict_proba(X))

    if not getattr(model, "position", False):
        cut = clone(model).fit(X, y)
        np.testing.assert_array_equal(cut.predict_proba(X), together)
        cut.n_frames_in_ = 5
        np.testing.assert_allclose(together[::4], cut.predict_proba(X[::4, :5]), atol=1e-6)
        shown = np.nan_to_num(X[::4], nan=7.0)
        assert not np.allclose(together[::4], model.predict_proba(shown))


def test_the_query_is_cross_attention(drawn):
    """The collapsed form equals torch's own attention with one query and a linear layer."""
    X, y = drawn
    model = om.AttentionProbe(heads=3, max_iter=5, random_state=0).fit(X, y)
    weights = model.predict_attention(X)
    assert weights.shape == (60, 6, 3)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    assert (weights[::4, 5] == 0).all()  # of absent frames
    X = np.nan_to_num(X)
    model = om.AttentionProbe(max_iter=3, random_state=0).fit(X, y)
    frames = torch.from_numpy((X - model.mean_) / model.scale_)
    query = torch.from_numpy(model.weights_["query"]).T[None].expand(len(X), 1, -1)
    pooled = torch.nn.functional.scaled_dot_product_attention(query, frames, frames, scale=1.0)
    logits = pooled[:, 0] @ torch.from_numpy(model.weights_["layer"])
    logits += torch.from_numpy(model.weights_["offset"])
    np.testing.assert_allclose(model.predict_proba(X), logits.softmax(1).numpy(), atol=1e-5)


def test_noisy_or_is_one_minus_the_product(drawn):
    X, y = drawn
    X, y = X[y != "sure"], y[y != "sure"]
    model = om.FrameMIL("noisy-or", max_iter=5, random_state=0).fit(X, y)
    frames = np.nan_to_num(model.predict_frames(X)[..., 1], nan=0.0)
    expected = 1 - np.prod(1 - frames, axis=1)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, atol=1e-5)


@pytest.mark.parametrize("model", MODELS[::2], ids=repr)
def test_the_threshold_has_the_best_f1_on_validation(drawn, model):
    X, y = drawn
    X, y = X[y != "sure"], y[y != "sure"]
    model = clone(model).set_params(max_iter=2).fit(X[:25], y[:25], X_val=X[25:], y_val=y[25:])
    highest = np.nanmax(model.predict_frames(X[25:])[..., 1], axis=1)
    best = max(f1_score(y[25:] == "yes", highest >= threshold) for threshold in highest)
    assert f1_score(y[25:] == "yes", highest >= model.threshold_) == pytest.approx(best)
    assert model.facts_["threshold"] == model.threshold_
    model.set_params(early_stopping=False).fit(X, y)
    assert model.threshold_ == 0.5
