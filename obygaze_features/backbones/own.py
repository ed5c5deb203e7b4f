"""Backbones made from torch modules: the user's own, or timm's by name.

Inputs of timm's models are preprocessed with timm's settings, but with the code that every other
backbone uses. Pixels differ by at most one level (of 256) from timm's own preprocessing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from obygaze_features.backbones.backbone import RANDOM_WEIGHTS_NOTE, Backbone
from obygaze_features.backbones.preprocess import AUTHOR_SQUASH, CLIP_TORCHVISION, Preprocessing
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.plugins import describe_error, one_line
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.store import ArraySpec

LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "BTCHW": lambda pixels: pixels,
    "BCTHW": lambda pixels: pixels.transpose(1, 2),
    "BCHW": lambda pixels: pixels.flatten(0, 1),
}
"""Functions that turn clips ``[B,T,3,h,w]`` into each layout that networks take."""
RANDOM = ".random"
"""The suffix of a model's name that requests untrained weights."""


def wrap_module(
    net: nn.Module,
    transform: Preprocessing,
    *,
    frames: int,
    name: str = "",
    layer: str | None = None,
    layout: str | None = None,
    **stated: Any,
) -> Backbone:
    """Make a backbone from a torch module; see `Backbone.from_torch`."""
    kind = type(net)
    name = name or kind.__name__
    if layer and layer not in (layers := dict(net.named_modules())):
        raise UsageError(f"{name}: {unknown_name('layer', layer, layers)}")
    net.eval()
    run = partial(_run, net, layer)
    pixels = transform.apply(torch.zeros(frames, 240, 320, 3, dtype=torch.uint8))[None]
    pixels = pixels.to(next((weights.device for weights in net.parameters()), "cpu"))
    problems = []
    for takes in [layout] if layout else LAYOUTS:
        try:
            with torch.inference_mode():
                output = run(LAYOUTS[takes](pixels[:, :1] if takes == "BCHW" else pixels))
            break
        except Exception as problem:  # the network may raise anything
            problems.append(f"{takes}: {describe_error(problem)}")
    else:
        raise BackboneError(
            f"{name} does not take {' x '.join(map(str, pixels.shape[1:]))} as "
            f"{'; '.join(problems)}; set frames, size, transform or layout"
        )
    per_frame, dim = takes == "BCHW", output.shape[-1]
    steps = frames if per_frame else output.shape[1] if output.ndim == 3 else 0
    arrays = [ArraySpec.named("native", (dim,), "embedding of the clip")]
    if steps and not frames % steps:
        part = "frame" if steps == frames else f"{frames // steps} frames"
        arrays.append(ArraySpec.named("frames", (steps, dim), f"embedding of each {part}"))

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = run(LAYOUTS[takes](pixels)).float().reshape(len(pixels), -1, dim)
        return {"native": tokens.mean(1), "frames": tokens}

    return Backbone(
        module=net,
        sampling=Sampling(frames),
        preprocessing=transform,
        arrays=tuple(arrays),
        encode_clips=encode_clips,
        weights=(),
        config={"network": kind.__qualname__, "layout": takes, "layer": layer},
        embedding=ArraySpec.named("native", (dim,), "of an image") if per_frame else None,
        encode_images=run if per_frame else None,
        per_frame=per_frame,
        name=name,
        **stated,
    )


def make_preprocessing(
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    transform: Preprocessing | Callable[[Tensor], Tensor] | None,
) -> Preprocessing:
    """Return the preprocessing for the options of `Backbone.from_torch`."""
    if isinstance(transform, Preprocessing):
        return transform
    rule = CLIP_TORCHVISION.at(size)
    if transform:
        return replace(
            rule, filter="bilinear", mean=(0,) * 3, std=(1,) * 3, scale=1, transform=transform
        )
    return replace(rule, filter="bilinear", mean=tuple(mean), std=tuple(std))


def _run(net: nn.Module, layer: str | None, pixels: Tensor) -> Tensor:
    """Run a network and return its output, or a layer's, as ``[B,D]`` or ``[B,T,D]``."""
    outputs: list[Any] = []
    hooked = net.get_submodule(layer) if layer else net
    hook = hooked.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    try:
        net(pixels)
    finally:
        hook.remove()
    output = outputs[-1]
    for name in ("pooler_output", "last_hidden_state"):  # from transformers
        output = output if getattr(output, name, None) is None else output[name]
    output = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(output, Tensor):
        raise ValueError(f"its output must be a tensor (got a {type(output).__name__})")
    if output.ndim > 3:
        # For input [B,T,3,h,w], a network may keep the frame axis before the channels.
        is_by_frame = output.shape[:2] == pixels.shape[:2] and pixels.shape[2] == 3
        output = output.mean((-2, -1))
        output = output.transpose(1, 2) if output.ndim == 3 and not is_by_frame else output
    if output.ndim not in (2, 3):
        raise ValueError(f"its output has shape {tuple(output.shape)}, not [B,D] or [B,T,D]")
    return output.mean(1) if pixels.ndim == 4 and output.ndim == 3 else output


def load_timm(spec: str, mode: str) -> Backbone:
    """Load ``timm:NAME``; ``@LAYER`` uses the output of a layer.

    The weights are timm's default for NAME, or the weights with a tag (``NAME.TAG``).
    ``NAME.random`` has untrained weights, which are the same each time.
    """
    model, _, layer = spec.removeprefix("timm:").partition("@")
    name = model.removesuffix(RANDOM)
    is_trained = name == model
    try:
        timm: Any = importlib.import_module("timm")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = timm.create_model(name, pretrained=is_trained, num_classes=0)
        config = timm.data.resolve_model_data_config(net)
    except Exception as problem:  # errors of timm, the hub or the network
        remedy = "check the name, or load it on a machine with internet access and copy the cache"
        if isinstance(problem, ImportError):
            remedy = "install it: pip install timm"
        raise BackboneError(f"{spec} cannot be loaded ({one_line(problem)}); {remedy}") from None
    steps = replace(CLIP_TORCHVISION, **_timm_steps(spec, config))
    if mode == "author":
        steps = replace(steps, squash=AUTHOR_SQUASH, mode=mode)
    licence = net.pretrained_cfg.get("license") if is_trained else None
    backbone = wrap_module(
        net, steps, frames=32, layer=layer or None, layout="BCHW", licence=licence or ""
    )
    synthetic = {} if is_trained else {"synthetic": RANDOM_WEIGHTS_NOTE}
    return replace(backbone, config={**backbone.config, **synthetic})


def _timm_steps(spec: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Preprocessing` for timm's data configuration."""
    _, *crop = config["input_size"]
    part = config["crop_pct"]
    edge: int | None = 0
    if config["crop_mode"] == "center":
        edge = math.floor(crop[0] / part)
    elif config["crop_mode"] == "squash" and part == 1:
        edge = None
    is_oblong = edge is not None and crop[0] != crop[1]
    if config["interpolation"] not in ("bilinear", "bicubic") or edge == 0 or is_oblong:
        raise BackboneError(
            f"{spec} resizes frames in an unsupported way ({config}). Pass its transform: "
            "Backbone.from_torch(net, transform=...)"
        )
    return {
        "shortest_edge": edge,
        "filter": config["interpolation"],
        "crop": tuple(crop),
        "mean": config["mean"],
        "std": config["std"],
    }
