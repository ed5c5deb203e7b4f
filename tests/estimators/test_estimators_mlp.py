import os
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.attention import FrameMIL
from obygaze_models.estimators.mlp import MLPProbe
from tests.estimators.clips import authors_clips


@pytest.fixture
def problem():
    """Two overlapping classes: 200 rows to train on, 100 to stop by, 300 to test."""
    X, y = make_classification(600, 16, n_informative=6, class_sep=0.7, random_state=3)
    X = X.astype(np.float32)
    validation = {"X_val": X[200:300], "y_val": y[200:300]}
    return (X[:200], y[:200]), validation, (X[300:], y[300:])


def test_learns_what_can_be_told_apart():
    X = np.array([[-1.0, 0], [1, 0], [-2, 1], [2, 1]] * 20)
    y = np.array(["calm", "objectifying"] * 40)
    model = MLPProbe(random_state=0).fit(X, y)
    assert model.predict([[-1.5, 0.5], [1.5, 0.5]]).tolist() == ["calm", "objectifying"]


def test_learns_more_than_two_classes():
    X = np.eye(3)[np.arange(90) % 3]
    y = np.array(["EN", "HN", "S"])[np.arange(90) % 3]
    model = MLPProbe(random_state=0).fit(X, y)
    assert model.score(X, y) == 1
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


def textbook_mlp(X, y, seed, epochs, *, widths=(128,), author=False, balanced=False):
    """The same network in torch's own modules, for a given number of epochs."""
    sizes = [X.shape[1], *widths]
    with torch.random.fork_rng(devices=[]), threadpool_limits(1):
        torch.manual_seed(seed)
        hidden = [
            part for size in pairwise(sizes) for part in (torch.nn.Linear(*size), torch.nn.ReLU())
        ]
        net = torch.nn.Sequential(*hidden, torch.nn.Linear(sizes[-1], 2))
        adam = torch.optim.Adam(net.parameters(), lr=1e-3)
        data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(y))
        weights = torch.tensor(len(y) / np.bincount(y) / 2) if balanced else torch.ones(2)
        for _ in range(epochs):
            for batch, labels in torch.utils.data.DataLoader(data, 16, shuffle=True):
                adam.zero_grad()
                scores = net(batch).softmax(1) if author else net(batch)
                losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
                (losses * weights[labels]).mean().backward()
                adam.step()
    return lambda new: net(torch.tensor(new)).argmax(1).numpy()


@pytest.mark.gate
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"author": True},
        {"hidden_layer_sizes": (32, 16)},
        {"class_weight": "balanced"},
    ],
)
def test_agrees_with_a_textbook_loop_over_eight_runs(problem, options):
    (X, y), _, (X_test, y_test) = problem
    if "class_weight" in options:
        some = np.flatnonzero((y == 0) | (np.arange(len(y)) % 3 == 0))
        X, y = X[some], y[some]
    theirs = {
        "widths": options.get("hidden_layer_sizes", (128,)),
        "author": "author" in options,
        "balanced": "class_weight" in options,
    }
    ours, textbook = [], []
    for seed in range(8):
        model = MLPProbe(early_stopping=False, max_iter=25, random_state=seed, **options).fit(X, y)
        ours.append(f1_score(y_test, model.predict(X_test)))
        other = textbook_mlp(X, y, seed, 25, **theirs)
        textbook.append(f1_score(y_test, other(X_test)))
    assert np.mean(ours) > 0.7
    noise = np.hypot(np.std(ours), np.std(textbook)) / np.sqrt(8)
    assert abs(np.mean(ours) - np.mean(textbook)) < 4 * noise + 0.005


@pytest.mark.gate
def test_agrees_with_a_textbook_loop_on_the_authors_clips(authors):
    """EN against S of the released split, fold 9 tested: eight runs of either, and their F1."""
    known = authors_clips(authors)
    y = (np.array(known.levels) == "S").astype(int)
    rows = np.isin(known.levels, ("EN", "S"))
    train, test = rows & (known.folds < 9), rows & (known.folds == 9)
    ours, textbook = [], []
    for seed in range(8):
        model = MLPProbe(early_stopping=False, max_iter=15, random_state=seed).fit(
            known.X[train], y[train]
        )
        ours.append(f1_score(y[test], model.predict(known.X[test])))
        other = textbook_mlp(known.X[train], y[train], seed, 15)
        textbook.append(f1_score(y[test], other(known.X[test])))
    assert np.mean(ours) > 0.7
    noise = np.hypot(np.std(ours), np.std(textbook)) / np.sqrt(8)
    assert abs(np.mean(ours) - np.mean(textbook)) < 4 * noise + 0.005


