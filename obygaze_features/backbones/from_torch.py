"""Read a user's torch module as a backbone; see `Backbone.from_torch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from obygaze_features.backbones.preprocess import CLIP_TORCHVISION, Preprocessing
from obygaze_features.backbones.readers import FrameReader, ImageReader
from obygaze_features.common.names import unknown_name
from obygaze_features.common.plugins import describe_error
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "BTCHW": lambda pixels: pixels,
    "BCTHW": lambda pixels: pixels.transpose(1, 2),
    "BCHW": lambda pixels: pixels.flatten(0, 1),
}
"""Functions that turn clips ``[B,T,3,h,w]`` into each layout that networks take."""


def read_module(
    net: nn.Module,
    transform: Preprocessing,
    frames: int,
    layout: str,
    layer: str | None,
) -> dict[str, Any]:
    """Return the fields of the `Backbone` for a torch module; see `Backbone.from_torch`."""
    cls = type(net)
    if layout not in LAYOUTS:
        raise UsageError(unknown_name("layout", layout, LAYOUTS))
    layers = dict(net.named_modules())
    if layer and layer not in layers:
        raise UsageError(unknown_name("layer", layer, layers))
    net.eval()
    run = partial(_run, net, layer)
    arrange = LAYOUTS[layout]
    per_frame = layout == "BCHW"

    pixels = transform.apply(torch.zeros(frames, 240, 320, 3, dtype=torch.uint8))[None]
    pixels = pixels.to(next((weights.device for weights in net.parameters()), "cpu"))
    arranged = arrange(pixels[:, :1] if per_frame else pixels)
    try:
        with torch.inference_mode():
            output = run(arranged)
    except Exception as problem:  # the network may raise anything
        reason = describe_error(problem)
        raise BackboneError(
            f"{cls.__name__} cannot embed {' x '.join(map(str, arranged.shape))} as {layout}: "
            f"{reason}; set layer, frames, size, transform or layout ({', '.join(LAYOUTS)})"
        ) from None

    dim = output.shape[-1]
    native = ArraySpec.named("native", (dim,), "embedding of the clip")
    arrays = [native]
    steps = 0
    if per_frame:
        steps = frames
    elif output.ndim == 3:
        steps = output.shape[1]
    if steps and not frames % steps:
        part = "frame" if steps == frames else f"{frames // steps} frames"
        arrays.append(ArraySpec.named("frames", (steps, dim), f"embedding of each {part}"))

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = run(arrange(pixels)).float().reshape(len(pixels), -1, dim)
        return {"native": tokens.mean(1), "frames": tokens}

    clip = FrameReader(Sampling(frames), transform, tuple(arrays), encode_clips)
    config = {"network": cls.__qualname__, "layout": layout, "layer": layer}
    fields = {"clip": clip, "config": config}
    if per_frame:
        fields["clip"] = replace(clip, embed_frames=run)
        fields["image"] = ImageReader(transform, (replace(native, meaning="of an image"),), run)
    return fields


def make_preprocessing(
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    transform: Preprocessing | Callable[[Tensor], Tensor] | None,
) -> Preprocessing:
    """Return the preprocessing for the options of `Backbone.from_torch`."""
    if isinstance(transform, Preprocessing):
        return transform
    rule = replace(CLIP_TORCHVISION.at(size), filter="bilinear")
    if transform:
        return replace(rule, scale=1, mean=(0,) * 3, std=(1,) * 3, transform=transform)
    return replace(rule, mean=tuple(mean), std=tuple(std))


def _run(net: nn.Module, layer: str | None, pixels: Tensor) -> Tensor:
    """Run a network and return its output, or a layer's, as ``[B,D]`` or ``[B,T,D]``."""
    outputs = []
    hooked = net.get_submodule(layer) if layer else net
    hook = hooked.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    try:
        net(pixels)
    finally:
        hook.remove()
    output = outputs[-1]
    for name in ("pooler_output", "last_hidden_state"):  # from transformers
        if getattr(output, name, None) is not None:
            output = output[name]
    if isinstance(output, tuple | list):
        output = output[0]
    if not isinstance(output, Tensor):
        raise ValueError(f"its output must be a tensor (got {type(output).__name__})")
    if output.ndim > 3:
        # For input [B,T,3,h,w], a network may keep the frame axis before the channels.
        is_by_frame = output.shape[:2] == pixels.shape[:2] and pixels.shape[2] == 3
        output = output.mean((-2, -1))
        if output.ndim == 3 and not is_by_frame:
            output = output.transpose(1, 2)
    if output.ndim not in (2, 3):
        raise ValueError(f"its output has shape {tuple(output.shape)}, not [B,D] or [B,T,D]")
    if pixels.ndim == 4 and output.ndim == 3:
        return output.mean(1)
    return output
