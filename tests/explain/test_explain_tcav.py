import numpy as np
import pytest
import torch

from obygaze_models import MLPProbe
from obygaze_models.explain.attributions import logits_and_gradients
from obygaze_models.explain.significance import tcav
from tests.kit.clips import torch_logits


def random_cavs(X, runs, *, random_state):
    """Unit directions between the means of random halves of the clips."""
    chance, half = np.random.RandomState(random_state), len(X) // 2
    orders = [chance.permutation(len(X)) for _ in range(runs)]
    cavs = [X[o[:half]].mean(axis=0) - X[o[half : 2 * half]].mean(axis=0) for o in orders]
    return np.array([cav / np.linalg.norm(cav) for cav in cavs])


@pytest.mark.parametrize("code", [0, 2])
def test_gradients_are_torchs(clips, network, code):
    seen = torch.tensor(np.asarray(clips.X, np.float64), requires_grad=True)
    output = torch_logits(network)(seen)
    logits, gradients = logits_and_gradients(network, clips.X)
    assert np.allclose(output.detach().numpy(), logits, atol=1e-12)
    assert np.allclose(network.predict_proba(clips.X), output.softmax(1).detach(), atol=1e-12)
    output[:, code].sum().backward()
    ours = gradients[code]
    assert ours.shape == seen.shape
    assert np.allclose(ours, seen.grad.numpy(), atol=1e-12)


def test_scores_are_shares_of_finite_differences(clips, network):
    after, seen = torch_logits(network), clips.X[clips.levels == 1].astype(np.float64)
    cavs = random_cavs(seen, 5, random_state=1)
    result = tcav(network, seen, 1, cavs, list("abcde"), cavs[:2])
    scores = []
    for cav in cavs:
        with torch.no_grad():
            up, down = (after(torch.tensor(seen + step * cav))[:, 1] for step in (1e-6, -1e-6))
        scores.append(float((up > down).double().mean()))
    assert [concept.score for concept in result] == scores
    assert any(0 < score < 1 for score in scores)


def test_a_concept_that_decides_is_told_from_chance():
    """Class 1 shows the first direction; all others count whichever way they are turned."""
    X = np.random.default_rng(2).normal(size=(600, 12)).astype(np.float32)
    shown = X[:, 0] + np.abs(X[:, 1:]).sum(axis=1) / 2
    model = MLPProbe((64,), early_stopping=False, max_iter=40, random_state=0)
    model.fit(X, (shown > np.median(shown)).astype(int))
    cavs, null = np.vstack([np.eye(12)[:2], -np.eye(12)[:1]]), random_cavs(X, 200, random_state=5)
    first, other, turned = tcav(model, X, 1, cavs, "abc", null)
    assert first.score > 0.95
    assert first.p < 0.03
    assert first.slope_p < 0.03 < 0.1 < min(other.p, other.slope_p)
    assert (first.clips, first.runs) == (600, 200)
    assert abs(first.random_score - 0.5) < 0.1
    # Two-sided: the same direction turned round is as far from chance.
    assert turned.score == pytest.approx(1 - first.score)
    assert turned.slope == pytest.approx(-first.slope)
    assert (turned.p, turned.slope_p) == (first.p, first.slope_p)
    assert first.p_holm == pytest.approx(3 * first.p)
    assert first.slope_p_holm == pytest.approx(3 * first.slope_p)


def test_p_counts_random_directions_that_are_as_far(clips, network):
    null = random_cavs(clips.X, 60, random_state=3)
    result = tcav(network, clips.X, 0, clips.bank.cavs_, clips.bank.names_, null)
    gradients = logits_and_gradients(network, clips.X)[1][0]
    for concept, cav in zip(result, clips.bank.cavs_, strict=True):
        far = abs(float((gradients @ cav > 0).mean()) - 0.5)
        as_far = sum(abs(float((gradients @ v > 0).mean()) - 0.5) >= far - 1e-9 for v in null)
        assert concept.p == pytest.approx((1 + as_far) / 61)
        steep = abs((gradients @ cav).mean())
        as_steep = sum(abs((gradients @ v).mean()) >= steep - 1e-9 for v in null)
        assert concept.slope_p == pytest.approx((1 + as_steep) / 61)
        assert abs(concept.slope) == pytest.approx(steep)


def test_where_a_clip_has_no_gradient_it_counts_half(clips):
    model = MLPProbe((4,), early_stopping=False, max_iter=1, random_state=0).fit(clips.X, clips.y)
    model.intercepts_[0] = np.full(4, -1e6, np.float32)
    (result,) = tcav(model, clips.X, 1, np.eye(16)[:1], ["dead"], np.eye(16)[1:])
    assert (result.score, result.p) == (0.5, 1.0)