@pytest.mark.night
def test_faster_than_a_loop_with_a_loader(labelled):
    """490 clips as in the paper's runs, against the plain peer with the same epochs."""
    X = np.tile(labelled.X[:490], (1, 8))
    y = (np.array(labelled.levels[:490]) == "S").astype(int)
    ours, theirs = [], []
    for _ in range(3):
        start = time.perf_counter()
        MLPProbe(early_stopping=False, max_iter=5, random_state=0).fit(X, y)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        textbook_mlp(X, y, 0, 5)
        theirs.append(time.perf_counter() - start)
    assert min(theirs) > 1.1 * min(ours)


@pytest.mark.parametrize("hidden", [(7,), (7, 5)])
@pytest.mark.parametrize("author", [False, True])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 3.0, 2: 0.5}])
def test_each_step_is_what_autograd_says(hidden, author, class_weight):
    chance = np.random.default_rng(0)
    X, y = chance.normal(size=(60, 9)).astype(np.float32), np.arange(60) % 3
    options = {
        "hidden_layer_sizes": hidden, "author": author, "class_weight": class_weight,
        "random_state": 0, "batch_size": 60, "early_stopping": False,
    }  # fmt: skip
    first = MLPProbe(max_iter=1, learning_rate_init=1e-30, **options).fit(X, y)
    last = MLPProbe(max_iter=6, learning_rate_init=0.01, **options).fit(X, y)
    layers = [
        [torch.tensor(one, requires_grad=True) for one in pair]
        for pair in zip(first.coefs_, first.intercepts_, strict=True)
    ]
    adam = torch.optim.Adam([one for pair in layers for one in pair], lr=0.01)
    counts = torch.tensor([(class_weight or {}).get(label, 1.0) for label in y])
    for epoch in last.history_:
        scores = torch.tensor(X)
        for place, (weight, offset) in enumerate(layers):
            scores = scores @ weight + offset
            scores = scores.relu() if place < len(hidden) else scores
        scores = scores.softmax(1) if author else scores
        losses = torch.nn.functional.cross_entropy(scores, torch.tensor(y), reduction="none")
        loss = (losses * counts / counts.mean()).mean()
        assert epoch["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
        adam.zero_grad()
        loss.backward()
        adam.step()
    for pair, *found in zip(layers, last.coefs_, last.intercepts_, strict=True):
        for expected, one in zip(pair, found, strict=True):
            assert one == pytest.approx(expected.detach().numpy(), abs=1e-4)


def test_first_weights_are_drawn_as_torch_draws_them():
    X, y = np.random.default_rng(0).normal(size=(64, 100)), np.arange(64) % 2
    model = MLPProbe(
        early_stopping=False, max_iter=1, learning_rate_init=1e-12, random_state=0
    ).fit(X, y)
    layer = torch.nn.Linear(100, 128)
    assert np.abs(model.coefs_[0]).max() == pytest.approx(layer.weight.abs().max().item(), rel=0.01)
    assert model.coefs_[0].std() == pytest.approx(layer.weight.std().item(), rel=0.05)


def log_loss(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()


def test_keeps_the_epoch_with_the_lowest_validation_loss(problem):
    train, validation, _ = problem
    X_val, y_val = validation.values()
    model = MLPProbe(learning_rate_init=0.01, random_state=0).fit(*train, **validation)
    losses = [epoch["validation_loss"] for epoch in model.history_]
    assert model.best_epoch_ == 1 + int(np.argmin(losses))
    assert model.best_epoch_ < len(losses)
    assert log_loss(model, X_val, y_val) == pytest.approx(min(losses), rel=1e-5)


def test_stops_after_five_epochs_without_gain(problem):
    train, validation, _ = problem
    model = MLPProbe(learning_rate_init=0.01, random_state=0).fit(*train, **validation)
    assert len(model.history_) == model.best_epoch_ + 5


def test_never_stops_before_its_minimum(problem):
    train, validation, _ = problem
    model = MLPProbe(learning_rate_init=1, n_iter_no_change=1, min_epochs=12, random_state=0)
    assert len(model.fit(*train, **validation).history_) >= 12


def test_without_early_stopping_all_epochs_are_run(problem):
    train, _, _ = problem
    model = MLPProbe(early_stopping=False, max_iter=7, random_state=0).fit(*train)
    assert [epoch["epoch"] for epoch in model.history_] == [1, 2, 3, 4, 5, 6, 7]
    assert model.best_epoch_ == 7


def test_a_share_of_the_clips_stops_the_training_like_given_ones(problem):
    """What cross_val_score trains is what an experiment trains on the same division."""
    (X, y), _, (X_test, _) = problem
    alone = MLPProbe(random_state=3).fit(X, y)
    chance = np.random.RandomState(3)
    X_train, X_val, y_train, y_val = train_test_split(
        X, y, test_size=20, stratify=y, random_state=chance
    )
    given = MLPProbe(random_state=chance).fit(X_train, y_train, X_val=X_val, y_val=y_val)
    assert (alone.predict_proba(X_test) == given.predict_proba(X_test)).all()
    assert alone.n_iter_ == len(alone.history_) < 100
    with pytest.raises(ExperimentError, match=r"too few clips \(3, 1 of the rarest class\)"):
        MLPProbe().fit(X[:3], [0, 0, 1])


@pytest.mark.parametrize("sizes", [[], [0], "x", [2.5], [[3]], 0])
def test_sizes_that_are_none_are_one_line(problem, sizes):
    with pytest.raises(ValueError, match="hidden_layer_sizes"):
        MLPProbe(sizes).fit(*problem[0])


@pytest.mark.parametrize("kind", [MLPProbe, FrameMIL])
def test_a_layer_beyond_memory_is_refused(kind):
    X = np.zeros((20, 2, 8), np.float32) if kind is FrameMIL else np.zeros((20, 16), np.float32)
    with pytest.raises(ExperimentError, match="100,000,000 weights is too large"):
        kind(hidden_layer_sizes=[10**8]).fit(X, [0, 1] * 10)


def test_a_number_is_one_hidden_layer(problem):
    one, same = (MLPProbe(size, max_iter=2, random_state=0).fit(*problem[0]) for size in (7, (7,)))
    assert one.coefs_[0].shape == (16, 7)
    assert (one.coefs_[0] == same.coefs_[0]).all()


def test_read_only_arrays_and_data_frames_train_without_a_warning(problem):
    pandas = pytest.importorskip("pandas")
    (X, y), _, _ = problem
    X.flags.writeable = y.flags.writeable = False
    for clips in (X, pandas.DataFrame(X)):
        MLPProbe(max_iter=2, random_state=0).fit(clips, y)


def test_the_seed_decides_everything(problem):
    train, validation, (X, _) = problem
    first, again, other = (
        MLPProbe(random_state=seed).fit(*train, **validation).predict_proba(X) for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_leaves_torchs_own_chance_alone(problem):
    train, _, _ = problem
    before = torch.random.get_rng_state()
    MLPProbe(early_stopping=False, max_iter=1, random_state=0).fit(*train)
    assert torch.equal(before, torch.random.get_rng_state())


def test_names_validation_labels_that_training_lacks():
    X = np.eye(2)
    with pytest.raises(ExperimentError, match=r"\['NS'\] are not among"):
        MLPProbe().fit(X, ["EN", "S"], X_val=X, y_val=["EN", "NS"])


def test_author_keeps_the_last_epoch(problem):
    train, validation, _ = problem
    model = MLPProbe(author=True, learning_rate_init=0.02, random_state=0).fit(*train, **validation)
    losses = [epoch["validation_loss"] for epoch in model.history_]
    assert model.best_epoch_ == len(losses)
    assert np.argmin(losses) + 1 < len(losses)
    # Cross-entropy of probabilities taken for logits cannot fall below this.
    assert min(losses) > np.log(1 + np.exp(-1)) - 1e-6


def test_a_temperature_is_chosen_on_validation(problem):
    train, validation, (X, _) = problem
    X_val, y_val = validation.values()
    plain, calibrated = (
        MLPProbe(author=True, calibrate=calibrate, random_state=0).fit(*train, **validation)
        for calibrate in (False, True)
    )
    assert plain.temperature_ == 1
    assert (plain.predict(X) == calibrated.predict(X)).all()
    logits = np.log(plain.predict_proba(X_val))

    def loss(temperature):
        scaled = np.exp(logits / temperature)
        return -np.log(scaled[np.arange(len(y_val)), y_val] / scaled.sum(axis=1)).mean()

    grid = np.exp(np.linspace(-3, 3, 2001))
    best = grid[np.argmin([loss(one) for one in grid])]
    assert calibrated.temperature_ == pytest.approx(best, rel=0.01)
    assert log_loss(calibrated, X_val, y_val) < log_loss(plain, X_val, y_val)
    with pytest.raises(ExperimentError, match="calibrate=True needs validation clips"):
        MLPProbe(calibrate=True, early_stopping=False).fit(*train)


def test_weights_that_explode_are_one_line():
    X, y = np.full((32, 8), 3e38, dtype=np.float32), np.arange(32) % 2
    with pytest.raises(ExperimentError, match="weights overflowed in epoch"):
        MLPProbe(early_stopping=False, max_iter=2, random_state=0).fit(X, y)


WATCHED = """
import numpy as np
from obygaze_models.estimators.mlp import MLPProbe

class Clips:
    def __array__(self, dtype=None, copy=None):
        import torch
        print(torch.get_num_threads(), end=" ")
        return np.eye(64, dtype=dtype)

MLPProbe(early_stopping=False, max_iter=1, random_state=0).fit(Clips(), np.arange(64) % 2)
import torch
print(torch.get_num_threads())
"""


@pytest.mark.gate
def test_the_first_fit_of_a_process_runs_on_one_thread():
    """Limits reach only what is loaded: with torch loaded after them, threads would wait."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "2",
            "OPENBLAS_NUM_THREADS": "",
            "MKL_NUM_THREADS": "",
        },
    )
    *inside, after = done.stdout.split()
    assert set(inside) == {"1"}
    assert after == "2"
