"""A small neural network on frozen features: the model of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    Chance,
    check_both,
    check_layer,
    encode,
    find_classes,
    fit_temperature,
    hold_out,
    softmax,
)

Array = NDArray[Any]


class MLPProbe(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Hidden layers with ReLU, trained by Adam on the cross-entropy, stopped early.

    Clips have no weights of their own: `fit` takes no ``sample_weight``.

    Parameters
    ----------
    hidden_layer_sizes
        Units of each hidden layer; a number is one layer.
    author
        Train as the paper's released code does: the loss gets probabilities where it expects
        logits, and the last epoch is kept, not the best.
    class_weight
        None, ``"balanced"``, or a weight for each class.
    calibrate
        Choose a temperature on the validation clips, by log loss. It changes how confident the
        model is, and never what it predicts.
    learning_rate_init
        Adam's step.
    batch_size
        Clips a step; the last batch of an epoch may be smaller.
    max_iter
        Epochs at most.
    early_stopping
        Watch the loss on validation clips, stop by it, and keep the best epoch. The clips are
        those that `fit` is given, or else a share of the training clips.
    validation_fraction
        That share; of each class alike.
    n_iter_no_change
        Stop after this number of epochs without a lower validation loss.
    min_epochs
        Never stop before this epoch.
    random_state
        Fixes the first weights, the order of the clips and the validation share.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coefs_, intercepts_
        The layers' weights: those of the best epoch.
    best_epoch_, n_iter_
        The epoch they come from, counted from 1; and how many were run.
    temperature_
        The divisor of the logits; 1 unless calibrated.
    history_
        For each epoch ``epoch``, ``train_loss`` and, with validation clips, ``validation_loss``.
    facts_
        ``best_epoch`` and ``temperature``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "author": ["boolean"],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "calibrate": ["boolean"],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "min_epochs": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        hidden_layer_sizes: int | tuple[int, ...] = (128,),
        *,
        author: bool = False,
        class_weight: Mapping[Any, float] | str | None = None,
        calibrate: bool = False,
        learning_rate_init: float = 1e-3,
        batch_size: int = 16,
        max_iter: int = 100,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        min_epochs: int = 5,
        random_state: Chance = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.author = author
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.min_epochs = min_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None) -> MLPProbe:
        """Train; the validation clips stop the training and choose the epoch.

        Parameters
        ----------
        X, y
            Features [N, D] and one label a row.
        X_val, y_val
            The same of the clips that stop the training; without them, and unless
            `early_stopping` is off, a share of X is held out.
        """
        import torch  # before the thread limits, which apply only to libraries that are loaded

        self._validate_params()
        check_both(X_val, y_val)
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes))
        if sizes.ndim != 1 or sizes.dtype.kind != "i" or not len(sizes) or (sizes < 1).any():
            raise ExperimentError(
                f"hidden_layer_sizes is {self.hidden_layer_sizes!r}; give a whole number above 0, "
                "or one for each hidden layer"
            )
        # Steps this small take a hundred times longer where threads wait for each other.
        with threadpool_limits(1), torch.inference_mode():
            return self._fit(X, y, X_val, y_val, sizes.tolist())

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any, hidden: list[int]) -> MLPProbe:
        import torch

        X, y = validate_data(self, X, y, dtype=np.float32)
        self.classes_ = find_classes(y)
        chance = check_random_state(self.random_state)
        if X_val is not None:
            X_val, y_val = validate_data(self, X_val, y_val, dtype=np.float32, reset=False)
        elif self.early_stopping:
            rows, held = hold_out(y, self.validation_fraction, chance)
            X, X_val, y, y_val = X[rows], X[held], y[rows], y[held]
        elif self.calibrate:
            raise ExperimentError(
                "calibrate=True needs validation clips; give X_val and y_val, or early_stopping"
            )
        codes = encode(y, self.classes_)
        clip_weights = np.ones(len(self.classes_))
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            # Scaled to a mean of 1 over all clips, not over a batch as torch's own mean does:
            # there, a batch of one class would count in full, whatever the class's weight.
            clip_weights = weights / weights[codes].mean()
        # A class's row: the weight of its clips, in its column.
        target_rows = torch.diag(torch.tensor(clip_weights, dtype=torch.float32))
        features, targets = torch.tensor(X), target_rows[torch.from_numpy(codes)]
        validation = None
        if X_val is not None:
            val_codes = encode(y_val, self.classes_)
            validation = torch.tensor(X_val), target_rows[torch.from_numpy(val_codes)]

        generator = torch.Generator().manual_seed(chance.randint(2**31 - 1))
        sizes = [X.shape[1], *hidden, len(self.classes_)]
        # All weights in one row, so that Adam has one tensor to update, and their gradients.
        row = torch.cat([_first_weights(*pair, generator) for pair in pairwise(sizes)])
        gradient = torch.empty_like(row)
        layers, gradients = _split_layers(row, sizes), _split_layers(gradient, sizes)
        take_step = _adam(row, gradient, self.learning_rate_init)

        self.history_: list[dict[str, float]] = []
        best_loss, best_epoch, best = np.inf, 0, row
        for epoch in range(1, self.max_iter + 1):
            total = torch.zeros(())
            order = torch.randperm(len(features), generator=generator)
            batches = features[order].split(self.batch_size), targets[order].split(self.batch_size)
            for batch, batch_targets in zip(*batches, strict=True):
                activations = _forward(batch, layers)
                loss, slope = _loss(activations[-1], batch_targets, author=self.author)
                _backward(activations, slope, layers, gradients)
                take_step()
                total += loss * len(batch)
            self.history_.append({"epoch": epoch, "train_loss": total.item() / len(features)})
            if validation is None:
                best_epoch = epoch
                continue
            logits = _forward(validation[0], layers)[-1]
            validation_loss = _loss(logits, validation[1], author=self.author)[0].item()
            self.history_[-1]["validation_loss"] = validation_loss
            if validation_loss < best_loss:
                best_loss, best_epoch = validation_loss, epoch
                best = row.clone()
            elif epoch >= self.min_epochs and epoch - best_epoch >= self.n_iter_no_change:
                break

        if self.author:
            best_epoch, best = epoch, row
        if not best.isfinite().all():
            raise ExperimentError(
                f"the weights overflowed in epoch {epoch}; scale the features, or lower "
                f"learning_rate_init ({self.learning_rate_init:g})"
            )
        self.best_epoch_, self.n_iter_ = best_epoch, epoch
        best_layers = _split_layers(best, sizes)
        self.coefs_ = [weight.numpy() for weight, _ in best_layers]
        self.intercepts_ = [offset.numpy() for _, offset in best_layers]
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = fit_temperature(self._logits(X_val), val_codes)
        self.facts_ = {"best_epoch": self.best_epoch_, "temperature": self.temperature_}
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        return softmax(self._logits(X) / self.temperature_)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _logits(self, X: Array) -> Array:
        # In float64, so that a clip's prediction does not depend on the clips beside it.
        X = X.astype(np.float64)
        *hidden, last = zip(self.coefs_, self.intercepts_, strict=True)
        for weight, offset in hidden:
            X = np.maximum(X @ weight + offset, 0)
        return np.asarray(X @ last[0] + last[1])


def _first_weights(inputs: int, outputs: int, generator: Any) -> Any:
    """Weights and then offsets, drawn as torch's own linear layer draws them."""
    import torch

    check_layer(inputs + 1, outputs)
    bound = inputs**-0.5
    return torch.empty((inputs + 1) * outputs).uniform_(-bound, bound, generator=generator)


