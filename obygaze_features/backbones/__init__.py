"""Backbones: frozen models of films, pictures and texts, one family a file, in `registry`."""

from __future__ import annotations

from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.devices import PRECISIONS
from obygaze_features.backbones.finding import prefetch
from obygaze_features.backbones.loading import load_backbone
from obygaze_features.backbones.registry import CARDS
from obygaze_features.backbones.towers import Towers, load_towers

__all__ = [
    "CARDS",
    "PRECISIONS",
    "Backbone",
    "Towers",
    "load_backbone",
    "load_towers",
    "prefetch",
]
