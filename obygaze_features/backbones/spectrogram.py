"""AST, the Audio Spectrogram Transformer (Gong et al., 2021), in Hugging Face's form.

Its feature extractor runs in NumPy even if torchaudio is installed, so that bits do not depend on
torchaudio.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.sound_family import load_sound, sound_arrays

SETTINGS = {
    "sampling_rate": 16_000, "num_mel_bins": 128, "max_length": 1024, "do_normalize": True,
    "mean": -4.2677393, "std": 4.5689974,
}  # fmt: skip
"""The settings of its feature extractor, with the class's defaults."""
HOP = 160
"""The samples from one frame of a spectrogram to the next."""
arrays_of = partial(sound_arrays, "mean of the two class tokens, after the last layer norm,")


def load(path: Path, mode: str) -> Backbone:
    """Load an AST, with or without its classifier, from a folder in Hugging Face's layout."""
    model, _, make_backbone = load_sound(
        path, "ASTModel", "ASTFeatureExtractor", SETTINGS,
        lambda settings: settings["max_length"] * HOP / settings["sampling_rate"],
    )  # fmt: skip
    config = model.config
    return make_backbone(
        model,
        lambda windows: model(windows).pooler_output,
        arrays_of(config.hidden_size),
        takes=(config.max_length, config.num_mel_bins),
    )


FAMILY = Family("ast", "audio-spectrogram-transformer", published("ast", arrays_of), load)
