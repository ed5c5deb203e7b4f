"""A store out of an archive that anybody may have made: whole and verified, or refused.

What `pack` would not have written is refused before a byte is: what is compressed (so that there
is no bomb), links, names that lead elsewhere or that one file system could not tell apart, files
that the store's own list of checksums does not have.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from obygaze_features.common.files import disk_errors, new_folder
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.exchange.pack import COPIED, Packed
from obygaze_features.store.finalise import READ_ONLY
from obygaze_features.store.location import Folder
from obygaze_features.store.packed import check_entries
from obygaze_features.store.places.archive import Archive
from obygaze_features.store.reader import open_at
from obygaze_features.store.verify import check_listed_files

__all__ = ["unpack"]


def unpack(archive: Path, output: Path, *, overwrite: bool = False) -> Packed:
    """Take a store out of its archive, each file held to its checksum.

    Parameters
    ----------
    archive
        What `pack` made. `StoreError` if it is damaged, or no packed store; nothing is left then.
    output
        The store, ``NAME.zarr``.
    overwrite
        Replace the store that lies at `output`.
    """
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    if not archive.is_file():
        raise StoreError(f"{archive} is not a file; what `obygaze stores pack` made is meant")
    with (
        _damage(archive),
        zipfile.ZipFile(archive) as opened,
        disk_errors(output, StoreError),
    ):
        entries = opened.infolist()
        try:
            check_entries(archive, entries, archive.stat().st_size)
        except StoreError as problem:
            raise StoreError(f"{problem}; nothing was unpacked") from None
        sums = _checksums(archive, opened)
        _check_listed(archive, {info.filename for info in entries}, sums)
        _check_whole(archive, sums)
        with new_folder(
            output, overwrite=overwrite, marker=spec.CHECKSUMS, allow_missing=True
        ) as folder:
            for info in progress(entries, "Unpacking", unit="file"):
                sha256 = _copy(opened, info, folder / info.filename)
                if sums.get(info.filename, sha256) != sha256:
                    raise _refused(archive, info.filename, "is not as it was written")
    return Packed(output, len(entries), sum(info.file_size for info in entries))


def _checksums(archive: Path, opened: zipfile.ZipFile) -> dict[str, str]:
    try:
        sums = json.loads(opened.read(spec.CHECKSUMS))
    except KeyError:
        raise StoreError(f"{archive} is not a packed store: it has no {spec.CHECKSUMS}") from None
    except (ValueError, RecursionError):
        sums = None
    if not isinstance(sums, dict):
        raise StoreError(f"{archive}: its {spec.CHECKSUMS} is not a list of checksums")
    return sums


def _check_listed(archive: Path, names: set[str], sums: Mapping[str, str]) -> None:
    """Raise unless the archive has what its store lists, and no more."""
    if lost := sorted(sums.keys() - names):
        raise _refused(archive, lost[0], "is not in it")
    if odd := sorted(names - sums.keys() - {spec.CHECKSUMS, spec.LOG}):
        raise _refused(archive, odd[0], "is no file of this store")


def _check_whole(archive: Path, sums: Mapping[str, str]) -> None:
    """Raise unless it is a final store that lists the files that one like it has, and no others.

    It is read in place for this, so that messages name the archive.
    """
    try:
        store = open_at(Archive(archive, Folder(archive.parent), archive.name))
        if not store.is_final:
            raise StoreError(f"{archive} holds a store that is still open; it cannot be whole")
        check_listed_files(archive, store, sums)
    except StoreError as problem:
        raise StoreError(f"{problem}; nothing was unpacked") from None


def _copy(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> str:
    """Write one file; gives its SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with opened.open(info) as entry, target.open("xb") as file:
        while data := entry.read(COPIED):
            digest.update(data)
            file.write(data)
    target.chmod(READ_ONLY)
    return digest.hexdigest()


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    """What the zip module says of a file that is no archive, or a broken one, in one line."""
    try:
        yield
    except (
        zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError,
        struct.error,
    ) as problem:  # fmt: skip
        raise StoreError(
            f"{archive} is not a whole zip file ({problem}); nothing was unpacked, fetch it again"
        ) from None


def _refused(archive: Path, name: str, why: str) -> StoreError:
    return StoreError(f"{archive}: {name!r:.80} {why}; nothing was unpacked")
