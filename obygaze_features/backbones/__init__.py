"""Backbones: frozen networks that embed clips, images and texts.

Names are imported on first use, so a process that only decodes films does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from obygaze_features.common import lazy_names

if TYPE_CHECKING:
    from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
    from obygaze_features.backbones.checkpoints import prefetch
    from obygaze_features.backbones.load import load_backbone
    from obygaze_features.backbones.registry import families, known_checkpoints

__all__ = [
    "Backbone",
    "Family",
    "KnownCheckpoint",
    "families",
    "known_checkpoints",
    "load_backbone",
    "prefetch",
]

_NAMES = {
    "backbone": ["Backbone", "Family", "KnownCheckpoint"],
    "checkpoints": ["prefetch"],
    "load": ["load_backbone"],
    "registry": ["families", "known_checkpoints"],
}

__getattr__ = lazy_names(__name__, _NAMES)
