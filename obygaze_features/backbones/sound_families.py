"""Audio families: CLAP and AST, in Hugging Face format.

They embed each window of a clip's sound separately. The feature extractors run in NumPy even if
torchaudio is installed, so that results do not depend on torchaudio.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.image_families import make_text_tower
from obygaze_features.backbones.pools import clip_by_clip
from obygaze_features.backbones.sampling import MAX_FRAMES
from obygaze_features.backbones.sound import SoundPreprocessing, SoundSampling
from obygaze_features.backbones.tiny import write_clap
from obygaze_features.backbones.weights import load_network
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError, translate
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import pool_mean

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "preprocessor_config.json"
WINDOWS_PER_STEP = 8
"""The number of windows in one forward pass."""
MOST_SAMPLES = 60 * 192_000
"""The maximum number of samples in a window."""
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "ClapFeatureExtractor": (
        "sampling_rate",
        "feature_size",
        "fft_window_size",
        "hop_length",
        "max_length_s",
        "frequency_min",
        "frequency_max",
        "padding",
        "truncation",
    ),
    "ASTFeatureExtractor": (
        "sampling_rate",
        "num_mel_bins",
        "max_length",
        "do_normalize",
        "mean",
        "std",
    ),
}
"""The settings that affect each extractor's output."""
AST_HOP = 160
"""The hop length of AST's spectrogram in samples."""
SHORT = np.zeros(1, np.float32)
"""A sound that shows the shape of the input."""


def read_extractor(
    path: Path, extractor: str, seconds: Callable[[Any], float]
) -> SoundPreprocessing:
    """Return the preprocessing of a checkpoint.

    Parameters
    ----------
    path
        The checkpoint's folder.
    extractor
        The name of the extractor's class.
    seconds
        A function that returns the seconds per window, given the extractor's settings.
    """
    transformers = need("transformers", extra="extract")
    file = path / CONFIG
    with (
        translate(BackboneError, file, "has settings that do not work together: {}"),
        warnings.catch_warnings(action="ignore"),  # some of AST's filters cover no frequency
    ):
        read = getattr(transformers, extractor).from_pretrained(path, local_files_only=True)
        if getattr(read, "feature_extractor_type", extractor) != extractor:
            raise BackboneError(f"{file} is not the configuration of a {extractor}")
        settings = {name: getattr(read, name) for name in SETTINGS[extractor]}
        rate = settings["sampling_rate"]
        window = seconds(settings)
        if not isinstance(rate, int) or not 0 < window * rate <= MOST_SAMPLES:
            raise BackboneError(f"{file}: windows of {window} s at {rate} samples per second")
        sampling = SoundSampling(rate, window, window)
        preprocessing = SoundPreprocessing(sampling, extractor, settings)
        preprocessing.inputs(SHORT)
    return preprocessing


def sound_backbone(
    network: Any,
    fields: Mapping[str, Any],
    preprocessing: SoundPreprocessing,
    embed: Callable[[Tensor], Tensor],
    dim: int,
    meaning: str,
    *,
    takes: tuple[int, ...],
    **more: Any,
) -> Backbone:
    """Make a backbone from a network that embeds each window of sound as `dim` numbers.

    `embed` maps windows ``[W,...]`` to embeddings ``[W,D]``, which `meaning` describes. `takes` is
    the shape of a window that the network takes. `fields` are from `load_network`.
    """
    import torch

    shape = tuple(preprocessing.inputs(SHORT).shape[1:])
    if shape != takes:
        file = fields["weights"][0].with_name(CONFIG)
        raise BackboneError(
            f"{file} makes input of shape {shape}, but according to config.json the network takes "
            f"{takes}"
        )

    def embed_windows(clip: Tensor) -> Tensor:
        steps = [embed(step) for step in clip.split(WINDOWS_PER_STEP)]
        return torch.cat(steps).float()

    return Backbone(
        module=network,
        sampling=preprocessing.sampling,
        preprocessing=preprocessing,
        arrays=(
            ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
            ArraySpec.named("frames", (MAX_FRAMES, dim), f"{meaning} of each window", padded=True),
        ),
        encode_clips=clip_by_clip(embed_windows, {"native": pool_mean}),
        mask_on_cpu=True,
        **fields,
        **more,
    )


def load_clap(path: Path, mode: str) -> Backbone:
    """Load a CLAP model (Wu et al., 2023), whose text tower makes it possible to search by words.

    Checkpoints with feature fusion are refused, because they take random parts of long sound.
    """
    from torch.nn import ModuleDict

    preprocessing = read_extractor(path, "ClapFeatureExtractor", itemgetter("max_length_s"))
    settings = preprocessing.settings
    model, fields = load_network(path, "ClapModel")
    audio = model.config.audio_config
    text = model.config.text_config
    if audio.enable_fusion or settings["truncation"] != "rand_trunc":
        raise BackboneError(
            f"{path} is a CLAP with feature fusion, which takes random parts of long sound. Use a "
            "checkpoint without fusion, such as laion/clap-htsat-unfused"
        )
    if settings["padding"] not in ("repeatpad", "repeat", "pad"):
        raise BackboneError(f"{path}: padding must be repeatpad, repeat or pad")
    samples = settings["max_length_s"] * settings["sampling_rate"]
    most_frames = audio.spec_size * (audio.spec_size // audio.num_mel_bins)
    frames = min(samples // settings["hop_length"] + 1, most_frames)
    hear = model.audio_model
    project = model.audio_projection
    dim = audio.projection_dim
    # As in RoBERTa, the first positions are for padding.
    unused = text.pad_token_id + 1
    return sound_backbone(
        ModuleDict({"hear": hear, "project": project}),
        fields,
        preprocessing,
        lambda windows: project(hear(windows).pooler_output),
        dim,
        "projected embedding, not normalised,",
        takes=(1, frames, audio.num_mel_bins),
        embedding=ArraySpec.named("native", (dim,), "projected embedding of a text"),
        text_tower=make_text_tower(path, model.text_model, model.text_projection, unused=unused),
    )


def load_ast(path: Path, mode: str) -> Backbone:
    """Load an Audio Spectrogram Transformer (AST, Gong et al., 2021), without its classifier."""
    preprocessing = read_extractor(
        path,
        "ASTFeatureExtractor",
        lambda settings: settings["max_length"] * AST_HOP / settings["sampling_rate"],
    )
    model, fields = load_network(path, "ASTModel")
    config = model.config
    return sound_backbone(
        model,
        fields,
        preprocessing,
        lambda windows: model(windows).pooler_output,
        config.hidden_size,
        "mean of the two class tokens, after the last layer norm,",
        takes=(config.max_length, config.num_mel_bins),
    )


TINY_CLAP = KnownCheckpoint(
    "tiny-clap", "a small CLAP with random weights", SoundSampling(16_000, 1, 1), write=write_clap
)
FAMILIES = (
    Family("clap", "clap", (*published("clap"), TINY_CLAP), load_clap, embeds_texts=True),
    Family("ast", "audio-spectrogram-transformer", published("ast"), load_ast),
)
