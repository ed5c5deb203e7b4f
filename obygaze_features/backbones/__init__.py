"""Backbones: frozen video models, one family a file, listed in `registry`."""

from __future__ import annotations

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.loading import PRECISIONS, load_backbone, prefetch
from obygaze_features.backbones.registry import CARDS

__all__ = ["CARDS", "PRECISIONS", "Backbone", "load_backbone", "prefetch"]
