"""ViViT (Arnab et al., 2021) in Hugging Face's form: tubelets of 2 x 16 x 16, attended jointly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint, published
from obygaze_features.backbones.pools import pool_specs, pool_tokens
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.tiny import write_vivit
from obygaze_features.backbones.weights import load_folder
from obygaze_features.errors import BackboneError, BrokenBackbone
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Conv3d, Module


def tubelet_arrays(
    steps: int,
    patches: int,
    width: int,
    *,
    native: str = "",
    order: str = "the class token first",
    part: str = "moment's {} tubelets",
) -> tuple[ArraySpec, ...]:
    """Return the arrays of a network of tubelets: `patches` tubelets in each of `steps` steps.

    `native` describes the clip's embedding of networks without a class token; `order` is the order
    of tokens; `part` describes a time step.
    """
    if native:
        tokens = steps * patches
        vectors = {"native": f"clip embedding: {native}"}
    else:
        tokens = steps * patches + 1
        vectors = {
            "native": "class token after the last layer norm",
            "cls": "class token, the same as `native`",
        }
    return (
        *(ArraySpec.named(name, (width,), meaning) for name, meaning in vectors.items()),
        *pool_specs(width, f"all {tokens:,} tokens"),
        ArraySpec.named("frames", (steps, width), f"mean of each {part.format(patches)}"),
        ArraySpec.named("tokens", (tokens, width), f"all tokens, {order}"),
    )


def tubelet_backbone(
    network: Any,
    frames: int,
    arrays: tuple[ArraySpec, ...],
    fields: Mapping[str, Any],
    *,
    head: Any = None,
    embed: Callable[[Tensor, Tensor], Tensor] | None = None,
    arrange: Callable[[Tensor], Tensor] = lambda tokens: tokens,
) -> Backbone:
    """Return the backbone of a network that makes tokens of clips of `frames` frames.

    `embed` makes the clip's embedding from the tokens and their mean, with `head`; by default it is
    the class token, the first. `arrange` puts the tokens in order, moment by moment.
    """
    from torch.nn import ModuleList

    (steps,) = (spec.shape[0] for spec in arrays if spec.name == "frames")
    compute_otherwise_on_gpus(network)

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        output = network(pixels).last_hidden_state
        tokens = output.float()
        ordered = arrange(tokens)
        tubelets = ordered if embed else ordered[:, 1:]
        return {
            **pool_tokens(tokens, names),
            "native": embed(output, tokens.mean(1)) if embed else tokens[:, 0],
            "cls": tokens[:, 0],
            "frames": tubelets.unflatten(1, (steps, -1)).mean(2),
            "tokens": ordered,
        }

    return Backbone(
        module=ModuleList([network, head]) if head else network,
        sampling=Sampling(frames),
        arrays=arrays,
        encode_clips=encode_clips,
        **fields,
    )


def compute_otherwise_on_gpus(network: Module) -> None:
    """Make a GPU compute tubelets by a matrix product, and tanh-GELUs in one step, not nine.

    Some of cuDNN's convolutions of tubelets are wrong in bfloat16 and float16 (9.8 to 9.10), or
    slow (torch 2.9). A CPU computes as before. Raises `BrokenBackbone` if results differ.
    """
    import torch
    from torch.nn import Conv3d
    from transformers.activations import FastGELUActivation

    for module in network.modules():
        function: Callable[[Tensor], Tensor]
        if isinstance(module, FastGELUActivation):
            function = partial(torch.nn.functional.gelu, approximate="tanh")
            sample = torch.linspace(-4, 4, 64)
        elif isinstance(module, Conv3d) and _is_side_by_side(module):
            function = partial(embed_tubelets, module)
            sample = torch.linspace(-1, 1, 8 * module.weight[0].numel()).sin()
            sides = [2 * side for side in module.kernel_size]
            sample = sample.view(1, module.in_channels, *sides).to(module.weight)
        else:
            continue
        error = torch.finfo(sample.dtype).eps ** 0.5
        with torch.no_grad():
            is_same = torch.allclose(function(sample), module(sample), rtol=error, atol=error)
        if not is_same:
            raise BrokenBackbone(
                f"{network.name_or_path}: its tubelets are not the same as a product of matrices; "
                "its weights are perhaps NaN. Download the checkpoint again"
            )
        module.forward = partial(_by_device, module.forward, function)


def _is_side_by_side(module: Conv3d) -> bool:
    settings = module.kernel_size, module.padding, module.dilation, module.groups
    return settings == (module.stride, (0, 0, 0), (1, 1, 1), 1)


def embed_tubelets(convolution: Conv3d, pixels: Tensor) -> Tensor:
    """Compute the convolution of adjacent tubelets of ``[B,C,T,H,W]`` as a matrix product."""
    from torch.nn.functional import linear

    for axis, side in zip((4, 3, 2), reversed(convolution.kernel_size), strict=True):
        count = pixels.shape[axis] // side
        pixels = pixels.narrow(axis, 0, count * side).unflatten(axis, (count, side))
    tubelets = pixels.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)
    return linear(tubelets, convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)


def _by_device(
    on_cpu: Callable[[Tensor], Tensor], on_gpu: Callable[[Tensor], Tensor], values: Tensor
) -> Tensor:
    return (on_gpu if values.is_cuda else on_cpu)(values)


def count_steps(frames: int, depth: int, folder: Path, setting: str = "num_frames") -> int:
    """Return the time steps of a clip, of `depth` frames each; raise if frames would be lost."""
    if frames < 1 or depth < 1 or frames % depth:
        raise BackboneError(
            f"{folder / 'config.json'}: {setting} must be a multiple of the tubelet's {depth} "
            f"frames (got {frames})"
        )
    return frames // depth


def load(path: Path, mode: str) -> Backbone:
    """Load a ViViT from a folder in Hugging Face's layout."""
    # Without the pooler, which was never trained, and without the classifier.
    model, fields = load_folder(path, mode, "VivitModel", add_pooling_layer=False)
    config = model.config
    steps = count_steps(config.num_frames, config.tubelet_size[0], path)
    patches = model.embeddings.patch_embeddings.num_patches // steps
    arrays = tubelet_arrays(steps, patches, config.hidden_size)
    return tubelet_backbone(model, config.num_frames, arrays, fields)


TINY = KnownCheckpoint(
    "tiny-vivit",
    "a small ViViT of random weights",
    Sampling(8),
    tubelet_arrays(4, 16, 32),
    write=write_vivit,
)

FAMILY = Family("vivit", "vivit", (*published("vivit", tubelet_arrays), TINY), load)
