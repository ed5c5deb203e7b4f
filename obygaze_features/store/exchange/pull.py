"""Fetching a whole store from elsewhere: what is cut off goes on where it was, each file verified.

Until all is there it lies beside its destination under a hidden name, where the next run finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from obygaze_features.common.files import (
    disk_errors,
    new_folder,
    refuse_to_overwrite,
    sha256_of,
    write_bytes,
)
from obygaze_features.common.progress import meter
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as spec
from obygaze_features.store.exchange.pull_archive import gives_parts, pull_archive
from obygaze_features.store.finalise import READ_ONLY
from obygaze_features.store.location import BLOCK, Location, location_of
from obygaze_features.store.metadata import read_attributes, read_checksums
from obygaze_features.store.packed import is_store_name
from obygaze_features.store.places.archive import Archive
from obygaze_features.store.reader import open_store
from obygaze_features.store.verify import check_listed_files

__all__ = ["Pulled", "pull"]


@dataclass(frozen=True)
class Pulled:
    """A store that was fetched.

    Parameters
    ----------
    path
        Where it lies.
    files, size
        How many files it has, and their bytes.
    fetched
        Bytes that this run fetched; the others were there from an earlier one.
    """

    path: Path
    files: int
    size: int
    fetched: int


def pull(address: str | Path, output: Path, *, overwrite: bool = False) -> Pulled:
    """Fetch a final store; run again, it goes on where it was cut off.

    Parameters
    ----------
    address
        As for `open_store`: a URL, an archive or a folder.
    output
        The new store, ``NAME.zarr``.
    overwrite
        Replace the store that lies at `output`, once the new one is there and verified.
    """
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    refuse_to_overwrite(output, overwrite=overwrite)
    place = location_of(address)
    try:
        state = read_attributes(place)["state"]
    except StoreError:
        if not isinstance(place, Archive) or gives_parts(place.base):
            raise
        got, fetched = pull_archive(place, output, overwrite=overwrite)
        return Pulled(output, got.files, got.size, fetched)
    if state != "final":
        raise StoreError(
            f"{place.where} is still open, and its files come and go; take what is done of it "
            f"with: obygaze stores subset {place.where} --films FILM,... -o {output}"
        )
    sums = read_checksums(place)
    if odd := [name for name in sums if not is_store_name(name)]:
        raise StoreError(f"{place.join(spec.CHECKSUMS)} lists {odd[0]!r:.80}, no name of a store's")
    with (
        disk_errors(output, StoreError),
        new_folder(output, overwrite=overwrite, marker=spec.CHECKSUMS, allow_missing=True) as made,
        _begun(place, output) as folder,
    ):
        fetched = _fetch_all(place, sums, folder)
        _check_whole(place, folder, sums)
        made.rmdir()
        folder.rename(made)
    files = [file for file in output.rglob("*") if file.is_file()]
    return Pulled(output, len(files), sum(file.stat().st_size for file in files), fetched)


@contextlib.contextmanager
def _begun(place: Location, output: Path) -> Iterator[Path]:
    """The folder that an earlier run began with, or a new one if that was of another store."""
    folder = output.with_name(f".{output.name}.pulling")
    with _alone(folder, output):
        listed, known = place.read(spec.CHECKSUMS), folder / spec.CHECKSUMS
        if folder.exists() and not (known.is_file() and known.read_bytes() == listed):
            shutil.rmtree(folder)
        if not folder.exists():
            write_bytes(known, listed)
            known.chmod(READ_ONLY)
        yield folder


@contextlib.contextmanager
def _alone(folder: Path, output: Path) -> Iterator[None]:
    """Raise if another process is fetching into the same folder: both would add to its files."""
    lock = folder.with_name(f"{folder.name}.lock")
    with lock.open("wb") as file:
        if not _lock(file):
            raise StoreError(
                f"another process is fetching {output}; wait for it, or choose another name"
            )
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _lock(file: BinaryIO) -> bool:
    """Take a file for this process alone, for as long as it is open; False if another has it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, and file systems without locks
        return True
    # Who had it before may have removed its name at this moment.
    return os.fstat(file.fileno()).st_nlink > 0


def _check_whole(place: Location, folder: Path, sums: Mapping[str, str]) -> None:
    """Raise unless what was fetched is a final store with all files that such a one has."""
    try:
        store = open_store(folder)
        if not store.is_final:  # whatever the source said before
            raise StoreError(f"{place.where} was changed meanwhile; run the same command again")
        check_listed_files(place.where, store, sums)
    except StoreError as problem:
        raise StoreError(str(problem).replace(str(folder), place.where)) from None


def _fetch_all(place: Location, sums: Mapping[str, str], folder: Path) -> int:
    fetched = 0
    with meter(None, "Fetching", unit="B") as advance:
        for number, (name, sha256) in enumerate(sums.items(), 1):
            words = f"file {number:,} of {len(sums):,}"
            try:
                fetched += _fetch(place, name, sha256, folder, partial(advance, note=words))
            except FileNotFoundError:
                raise StoreError(
                    f"{place.join(name)} is not there, although {spec.CHECKSUMS} lists it; tell "
                    "whoever offers the store"
                ) from None
    with contextlib.suppress(FileNotFoundError):  # it may be lost: of features it tells nothing
        (folder / spec.LOG).write_bytes(place.read(spec.LOG))
    return fetched


def _fetch(
    place: Location, name: str, sha256: str, folder: Path, advance: Callable[[int], None]
) -> int:
    """Fetch what a file lacks, and hold all of it to its checksum; gives the bytes fetched."""
    target = folder / name
    part = target.with_name(f".{target.name}.part")
    if target.exists():
        if sha256_of(target) == sha256:
            return 0
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    fetched = 0
    for _ in range(2):  # what was begun may be of no use: then once from its beginning
        digest = hashlib.sha256()
        with part.open("ab+") as file:
            file.seek(0)
            while data := file.read(BLOCK):
                digest.update(data)
            for data in place.stream(name, file.tell()):
                file.write(data)
                digest.update(data)
                fetched += len(data)
                advance(len(data))
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() == sha256:
            part.chmod(READ_ONLY)
            os.replace(part, target)
            return fetched
        part.unlink()
    raise StoreError(
        f"{place.join(name)} is not as it was written; tell whoever offers the store (if it was "
        "changed this moment, run the same command again)"
    )
