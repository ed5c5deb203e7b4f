"""A base class for networks on frozen features, and the small network of the paper's Table 2."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import validate_data
from threadpoolctl import ThreadpoolController

from obygaze_features.common.arrays import Array
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    LogitClassifier,
    check_both,
    encode,
    find_classes,
    fit_temperature,
)

POSITIVE = Interval(Integral, 1, None, closed="left")
Steps = tuple[dict[str, Any], Callable[[Any], Any], Callable[[], float]]
"""The weights by name, a function that learns from a batch of rows and returns the clips' losses,
and a function that returns the mean loss on the validation clips.
"""
ADAM = {
    "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0,
    "amsgrad": False, "maximize": False, "fused": True,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Training:
    """The data from which a network learns its weights.

    Parameters
    ----------
    X, codes, rows
        All clips, the index of each clip's class, and the rows to train on.
    X_val, val_codes
        The validation clips and the index of each clip's class; None if there are none.
    class_weights
        The weight of each class, in float64.
    generator
        A torch generator, which draws the initial weights, then the order of clips in each epoch.
    """

    X: Array
    codes: Array
    rows: Array
    X_val: Any
    val_codes: Any
    class_weights: Array
    generator: Any


@dataclass(eq=False, repr=False, kw_only=True)
class TorchClassifier(LogitClassifier):
    """The base class of `MLPProbe` and `FrameMIL`, which document the parameters."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "calibrate": ["boolean"],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [POSITIVE],
        "max_iter": [POSITIVE],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [POSITIVE],
        "random_state": ["random_state"],
    }
    _autograd: ClassVar[bool] = True
    author = False
    min_epochs = 0

    class_weight: Mapping[Any, float] | str | None = None
    calibrate: bool = False
    learning_rate_init: float = 1e-3
    batch_size: int = 16
    max_iter: int = 100
    early_stopping: bool = True
    validation_fraction: float = 0.1
    n_iter_no_change: int = 5
    random_state: int | np.random.RandomState | None = None

    @abstractmethod
    def _check(self, X: Any, y: Any = None, *, reset: bool = False) -> Any:
        """Return the clips, and the labels if passed, as arrays."""

    @abstractmethod
    def _start(self, training: Training) -> Steps:
        """Return the initial weights, and functions that train and validate them."""

    @abstractmethod
    def _keep(self, weights: Mapping[str, Any]) -> None:
        """Set the attributes that hold the weights."""

    def fit(self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Train the network. Validation clips are used to stop training and choose the best epoch.

        Parameters
        ----------
        X, y
            The features [N, D] or frames [N, T, D] of clips, and one label per clip. Frames that a
            clip lacks are NaN; every clip needs a frame. Frames in half precision are converted
            batch by batch.
        X_val, y_val
            The same for the validation clips. By default, a share of X is held out, unless
            `early_stopping` is False.
        """
        import torch  # before the thread limits, which apply only to loaded libraries

        self._validate_params()
        check_both(X_val, y_val)
        # Steps this small take a hundred times longer when threads wait for each other.
        with thread_pools().limit(limits=1), torch.inference_mode(not self._autograd):
            self._fit(X, y, X_val, y_val)
        return self

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> Training:
        import torch

        X, y = self._check(X, y, reset=True)
        self.classes_, codes = find_classes(y)
        chance = check_random_state(self.random_state)
        rows = np.arange(len(y))
        if X_val is not None:
            X_val, y_val = self._check(X_val, y_val)
        elif self.early_stopping:
            size = max(round(self.validation_fraction * len(y)), len(self.classes_))
            rows, held = train_test_split(rows, test_size=size, stratify=y, random_state=chance)
            X_val = X[held]
            y_val = y[held]
        elif self.calibrate:
            raise ExperimentError(
                "calibrate needs validation clips. Pass some, or leave early_stopping on"
            )
        val_codes = None if y_val is None else encode(y_val, self.classes_)
        class_weights = compute_class_weight(self.class_weight, classes=self.classes_, y=y[rows])
        generator = torch.Generator().manual_seed(chance.randint(2**31 - 1))
        training = Training(X, codes, rows, X_val, val_codes, class_weights, generator)
        self._keep(self._train(training))
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = fit_temperature(self._logits(X_val), training.val_codes)
        self.facts_ = {"best_epoch": self.best_epoch_, "temperature": self.temperature_}
        return training

    def _train(self, training: Training) -> dict[str, Any]:
        """Return the weights of the epoch with the lowest validation loss, or of the last epoch."""
        import torch

        weights, learn, validate = self._start(training)
        rows = torch.from_numpy(training.rows)
        self.history_: list[dict[str, float]] = []
        best_loss = np.inf
        best_epoch = 0
        best = weights
        for epoch in range(1, self.max_iter + 1):
            order = rows[torch.randperm(len(rows), generator=training.generator)]
            losses = [learn(batch) for batch in order.split(self.batch_size)]
            total = float(torch.cat(losses).sum())
            self.history_.append({"epoch": epoch, "train_loss": total / len(rows)})
            if not np.isfinite(total):
                raise self._overflow("loss")
            if training.X_val is None:
                continue
            loss = self.history_[-1]["validation_loss"] = validate()
            if loss < best_loss:
                best_loss = loss
                best_epoch = epoch
                best = {name: part.detach().clone() for name, part in weights.items()}
            elif epoch >= self.min_epochs and epoch - best_epoch >= self.n_iter_no_change:
                break
        if self.author or training.X_val is None:
            best_epoch = epoch
            best = weights
        if not all(part.isfinite().all() for part in best.values()):
            raise self._overflow("weights")
        self.best_epoch_ = best_epoch
        self.n_iter_ = epoch
        return best

    def _overflow(self, name: str) -> ExperimentError:
        return ExperimentError(
            f"the {name} overflowed in epoch {len(self.history_)}. Scale the features, or lower "
            f"learning_rate_init ({self.learning_rate_init:g})"
        )


@dataclass(eq=False, repr=False)
class MLPProbe(TorchClassifier):
    """A network with ReLU hidden layers, trained by Adam on the cross-entropy.

    Individual weights of clips (``sample_weight``) are not supported.

    Parameters
    ----------
    hidden_layer_sizes
        The number of units in each hidden layer; a single number means one layer.
    author
        Train as the paper's released code does: pass probabilities to a loss that expects logits,
        and keep the last epoch instead of the best.
    class_weight
        None, ``"balanced"``, or a weight for each class.
    calibrate
        Choose a temperature on the validation clips, by log loss. It changes the probabilities, but
        not the predicted classes.
    learning_rate_init
        Adam's learning rate.
    weight_decay
        AdamW's weight decay, which shrinks the weights (not the offsets) towards 0 at each step.
    batch_size
        The number of clips per step. The last batch of an epoch may be smaller.
    max_iter
        The maximum number of epochs.
    early_stopping
        Hold out a share of the training clips if no validation clips are passed to `fit`. With
        validation clips, the loss on them decides when training stops and which epoch is kept.
    validation_fraction
        The share of training clips to hold out for validation, the same for each class.
    n_iter_no_change
        The number of epochs without a lower validation loss after which to stop.
    min_epochs
        The number of epochs before which training does not stop early.
    random_state
        The seed of the initial weights, the order of the clips and the validation share.

    Attributes
    ----------
    classes_
        The labels, sorted.
    coefs_, intercepts_
        The weights and offsets of the layers, from `best_epoch_`.
    best_epoch_, n_iter_
        The best epoch, counted from 1, and the number of epochs that were run. Without validation
        clips, or with `author`, they are the same.
    temperature_
        The divisor of the logits; 1 unless calibrated.
    history_
        A dict for each epoch: ``epoch``, ``train_loss`` and, if there are validation clips,
        ``validation_loss``.
    facts_
        ``best_epoch`` and ``temperature``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TorchClassifier._parameter_constraints,
        "hidden_layer_sizes": ["array-like", POSITIVE],
        "author": ["boolean"],
        "min_epochs": [Interval(Integral, 0, None, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
    }
    _autograd: ClassVar[bool] = False

    hidden_layer_sizes: int | tuple[int, ...] = (128,)
    _: KW_ONLY
    author: bool = False
    min_epochs: int = 5
    weight_decay: float = 0.0

    def _check(self, X: Any, y: Any = "no_validation", *, reset: bool = False) -> Any:
        # Torch warns of arrays that cannot be written, such as those of pandas 3.
        return validate_data(self, X, y, dtype=np.float32, force_writeable=True, reset=reset)

    def _sizes(self) -> list[int]:
        """Return the numbers of inputs, of units in each hidden layer, and of classes."""
        hidden = np.atleast_1d(np.asarray(self.hidden_layer_sizes))
        if hidden.ndim != 1 or hidden.dtype.kind != "i" or not len(hidden) or (hidden < 1).any():
            raise ExperimentError(
                f"hidden_layer_sizes is {self.hidden_layer_sizes!r}. Pass an integer above 0, "
                "or a list of integers with one for each hidden layer"
            )
        return [self.n_features_in_, *hidden.tolist(), len(self.classes_)]

    def _start(self, training: Training) -> Steps:
        """Start training, with all weights in a flat tensor for speed.

        The gradient is computed without autograd, and Adam is called as a function. Training 20
        epochs on 1,364 clips of 512 features takes 0.44 s on one core, 0.80 s with autograd, and
        longer still with ``torch.optim.Adam``.
        """
        import torch
        from torch.optim.adam import adam

        sizes = self._sizes()
        row = torch.cat([_first_weights(*pair, training.generator) for pair in pairwise(sizes)])
        layers = _split_layers(row, sizes)
        gradient = torch.empty_like(row)
        gradients = _split_layers(gradient, sizes)
        state = [[row], [gradient], [torch.zeros_like(row)], [torch.zeros_like(row)], []]
        move = partial(adam, *state, [torch.zeros(())], lr=self.learning_rate_init, **ADAM)
        decay = torch.ones_like(row)
        for weight, _ in _split_layers(decay, sizes):
            weight -= self.learning_rate_init * self.weight_decay

        # Scale the weights to a mean of 1 over training clips. Torch divides by the sum of the
        # weights in a batch, so a class's weight would have no effect in a batch of that class.
        weights = training.class_weights
        weights = weights / weights[training.codes[training.rows]].mean()
        class_weights = torch.tensor(weights, dtype=torch.float32)
        # Row i has the weight of class i in column i, and 0 in all other columns.
        target_rows = torch.diag(class_weights)
        codes = torch.from_numpy(training.codes)
        clips = torch.from_numpy(training.X)
        targets = target_rows[codes]

        def learn(batch: Any) -> Any:
            batch_targets = targets.index_select(0, batch)
            activations = _forward(clips.index_select(0, batch), layers)
            scores = activations[-1].softmax(1) if self.author else activations[-1]
            logs = scores.log_softmax(1)
            own_weights = batch_targets.sum(1, keepdim=True)  # a row of `targets` has one weight
            slope = logs.exp().mul_(own_weights).sub_(batch_targets).div_(len(batch_targets))
            if self.author:
                slope = scores * (slope - (slope * scores).sum(1, keepdim=True))
            _backward(activations, slope, layers, gradients)
            if self.weight_decay:
                row.mul_(decay)
            move()
            return -logs.mul_(batch_targets)

        def validate() -> float:
            logits = _forward(torch.tensor(training.X_val), layers)[-1]
            scores = logits.softmax(1) if self.author else logits
            losses = -scores.log_softmax(1) * target_rows[training.val_codes]
            return float(losses.sum() / len(losses))

        return {"row": row}, learn, validate

    def _keep(self, weights: Mapping[str, Any]) -> None:
        layers = _split_layers(weights["row"], self._sizes())
        self.coefs_ = [weight.numpy() for weight, _ in layers]
        self.intercepts_ = [offset.numpy() for _, offset in layers]

    def _logits(self, X: Array) -> Array:
        # Use float64, so that a clip's prediction does not depend on the other clips in its batch.
        X = X.astype(np.float64)
        *hidden, last = zip(self.coefs_, self.intercepts_, strict=True)
        for weight, offset in hidden:
            X = np.maximum(X @ weight + offset, 0)
        return np.asarray(X @ last[0] + last[1])


@cache
def thread_pools() -> ThreadpoolController:
    """Return the controller of thread pools. It is cached, because creating it takes 4 ms."""
    return ThreadpoolController()


def _first_weights(inputs: int, outputs: int, generator: Any) -> Any:
    """Draw initial weights and offsets from the distribution that torch's linear layer uses."""
    import torch

    bound = inputs**-0.5
    return torch.empty((inputs + 1) * outputs).uniform_(-bound, bound, generator=generator)


def _split_layers(row: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    """Return each layer's weights [inputs, outputs] and offsets, as views of a flat tensor."""
    layers = []
    start = 0
    for inputs, outputs in pairwise(sizes):
        middle = start + inputs * outputs
        end = start + (inputs + 1) * outputs
        weights = row[start:middle].view(inputs, outputs)
        layers.append((weights, row[middle:end]))
        start = end
    return layers


def _forward(features: Any, layers: list[tuple[Any, Any]]) -> list[Any]:
    """Return the input of each layer, followed by the logits."""
    activations = [features]
    *hidden, (last, last_offset) = layers
    for weight, offset in hidden:
        activations.append(offset.addmm(activations[-1], weight).relu_())
    return [*activations, last_offset.addmm(activations[-1], last)]


def _backward(
    activations: list[Any],
    slope: Any,
    layers: list[tuple[Any, Any]],
    gradients: list[tuple[Any, Any]],
) -> None:
    """Write the gradient of the loss for each layer's weights and offsets into `gradients`."""
    import torch

    for layer in reversed(range(len(layers))):
        by_weight, by_offset = gradients[layer]
        torch.mm(activations[layer].T, slope, out=by_weight)
        torch.sum(slope, 0, out=by_offset)
        if layer:
            weights, _ = layers[layer]
            slope = slope.mm(weights.T).mul_(activations[layer].sign_())  # 0 or 1
