"""Networks whose output is a token for each patch and moment of a clip, such as V-JEPA 2.

`LAYOUTS` has what differs between them. ``native`` is pooled as the checkpoint's own classifier
pools it; without one, it is the mean of all tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.network_config import read_object
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.backbones.video_families import compute_otherwise_on_gpus
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The layout of a network in transformers.

    `frames` and `side` name its settings, and `pool` is how its `classifier` pools tokens. Tokens
    are in the order of moments, unless the first is a class token; then they are in the order of
    patches.
    """

    name: str
    model: str
    classifier: str = ""
    pool: Callable[[Any, Tensor], Tensor] | None = None
    has_class_token: bool = False
    frames: str = "num_frames"
    side: str = "image_size"
    options: Mapping[str, Any] = field(default_factory=dict)


def load_tokens(layout: Layout, path: Path, mode: str) -> Backbone:
    """Load a network that returns the tokens of a clip."""
    classes = read_object(path / "config.json").get("architectures") or ()
    model = layout.model
    pool = None
    pooling = "mean of all tokens"
    if layout.pool and layout.classifier in classes:
        model = layout.classifier
        pool = layout.pool
        pooling = "tokens, pooled as for the checkpoint's classifier"
    elif layout.has_class_token:
        pooling = "class token"
    network, preprocessing, fields = load_folder(path, mode, model, any_size=True)
    compute_otherwise_on_gpus(network)
    trunk = getattr(network, network.base_model_prefix, network)
    config = network.config
    side = getattr(config, layout.side)
    preprocessing.check_size(side, path)

    tubelet = getattr(config, "tubelet_size", 1)
    if isinstance(tubelet, int):
        tubelet = (tubelet, config.patch_size)
    frames = getattr(config, layout.frames)
    if frames % tubelet[0]:
        raise BackboneError(f"{path}: {layout.frames} must be a multiple of {tubelet[0]}")
    steps = frames // tubelet[0]
    patches = (side // tubelet[-1]) ** 2
    first = int(layout.has_class_token)
    count = first + steps * patches
    width = config.hidden_size

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = trunk(pixels, **layout.options).last_hidden_state.float()
        arrays = {"tokens": tokens, **pool_tokens(tokens, names)}
        if layout.has_class_token:
            arrays["native"] = tokens[:, 0]
            arrays["frames"] = tokens[:, 1:].unflatten(1, (patches, steps)).mean(1)
            return arrays

        arrays["native"] = tokens.mean(1)
        if pool:
            arrays["native"] = pool(network, tokens)
        arrays["frames"] = tokens.unflatten(1, (steps, patches)).mean(2)
        return arrays

    arrays = (
        ArraySpec.named("native", (width,), f"clip embedding: {pooling}"),
        *pool_specs(width, f"all {count:,} tokens"),
        ArraySpec.named("frames", (steps, width), f"mean of each moment's {patches} tokens"),
        ArraySpec.named("tokens", (count, width), "all tokens as the network returns them"),
    )
    clip = FrameReader(Sampling(frames), preprocessing, arrays, encode)
    return Backbone(network, clip=clip, **fields)


def pool_videomae(network: Any, tokens: Tensor) -> Tensor:
    """Return the mean of all tokens, or the first one, as the checkpoint's settings say."""
    if network.fc_norm is None:
        return tokens[:, 0]
    return network.fc_norm(tokens.mean(1))


LAYOUTS = (
    Layout(
        "videomae",
        "VideoMAEModel",
        "VideoMAEForVideoClassification",
        pool_videomae,
    ),
    Layout(
        "vjepa2",
        "VJEPA2Model",
        "VJEPA2ForVideoClassification",
        lambda network, tokens: network.pooler(tokens),
        frames="frames_per_clip",
        side="crop_size",
        options={"skip_predictor": True},
    ),
    Layout("timesformer", "TimesformerModel", has_class_token=True),
    Layout("videoprism_vision_model", "VideoPrismVisionModel"),
)


def _family(layout: Layout) -> Family:
    name = layout.name.partition("_")[0]
    return Family(name, layout.name, published(name), partial(load_tokens, layout))


FAMILIES = tuple(map(_family, LAYOUTS))
