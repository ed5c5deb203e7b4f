"""Which kind of place an address means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from obygaze_features.store.places.archive import Archive
from obygaze_features.store.places.folder import Folder
from obygaze_features.store.places.fsspec_place import FsspecPlace
from obygaze_features.store.places.http import Http
from obygaze_features.store.places.hub import hub_place
from obygaze_features.store.places.place import Place

__all__ = ["is_url", "place_of"]


_MAKERS: dict[str, Callable[[str], Place]] = {"http": Http, "https": Http, "hf": hub_place}
"""By the beginning of a URL; fsspec has all the others."""


def place_of(address: str | Path) -> Place:
    """The place that an address means; whether there is anything is not looked at."""
    if is_url(address):
        url = urlsplit(address)
        make = _MAKERS.get(url.scheme, FsspecPlace)
        folder, _, file = url.path.rstrip("/").rpartition("/")
        if not file.endswith(".zip"):
            return make(address)
        return Archive(address, make(url._replace(path=folder).geturl()), file)
    path = Path(address)
    if path.suffix == ".zip" and path.is_file():
        return Archive(path, Folder(path.parent), path.name)
    return Folder(path)


def is_url(address: str | Path) -> TypeGuard[str]:
    """Whether an address is that of a network, not a path."""
    return isinstance(address, str) and "://" in address
