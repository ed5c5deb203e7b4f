"""Clips that a program drew, and networks that were never trained: nothing on them is a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from obygaze_features.manifests import Items

__all__ = ["NOT_REAL", "not_real"]

NOT_REAL = "Not a real result"
"""How such a caution begins, wherever it is kept."""


def not_real(items: Items, backbone: Mapping[str, Any], of: Iterable[str] = ()) -> list[str]:
    """What must be said before anything on these features; nothing if they are of real clips.

    Parameters
    ----------
    items
        The clips.
    backbone
        What a store says of its backbone.
    of
        Cautions that were given before, of a model for one; they come first, and none comes twice.
    """
    said = {
        "clips are": " / ".join(dict.fromkeys(filter(None, items.extra.get("synthetic", [])))),
        "backbone is": backbone.get("config", {}).get("synthetic"),
    }
    found = [f"{NOT_REAL}: the {what} synthetic ({text})." for what, text in said.items() if text]
    return list(dict.fromkeys([*of, *found]))
