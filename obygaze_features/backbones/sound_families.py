"""CLAP in Hugging Face format, which embeds each window of a clip's sound separately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import text_reader
from obygaze_features.backbones.network_config import read_object
from obygaze_features.backbones.pools import clip_by_clip, pool_mean
from obygaze_features.backbones.random_checkpoints import write_clap
from obygaze_features.backbones.readers import SoundReader
from obygaze_features.backbones.sound import EXTRACTOR, SoundPreprocessing
from obygaze_features.backbones.weights import load_network
from obygaze_features.errors import BackboneError, translate
from obygaze_features.sampling import MAX_FRAMES, SoundSampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "preprocessor_config.json"
WINDOWS_PER_STEP = 8
"""The number of windows in one forward pass."""
MOST_SAMPLES = 60 * 192_000
"""The maximum number of samples in a window."""
SETTINGS = (
    "sampling_rate",
    "feature_size",
    "fft_window_size",
    "hop_length",
    "max_length_s",
    "frequency_min",
    "frequency_max",
    "padding",
    "truncation",
)
"""The settings of the extractor that affect its output."""
SHORT = np.zeros(1, np.float32)
"""A sound that shows the shape of the input."""


def read_extractor(path: Path, audio: Any) -> SoundPreprocessing:
    """Return the preprocessing of a checkpoint's folder, for a network with this configuration.

    Checkpoints with feature fusion are refused, because they take random parts of long sound.
    """
    file = path / CONFIG
    config = read_object(file)
    with translate(BackboneError, file, "has a missing or unusable setting: {}; correct it"):
        if config.get("feature_extractor_type", EXTRACTOR) != EXTRACTOR:
            raise BackboneError(f"{file} does not configure a {EXTRACTOR}; use a CLAP checkpoint")
        settings = {name: config[name] for name in SETTINGS}
        rate = settings["sampling_rate"]
        window = settings["max_length_s"]
        if not isinstance(rate, int) or not 0 < window * rate <= MOST_SAMPLES:
            raise BackboneError(
                f"{file}: bad windows of {window} s at {rate!r} samples per second; correct it"
            )
        preprocessing = SoundPreprocessing(SoundSampling(rate, window, window), settings)
        shape = tuple(preprocessing.inputs(SHORT).shape[1:])

    if audio.enable_fusion or settings["truncation"] != "rand_trunc":
        raise BackboneError(
            f"{path} is a CLAP with feature fusion, which takes random parts of long sound. Use a "
            "checkpoint without fusion, such as laion/clap-htsat-unfused"
        )
    if settings["padding"] not in ("repeatpad", "repeat", "pad"):
        raise BackboneError(
            f"{file}: padding must be repeatpad, repeat or pad (got {settings['padding']!r})"
        )
    most_frames = audio.spec_size * (audio.spec_size // audio.num_mel_bins)
    frames = min(window * rate // settings["hop_length"] + 1, most_frames)
    takes = (1, frames, audio.num_mel_bins)
    if shape != takes:
        raise BackboneError(
            f"{file} makes input of shape {shape}, but according to config.json the "
            f"network takes {takes}. Use the file of the same checkpoint"
        )
    return preprocessing


def load_clap(path: Path, mode: str) -> Backbone:
    """Load a CLAP model (Wu et al., 2023), which embeds sound and texts in the same space."""
    import torch

    model, fields = load_network(path, "ClapModel")
    audio = model.config.audio_config
    text = model.config.text_config
    preprocessing = read_extractor(path, audio)
    hear = model.audio_model
    project = model.audio_projection
    dim = audio.projection_dim

    def embed_windows(clip: Tensor) -> Tensor:
        steps = [project(hear(step).pooler_output) for step in clip.split(WINDOWS_PER_STEP)]
        return torch.cat(steps).float()

    # As in RoBERTa, the first positions are for padding.
    unused = text.pad_token_id + 1
    meaning = "projected embedding, not normalised, of each window"
    arrays = (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        ArraySpec.named("frames", (MAX_FRAMES, dim), meaning, padded=True),
    )
    encode = clip_by_clip(embed_windows, {"native": pool_mean})
    embedding = ArraySpec.named("native", (dim,), "projected embedding of a text")
    return Backbone(
        torch.nn.ModuleDict({"hear": hear, "project": project}),
        clip=SoundReader(preprocessing.sampling, preprocessing, arrays, encode, counts_only=True),
        text=text_reader(
            path,
            model.text_model,
            embedding,
            model.text_projection,
            unused=unused,
        ),
        **fields,
    )


TINY_CLAP = KnownCheckpoint(
    "tiny-clap",
    "a small CLAP with random weights",
    SoundSampling(16_000, 1, 1),
    write=write_clap,
)
FAMILIES = (Family("clap", "clap", (*published("clap"), TINY_CLAP), load_clap, embeds_texts=True),)
