"""The common parts of families that hear: reading files, and embedding window by window."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.pools import clip_by_clip
from obygaze_features.backbones.sampling import MAX_FRAMES
from obygaze_features.backbones.sound import SoundPreprocessing, SoundSampling
from obygaze_features.backbones.weights import load_model, weight_files
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, translate
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "preprocessor_config.json"
WINDOWS_PER_STEP = 8
"""The windows in one forward pass."""
SIZES = ("feature_size", "num_mel_bins", "fft_window_size", "n_fft")
RATES = range(8_000, 192_001)
"""The samples per second that a checkpoint may request."""
MOST = 60 * RATES[-1]
"""The most numbers in a window, in its spectrum and in its filters."""


def sound_arrays(meaning: str, dim: int) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network that embeds each window of sound in `dim` numbers."""
    return (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        ArraySpec.named("frames", (MAX_FRAMES, dim), f"{meaning} of each window", padded=True),
    )


def load_sound(
    path: Path, model: str, extractor: str, defaults: Mapping[str, Any],
    window: Callable[[Any], float], *, masked: bool = False, **options: Any,
) -> tuple[Any, dict[str, Any], Callable[..., Backbone]]:  # fmt: skip
    """Load a transformers model that hears, its settings, and a function that makes its `Backbone`.

    That function takes a network, a function that embeds windows of sound, ``[W,...]`` to
    ``[W,D]``, its arrays, and other fields; `takes` is the shape of a window if the network takes
    no other.

    Parameters
    ----------
    path, model, options
        The folder, and the class's name and options, as for `load_model`.
    extractor, masked
        As for `SoundPreprocessing`.
    defaults
        The extractor's settings that matter, used if the folder lacks them.
    window
        A function from the settings to the seconds of a window.
    """
    file = path / CONFIG
    listed = read_json(file, BackboneError)
    if not isinstance(listed, dict) or listed.get("feature_extractor_type", extractor) != extractor:
        raise BackboneError(f"{file} is not the configuration of a {extractor} (JSON object)")
    settings = {name: listed.get(name, default) for name, default in defaults.items()}
    with translate(BackboneError, file, "has settings that do not work: {}"):
        rate, seconds = settings["sampling_rate"], window(settings)
        if not isinstance(rate, int) or rate not in RATES:
            reason = f": sampling_rate must be from {RATES[0]:,} to {RATES[-1]:,} (got {rate!r})"
            raise BackboneError(file, reason)
        samples, hop = float(seconds) * rate, settings.get("hop_length", 160)
        sizes = [settings[name] for name in SIZES if name in settings]
        largest = max(samples, math.prod(sizes), *(samples / hop * size for size in sizes))
        if not 0 < min(samples, hop, *sizes) <= largest <= MOST:
            reason = f"needs {largest:.3g} numbers per window; choose sizes for 1 to {MOST:,}"
            raise BackboneError(file, reason)
        sampling = SoundSampling(rate, seconds, seconds)
        preprocessing = SoundPreprocessing(sampling, extractor, settings, masked)
        shape = tuple(preprocessing.inputs(np.zeros(1, np.float32)).shape[1:])
    files, config = weight_files(path), read_json(path / "config.json", BackboneError)
    network_class = getattr(need("transformers", extra="extract"), model)

    def make_backbone(
        network: Any, embed: Callable[[Tensor], Tensor], arrays: tuple[ArraySpec, ...],
        *, takes: tuple[int, ...] = shape, **more: Any,
    ) -> Backbone:  # fmt: skip
        import torch

        if shape != takes:
            raise BackboneError(
                f"{file} makes input of the shape {shape}, but according to config.json the "
                f"network takes {takes}"
            )

        def embed_windows(clip: Tensor) -> dict[str, Tensor]:
            steps = [embed(step) for step in clip.split(WINDOWS_PER_STEP)]
            return {"native": torch.cat(steps).float()}

        encode = clip_by_clip(embed_windows, {"native": pool_mean})
        return Backbone(
            network, sampling, preprocessing, arrays, encode, files, config,
            mask_on_cpu=True, **more,
        )  # fmt: skip

    return load_model(network_class, path, files, **options), settings, make_backbone
