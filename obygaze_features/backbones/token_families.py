"""Networks whose output is a token for each patch and moment of a clip, such as ViViT and V-JEPA 2.

They cut a clip into tubelets, for example of 2 frames x 16 pixels x 16 pixels.
`LAYOUTS` has what differs between them. ``native`` is the class token if there is one. Otherwise,
tokens are pooled as for the checkpoint's own classifier or, without a classifier, by their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.network_config import read_object
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.random_checkpoints import write_vivit
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Conv3d, Module


@dataclass(frozen=True)
class Layout:
    """The layout of a network in transformers.

    `frames` and `side` name its settings, and `pool` is how its `classifier` pools tokens. Tokens
    are in the order of moments or, without `by_moment`, of patches. `arguments` are those of the
    network's class, and `options` those of a call.
    """

    name: str
    model: str
    classifier: str = ""
    pool: Callable[[Any, Tensor], Tensor] | None = None
    has_class_token: bool = False
    by_moment: bool = True
    frames: str = "num_frames"
    side: str = "image_size"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def load_tokens(layout: Layout, path: Path, mode: str) -> Backbone:
    """Load a network that returns the tokens of a clip."""
    classes = read_object(path / "config.json").get("architectures") or ()
    model = layout.model
    pool = None
    native = "clip embedding: mean of all tokens"
    order = "as the network returns them"
    if layout.pool and layout.classifier in classes:
        model = layout.classifier
        pool = layout.pool
        native = "clip embedding: tokens, pooled as for the checkpoint's classifier"
    elif layout.has_class_token:
        native = "class token after the last layer norm"
        order = "the class token first"

    network, preprocessing, fields = load_folder(
        path, mode, model, any_size=True, **layout.arguments
    )
    compute_otherwise_on_gpus(network)
    trunk = getattr(network, network.base_model_prefix, network)
    config = network.config
    side = getattr(config, layout.side)
    preprocessing.check_size(side, path)
    tubelet = getattr(config, "tubelet_size", 1)
    if isinstance(tubelet, int):
        tubelet = (tubelet, config.patch_size)
    frames = getattr(config, layout.frames)
    if frames < 1 or frames % tubelet[0]:
        raise BackboneError(
            f"{path / 'config.json'}: {layout.frames} must be a multiple of the tubelet's "
            f"{tubelet[0]} frames (got {frames}); correct it"
        )

    steps = frames // tubelet[0]
    patches = (side // tubelet[-1]) ** 2
    first = int(layout.has_class_token)
    count = first + steps * patches
    width = config.hidden_size

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = trunk(pixels, **layout.options).last_hidden_state.float()
        arrays = {"tokens": tokens, **pool_tokens(tokens, names)}
        if layout.by_moment:
            arrays["frames"] = tokens[:, first:].unflatten(1, (steps, patches)).mean(2)
        else:
            arrays["frames"] = tokens[:, first:].unflatten(1, (patches, steps)).mean(1)
        if layout.has_class_token:
            arrays["native"] = arrays["cls"] = tokens[:, 0]
        elif pool:
            arrays["native"] = pool(network, tokens)
        else:
            arrays["native"] = tokens.mean(1)
        return arrays

    vectors = [ArraySpec.named("native", (width,), native)]
    if layout.has_class_token:
        vectors.append(ArraySpec.named("cls", (width,), "class token, the same as `native`"))
    arrays = (
        *vectors,
        *pool_specs(width, f"all {count:,} tokens"),
        ArraySpec.named("frames", (steps, width), f"mean of each moment's {patches} tubelets"),
        ArraySpec.named("tokens", (count, width), f"all tokens, {order}"),
    )
    clip = FrameReader(Sampling(frames), preprocessing, arrays, encode)
    return Backbone(network, clip=clip, **fields)


def pool_videomae(network: Any, tokens: Tensor) -> Tensor:
    """Return the mean of all tokens, or the first one, as the checkpoint's settings say."""
    if network.fc_norm is None:
        return tokens[:, 0]
    return network.fc_norm(tokens.mean(1))


def compute_otherwise_on_gpus(network: Module) -> None:
    """Replace layers to speed them up on GPUs; CPUs compute as before.

    Tubelets are computed as a matrix product, and tanh-GELUs in one step instead of nine. Some
    of cuDNN's tubelet convolutions are wrong in bfloat16 and float16 (cuDNN 9.8 to 9.10) or slow
    (torch 2.9).
    """
    from torch.nn import Conv3d
    from torch.nn.functional import gelu
    from transformers.activations import FastGELUActivation

    for module in network.modules():
        if isinstance(module, FastGELUActivation):
            module.forward = partial(_by_device, module.forward, partial(gelu, approximate="tanh"))
        elif isinstance(module, Conv3d):  # the only one, over adjacent tubelets
            module.forward = partial(_by_device, module.forward, partial(embed_tubelets, module))


def embed_tubelets(convolution: Conv3d, pixels: Tensor) -> Tensor:
    """Compute a convolution over adjacent tubelets of ``[B,C,T,H,W]`` as a matrix product."""
    from torch.nn.functional import linear

    for axis, side in zip((4, 3, 2), reversed(convolution.kernel_size), strict=True):
        count = pixels.shape[axis] // side
        pixels = pixels.narrow(axis, 0, count * side).unflatten(axis, (count, side))
    tubelets = pixels.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)
    return linear(tubelets, convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)


def _by_device(
    on_cpu: Callable[[Tensor], Tensor],
    on_gpu: Callable[[Tensor], Tensor],
    values: Tensor,
) -> Tensor:
    return on_gpu(values) if values.is_cuda else on_cpu(values)


VIVIT = Layout(
    "vivit",
    "VivitModel",
    has_class_token=True,
    arguments={"add_pooling_layer": False},  # the pooler was never trained
)
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
    Layout("timesformer", "TimesformerModel", has_class_token=True, by_moment=False),
    Layout("videoprism_vision_model", "VideoPrismVisionModel"),
)


def _family(layout: Layout, *more: KnownCheckpoint) -> Family:
    name = layout.name.partition("_")[0]
    return Family(name, layout.name, (*published(name), *more), partial(load_tokens, layout))


TINY_VIVIT = KnownCheckpoint(
    "tiny-vivit",
    "a small ViViT with random weights",
    Sampling(8),
    write=write_vivit,
)
FAMILIES = (_family(VIVIT, TINY_VIVIT), *map(_family, LAYOUTS))
