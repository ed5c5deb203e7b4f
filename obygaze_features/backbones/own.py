"""Backbones of torch modules: a user's own, and by name those of timm and torchvision.

Their preprocessing is the one that timm's data configuration and torchvision's weights state, done
as for every other backbone. It is at most a level of a byte off the libraries' own, but for video
networks of torchvision with one side to resize to, which it resizes with antialiasing.
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
from obygaze_features.backbones.preprocess import (
    AUTHOR_SQUASH,
    CLIP_TORCHVISION,
    Preprocessing,
    normalise,
    resize_and_crop,
)
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.common.plugins import describe_error, one_line, package_of, plugin_at
from obygaze_features.common.text import counted, did_you_mean, unknown_name
from obygaze_features.errors import BackboneError, UsageError
from obygaze_features.store import ArraySpec

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's."""
LAYOUTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "BTCHW": lambda pixels: pixels,
    "BCTHW": lambda pixels: pixels.transpose(1, 2),
    "BCHW": lambda pixels: pixels.flatten(0, 1),
}
"""What a network takes, made of clips ``[B,T,3,h,w]``."""
IMAGE_FRAMES, VIDEO_FRAMES = 32, 16
"""Frames of a clip for the libraries' networks of images, and of clips."""
RANDOM = ".random"
"""After the name of a library's network: weights that were not trained."""


def from_torch(
    net: nn.Module,
    *,
    frames: int = 16,
    size: int = 224,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    transform: Preprocessing | Callable[[Tensor], Tensor] | None = None,
    name: str = "",
    layer: str | None = None,
    layout: str | None = None,
    licence: str = "",
    citation: str = "",
    paper: str = "",
) -> Backbone:
    """Make a backbone of a torch module, which is switched to ``eval()``.

    Output ``[B,D]`` is the array `native`. Output ``[B,T,D]``, with T frames or a part of them,
    is `frames`, and `native` is its mean. What else there is between is averaged: the positions of
    ``[B,C,h,w]`` and ``[B,C,T,h,w]``, and tokens that do not go by frames.

    Parameters
    ----------
    net
        The network.
    frames
        How many frames of a clip it gets, evenly spread.
    size, mean, std
        The shorter side of a frame is scaled to so many pixels, and the middle is cropped; then it
        is normalised, from values of 0 to 1.
    transform
        Does this instead: from a frame, uint8 ``[3,H,W]``, to the input ``[3,h,w]``.
    name
        The name of the store; by default that of the network's class.
    layer
        Take the output of this layer, such as ``blocks.10``, a name in ``net.named_modules()``.
    layout
        What the network takes: clips as ``BTCHW`` or ``BCTHW``, or each frame alone, ``BCHW``; by
        default the first of the three that it accepts.
    licence, citation, paper
        Of the weights.
    """
    kind = type(net)
    plugin, label = plugin_at(f"{kind.__module__}:{kind.__qualname__}"), name or kind.__name__
    for what, value, known in (
        ("layer", layer, dict(net.named_modules())),
        ("layout", layout, LAYOUTS),
    ):
        if value is not None and value not in known:
            raise UsageError(f"{label}: {unknown_name(what, value, known)}")
    if not isinstance(transform, Preprocessing):
        fields: dict[str, Any] = {"mean": tuple(mean), "std": tuple(std), "filter": "bilinear"}
        if transform:
            fields = {"mean": (0,) * 3, "std": (1,) * 3, "scale": 1, "transform": transform}
        transform = replace(CLIP_TORCHVISION.at(size), **fields)
    net.eval()
    run = partial(_run, net, layer)
    layout, output = _try_layouts(run, net, frames, transform, layout, label)
    per_frame, dim = layout == "BCHW", output.shape[-1]
    steps = frames if per_frame else output.shape[1] if output.ndim == 3 else 1
    whole = (steps == 1 and not per_frame) or frames % steps != 0

    def encode_clips(pixels: Tensor, present: Tensor, names: frozenset[str]) -> dict[str, Tensor]:
        tokens = run(LAYOUTS[layout](pixels)).float()
        tokens = tokens.reshape(len(pixels), -1, dim)
        mean = tokens.mean(1)
        return {"native": mean, "max": tokens.amax(1), "mean": mean, "frames": tokens}

    part = "frame" if steps == frames else "stretch of frames"
    arrays = [ArraySpec("native", (dim,), "float32", "embedding of the clip")]
    if not whole:
        arrays = [
            ArraySpec("native", (dim,), "float32", "clip embedding: mean over `frames`"),
            ArraySpec("max", (dim,), "float32", "maximum over `frames`"),
            ArraySpec("mean", (dim,), "float32", "mean over `frames`, the same as `native`"),
            ArraySpec("frames", (steps, dim), "float16", f"embedding of each {part}"),
        ]
    return Backbone(
        module=net,
        sampling=Sampling(frames),
        preprocessing=transform,
        arrays=tuple(arrays),
        encode_clips=encode_clips,
        weights=(),
        config={
            "network": kind.__qualname__,
            "layout": layout,
            **({"layer": layer} if layer else {}),
        },
        embedding=ArraySpec("native", (dim,), "float32", "of an image") if per_frame else None,
        encode_images=run if per_frame else None,
        per_frame=per_frame,
        name=name or kind.__name__,
        plugin=plugin,
        licence=licence,
        citation=citation,
        paper=paper,
    )


