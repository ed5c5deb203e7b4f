"""Downloading a final store; resumed by running it again.

Until every file is there and verified, they are in a hidden folder beside the output.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from obygaze_features.common.files import (
    disk_errors,
    is_resumable,
    new_folder,
    only_process,
    refuse_to_overwrite,
    remove_resumable,
    sha256_of,
    to_json,
    write_bytes,
)
from obygaze_features.common.progress import meter
from obygaze_features.common.text import redact_url
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.file_list import check_listed_files
from obygaze_features.store.finalise import READ_ONLY
from obygaze_features.store.location import Folder, Location, is_store_name, location_of
from obygaze_features.store.metadata import read_attributes, read_checksums
from obygaze_features.store.pack import unpack
from obygaze_features.store.reader import open_store
from obygaze_features.store.remote import Remote, is_url


def pull(source: Path | str, path: Path | str, *, overwrite: bool = False) -> dict[str, Any]:
    """Download a final store; run again, it resumes where it was cut off.

    Parameters
    ----------
    source
        As for `open_store`: a URL, a zip file (also behind a URL), or a folder.
    path
        The new store, ``NAME.zarr``.
    overwrite
        Replace the store at `path`, once the new one is there and verified.

    Returns
    -------
    dict
        ``path``, ``files``, ``size``, and how many bytes this run ``fetched``.
    """
    output = Path(path)
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    refuse_to_overwrite(output, overwrite=overwrite)
    if is_url(source) and redact_url(source).endswith(".zip"):
        fetched = _pull_zip(source, output, overwrite=overwrite)
    else:
        fetched = _pull_folder(location_of(source), output, overwrite=overwrite)
    sizes = [file.stat().st_size for file in output.rglob("*") if file.is_file()]
    return {"path": output, "files": len(sizes), "size": sum(sizes), "fetched": fetched}


def _pull_folder(location: Location, output: Path, *, overwrite: bool) -> int:
    """Download the files of a store; gives the bytes that were fetched."""
    if read_attributes(location)["state"] != "final":
        raise StoreError(
            f"{location.where} is still open, and its files come and go; take what is done: "
            f"obygaze stores subset {location.where} --films FILM,... -o {output}"
        )
    checksums = read_checksums(location)
    if odd := [name for name in checksums if not is_store_name(name)]:
        raise StoreError(
            f"{location.join(fmt.CHECKSUMS)} lists {odd[0]!r:.80}, which is not a file name of a "
            "store"
        )
    with (
        disk_errors(output, StoreError),
        new_folder(
            output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True
        ) as final_folder,
        _pulling_folder(output) as folder,
    ):
        _start_anew_if_other(folder, location.read(fmt.CHECKSUMS))
        fetched = 0
        with meter(None, "Fetching", unit="B") as advance:
            for number, (name, sha256) in enumerate(checksums.items(), 1):
                note = f"file {number:,} of {len(checksums):,}"
                fetched += _fetch(location, name, sha256, folder, partial(advance, note=note))
        with contextlib.suppress(FileNotFoundError):  # it may be lost: it says nothing of features
            (folder / fmt.LOG).write_bytes(location.read(fmt.LOG))
        _check_pulled(location.where, folder, checksums)
        final_folder.rmdir()
        folder.rename(final_folder)
    return fetched


def _pull_zip(url: str, output: Path, *, overwrite: bool) -> int:
    """Download a zip file and unpack it; gives the bytes that were fetched."""
    address, mark, query = url.partition("?")
    parent, _, name = address.rpartition("/")
    location, fetched = Remote(f"{parent}{mark}{query}"), 0
    with disk_errors(output, StoreError), _pulling_folder(output) as folder:
        part = folder / _part_of(name)
        listed = to_json({name: ""}).encode()
        _start_anew_if_other(folder, listed)
        # An earlier start may be of another zip file: then once from its beginning.
        for resumed in (True, False) if part.exists() else (False,):
            _start_anew_if_other(folder, listed)
            with meter(None, "Fetching", unit="B") as advance:
                fetched += _append(location, name, part, advance)
            try:
                unpack(part, output, overwrite=overwrite)
                break
            except StoreError as problem:
                if not resumed:
                    message = str(problem).replace(str(part), location.join(name))
                    raise StoreError(message) from None
            finally:
                remove_resumable(folder, _fetched_names(folder).__contains__)
    return fetched


@contextlib.contextmanager
def _pulling_folder(output: Path) -> Iterator[Path]:
    """The hidden folder beside an output where its files are collected, for this process alone."""
    folder = output.with_name(f".{output.name}.pulling")
    busy = f"another process is fetching {output}; wait for it, or choose another name"
    with only_process(folder.with_name(f"{folder.name}.lock"), StoreError(busy)):
        yield folder


def _start_anew_if_other(folder: Path, listed: bytes) -> None:
    """Make the folder; keep what an earlier run fetched, if it was of the same store."""
    listing, is_ours = folder / fmt.CHECKSUMS, _fetched_names(folder).__contains__
    if is_resumable(folder, fmt.CHECKSUMS, is_ours):
        if listing.read_bytes() == listed:
            return
        remove_resumable(folder, is_ours)
    with new_folder(folder) as new:
        write_bytes(new / fmt.CHECKSUMS, listed)
        (new / fmt.CHECKSUMS).chmod(READ_ONLY)


def _fetched_names(folder: Path) -> set[str]:
    """The files that a pull puts into its folder, whole or in part, by the list in it."""
    names = {fmt.CHECKSUMS, fmt.LOG}
    with contextlib.suppress(StoreError):
        names |= read_checksums(Folder(folder)).keys()
    return names | {_part_of(name) for name in names}


def _part_of(name: str) -> str:
    """Where the beginning of a file is until the rest is fetched."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}.part"


def _check_pulled(where: str, folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise unless what was fetched is a final store with all files that such a one has."""
    try:
        store = open_store(folder)
        if not store.is_final:  # whatever the source said before
            raise StoreError(f"{where} was changed meanwhile; run the same command again")
        check_listed_files(where, store, checksums)
    except StoreError as problem:
        raise StoreError(str(problem).replace(str(folder), where)) from None


def _fetch(
    location: Location, name: str, sha256: str, folder: Path, advance: Callable[[int], None]
) -> int:
    """Fetch what is missing of a file, and compare all of it with its checksum."""
    target = folder / name
    if target.exists():
        if sha256_of(target) == sha256:
            return 0
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = folder / _part_of(name)
    fetched = 0
    for _ in range(2):  # an earlier start may be useless: then once from the beginning
        try:
            fetched += _append(location, name, part, advance)
        except FileNotFoundError:
            raise StoreError(
                f"{location.join(name)} is missing, although {fmt.CHECKSUMS} lists it; tell "
                "whoever offers the store"
            ) from None
        if sha256_of(part) == sha256:
            part.chmod(READ_ONLY)
            os.replace(part, target)
            return fetched
        part.unlink()
    raise StoreError(
        f"{location.join(name)} is not as it was written; tell whoever offers the store (if it was "
        "changed this moment, run the same command again)"
    )


def _append(location: Location, name: str, part: Path, advance: Callable[[int], None]) -> int:
    """Fetch the rest of a file; gives the bytes fetched."""
    fetched = 0
    with part.open("ab") as file:
        for data in location.stream(name, file.tell()):
            fetched += file.write(data)
            file.flush()
            advance(len(data))
        os.fsync(file.fileno())
    return fetched
