"""Backbones: frozen video models, one family a file, listed in `registry`."""

from __future__ import annotations

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.registry import CARDS, load_backbone

__all__ = ["CARDS", "Backbone", "load_backbone"]
