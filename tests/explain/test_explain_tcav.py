import numpy as np
import pytest

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.attributions import activations, logit_gradients, logits
from obygaze_models.explain.tcav import tcav
from tests.explain.conftest import torch_logits


def random_cavs(X, runs, *, random_state):
    """Unit directions between the means of random halves of the clips."""
    chance, half = np.random.RandomState(random_state), len(X) // 2
    orders = [chance.permutation(len(X)) for _ in range(runs)]
    cavs = [X[o[:half]].mean(axis=0) - X[o[half : 2 * half]].mean(axis=0) for o in orders]
    return np.array([cav / np.linalg.norm(cav) for cav in cavs])


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("code", [0, 2])
def test_gradients_are_torchs(clips, network, layer, code):
    import torch

    seen = torch.tensor(activations(network, clips.X, layer), requires_grad=True)
    said = torch_logits(network, layer)(seen)
    assert np.allclose(said.detach().numpy(), logits(network, clips.X), atol=1e-12)
    said[:, code].sum().backward()
    ours = logit_gradients(network, clips.X, code, layer=layer)
    assert ours.shape == seen.shape
    assert np.allclose(ours, seen.grad.numpy(), atol=1e-12)


def test_the_logits_are_those_of_the_prediction(clips, network):
    odds = np.exp(logits(network, clips.X))
    expected = odds / odds.sum(axis=1, keepdims=True)
    assert np.allclose(network.predict_proba(clips.X), expected, atol=1e-12)


@pytest.mark.parametrize("layer", [0, 1])
def test_scores_are_shares_of_finite_differences(clips, network, layer):
    import torch

    after = torch_logits(network, layer)
    seen = activations(network, clips.X[clips.levels == 1], layer)
    cavs = random_cavs(seen, 5, random_state=1)
    found = tcav(network, clips.X[clips.levels == 1], 1, cavs, list("abcde"), cavs[:2], layer=layer)
    scores = []
    for cav in cavs:
        with torch.no_grad():
            up, down = (after(torch.tensor(seen + step * cav))[:, 1] for step in (1e-6, -1e-6))
        scores.append(float((up > down).double().mean()))
    assert [one.score for one in found] == scores
    assert any(0 < one < 1 for one in scores)


def test_a_concept_that_decides_is_told_from_chance_and_another_is_not():
    """Class 1 shows the first direction; all others count whichever way they are turned."""
    chance = np.random.default_rng(2)
    X = chance.normal(size=(600, 12)).astype(np.float32)
    shown = X[:, 0] + np.abs(X[:, 1:]).sum(axis=1) / 2
    y = (shown > np.median(shown)).astype(int)
    model = MLPProbe((64,), early_stopping=False, max_iter=40, random_state=0).fit(X, y)
    null = random_cavs(X, 200, random_state=5)
    kept, other = tcav(model, X, 1, np.eye(12)[:2], ["it", "other"], null)
    assert kept.score > 0.95
    assert kept.p < 0.03
    assert other.p > 0.1
    assert kept.p_holm == pytest.approx(2 * kept.p)
    assert kept.slope_p < 0.03 < other.slope_p
    assert kept.slope_p_holm == pytest.approx(2 * kept.slope_p)
    assert (kept.clips, kept.runs) == (600, 200)
    assert abs(kept.random_score - 0.5) < 0.1
    # Two-sided: the same direction turned round is as far from chance.
    (turned,) = tcav(model, X, 1, -np.eye(12)[:1], ["not it"], null)
    assert turned.score == pytest.approx(1 - kept.score)
    assert turned.slope == pytest.approx(-kept.slope)
    assert (turned.p, turned.slope_p) == (kept.p, kept.slope_p)


def test_in_a_nearly_linear_network_only_the_slope_tells():
    chance = np.random.default_rng(2)
    X = chance.normal(size=(300, 12)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model = MLPProbe((32,), early_stopping=False, max_iter=30, random_state=0).fit(X, y)
    null = random_cavs(X, 200, random_state=5)
    kept, other = tcav(model, X[y == 1], 1, np.eye(12)[:2], ["it", "other"], null)
    assert kept.score > 0.98
    assert kept.random_spread > 0.4
    assert kept.p > 0.1
    assert kept.slope_p < 0.01 < 0.1 < other.slope_p


def test_p_counts_the_random_directions_that_lie_as_far_from_one_half(clips, network):
    null = random_cavs(clips.X, 60, random_state=3)
    found = tcav(network, clips.X, 0, clips.bank.cavs_, clips.bank.names_, null)
    gradients = logit_gradients(network, clips.X, 0)
    for one, cav in zip(found, clips.bank.cavs_, strict=True):
        mine = abs(float((gradients @ cav > 0).mean()) - 0.5)
        as_far = sum(abs(float((gradients @ v > 0).mean()) - 0.5) >= mine - 1e-9 for v in null)
        assert one.p == pytest.approx((1 + as_far) / 61)
        steep = abs((gradients @ cav).mean())
        as_steep = sum(abs((gradients @ v).mean()) >= steep - 1e-9 for v in null)
        assert one.slope_p == pytest.approx((1 + as_steep) / 61)
        assert abs(one.slope) == pytest.approx(steep)


def test_random_directions_of_concepts_look_like_chance(clips, network):
    """A random direction among random directions: its p is uniform, so rarely below 0.1."""
    drawn = random_cavs(clips.X, 300, random_state=8)
    found = tcav(network, clips.X, 2, drawn[:100], [""] * 100, drawn[100:])
    assert 0.02 <= np.mean([one.slope_p <= 0.1 for one in found]) <= 0.2


def test_where_a_clip_has_no_gradient_it_counts_half(clips):
    model = MLPProbe((4,), early_stopping=False, max_iter=1, random_state=0).fit(clips.X, clips.y)
    model.intercepts_[0] = np.full(4, -1e6, np.float32)
    (found,) = tcav(model, clips.X, 1, np.eye(16)[:1], ["dead"], np.eye(16)[1:])
    assert (found.score, found.p) == (0.5, 1.0)


def test_refuses_what_does_not_fit(clips, network):
    cavs, null = clips.bank.cavs_, random_cavs(clips.X, 5, random_state=0)
    with pytest.raises(ExperimentError, match="16 dimensions, layer 1 of the network 12"):
        tcav(network, clips.X, 0, cavs, clips.bank.names_, null, layer=1)
    with pytest.raises(ExperimentError, match="no layer 3; use 0"):
        activations(network, clips.X, 3)
    with pytest.raises(ExperimentError, match="clips of the class"):
        tcav(network, clips.X[:0], 0, cavs, clips.bank.names_, null)
    with pytest.raises(ExperimentError, match="random directions"):
        tcav(network, clips.X, 0, cavs, clips.bank.names_, null[:0])
