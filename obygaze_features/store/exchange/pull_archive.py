"""Fetching an archive whole, from a server that gives no parts of it: what is cut off is lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

from obygaze_features.common.files import SUFFIX, clear_unfinished, prefix, refuse_to_overwrite
from obygaze_features.common.progress import meter
from obygaze_features.errors import StoreError
from obygaze_features.store.exchange.pack import Packed
from obygaze_features.store.exchange.unpack import unpack
from obygaze_features.store.location import Location
from obygaze_features.store.places.archive import Archive
from obygaze_features.store.places.http import Http

__all__ = ["gives_parts", "pull_archive"]


def gives_parts(base: Location) -> bool:
    """Whether parts of files can be had of a place, by what was asked of it before."""
    return not isinstance(base, Http) or base.gives_parts


def pull_archive(place: Archive, output: Path, *, overwrite: bool) -> tuple[Packed, int]:
    """Fetch an archive and unpack it; gives what was unpacked, and the bytes fetched."""
    refuse_to_overwrite(output, overwrite=overwrite)
    output.parent.mkdir(parents=True, exist_ok=True)
    clear_unfinished(output)
    with tempfile.TemporaryDirectory(
        prefix=prefix(output), suffix=SUFFIX, dir=output.parent
    ) as folder:
        archive = Path(folder, place.file)
        with archive.open("xb") as file, meter(None, "Fetching", unit="B") as advance:
            for data in place.base.stream(place.file):
                file.write(data)
                advance(len(data), "the server gives no parts: if cut off, it begins anew")
        fetched = archive.stat().st_size
        try:
            return unpack(archive, output, overwrite=overwrite), fetched
        except StoreError as problem:
            raise StoreError(str(problem).replace(str(archive), place.where)) from None
