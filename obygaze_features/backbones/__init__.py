"""Backbones: frozen models of films, pictures and texts, one family a file, in `registry`.

Imported on first use, so that a process that only decodes films loads nothing but `sampling`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "Backbone": "backbone",
    "PRECISIONS": "devices",
    "prefetch": "finding",
    "load_backbone": "loading",
    "CARDS": "registry",
    "Towers": "towers",
    "load_towers": "towers",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
