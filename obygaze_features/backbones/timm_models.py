"""Make backbones from timm's networks, by name.

Inputs are preprocessed with timm's settings, but with the code that other visual backbones use.
Pixels differ by at most one level (of 256) from timm's own preprocessing.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.preprocess import AUTHOR_SQUASH, CLIP_TORCHVISION
from obygaze_features.common.plugins import one_line
from obygaze_features.errors import BackboneError


def load_timm(spec: str, mode: str) -> Backbone:
    """Load ``timm:NAME``; ``@LAYER`` uses the output of a layer.

    The weights are timm's default for NAME, or the weights with a tag (``NAME.TAG``).
    """
    name, _, layer = spec.removeprefix("timm:").partition("@")
    try:
        timm: Any = importlib.import_module("timm")
        net = timm.create_model(name, pretrained=True, num_classes=0)
        config = timm.data.resolve_model_data_config(net)
    except Exception as problem:  # errors of timm, the hub or the network
        raise BackboneError(
            f"{spec} cannot be loaded ({one_line(problem)}). Install timm (pip install timm), "
            "check the name, or load it on a machine with internet access and copy the cache"
        ) from None
    steps = replace(CLIP_TORCHVISION, **_timm_steps(spec, config))
    if mode == "author":
        steps = replace(steps, squash=AUTHOR_SQUASH, mode=mode)
    backbone = Backbone.from_torch(net, frames=32, transform=steps, layer=layer or None)
    return replace(backbone, licence=net.pretrained_cfg.get("license") or "")


def _timm_steps(spec: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Preprocessing` for timm's data configuration."""
    _, height, width = config["input_size"]
    crop = (config["crop_mode"], config["interpolation"])
    if height != width or crop not in (("center", "bilinear"), ("center", "bicubic")):
        raise BackboneError(
            f"{spec} resizes frames in an unsupported way ({config}). Pass its transform: "
            "Backbone.from_torch(net, transform=...)"
        )
    return {
        "shortest_edge": math.floor(height / config["crop_pct"]),
        "filter": config["interpolation"],
        "crop": (height, width),
        "mean": config["mean"],
        "std": config["std"],
    }
