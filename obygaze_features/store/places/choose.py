"""Which kind of place an address means."""

from __future__ import annotations

from pathlib import Path

from obygaze_features.store.places.folder import Folder
from obygaze_features.store.places.place import Place

__all__ = ["place_of"]


def place_of(address: str | Path) -> Place:
    """The place that an address means; whether there is anything is not looked at."""
    return Folder(Path(address))
