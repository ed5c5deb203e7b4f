"""CLAP (Wu et al., 2023): sound and texts in one space, in Hugging Face's form.

Its audio tower embeds each window of a clip's sound separately; its text tower serves a search by
words. Checkpoints with feature fusion are refused: they take random parts of long sound.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.clip import make_text_tower
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.backbones.sound_family import load_sound, sound_arrays
from obygaze_features.backbones.tiny import write_clap
from obygaze_features.errors import BackboneError
from obygaze_features.store import ArraySpec

SETTINGS = {
    "sampling_rate": 48_000, "feature_size": 64, "fft_window_size": 1024, "hop_length": 480,
    "max_length_s": 10, "frequency_min": 0.0, "frequency_max": 14_000.0, "padding": "repeatpad",
    "truncation": "fusion",
}  # fmt: skip
"""The settings of its feature extractor, with the class's defaults."""
arrays_of = partial(sound_arrays, "projected embedding, not normalised,")


def load(path: Path, mode: str) -> Backbone:
    """Load a CLAP from a folder in Hugging Face's layout."""
    from torch.nn import ModuleDict

    model, settings, make_backbone = load_sound(
        path, "ClapModel", "ClapFeatureExtractor", SETTINGS, itemgetter("max_length_s")
    )
    audio, text = model.config.audio_config, model.config.text_config
    if audio.enable_fusion or settings["truncation"] != "rand_trunc":
        raise BackboneError(
            f"{path} is a CLAP with feature fusion, which takes random parts of long sound; use "
            "one without fusion, such as laion/clap-htsat-unfused"
        )
    if (padding := settings["padding"]) not in ("repeatpad", "repeat", "pad"):
        raise BackboneError(path, f": padding must be repeatpad, repeat or pad (got {padding!r})")
    frames = settings["max_length_s"] * settings["sampling_rate"] // settings["hop_length"] + 1
    most_frames = audio.spec_size * (audio.spec_size // audio.num_mel_bins)
    hear, project = model.audio_model, model.audio_projection
    arrays = arrays_of(audio.projection_dim)
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


TINY = KnownCheckpoint(
    "tiny-clap", "a small CLAP of random weights", SoundSampling(16_000, 1, 1), arrays_of(32),
    write=write_clap,
)  # fmt: skip
FAMILY = Family("clap", "clap", (*published("clap", arrays_of), TINY), load, embeds_texts=True)
