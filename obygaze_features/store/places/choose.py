"""Which kind of place an address means; each is imported when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from obygaze_features.store.places.folder import Folder
from obygaze_features.store.places.place import Place

__all__ = ["is_url", "place_of"]


def place_of(address: str | Path) -> Place:
    """The place that an address means; whether there is anything is not looked at."""
    if is_url(address):
        url = urlsplit(address)
        folder, _, file = url.path.rstrip("/").rpartition("/")
        if not file.endswith(".zip"):
            return _behind(address)
        return _archive(address, _behind(url._replace(path=folder).geturl()), file)
    path = Path(address)
    if path.suffix == ".zip" and path.is_file():
        return _archive(path, Folder(path.parent), path.name)
    return Folder(path)


def is_url(address: str | Path) -> TypeGuard[str]:
    """Whether an address is that of a network, not a path."""
    return isinstance(address, str) and "://" in address


def _behind(url: str) -> Place:
    """A folder behind a URL."""
    if url.startswith(("http://", "https://")):
        from obygaze_features.store.places.http import Http

        return Http(url)
    if url.startswith("hf://"):
        from obygaze_features.store.places.hub import hub_place

        return hub_place(url)
    from obygaze_features.store.places.fsspec_place import FsspecPlace

    return FsspecPlace(url)


def _archive(address: str | Path, base: Place, file: str) -> Place:
    from obygaze_features.store.places.archive import Archive

    return Archive(address, base, file)
