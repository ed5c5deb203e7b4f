"""Networks: each step against torch, what they learn from clips, and which frames they find."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import train_test_split

import obygaze_models as om
from tests.kit.floats import close

ALL, LABELS = make_classification(600, 16, n_informative=6, class_sep=0.7, random_state=3)
ALL = ALL.astype(np.float32)
#: Two overlapping classes: 200 rows for training, 100 for early stopping, 300 for testing.
X = ALL[:200]
Y = LABELS[:200]
X_VAL = ALL[200:300]
Y_VAL = LABELS[200:300]
X_TEST = ALL[300:]
VALIDATION = {"X_val": X_VAL, "y_val": Y_VAL}


STEPS = [
    ((7,), False, None, 0.0),
    ((7, 5), True, {0: 1.0, 1: 3.0, 2: 0.5}, 0.0),
    ((7, 5), False, None, 2.0),
]


@pytest.mark.parametrize(("hidden", "author", "class_weight", "decay"), STEPS)
def test_each_step_equals_autograd(hidden, author, class_weight, decay):
    X = np.random.default_rng(0).normal(size=(60, 9)).astype(np.float32)
    y = np.arange(60) % 3
    options = {"author": author, "class_weight": class_weight, "early_stopping": False}
    model = om.MLPProbe(hidden, batch_size=60, random_state=0, **options)
    first = clone(model).set_params(max_iter=1, learning_rate_init=1e-30).fit(X, y)
    model.set_params(max_iter=6, weight_decay=decay, learning_rate_init=0.01)
    last = model.fit(X, y)
    weights = [torch.tensor(part, requires_grad=True) for part in first.coefs_]
    offsets = [torch.tensor(part, requires_grad=True) for part in first.intercepts_]
    groups = [
        {"params": weights, "weight_decay": decay},
        {"params": offsets, "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=0.01)
    assert len(last.history_) == 6
    counts = torch.tensor([(class_weight or {}).get(label, 1.0) for label in y])
    for epoch in last.history_:
        scores = torch.tensor(X)
        for number, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
            scores = scores @ weight + offset
            if number < len(hidden):
                scores = scores.relu()
        scores = scores.softmax(1) if author else scores
        losses = torch.nn.functional.cross_entropy(scores, torch.tensor(y), reduction="none")
        loss = (losses * counts / counts.mean()).mean()
        assert epoch["train_loss"] == close(loss.item(), eps=1e-5)
        adam.zero_grad()
        loss.backward()
        adam.step()
    ours = [*last.coefs_, *last.intercepts_]
    for expected, part in zip([*weights, *offsets], ours, strict=True):
        assert part == pytest.approx(expected.detach().numpy(), abs=1e-4)


def test_keeps_the_best_epoch_and_author_the_last():
    model = om.MLPProbe(learning_rate_init=0.01, random_state=0).fit(X, Y, **VALIDATION)
    losses = [epoch["validation_loss"] for epoch in model.history_]
    best = 1 + int(np.argmin(losses))
    assert model.best_epoch_ == best == len(losses) - 5
    assert log_loss(Y_VAL, model.predict_proba(X_VAL)) == close(min(losses), eps=1e-5)
    hasty = om.MLPProbe(learning_rate_init=1, n_iter_no_change=1, min_epochs=12, random_state=0)
    assert len(hasty.fit(X, Y, **VALIDATION).history_) >= 12
    author = om.MLPProbe(author=True, learning_rate_init=0.02, random_state=0)
    losses = [epoch["validation_loss"] for epoch in author.fit(X, Y, **VALIDATION).history_]
    assert author.best_epoch_ == len(losses) > np.argmin(losses) + 1
    # Cross-entropy of probabilities taken for logits cannot fall below this.
    assert min(losses) > np.log1p(np.exp(-1)) - 1e-6


def test_a_share_of_the_clips_stops_it_as_given_ones_do():
    """cross_val_score and an experiment train the same model on the same folds."""
    before = torch.random.get_rng_state()
    weights = {0: 1.0, 1: 3.0}
    alone = om.MLPProbe(class_weight=weights, random_state=3).fit(X, Y)
    assert torch.equal(before, torch.random.get_rng_state())  # torch's own chance is left alone
    chance = np.random.RandomState(3)
    division = {"test_size": 20, "stratify": Y, "random_state": chance}
    X_train, X_val, y_train, y_val = train_test_split(X, Y, **division)
    held_out = om.MLPProbe(class_weight=weights, random_state=chance)
    held_out.fit(X_train, y_train, X_val=X_val, y_val=y_val)
    assert (alone.predict_proba(X_TEST) == held_out.predict_proba(X_TEST)).all()
    assert alone.n_iter_ == len(alone.history_) < 100


def test_a_temperature_is_chosen_on_validation():
    plain = om.MLPProbe(author=True, random_state=0).fit(X, Y, **VALIDATION)
    calibrated = clone(plain).set_params(calibrate=True).fit(X, Y, **VALIDATION)
    assert plain.temperature_ == 1
    assert (plain.predict(X_TEST) == calibrated.predict(X_TEST)).all()
    before = log_loss(Y_VAL, plain.predict_proba(X_VAL))
    assert log_loss(Y_VAL, calibrated.predict_proba(X_VAL)) < before


@pytest.fixture(scope="module")
def drawn():
    chance = np.random.default_rng(0)
    X = chance.standard_normal((60, 6, 5)).astype(np.float32)
    y = np.array(["no", "yes", "sure"])[np.arange(60) % 3]
    X[y == "yes", 2] += 3
    X[y == "sure", 4] -= 3
    X[::4, 5:] = np.nan
    return X, y


@pytest.mark.parametrize("k", [1, 3])
def test_a_clip_has_the_mean_log_odds_of_its_highest_frames(drawn, k):
    """Other clips and absent frames change nothing."""
    X, y = drawn
    model = om.FrameMIL(k, max_iter=3, random_state=0).fit(X, y)
    together = model.predict_proba(X)
    alone = [model.predict_proba(clip[None])[0] for clip in X[::5]]
    np.testing.assert_allclose(together[::5], alone, atol=1e-6)
    shorter = model.predict_proba(X[::4, :5])
    np.testing.assert_allclose(together[::4], shorter, atol=1e-6)

    X = X[y != "sure"]
    y = y[y != "sure"]
    model = om.FrameMIL(k, max_iter=5, random_state=0).fit(X, y)
    frames = np.nan_to_num(model.predict_frames(X)[..., 1], nan=0.0)
    highest = np.sort(frames, axis=1)[:, -k:]
    expected = np.log(highest / (1 - highest)).mean(axis=1)
    shares = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(np.log(shares / (1 - shares)), expected, atol=1e-5)


def test_the_threshold_has_the_best_f1_on_validation(drawn):
    X, y = drawn
    X = X[y != "sure"]
    y = y[y != "sure"]
    model = om.FrameMIL(max_iter=2, random_state=0)
    held = {"X_val": X[25:], "y_val": y[25:]}
    model.fit(X[:25], y[:25], **held)
    frames = model.predict_frames(X[25:])[..., 1]
    highest = np.nanmax(frames, axis=1)
    truth = y[25:] == "yes"
    best = max(f1_score(truth, highest >= threshold) for threshold in highest)
    assert f1_score(truth, highest >= model.threshold_) == close(best)
    assert model.facts_["threshold"] == model.threshold_
    model.set_params(early_stopping=False).fit(X, y)
    assert model.threshold_ == 0.5
