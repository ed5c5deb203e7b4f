"""wav2vec 2.0 (Baevski et al., 2020) and HuBERT (Hsu et al., 2021) in Hugging Face's form.

They hear raw samples, scaled to zero mean and unit variance in each window. A clip that is shorter
than a window is heard at its own length, without padding.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.sound_family import load_sound, sound_arrays

if TYPE_CHECKING:
    from torch import Tensor

SETTINGS = {"sampling_rate": 16_000, "padding_value": 0.0, "do_normalize": True}
"""The settings of their feature extractor, with the class's defaults."""
WINDOW_S = 10
arrays_of = partial(sound_arrays, "mean of the last hidden states")


def _load(model: str, path: Path, mode: str) -> Backbone:
    """Load a network, by its class's name, from a folder in Hugging Face's layout."""
    # Without training's mask vector, which some checkpoints lack.
    network, _, make_backbone = load_sound(
        path, model, "Wav2Vec2FeatureExtractor", SETTINGS, lambda _: WINDOW_S, masked=True,
        mask_time_prob=0.0, mask_feature_prob=0.0,
    )  # fmt: skip

    def embed(windows: Tensor) -> Tensor:
        samples = int(windows[0, 1].sum())  # all windows of a clip have the same length
        states: Tensor = network(windows[:, 0, :samples]).last_hidden_state
        return states.mean(1)

    return make_backbone(network, embed, arrays_of(network.config.hidden_size))


FAMILIES = tuple(
    Family(name, name, published(name, arrays_of), partial(_load, model))
    for name, model in (("wav2vec2", "Wav2Vec2Model"), ("hubert", "HubertModel"))
)