def _try_layouts(
    run: Callable[[Tensor], Tensor],
    net: nn.Module,
    frames: int,
    transform: Preprocessing,
    layout: str | None,
    label: str,
) -> tuple[str, Tensor]:
    """The first layout that a network accepts, and what it gives for a clip, or for one frame."""
    blank = torch.zeros(frames, 240, 320, 3, dtype=torch.uint8)
    pixels = normalise(resize_and_crop(blank, transform), transform)[None]
    if (weights := next(net.parameters(), None)) is not None:
        pixels = pixels.to(weights.device)
    problems = []
    for choice in [layout] if layout else LAYOUTS:
        try:
            with torch.inference_mode():
                return choice, run(LAYOUTS[choice](pixels[:, :1] if choice == "BCHW" else pixels))
        except Exception as problem:  # any code of somebody else's
            packages = [package_of(type(net).__module__)]
            problems.append(f"{choice}: {describe_error(problem, packages)}")
    shape = " x ".join(map(str, pixels.shape[2:]))
    raise BackboneError(
        f"{label} takes no {counted(frames, 'frame')} of {shape} ({'; '.join(problems)}); give "
        "frames, size, transform or layout"
    )


def _run(net: nn.Module, layer: str | None, pixels: Tensor) -> Tensor:
    """What a network or its layer gives: ``[B,D]``, or ``[B,T,D]``."""
    outputs: list[Any] = []
    hooked = net.get_submodule(layer) if layer else net
    hook = hooked.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    try:
        net(pixels)
    finally:
        hook.remove()
    output = outputs[-1]
    for name in ("pooler_output", "last_hidden_state"):
        output = getattr(output, name, None) if getattr(output, name, None) is not None else output
    output = output[0] if isinstance(output, tuple | list) else output
    if output.ndim > 3:  # [B,C,h,w] or [B,C,T,h,w]
        output = output.mean((-2, -1))
        output = output.transpose(1, 2) if output.ndim == 3 else output
    if output.ndim not in (2, 3):
        raise ValueError(f"it gives the shape {tuple(output.shape)}, not [B,D] or [B,T,D]")
    is_image = pixels.ndim == 4
    return output.mean(1) if is_image and output.ndim == 3 else output


