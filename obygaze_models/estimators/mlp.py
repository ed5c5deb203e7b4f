"""A small neural network on frozen features: the model of the paper's Table 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import Array, check_layer, softmax
from obygaze_models.estimators.torch_training import POSITIVE, Steps, TorchClassifier, Training


@dataclass(eq=False, repr=False)
class MLPProbe(TorchClassifier):
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
        **TorchClassifier._parameter_constraints,
        "hidden_layer_sizes": ["array-like", POSITIVE],
        "author": ["boolean"],
        "min_epochs": [Interval(Integral, 0, None, closed="left")],
    }
    _autograd: ClassVar[bool] = False

    hidden_layer_sizes: int | tuple[int, ...] = (128,)
    _: KW_ONLY
    author: bool = False
    min_epochs: int = 5

    def _check(self, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Any:
        return validate_data(self, X, y, dtype=np.float32, reset=reset)

    def _sizes(self) -> list[int]:
        """The number of inputs, of units of each hidden layer, and of classes."""
        hidden = np.atleast_1d(np.asarray(self.hidden_layer_sizes))
        if hidden.ndim != 1 or hidden.dtype.kind != "i" or not len(hidden) or (hidden < 1).any():
            raise ExperimentError(
                f"hidden_layer_sizes is {self.hidden_layer_sizes!r}; give a whole number above 0, "
                "or one for each hidden layer"
            )
        return [self.n_features_in_, *hidden.tolist(), len(self.classes_)]

    def _start(self, training: Training) -> Steps:
        """All weights in one row, and steps that take no more of Python than they need.

        The gradient is computed here and Adam's kernel called directly. With autograd and
        ``torch.optim.Adam(fused=True)`` training takes about twice as long: on one core 0.5 ms a
        step, not 0.2 ms, for 16 clips of 512 numbers.
        """
        import torch

        sizes, weights = self._sizes(), training.class_weights
        if self.class_weight is not None:
            # Scaled to a mean of 1 over all clips, not over a batch as torch's own mean does:
            # there, a batch of one class would count in full, whatever the class's weight.
            weights = weights / weights[training.codes[training.rows]].mean()
        # A class's row: the weight of its clips, in its column.
        target_rows = torch.diag(torch.tensor(weights, dtype=torch.float32))
        features, targets = torch.tensor(training.X), target_rows[torch.from_numpy(training.codes)]
        row = torch.cat([_first_weights(*pair, training.generator) for pair in pairwise(sizes)])
        gradient = torch.empty_like(row)
        layers, gradients = _split_layers(row, sizes), _split_layers(gradient, sizes)
        take_step = _adam(row, gradient, self.learning_rate_init)

        def run(order: Any) -> Any:
            total = torch.zeros(())
            batches = features[order].split(self.batch_size), targets[order].split(self.batch_size)
            for batch, batch_targets in zip(*batches, strict=True):
                activations = _forward(batch, layers)
                loss, slope = _loss(activations[-1], batch_targets, author=self.author)
                _backward(activations, slope, layers, gradients)
                take_step()
                total += loss * len(batch)
            return total

        def validate() -> float:
            logits = _forward(torch.tensor(training.X_val), layers)[-1]
            loss, _ = _loss(logits, target_rows[training.val_codes], author=self.author)
            return float(loss)

        return Steps({"row": row}, run, validate, self.min_epochs, keep_last=self.author)

    def _keep(self, weights: Mapping[str, Any]) -> None:
        layers = _split_layers(weights["row"], self._sizes())
        self.coefs_ = [weight.numpy() for weight, _ in layers]
        self.intercepts_ = [offset.numpy() for _, offset in layers]

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        return softmax(self._logits(X) / self.temperature_)

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
