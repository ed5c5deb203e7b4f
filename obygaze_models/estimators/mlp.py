"""A small neural network on frozen features: the model of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.calibration import fit_temperature, softmax
from obygaze_models.estimators.classes import classes_of, codes_of

__all__ = ["MLPClassifier"]


class MLPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Hidden layers with ReLU, trained by Adam on the cross-entropy.

    Parameters
    ----------
    hidden
        Units of each hidden layer; as many layers as numbers.
    author
        Train as the paper's released code does: the loss is put on probabilities where it
        is meant for logits, and the last epoch is kept, not the best.
    class_weight
        None, ``"balanced"``, or a weight for each class: how much a clip of it counts.
    calibrate
        Choose a temperature on the validation data, by log-loss. It changes how sure the
        model is, never what it predicts.
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
        The layers' weights: those of the best epoch.
    best_epoch_
        The epoch they come from, counted from 1.
    temperature_
        What the logits are divided by; 1 unless calibrated.
    history_
        An epoch a row: ``epoch``, ``train_loss`` and, with validation data,
        ``validation_loss``.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (128,),
        author: bool = False,
        class_weight: Mapping[Any, float] | str | None = None,
        calibrate: bool = False,
        learning_rate: float = 1e-3,
        batch_size: int = 16,
        max_epochs: int = 100,
        patience: int = 5,
        min_epochs: int = 5,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden = hidden
        self.author = author
        self.class_weight = class_weight
        self.calibrate = calibrate
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
        import torch  # noqa: F401  # limits reach only what is loaded by then

        # Steps this small take a hundred times longer where threads wait for each other.
        with threadpool_limits(1):
            return self._fit(X, y, X_val, y_val)

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> MLPClassifier:  # noqa: N803
        import torch
        from torch.nn.functional import cross_entropy

        X, y = validate_data(self, X, y, dtype=np.float32)  # noqa: N806
        self.classes_ = classes_of(y)
        if self.calibrate and X_val is None:
            raise ExperimentError("calibrate=True takes validation data (X_val, y_val)")
        codes = codes_of(y, self.classes_)
        features, targets = torch.from_numpy(X), torch.from_numpy(codes)
        watched = None
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float32, reset=False)  # noqa: N806
            watched_codes = codes_of(y_val, self.classes_)
            watched = torch.from_numpy(X_val), torch.from_numpy(watched_codes)
        class_weights = None
        if self.class_weight is not None:
            weight_of = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            # Scaled to a mean of 1 over all clips, not over a batch as torch's own mean does:
            # there, a batch of one class would count in full, whatever the class's weight.
            scaled = weight_of / weight_of[codes].mean()
            class_weights = torch.tensor(scaled, dtype=torch.float32)

        def loss_of(features: Any, targets: Any) -> Any:
            logits = _logits(features, weights)
            scores = logits.softmax(1) if self.author else logits
            total = cross_entropy(scores, targets, class_weights, reduction="sum")
            return total / len(targets)

        seed = check_random_state(self.random_state).randint(2**31 - 1)
        generator = torch.Generator().manual_seed(seed)
        sizes = [X.shape[1], *self.hidden, len(self.classes_)]
        weights = [tensor for pair in pairwise(sizes) for tensor in _layer(*pair, generator)]
        adam = torch.optim.Adam(weights, lr=self.learning_rate, fused=True)

        self.history_: list[dict[str, float]] = []
        best_loss, best_epoch, best = np.inf, 0, weights
        for epoch in range(1, self.max_epochs + 1):
            total = torch.zeros(())
            order = torch.randperm(len(features), generator=generator)
            batches = features[order].split(self.batch_size), targets[order].split(self.batch_size)
            for some, their in zip(*batches, strict=True):
                loss = loss_of(some, their)
                adam.zero_grad()
                loss.backward()
                adam.step()
                total += loss.detach() * len(some)
            self.history_.append({"epoch": epoch, "train_loss": total.item() / len(features)})
            if watched is None:
                best_epoch = epoch
                continue
            with torch.no_grad():
                loss_now = loss_of(*watched).item()
            self.history_[-1]["validation_loss"] = loss_now
            if loss_now < best_loss:
                best_loss, best_epoch = loss_now, epoch
                best = [weight.detach().clone() for weight in weights]
            elif epoch >= self.min_epochs and epoch - best_epoch >= self.patience:
                break

        if self.author:
            best_epoch, best = epoch, weights
        if not all(weight.isfinite().all() for weight in best):
            raise ExperimentError(
                f"the MLP's weights have grown beyond all numbers in epoch {epoch}; "
                "look at the features' size, or lower learning_rate"
            )
        self.best_epoch_ = best_epoch
        arrays = [weight.detach().numpy() for weight in best]
        self.coefs_, self.intercepts_ = arrays[::2], arrays[1::2]
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = fit_temperature(self._logits(X_val), watched_codes)
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)  # noqa: N806
        return softmax(self._logits(X) / self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _logits(self, X: NDArray[Any]) -> NDArray[Any]:  # noqa: N803
        # In float64, so that what is said of a clip does not depend on those beside it.
        X = X.astype(np.float64)  # noqa: N806
        *hidden, last = zip(self.coefs_, self.intercepts_, strict=True)
        for weight, offset in hidden:
            X = np.maximum(X @ weight + offset, 0)  # noqa: N806
        return np.asarray(X @ last[0] + last[1])


def _layer(inputs: int, outputs: int, generator: Any) -> list[Any]:
    """Weights and offsets, drawn as torch's own linear layer draws them."""
    import torch

    bound = inputs**-0.5
    return [
        torch.empty(shape).uniform_(-bound, bound, generator=generator).requires_grad_()
        for shape in [(inputs, outputs), (outputs,)]
    ]


def _logits(features: Any, weights: list[Any]) -> Any:
    *hidden, last, offset = weights
    for inner, its_offset in zip(hidden[::2], hidden[1::2], strict=True):
        features = its_offset.addmm(features, inner).relu()
    return offset.addmm(features, last)
