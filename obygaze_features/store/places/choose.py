"""Which kind of place an address means; each is imported when it is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from obygaze_features.errors import UsageError
from obygaze_features.store.places.folder import Folder
from obygaze_features.store.places.place import Place

__all__ = ["is_url", "place_of"]


_CUT = re.compile(r"(https?|s3|hf):/+")
"""The beginning of a URL in which a slash is lacking."""


def place_of(address: str | Path) -> Place:
    """The place that an address means; whether there is anything is not looked at."""
    if is_url(address):
        url = urlsplit(address)
        if url.scheme in ("s3", "s3a", "gs", "gcs") and not url.netloc:
            raise UsageError(f"{address} names nothing; {url.scheme}://BUCKET/NAME.zarr is meant")
        folder, _, file = url.path.rstrip("/").rpartition("/")
        if not file.endswith(".zip"):
            return _behind(address)
        return _archive(address, _behind(url._replace(path=folder).geturl()), file)
    path = Path(address)
    if (cut := _CUT.match(str(path))) and not path.exists():
        raise UsageError(f"{path}: did you mean {cut[1]}://{str(path)[cut.end() :]}?")
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
