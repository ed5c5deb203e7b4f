"""A small neural network on frozen features: the model of the paper's Table 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError

__all__ = ["MLPClassifier"]


class MLPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One hidden layer with ReLU, trained by Adam on the cross-entropy.

    Parameters
    ----------
    hidden
        Units of the hidden layer.
    learning_rate
        Adam's step.
    batch_size
        Clips a step; the last batch of an epoch may be smaller, and is never dropped.
    max_epochs
        Passes over the training data at most.
    patience
        Stop after so many epochs without a lower validation loss.
    min_epochs
        Never stop before this epoch.
    random_state
        Fixes the first weights and the order of the clips.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coefs_, intercepts_
        The two layers' weights: those of the best epoch.
    best_epoch_
        The epoch they come from, counted from 1.
    history_
        An epoch a row: ``epoch``, ``train_loss`` and, with validation data,
        ``validation_loss``.
    """

    def __init__(
        self,
        hidden: int = 128,
        learning_rate: float = 1e-3,
        batch_size: int = 16,
        max_epochs: int = 100,
        patience: int = 5,
        min_epochs: int = 5,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.min_epochs = min_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> MLPClassifier:  # noqa: N803
        """Train; with validation data stop early and keep the best epoch.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        X_val, y_val
            The same, for clips that decide when to stop. Without them all epochs are run
            and the last is kept.
        """
        import torch
        from torch.nn.functional import cross_entropy

        X, y = validate_data(self, X, y, dtype=np.float32)  # noqa: N806
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ExperimentError(f"all {len(y)} labels are of one class, {self.classes_[0]!r}")
        features, targets = torch.tensor(X), torch.tensor(self._codes(y))
        watched = None
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float32, reset=False)  # noqa: N806
            watched = torch.tensor(X_val), torch.tensor(self._codes(y_val))

        seed = check_random_state(self.random_state).randint(2**31 - 1)
        generator = torch.Generator().manual_seed(seed)
        weights = [
            *_layer(X.shape[1], self.hidden, generator),
            *_layer(self.hidden, len(self.classes_), generator),
        ]
        adam = torch.optim.Adam(weights, lr=self.learning_rate, fused=True)

        self.history_: list[dict[str, float]] = []
        best_loss, best_epoch, best = np.inf, 0, weights
        for epoch in range(1, self.max_epochs + 1):
            total = 0.0
            order = torch.randperm(len(features), generator=generator)
            for batch in order.split(self.batch_size):
                loss = cross_entropy(_logits(features[batch], weights), targets[batch])
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.item() * len(batch)
            self.history_.append({"epoch": epoch, "train_loss": total / len(features)})
            if watched is None:
                best_epoch = epoch
                continue
            with torch.no_grad():
                loss_now = cross_entropy(_logits(watched[0], weights), watched[1]).item()
            self.history_[-1]["validation_loss"] = loss_now
            if loss_now < best_loss:
                best_loss, best_epoch = loss_now, epoch
                best = [weight.detach().clone() for weight in weights]
            elif epoch >= self.min_epochs and epoch - best_epoch >= self.patience:
                break

        self.best_epoch_ = best_epoch
        w1, b1, w2, b2 = (weight.detach().numpy() for weight in best)
        self.coefs_, self.intercepts_ = [w1, w2], [b1, b2]
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)  # noqa: N806
        hidden = np.maximum(X @ self.coefs_[0] + self.intercepts_[0], 0)
        logits = (hidden @ self.coefs_[1] + self.intercepts_[1]).astype(np.float64)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _codes(self, labels: NDArray[Any]) -> NDArray[Any]:
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ExperimentError(
                f"validation labels {unknown.tolist()} are not among the training labels "
                f"{self.classes_.tolist()}"
            )
        return np.searchsorted(self.classes_, labels)


def _layer(inputs: int, outputs: int, generator: Any) -> list[Any]:
    """Weights and offsets, drawn as torch's own linear layer draws them."""
    import torch

    bound = inputs**-0.5
    return [
        torch.empty(shape).uniform_(-bound, bound, generator=generator).requires_grad_()
        for shape in [(inputs, outputs), (outputs,)]
    ]


def _logits(features: Any, weights: list[Any]) -> Any:
    w1, b1, w2, b2 = weights
    return (features @ w1 + b1).relu() @ w2 + b2
