"""Sequence models: what they learn from clips, which frames they find, and how they are used."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError

FRAMES, SIZE, SHOWN = 32, 128, 3
MODELS = [
    om.AttentionProbe(random_state=0),
    om.AttentionProbe("gated", heads=2, position=True, random_state=0),
    om.FrameMIL(random_state=0),
    om.FrameMIL("max", random_state=0),
    om.FrameMIL("noisy-or", random_state=0),
    om.FrameMIL(hidden_layer_sizes=(16,), random_state=0),
]


def name_of(model):
    return repr(model)


def sequences(levels, folds, *, signal=4.0, size=SIZE):
    """Noise; in Sure clips three frames in a row carry a direction. One clip in five is short."""
    chance = np.random.default_rng(3)
    y = np.array(levels) == "S"
    X = chance.standard_normal((len(y), FRAMES, size), np.float32)
    direction = chance.standard_normal(size)
    direction /= np.linalg.norm(direction)
    shows = np.zeros((len(y), FRAMES), bool)
    for clip in np.flatnonzero(y):
        start = chance.integers(0, FRAMES - SHOWN - 12)
        shows[clip, start : start + SHOWN] = True
    X[shows] += (signal * direction).astype(np.float32)
    X[chance.random(len(y)) < 0.2, FRAMES - 12 :] = np.nan
    return X.astype(np.float16), y.astype(int), shows, direction


@pytest.fixture(scope="module")
def clips(labelled):
    """The authors' clips, all levels, and a leak-free fold of them."""
    X, y, shows, direction = sequences(labelled.levels, labelled.folds)
    fold = om.LeakFree(labelled.folds).make_folds(y, {"test": y})[0]
    return X, y, shows, direction, fold


@pytest.mark.gate
def test_finds_the_frames_that_show_it_from_labels_of_clips(clips):
    X, y, shows, direction, fold = clips
    train, validation, test = fold.train, fold.validation, fold.tests["test"]
    present = ~np.isnan(X[test][..., 0])
    mean = np.nanmean(X.astype(np.float32), axis=1)
    mlp = om.MLPProbe(random_state=0).fit(
        mean[train], y[train], X_val=mean[validation], y_val=y[validation]
    )
    pooled = roc_auc_score(y[test], mlp.predict_proba(mean[test])[:, 1])
    along = np.where(present, np.nan_to_num(X[test].astype(np.float32)) @ direction, -np.inf)
    best = roc_auc_score(y[test], np.sort(along, axis=1)[:, -SHOWN:].mean(axis=1))
    for model in MODELS[:5]:
        model = clone(model).fit(X[train], y[train], X_val=X[validation], y_val=y[validation])
        clip_score = roc_auc_score(y[test], model.predict_proba(X[test])[:, 1])
        frames = model.predict_frames(X[test])
        assert np.isnan(frames).all(axis=2).tolist() == (~present).tolist()
        frame_score = average_precision_score(shows[test][present], frames[present][:, 1])
        assert pooled + 0.05 < clip_score, (model, pooled, clip_score)
        assert clip_score > best - 0.05, (model, best, clip_score)
        assert frame_score >= 0.8, (model, frame_score)


def test_without_a_signal_nothing_is_found(clips, labelled):
    _, y, _, _, fold = clips
    X = sequences(labelled.levels, labelled.folds, signal=0)[0]
    test = fold.tests["test"]
    for model in (om.AttentionProbe(random_state=0), om.FrameMIL(random_state=0)):
        model.fit(X[fold.train], y[fold.train], X_val=X[fold.validation], y_val=y[fold.validation])
        score = roc_auc_score(y[test], model.predict_proba(X[test])[:, 1])
        assert abs(score - 0.5) < 3 / np.sqrt(12 * (y[test] == 1).sum())


