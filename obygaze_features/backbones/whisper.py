"""The encoder of Whisper (Radford et al., 2022) in Hugging Face's form.

It hears windows of 30 seconds; shorter clips are filled with silence. The embedding of a window is
the mean of the states that its sound covers, without those of the silence after it.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.sound_family import load_sound, sound_arrays

if TYPE_CHECKING:
    from torch import Tensor

SETTINGS = {
    "sampling_rate": 16_000, "feature_size": 80, "hop_length": 160, "chunk_length": 30,
    "n_fft": 400, "padding_value": 0.0,
}  # fmt: skip
"""The settings of its feature extractor, with the class's defaults; without random dither."""
FRAMES_PER_STATE = 2
arrays_of = partial(sound_arrays, "mean of the encoder's last states that the sound covers,")


def load(path: Path, mode: str) -> Backbone:
    """Load the encoder of a Whisper from a folder in Hugging Face's layout."""
    model, _, make_backbone = load_sound(
        path, "WhisperModel", "WhisperFeatureExtractor", SETTINGS, itemgetter("chunk_length"),
        masked=True,
    )  # fmt: skip
    config, encoder = model.config, model.encoder

    def embed(windows: Tensor) -> Tensor:
        states: Tensor = encoder(windows[:, :-1]).last_hidden_state
        covered = windows[:, -1, ::FRAMES_PER_STATE, None]
        return (states * covered).sum(1) / covered.sum(1)

    takes = (config.num_mel_bins + 1, config.max_source_positions * FRAMES_PER_STATE)
    return make_backbone(encoder, embed, arrays_of(config.d_model), takes=takes)


FAMILY = Family("whisper", "whisper", published("whisper", arrays_of), load)