def _split_layers(row: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    """Each layer's weights [inputs, outputs] and offsets, as views of one row of numbers."""
    layers, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        layers.append((row[start:middle].view(inputs, outputs), row[middle:end]))
        start = end
    return layers


def _adam(row: Any, gradient: Any, learning_rate: float) -> Callable[[], None]:
    """A function that moves `row` by its gradient, as a step of ``torch.optim.Adam`` does.

    It calls the kernel of ``Adam(fused=True)``: a step of that class takes as long in Python as
    all else in a batch.
    """
    import torch

    mean, square, steps = torch.zeros_like(row), torch.zeros_like(row), torch.zeros(())
    kernel = partial(
        torch.ops.aten._fused_adam_,
        *([row], [gradient], [mean], [square], [], [steps]),
        lr=learning_rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )

    def take_step() -> None:
        steps.add_(1)
        kernel()

    return take_step


def _forward(features: Any, layers: list[tuple[Any, Any]]) -> list[Any]:
    """The input of each layer, and last the logits."""
    activations = [features]
    *hidden, (last, last_offset) = layers
    for weight, offset in hidden:
        activations.append(offset.addmm(activations[-1], weight).relu_())
    return [*activations, last_offset.addmm(activations[-1], last)]


def _loss(logits: Any, targets: Any, *, author: bool) -> tuple[Any, Any]:
    """The mean cross-entropy, and its gradient by the logits.

    By hand: with autograd, steps this small take 1.2 times as long.
    """
    scores = logits.softmax(1) if author else logits
    logs = scores.log_softmax(1)
    loss = -(logs * targets).sum() / len(targets)
    slope = (logs.exp() * targets.sum(1, keepdim=True) - targets) / len(targets)
    if author:
        slope = scores * (slope - (slope * scores).sum(1, keepdim=True))
    return loss, slope


def _backward(
    activations: list[Any],
    slope: Any,
    layers: list[tuple[Any, Any]],
    gradients: list[tuple[Any, Any]],
) -> None:
    """Put the loss's gradient by each layer's weights and offsets into `gradients`."""
    import torch

    for layer in reversed(range(len(layers))):
        by_weight, by_offset = gradients[layer]
        torch.mm(activations[layer].T, slope, out=by_weight)
        torch.sum(slope, 0, out=by_offset)
        if layer:
            slope = slope.mm(layers[layer][0].T).mul_(activations[layer].sign())  # 0 or 1
