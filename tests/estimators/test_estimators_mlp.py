import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.mlp import MLPClassifier


@parametrize_with_checks([MLPClassifier()])
def test_follows_scikit_learns_conventions(estimator, check):
    check(estimator)


@pytest.fixture
def problem():
    """Two overlapping classes: 200 rows to train on, 100 to stop by, 300 to test."""
    X, y = make_classification(600, 16, n_informative=6, class_sep=0.7, random_state=3)
    X = X.astype(np.float32)
    return (X[:200], y[:200]), (X[200:300], y[200:300]), (X[300:], y[300:])


def test_learns_what_can_be_told_apart():
    X = np.array([[-1.0, 0], [1, 0], [-2, 1], [2, 1]] * 20)
    y = np.array(["calm", "objectifying"] * 40)
    model = MLPClassifier(random_state=0).fit(X, y)
    assert model.predict([[-1.5, 0.5], [1.5, 0.5]]).tolist() == ["calm", "objectifying"]


def test_learns_more_than_two_classes():
    X = np.eye(3)[np.arange(90) % 3]
    y = np.array(["EN", "HN", "S"])[np.arange(90) % 3]
    model = MLPClassifier(random_state=0).fit(X, y)
    assert model.score(X, y) == 1
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


def textbook_mlp(X, y, seed):
    """The same network written with torch's modules and DataLoader, for all 100 epochs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 2)
        )
        adam = torch.optim.Adam(net.parameters(), lr=1e-3)
        data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(y))
        for _ in range(100):
            for batch, labels in torch.utils.data.DataLoader(data, 16, shuffle=True):
                adam.zero_grad()
                torch.nn.functional.cross_entropy(net(batch), labels).backward()
                adam.step()
    return lambda new: net(torch.tensor(new)).argmax(1).numpy()


def test_agrees_with_a_textbook_loop(problem):
    (X, y), _, (X_test, y_test) = problem
    ours = [
        f1_score(y_test, MLPClassifier(random_state=seed).fit(X, y).predict(X_test))
        for seed in range(3)
    ]
    textbook = [f1_score(y_test, textbook_mlp(X, y, seed)(X_test)) for seed in range(3)]
    assert np.mean(ours) > 0.75
    assert np.mean(ours) == pytest.approx(np.mean(textbook), abs=0.03)


def test_first_weights_are_drawn_as_torch_draws_them():
    X, y = np.random.default_rng(0).normal(size=(64, 100)), np.arange(64) % 2
    model = MLPClassifier(max_epochs=1, learning_rate=1e-12, random_state=0).fit(X, y)
    layer = torch.nn.Linear(100, 128)
    assert np.abs(model.coefs_[0]).max() == pytest.approx(layer.weight.abs().max().item(), rel=0.01)
    assert model.coefs_[0].std() == pytest.approx(layer.weight.std().item(), rel=0.05)


def log_loss(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()


def test_keeps_the_epoch_with_the_lowest_validation_loss(problem):
    train, (X_val, y_val), _ = problem
    model = MLPClassifier(learning_rate=0.01, random_state=0).fit(*train, X_val, y_val)
    losses = [epoch["validation_loss"] for epoch in model.history_]
    assert model.best_epoch_ == 1 + int(np.argmin(losses))
    assert model.best_epoch_ < len(losses)
    assert log_loss(model, X_val, y_val) == pytest.approx(min(losses), rel=1e-5)


def test_stops_after_five_epochs_without_gain(problem):
    train, validation, _ = problem
    model = MLPClassifier(learning_rate=0.01, random_state=0).fit(*train, *validation)
    assert len(model.history_) == model.best_epoch_ + 5


def test_never_stops_before_its_minimum(problem):
    train, validation, _ = problem
    model = MLPClassifier(learning_rate=1, patience=1, min_epochs=12, random_state=0)
    assert len(model.fit(*train, *validation).history_) >= 12


def test_without_validation_data_runs_all_epochs(problem):
    train, _, _ = problem
    model = MLPClassifier(max_epochs=7, random_state=0).fit(*train)
    assert [epoch["epoch"] for epoch in model.history_] == [1, 2, 3, 4, 5, 6, 7]
    assert model.best_epoch_ == 7


def test_the_seed_decides_everything(problem):
    train, validation, (X, _) = problem
    first, again, other = (
        MLPClassifier(random_state=seed).fit(*train, *validation).predict_proba(X)
        for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_leaves_torchs_own_chance_alone(problem):
    train, _, _ = problem
    before = torch.random.get_rng_state()
    MLPClassifier(max_epochs=1, random_state=0).fit(*train)
    assert torch.equal(before, torch.random.get_rng_state())


def test_names_validation_labels_that_training_lacks():
    X = np.eye(2)
    with pytest.raises(ExperimentError, match=r"\['NS'\] are not among"):
        MLPClassifier().fit(X, ["EN", "S"], X, ["EN", "NS"])
