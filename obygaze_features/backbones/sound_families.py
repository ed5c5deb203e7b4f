"""Audio families: CLAP, AST, wav2vec 2.0 and HuBERT, in Hugging Face format.

They embed each window of a clip's sound separately. The feature extractors run in NumPy even if
torchaudio is installed, so that results do not depend on torchaudio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
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
"""The number of windows in one forward pass."""
SIZES = ("feature_size", "num_mel_bins", "fft_window_size")
RATES = range(8_000, 192_001)
"""The sampling rates that a checkpoint may request."""
MOST = 60 * RATES[-1]
"""The maximum number of values in a window, in its spectrum, or in its filters."""
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ClapFeatureExtractor": {
        "sampling_rate": 48_000, "feature_size": 64, "fft_window_size": 1024, "hop_length": 480,
        "max_length_s": 10, "frequency_min": 0.0, "frequency_max": 14_000.0,
        "padding": "repeatpad", "truncation": "fusion",
    },
    "ASTFeatureExtractor": {
        "sampling_rate": 16_000, "num_mel_bins": 128, "max_length": 1024, "do_normalize": True,
        "mean": -4.2677393, "std": 4.5689974,
    },
    "Wav2Vec2FeatureExtractor": {
        "sampling_rate": 16_000, "padding_value": 0.0, "do_normalize": True,
    },
}  # fmt: skip
"""The settings that affect each extractor's output, with the defaults of its class."""
AST_HOP = 160
"""The hop length of AST's spectrogram in samples."""
SPEECH_WINDOW_S = 10