@pytest.fixture(scope="module")
def few():
    chance = np.random.default_rng(0)
    X = chance.standard_normal((60, 6, 5)).astype(np.float32)
    y = np.array(["no", "yes", "sure"])[np.arange(60) % 3]
    X[y == "yes", 2] += 3
    X[y == "sure", 4] -= 3
    X[::4, 5:] = np.nan
    return X, y


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_absent_frames_do_not_count(few, model):
    """A clip of fewer frames is the same clip, however much padding follows."""
    X, y = few
    model = clone(model).set_params(max_iter=3)
    model.fit(X, y)
    if getattr(model, "position", False):
        return
    padded = X[::4]
    wrong = padded.copy()
    wrong[:, 5:] = 7.0
    cut = clone(model).fit(X, y)
    cut.n_frames_in_ = 5
    np.testing.assert_allclose(
        model.predict_proba(padded), cut.predict_proba(padded[:, :5]), atol=1e-6
    )
    assert not np.allclose(model.predict_proba(padded), model.predict_proba(wrong))


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_a_clip_is_predicted_alike_alone_and_among_others(few, model):
    X, y = few
    model = clone(model).set_params(max_iter=3).fit(X, y)
    together = model.predict_proba(X)
    assert together.shape == (60, 3)
    np.testing.assert_allclose(together.sum(axis=1), 1)
    alone = np.concatenate([model.predict_proba(X[[row]]) for row in range(60)])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert set(model.predict(X)) <= set(y)


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_same_seed_gives_the_same_bits(few, model):
    X, y = few
    first, second = (clone(model).set_params(max_iter=3).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    other = clone(model).set_params(max_iter=3, random_state=1).fit(X, y)
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_the_query_is_cross_attention(few):
    """The collapsed form equals torch's own attention with one query and a linear layer."""
    X, y = few
    X = np.nan_to_num(X)
    model = om.AttentionProbe(max_iter=3, random_state=0).fit(X, y)
    frames = torch.from_numpy((X - model.mean_) / model.scale_)
    query = torch.from_numpy(model.weights_["query"]).T[None].expand(len(X), 1, -1)
    pooled = torch.nn.functional.scaled_dot_product_attention(query, frames, frames, scale=1.0)
    logits = pooled[:, 0] @ torch.from_numpy(model.weights_["layer"])
    logits += torch.from_numpy(model.weights_["offset"])
    np.testing.assert_allclose(model.predict_proba(X), logits.softmax(1).numpy(), atol=1e-5)


def test_attention_sums_to_one_and_pools_what_is_predicted(few):
    X, y = few
    model = om.AttentionProbe(heads=3, max_iter=5, random_state=0).fit(X, y)
    weights = model.predict_attention(X)
    assert weights.shape == (60, 6, 3)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    assert (weights[::4, 5] == 0).all()


def test_noisy_or_is_one_minus_the_product(few):
    X, y = few
    X, y = X[y != "sure"], y[y != "sure"]
    model = om.FrameMIL("noisy-or", max_iter=5, random_state=0).fit(X, y)
    frames = np.nan_to_num(model.predict_frames(X)[..., 1], nan=0.0)
    expected = 1 - np.prod(1 - frames, axis=1)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, atol=1e-5)


def test_half_precision_is_kept_and_gives_nearly_the_same(few):
    X, y = few
    exact = om.FrameMIL(max_iter=3, random_state=0).fit(X, y)
    half = om.FrameMIL(max_iter=3, random_state=0).fit(X.astype(np.float16), y)
    np.testing.assert_allclose(half.predict_proba(X), exact.predict_proba(X), atol=5e-3)


def test_scikit_learns_tools_work_on_sequences(few):
    X, y = few
    search = GridSearchCV(
        om.FrameMIL(max_iter=5, random_state=0), {"k": [1, 2], "pooling": ["max", "top-k"]}, cv=2
    )
    assert search.fit(X, y).best_params_["k"] in (1, 2)
    films = np.arange(60) // 30
    probe = om.AttentionProbe(max_iter=5, class_weight="balanced", calibrate=True, random_state=0)
    assert len(cross_val_score(probe, X, y, groups=films, cv=om.LeaveFilmOut())) == 2


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_is_saved_and_read_back(few, model, tmp_path):
    X, y = few
    model = clone(model).set_params(max_iter=2).fit(X, y)
    om.save_model(model, tmp_path / "model", {"note": "kept"})
    read, about = om.load_model(tmp_path / "model")
    assert about == {"note": "kept"}
    np.testing.assert_array_equal(read.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(read.predict_frames(X), model.predict_frames(X))


@pytest.mark.parametrize("model", MODELS[::2], ids=name_of)
def test_the_threshold_has_the_best_f1_on_validation_clips(few, model):
    X, y = few
    X, y = X[y != "sure"], y[y != "sure"]
    model = clone(model).set_params(max_iter=2).fit(X[:25], y[:25], X_val=X[25:], y_val=y[25:])
    highest = np.nanmax(model.predict_frames(X[25:])[..., 1], axis=1)
    best = max(f1_score(y[25:] == "yes", highest >= threshold) for threshold in highest)
    assert f1_score(y[25:] == "yes", highest >= model.threshold_) == pytest.approx(best)
    assert model.facts_["threshold"] == model.threshold_
    model.set_params(early_stopping=False).fit(X, y)
    assert model.threshold_ == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, 0], "reads frames"),
        (lambda X: X[:, :4], "4 frames of 5 features"),
        (lambda X: np.where(np.arange(60)[:, None, None] == 7, np.nan, X), "clip 7 .* no frame"),
        (lambda X: np.where(np.arange(5) == 1, np.nan, X), "frame 0 of clip 0"),
        (lambda X: np.where(np.arange(60)[:, None, None] == 2, np.inf, X), "frame 0 of clip 2"),
    ],
)
def test_bad_frames_are_one_clear_line(few, change, message):
    X, y = few
    model = om.FrameMIL(max_iter=1, random_state=0).fit(X, y)
    with pytest.raises(ExperimentError, match=message):
        model.predict_proba(change(X))


def test_validation_clips_come_with_labels(few):
    X, y = few
    with pytest.raises(ExperimentError, match="both X_val and y_val"):
        om.AttentionProbe().fit(X, y, y_val=y)
