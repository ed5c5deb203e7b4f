"""How the networks are trained: validation clips, batches, epochs, early stopping, calibration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_class_weight
from threadpoolctl import threadpool_limits

from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import (
    Array,
    check_both,
    encode,
    find_classes,
    fit_temperature,
    hold_out,
)

POSITIVE = Interval(Integral, 1, None, closed="left")


@dataclass(frozen=True, eq=False)
class Training:
    """What a network gets to make its weights from.

    Parameters
    ----------
    X, codes, rows
        All clips, their classes by number, and the rows to train on.
    X_val, val_codes
        The validation clips; None without any.
    class_weights
        Of each class, in float64.
    generator
        Torch's; it draws the weights, and then the order of the clips in each epoch.
    """

    X: Array
    codes: Array
    rows: Array
    X_val: Any
    val_codes: Any
    class_weights: Array
    generator: Any


@dataclass(frozen=True, eq=False)
class Steps:
    """A network while it is trained.

    Parameters
    ----------
    weights
        Torch's tensors by name, which `run` changes.
    run
        Trains on the rows of one batch after the other; the sum of the clips' losses.
    validate
        The loss on the validation clips.
    min_epochs, keep_last
        Never stop before this epoch; and keep the last one, not the best.
    """

    weights: dict[str, Any]
    run: Callable[[Any], Any]
    validate: Callable[[], float]
    min_epochs: int = 0
    keep_last: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class TorchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What `MLPProbe` and the probes of frames share; each describes the parameters."""

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
        """Clips, and labels where they are given, as arrays."""

    @abstractmethod
    def _start(self, training: Training) -> Steps:
        """The first weights, and the steps that change them."""

    @abstractmethod
    def _keep(self, weights: Mapping[str, Any]) -> None:
        """Keep the weights of the best epoch."""

    @abstractmethod
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, [N, classes], in the order of ``classes_``."""

    @abstractmethod
    def _logits(self, X: Array) -> Array:
        """The logits of checked clips by the weights that were kept."""

    def fit(self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Train; the validation clips stop the training and choose the epoch.

        Parameters
        ----------
        X, y
            Clips and one label each: features [N, D], or frames [N, T, D]. Frames that a clip
            lacks are NaN; all clips need one. Half precision stays so: only a batch at a time is
            converted.
        X_val, y_val
            The same of the clips that stop the training; without them, and unless
            `early_stopping` is off, a share of X is held out.
        """
        import torch  # before the thread limits, which apply only to libraries that are loaded

        self._validate_params()
        check_both(X_val, y_val)
        # Steps this small take a hundred times longer where threads wait for each other.
        with threadpool_limits(1), torch.inference_mode(not self._autograd):
            self._fit(X, y, X_val, y_val)
        return self

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> Training:
        import torch

        X, y = self._check(X, y, reset=True)
        self.classes_ = find_classes(y)
        chance = check_random_state(self.random_state)
        rows = np.arange(len(y))
        if X_val is not None:
            X_val, y_val = self._check(X_val, y_val)
        elif self.early_stopping:
            rows, held = hold_out(y, self.validation_fraction, chance)
            X_val, y_val = X[held], y[held]
        elif self.calibrate:
            raise ExperimentError(
                "calibrate=True needs validation clips; give X_val and y_val, or early_stopping"
            )
        val_codes = None if y_val is None else encode(y_val, self.classes_)
        class_weights = np.ones(len(self.classes_))
        if self.class_weight is not None:
            class_weights = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y[rows]
            )
        generator = torch.Generator().manual_seed(chance.randint(2**31 - 1))
        codes = encode(y, self.classes_)
        training = Training(X, codes, rows, X_val, val_codes, class_weights, generator)
        self._keep(self._train(self._start(training), training))
        self.temperature_ = 1.0
        if self.calibrate:
            self.temperature_ = fit_temperature(self._logits(X_val), training.val_codes)
        self.facts_ = {"best_epoch": self.best_epoch_, "temperature": self.temperature_}
        return training

    def _train(self, steps: Steps, training: Training) -> dict[str, Any]:
        """The weights of the best epoch: of the lowest validation loss, or else of the last."""
        import torch

        rows = torch.from_numpy(training.rows)
        self.history_: list[dict[str, float]] = []
        best_loss, best_epoch, best = np.inf, 0, steps.weights
        for epoch in range(1, self.max_iter + 1):
            order = rows[torch.randperm(len(rows), generator=training.generator)]
            total = float(steps.run(order))
            self.history_.append({"epoch": epoch, "train_loss": total / len(rows)})
            if self._autograd and not np.isfinite(total):
                raise self._overflow("loss")
            if training.X_val is None:
                continue
            loss = self.history_[-1]["validation_loss"] = steps.validate()
            if loss < best_loss:
                best_loss, best_epoch = loss, epoch
                best = {name: part.detach().clone() for name, part in steps.weights.items()}
            elif epoch >= steps.min_epochs and epoch - best_epoch >= self.n_iter_no_change:
                break
        if steps.keep_last or training.X_val is None:
            best_epoch, best = epoch, steps.weights
        if not all(part.isfinite().all() for part in best.values()):
            raise self._overflow("weights")
        self.best_epoch_, self.n_iter_ = best_epoch, epoch
        return best

    def _overflow(self, name: str) -> ExperimentError:
        return ExperimentError(
            f"the {name} overflowed in epoch {len(self.history_)}; scale the features, or lower "
            f"learning_rate_init ({self.learning_rate_init:g})"
        )

    def predict(self, X: Any) -> Array:
        """The most probable class of each clip."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
