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

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> MLPClassifier:
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

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> MLPClassifier:
        import torch

        X, y = validate_data(self, X, y, dtype=np.float32)
        self.classes_ = classes_of(y)
        if self.calibrate and X_val is None:
            raise ExperimentError("calibrate=True takes validation data (X_val, y_val)")
        codes = codes_of(y, self.classes_)
        clip_weights = np.ones(len(self.classes_))
        if self.class_weight is not None:
            weight_of = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            # Scaled to a mean of 1 over all clips, not over a batch as torch's own mean does:
            # there, a batch of one class would count in full, whatever the class's weight.
            clip_weights = weight_of / weight_of[codes].mean()
        # A class's row: what a clip of it counts, in its column.
        truth_of = torch.diag(torch.tensor(clip_weights, dtype=torch.float32))
        features, truth = torch.from_numpy(X), truth_of[torch.from_numpy(codes)]
        watched = None
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float32, reset=False)
            watched_codes = codes_of(y_val, self.classes_)
            watched = torch.from_numpy(X_val), truth_of[torch.from_numpy(watched_codes)]

        seed = check_random_state(self.random_state).randint(2**31 - 1)
        generator = torch.Generator().manual_seed(seed)
        sizes = [X.shape[1], *self.hidden, len(self.classes_)]
        # All weights in one row, so that Adam has one to look after, and their gradients.
        row = torch.cat([_layer(*pair, generator) for pair in pairwise(sizes)])
        row.grad = torch.empty_like(row)
        layers, gradients = _parts(row, sizes), _parts(row.grad, sizes)
        adam = torch.optim.Adam([row], lr=self.learning_rate, fused=True)

        self.history_: list[dict[str, float]] = []
        best_loss, best_epoch, best = np.inf, 0, row
        for epoch in range(1, self.max_epochs + 1):
            total = torch.zeros(())
            order = torch.randperm(len(features), generator=generator)
            batches = features[order].split(self.batch_size), truth[order].split(self.batch_size)
            for some, their in zip(*batches, strict=True):
                seen = _forward(some, layers)
                loss, slope = _loss(seen[-1], their, author=self.author)
                _backward(seen, slope, layers, gradients)
                adam.step()
                total += loss * len(some)
            self.history_.append({"epoch": epoch, "train_loss": total.item() / len(features)})
            if watched is None:
                best_epoch = epoch
                continue
            loss, _ = _loss(_forward(watched[0], layers)[-1], watched[1], author=self.author)
            loss_now = loss.item()
            self.history_[-1]["validation_loss"] = loss_now
            if loss_now < best_loss:
                best_loss, best_epoch = loss_now, epoch
                best = row.clone()
            elif epoch >= self.min_epochs and epoch - best_epoch >= self.patience:
                break

        if self.author:
            best_epoch, best = epoch, row
        if not best.isfinite().all():
            raise ExperimentError(
                f"the MLP's weights have grown beyond all numbers in epoch {epoch}; "
                "look at the features' size, or lower learning_rate"
            )
        self.best_epoch_ = best_epoch
        found = _parts(best, sizes)
        self.coefs_ = [weight.numpy() for weight, _ in found]
        self.intercepts_ = [offset.numpy() for _, offset in found]
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = fit_temperature(self._logits(X_val), watched_codes)
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        return softmax(self._logits(X) / self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _logits(self, X: NDArray[Any]) -> NDArray[Any]:
        # In float64, so that what is said of a clip does not depend on those beside it.
        X = X.astype(np.float64)
        *hidden, last = zip(self.coefs_, self.intercepts_, strict=True)
        for weight, offset in hidden:
            X = np.maximum(X @ weight + offset, 0)
        return np.asarray(X @ last[0] + last[1])


def _layer(inputs: int, outputs: int, generator: Any) -> Any:
    """Weights and then offsets, drawn as torch's own linear layer draws them."""
    import torch

    bound = inputs**-0.5
    return torch.empty((inputs + 1) * outputs).uniform_(-bound, bound, generator=generator)


def _parts(row: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    """Each layer's weights [inputs, outputs] and offsets, as views of one row of numbers."""
    parts, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        parts.append((row[start:middle].view(inputs, outputs), row[middle:end]))
        start = end
    return parts


def _forward(features: Any, layers: list[tuple[Any, Any]]) -> list[Any]:
    """What goes into each layer, and last the logits."""
    seen = [features]
    *hidden, (last, its_offset) = layers
    for weight, offset in hidden:
        seen.append(offset.addmm(seen[-1], weight).relu_())
    return [*seen, its_offset.addmm(seen[-1], last)]


def _loss(logits: Any, truth: Any, *, author: bool) -> tuple[Any, Any]:
    """The mean cross-entropy, and its gradient by the logits.

    By hand, as autograd's bookkeeping takes longer than what it keeps for steps this small.
    """
    scores = logits.softmax(1) if author else logits
    logs = scores.log_softmax(1)
    loss = -(logs * truth).sum() / len(truth)
    slope = (logs.exp() * truth.sum(1, keepdim=True) - truth) / len(truth)
    if author:
        slope = scores * (slope - (slope * scores).sum(1, keepdim=True))
    return loss, slope


def _backward(
    seen: list[Any],
    slope: Any,
    layers: list[tuple[Any, Any]],
    gradients: list[tuple[Any, Any]],
) -> None:
    """Put the loss's gradient by each layer's weights and offsets into `gradients`."""
    import torch

    for layer in reversed(range(len(layers))):
        by_weight, by_offset = gradients[layer]
        torch.mm(seen[layer].T, slope, out=by_weight)
        torch.sum(slope, 0, out=by_offset)
        if layer:
            slope = slope.mm(layers[layer][0].T) * (seen[layer] > 0)
