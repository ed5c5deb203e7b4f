"""A classifier of frame sequences. It learns from clip labels, and can also score frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import CLIPS_PER_STEP, as_logits, best_cut, check_frames
from obygaze_models.estimators.mlp import POSITIVE, Steps, TorchClassifier, Training, thread_pools


@dataclass(eq=False, repr=False)
class FrameMIL(TorchClassifier):
    """A classifier that scores frames linearly, and a clip by the mean of its `k` highest scores.

    Parameters
    ----------
    k
        The number of highest frame scores that are averaged.
    class_weight
        None, ``"balanced"``, or a weight for each class.
    calibrate
        Choose a temperature on the validation clips, by log loss.
    learning_rate_init, weight_decay
        AdamW's learning rate and weight decay.
    batch_size, max_iter
        The number of clips per step, and the maximum number of epochs.
    early_stopping, validation_fraction, n_iter_no_change
        If no validation clips are passed to `fit`, `early_stopping` holds out a share of X
        (`validation_fraction`). With validation clips, training stops after `n_iter_no_change`
        epochs without a lower loss on them, and keeps the best epoch.
    random_state
        The seed of the initial weights, the order of the clips and the validation share.

    Attributes
    ----------
    classes_, n_frames_in_, n_features_in_
        The sorted labels, and the numbers of frames per clip and of features per frame in training.
    weights_
        The learned weights by name.
    mean_, scale_
        The mean of each feature, and the overall scale, over the frames of the training clips.
    threshold_
        The lowest probability at which a frame counts as the second of two classes: the threshold
        with the best F1 on the validation clips, or 0.5.
    best_epoch_, n_iter_, temperature_, history_, facts_
        See `MLPProbe`. `facts_` also has ``threshold``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TorchClassifier._parameter_constraints,
        "k": [POSITIVE],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
    }

    k: int = 3
    _: KW_ONLY
    learning_rate_init: float = 1e-2
    weight_decay: float = 10.0
    batch_size: int = 32

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    def _fit(self, X: Any, y: Any, X_val: Any, y_val: Any) -> Training:
        training = super()._fit(X, y, X_val, y_val)
        self.threshold_ = 0.5
        if training.X_val is not None and len(self.classes_) == 2:
            highest = np.nanmax(self.predict_frames(training.X_val)[..., 1], axis=1)
            self.threshold_ = best_cut(highest, training.val_codes == 1)
        self.facts_["threshold"] = self.threshold_
        return training

    def _start(self, training: Training) -> Steps:
        import torch

        self.mean_, self.scale_ = _mean_and_scale(training.X, training.rows)
        size = self.n_features_in_
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        layer = torch.randn((size, outputs), generator=training.generator) * size**-0.5
        offset = torch.zeros(outputs)
        weights = {"layer0": layer.requires_grad_(), "offset0": offset.requires_grad_()}
        groups = [{"params": [layer]}, {"params": [offset], "weight_decay": 0.0}]
        adam = torch.optim.AdamW(
            groups,
            self.learning_rate_init,
            weight_decay=self.weight_decay,
            fused=True,
        )
        cross_entropy = torch.nn.functional.cross_entropy
        clips = torch.from_numpy(training.X)
        codes = torch.from_numpy(training.codes)
        class_weights = torch.tensor(training.class_weights, dtype=torch.float32)

        def learn(batch: Any) -> Any:
            logits = _two_columns(self._clip_logits(clips[batch], weights))
            losses = cross_entropy(logits, codes[batch], reduction="none")
            losses = losses * class_weights[codes[batch]]
            adam.zero_grad()
            losses.mean().backward()
            adam.step()
            return losses.detach()

        def validate() -> float:
            self._keep(weights)
            logits = torch.from_numpy(self._logits(training.X_val))
            targets = torch.from_numpy(training.val_codes)
            return float(cross_entropy(logits, targets, weight=class_weights.double()))

        return weights, learn, validate

    def _keep(self, weights: Mapping[str, Any]) -> None:
        self.weights_: dict[str, Array] = {}
        for name, weight in weights.items():
            self.weights_[name] = weight.detach().numpy()

    def predict_frames(self, X: Any) -> Array:
        """Return each frame's class probabilities, [N, T, classes]; NaN for absent frames."""
        check_is_fitted(self)
        import torch

        def probabilities(clips: Any, weights: Mapping[str, Any]) -> Any:
            present, logits = self._frame_logits(clips, weights)
            shares = _two_columns(logits.double() / self.temperature_).softmax(-1)
            return shares.masked_fill_(~present[..., None], torch.nan)

        return self._predict(self._check(X), probabilities)

    def _check(self, X: Any, y: Any = None, *, reset: bool = False) -> Any:
        """Return the clips as an array [N, T, D] of half or single precision, and any labels."""
        if getattr(X, "ndim", 3) != 3:
            raise ExperimentError(
                f"{type(self).__name__} needs X of shape [clips, frames, features], but X has "
                f"{counted(X.ndim, 'axis', 'axes')}. Use the 'frames' array of a store"
            )
        X = check_array(X, allow_nd=True, ensure_all_finite=False, dtype=[np.float32, np.float16])
        if reset:
            self.n_frames_in_, self.n_features_in_ = X.shape[1:]
        elif X.shape[2] != self.n_features_in_:
            raise ExperimentError(
                f"X has frames of {X.shape[2]} features, but the model was trained on frames of "
                f"{self.n_features_in_} features. Use the same array"
            )
        check_frames(X)
        if y is None:
            return X
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        return X, y

    def _logits(self, X: Array) -> Array:
        return as_logits(self._predict(X, self._clip_logits).astype(np.float64))

    def _predict(self, X: Array, compute: Callable[..., Any]) -> Array:
        """Apply a function of clips and weights to checked clips, in batches."""
        import torch

        weights = {name: torch.from_numpy(values) for name, values in self.weights_.items()}
        with torch.inference_mode(), thread_pools().limit(limits=1):
            steps = torch.from_numpy(X).split(CLIPS_PER_STEP)
            return np.asarray(torch.cat([compute(clips, weights) for clips in steps]).numpy())

    def _frame_logits(self, clips: Any, weights: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a mask of the frames that clips have [B, T], and frames' logits [B, T, outputs].

        The weights and logits are scaled and shifted instead of the frames, which is faster.
        """
        import torch

        present = ~clips[..., 0].isnan()
        frames = clips.float()
        if not present.all():
            frames = frames.nan_to_num(0.0)
        layer = weights["layer0"] / self.scale_
        shift = torch.from_numpy(self.mean_) @ layer
        return present, frames @ layer - shift + weights["offset0"]

    def _clip_logits(self, clips: Any, weights: Mapping[str, Any]) -> Any:
        import torch

        present, logits = self._frame_logits(clips, weights)
        k = min(self.k, logits.shape[1])
        logits = logits.masked_fill(~present[..., None], -torch.inf)
        highest = logits.topk(k, dim=1).values
        count = present.sum(1, keepdim=True).clamp(max=k)
        return highest.masked_fill(highest.isinf(), 0).sum(1) / count


def _two_columns(logits: Any) -> Any:
    """Return a single column of logits as two columns; return several columns unchanged."""
    import torch

    if logits.shape[-1] == 1:
        logits = torch.nn.functional.pad(logits, (1, 0))
    return logits


def _mean_and_scale(X: Array, rows: Array) -> tuple[Array, float]:
    """Return each feature's mean, and one scale for all features, over present frames."""
    scaler = StandardScaler()
    for part in np.array_split(rows, -(-len(rows) // CLIPS_PER_STEP)):
        scaler.partial_fit(X[part].reshape(-1, X.shape[2]).astype(np.float32))
    variance = float(scaler.var_.mean())
    return scaler.mean_.astype(np.float32), max(variance, 1e-12) ** 0.5