def sound_arrays(meaning: str, dim: int) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network that embeds each window of sound as `dim` numbers."""
    return (
        ArraySpec.named("native", (dim,), "clip embedding: mean over `frames`"),
        ArraySpec.named("frames", (MAX_FRAMES, dim), f"{meaning} of each window", padded=True),
    )


def load_sound(
    path: Path, model: str, extractor: str, window: Callable[[Any], float],
    *, masked: bool = False, **options: Any,
) -> tuple[Any, dict[str, Any], Callable[..., Backbone]]:  # fmt: skip
    """Load an audio model of transformers; return it, its settings, and a maker of its `Backbone`.

    The maker takes the network, a function that embeds windows of sound (``[W,...]`` to ``[W,D]``),
    the arrays, and further fields. Its argument `takes` is the shape of a window, for networks that
    take only one shape.

    Parameters
    ----------
    path, model, options
        The folder, the name of the model's class, and its options, as for `load_model`.
    extractor, masked
        See `SoundPreprocessing`.
    window
        A function that returns the seconds per window, given the settings.
    """
    file = path / CONFIG
    listed = read_json(file, BackboneError)
    if not isinstance(listed, dict) or listed.get("feature_extractor_type", extractor) != extractor:
        raise BackboneError(f"{file} is not the JSON configuration of a {extractor}")
    settings = {name: listed.get(name, default) for name, default in DEFAULTS[extractor].items()}
    with translate(BackboneError, file, "has settings that do not work together: {}"):
        rate, seconds = settings["sampling_rate"], window(settings)
        if not isinstance(rate, int) or rate not in RATES:
            reason = f": sampling_rate must be from {RATES[0]:,} to {RATES[-1]:,} (got {rate!r})"
            raise BackboneError(file, reason)
        samples, hop = float(seconds) * rate, settings.get("hop_length", 160)
        sizes = [settings[name] for name in SIZES if name in settings]
        largest = max(samples, math.prod(sizes), *(samples / hop * size for size in sizes))
        if not 0 < min(samples, hop, *sizes) <= largest <= MOST:
            reason = f"needs {largest:.3g} numbers per window; this must be from 1 to {MOST:,}"
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
                f"{file} makes input of shape {shape}, but according to config.json the "
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


clap_arrays = partial(sound_arrays, "projected embedding, not normalised,")
ast_arrays = partial(sound_arrays, "mean of the two class tokens, after the last layer norm,")
speech_arrays = partial(sound_arrays, "mean of the last hidden states")


def load_clap(path: Path, mode: str) -> Backbone:
    """Load a CLAP model (Wu et al., 2023), whose text tower makes it possible to search by words.

    Checkpoints with feature fusion are refused, because they take random parts of long sound.
    """
    from torch.nn import ModuleDict

    model, settings, make_backbone = load_sound(
        path, "ClapModel", "ClapFeatureExtractor", itemgetter("max_length_s")
    )
    audio, text = model.config.audio_config, model.config.text_config
    if audio.enable_fusion or settings["truncation"] != "rand_trunc":
        raise BackboneError(
            f"{path} is a CLAP with feature fusion, which takes random parts of long sound. Use a "
            "checkpoint without fusion, such as laion/clap-htsat-unfused"
        )
    if (padding := settings["padding"]) not in ("repeatpad", "repeat", "pad"):
        raise BackboneError(path, f": padding must be repeatpad, repeat or pad (got {padding!r})")
    frames = settings["max_length_s"] * settings["sampling_rate"] // settings["hop_length"] + 1
    most_frames = audio.spec_size * (audio.spec_size // audio.num_mel_bins)
    hear, project = model.audio_model, model.audio_projection
    arrays = clap_arrays(audio.projection_dim)
    # As in RoBERTa, the first positions are for padding.
    unused = text.pad_token_id + 1
    return make_backbone(
        ModuleDict({"hear": hear, "project": project}),
        lambda windows: project(hear(windows).pooler_output),
        arrays,
        takes=(1, min(frames, most_frames), audio.num_mel_bins),
        embedding=ArraySpec.named("native", arrays[0].shape, "projected embedding of a text"),
        text_tower=make_text_tower(path, model.text_model, model.text_projection, unused=unused),
    )


def load_ast(path: Path, mode: str) -> Backbone:
    """Load an Audio Spectrogram Transformer (AST, Gong et al., 2021), without its classifier."""
    model, _, make_backbone = load_sound(
        path, "ASTModel", "ASTFeatureExtractor",
        lambda settings: settings["max_length"] * AST_HOP / settings["sampling_rate"],
    )  # fmt: skip
    config = model.config
    return make_backbone(
        model,
        lambda windows: model(windows).pooler_output,
        ast_arrays(config.hidden_size),
        takes=(config.max_length, config.num_mel_bins),
    )


def load_speech(model: str, path: Path, mode: str) -> Backbone:
    """Load wav2vec 2.0 (Baevski et al., 2020) or HuBERT (Hsu et al., 2021); `model` is its class.

    These networks take raw samples, scaled to zero mean and unit variance in each window. A clip
    that is shorter than a window is not padded.
    """
    # Without masking, the network needs no mask vector, which some checkpoints lack.
    network, _, make_backbone = load_sound(
        path, model, "Wav2Vec2FeatureExtractor", lambda _: SPEECH_WINDOW_S, masked=True,
        mask_time_prob=0.0, mask_feature_prob=0.0,
    )  # fmt: skip

    def embed(windows: Tensor) -> Tensor:
        samples = int(windows[0, 1].sum())  # all windows of a clip have the same length
        states: Tensor = network(windows[:, 0, :samples]).last_hidden_state
        return states.mean(1)

    return make_backbone(network, embed, speech_arrays(network.config.hidden_size))


TINY_CLAP = KnownCheckpoint(
    "tiny-clap", "a small CLAP with random weights", SoundSampling(16_000, 1, 1), clap_arrays(32),
    write=write_clap,
)  # fmt: skip
FAMILIES = (
    Family(
        "clap", "clap", (*published("clap", clap_arrays), TINY_CLAP), load_clap, embeds_texts=True
    ),
    Family("ast", "audio-spectrogram-transformer", published("ast", ast_arrays), load_ast),
    *(
        Family(name, name, published(name, speech_arrays), partial(load_speech, model))
        for name, model in (("wav2vec2", "Wav2Vec2Model"), ("hubert", "HubertModel"))
    ),
)