def load_library(spec: str, mode: str = "standard") -> Backbone:
    """Load ``timm:NAME``, ``torchvision:NAME``, or ``...@LAYER`` of these, by the library.

    The weights are those that the library has by default for NAME, or with a tag, as it writes
    them (``NAME.TAG``); ``NAME.random`` has weights that were not trained, the same each time.
    """
    library, _, rest = spec.partition(":")
    model, _, layer = rest.partition("@")
    try:
        module = importlib.import_module(library)
    except ImportError as problem:
        raise BackboneError(
            f"{spec} needs the package {library} ({one_line(problem)}); install it: "
            f"pip install {library}"
        ) from None
    name = model.removesuffix(RANDOM)
    models = (module if library == "timm" else module.models).list_models()
    if (kind := name.partition(".")[0]) not in models:
        near = did_you_mean([kind], models)
        raise BackboneError(f"{library} has no network {kind!r}{near or '; look at its list'}")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            make = _make_timm if library == "timm" else _make_torchvision
            net, preprocessing, options = make(module, name, trained=name == model)
    except BackboneError:
        raise
    except Exception as problem:  # the library's, the hub's, the network's
        raise BackboneError(
            f"{spec} cannot be loaded ({one_line(problem)}); if its weights are not here, load it "
            f"once on a machine with network and copy the cache, or take {library}:{kind}{RANDOM}"
        ) from None
    if mode == "author":
        preprocessing = replace(preprocessing, squash=AUTHOR_SQUASH, mode=mode)
    backbone = from_torch(net, transform=preprocessing, layer=layer or None, **options)
    config = {**backbone.config} | ({} if name == model else {"synthetic": RANDOM_WEIGHTS_NOTE})
    return backbone.with_changes(config=config)


def _make_timm(timm: Any, name: str, *, trained: bool) -> tuple[nn.Module, Preprocessing, Any]:
    """A network of timm without its classifier, how frames become its input, and options."""
    net = timm.create_model(name, pretrained=trained, num_classes=0)
    config, about = timm.data.resolve_model_data_config(net), net.pretrained_cfg
    (_, *crop), part = config["input_size"], config["crop_pct"]
    squashed = config["crop_mode"] == "squash" and part == 1
    if config["interpolation"] not in ("bilinear", "bicubic") or not (
        squashed or (config["crop_mode"] == "center" and crop[0] == crop[1])
    ):
        raise BackboneError(
            f"timm:{name} resizes in a way of its own ({config['interpolation']}, "
            f"{config['crop_mode']}); give its transform: Backbone.from_torch(net, transform=...)"
        )
    preprocessing = _preprocessing(
        None if squashed else math.floor(crop[0] / part), crop, config, config["interpolation"]
    )
    stated = {}
    if trained:
        papers = about.get("paper_ids") or []
        paper = papers if isinstance(papers, str) else next(iter(papers), "")
        arxiv = paper.lower().removeprefix("arxiv:")
        stated = {
            "licence": str(about.get("license") or ""),
            "paper": f"https://arxiv.org/abs/{arxiv}" if arxiv != paper.lower() else "",
        }
    return net, preprocessing, {"frames": IMAGE_FRAMES, "layout": "BCHW", **stated}


def _make_torchvision(
    torchvision: Any, name: str, *, trained: bool
) -> tuple[nn.Module, Preprocessing, Any]:
    """As `_make_timm`. The classifier is the last linear layer, of an output for each class."""
    name, _, tag = name.partition(".")
    tags = torchvision.models.get_model_weights(name)
    weights = tags[tag] if tag else tags.DEFAULT
    preset, classes = weights.transforms(), len(weights.meta.get("categories", ()))
    if not hasattr(preset, "resize_size"):
        raise BackboneError(f"torchvision:{name} is no classifier of images or clips; choose one")
    net = torchvision.models.get_model(name, weights=weights if trained else None)
    for path, module in reversed(list(net.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == classes:
            net.set_submodule(path, nn.Identity())
            break
    sides = list(preset.resize_size)
    is_video = ".video." in weights.__class__.__module__
    preprocessing = _preprocessing(
        sides[0], preset.crop_size * 2, vars(preset), preset.interpolation.value
    )
    if len(sides) == 2:  # of these torchvision resizes without antialiasing, as a squash
        preprocessing = replace(preprocessing, shortest_edge=min(sides), squash=tuple(sides))
    layout, frames = ("BCTHW", VIDEO_FRAMES) if is_video else ("BCHW", IMAGE_FRAMES)
    return net, preprocessing, {"frames": frames, "layout": layout}


def _preprocessing(
    edge: int | None, crop: Sequence[int], config: Mapping[str, Any], interpolation: str
) -> Preprocessing:
    return replace(
        CLIP_TORCHVISION,
        shortest_edge=edge,
        crop=tuple(crop[:2]),
        filter=interpolation,
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
