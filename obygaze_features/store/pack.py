"""A final store as one zip file, and back: not compressed, so that it can be mapped as it is.

Any zip program unpacks it, and Zarr's ``ZipStore`` reads it. Equal stores give equal zip files
but for their logs: times, order and permissions are fixed.
"""

from __future__ import annotations

import hashlib
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Any

from obygaze_features.common.files import disk_errors, new_file, new_folder
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import format as fmt
from obygaze_features.store.file_list import (
    check_listed_files,
    damaged_file,
    list_final_files,
    unrelated_files,
)
from obygaze_features.store.finalise import READ_ONLY
from obygaze_features.store.location import ZipArchive
from obygaze_features.store.metadata import read_checksums
from obygaze_features.store.reader import open_at

COPY_BYTES = 2**20


def pack(store: Path | str, output: Path | str, *, overwrite: bool = False) -> dict[str, Any]:
    """Write a final store into one zip file; each file is compared with its checksum.

    `StoreError` if the store is open or damaged; nothing is written then. Returns ``path``,
    ``files``, ``size`` and what in the folder was ``left_out``, as it is no file of the store.
    """
    path, output = Path(store), Path(output)
    if output.suffix.lower() != ".zip":
        raise UsageError(f"{output}: the name of a packed store ends in .zip")
    if path.resolve() in output.resolve().parents:
        raise UsageError(f"{output} is inside the store; choose another output")
    checksums, sizes = list_final_files(path, "packed")
    with (
        disk_errors(output, StoreError),
        new_file(output, overwrite=overwrite) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name in progress(sizes, "Packing", unit="file"):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # Unix, wherever it is packed
            info.external_attr = (stat.S_IFREG | READ_ONLY) << 16
            info.file_size = sizes[name]
            digest = hashlib.sha256()
            with (path / name).open("rb") as file, archive.open(info, "w") as member:
                while data := file.read(COPY_BYTES):
                    digest.update(data)
                    member.write(data)
            if checksums.get(name, digest.hexdigest()) != digest.hexdigest():
                raise damaged_file(path, name, "is not as it was written", "packed")
    return {
        "path": output,
        "files": len(sizes),
        "size": output.stat().st_size,
        "left_out": unrelated_files(path, sizes),
    }


def unpack(archive: Path | str, output: Path | str, *, overwrite: bool = False) -> dict[str, Any]:
    """Take a store out of its zip file: whole and verified, or refused.

    `StoreError` if it is damaged, or no packed store; nothing is left then. Returns ``path``,
    ``files`` and ``size``; nothing is ``left_out``.
    """
    archive, output = Path(archive), Path(output)
    if output.suffix != ".zarr":
        raise UsageError(f"{output}: the name of a store ends in .zarr")
    if not archive.is_file():
        raise StoreError(f"{archive} is not a file; give one that `obygaze stores pack` made")
    location, size = ZipArchive(archive), 0
    try:
        checksums = _check_archive(location)
        with (
            disk_errors(output, StoreError),
            new_folder(
                output, overwrite=overwrite, marker=fmt.CHECKSUMS, allow_missing=True
            ) as folder,
        ):
            for name in progress(location.names, "Unpacking", unit="file"):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                digest, crc = hashlib.sha256(), 0
                with target.open("xb") as file:
                    for data in location.stream(name):
                        digest.update(data)
                        crc = zlib.crc32(data, crc)
                        size += file.write(data)
                target.chmod(READ_ONLY)
                sha256 = checksums.get(name, digest.hexdigest())
                if (crc, digest.hexdigest()) != (location.crc(name), sha256):
                    raise StoreError(f"{archive}: {name!r:.80} is not as it was written")
    except StoreError as problem:
        raise StoreError(f"{problem}; nothing was unpacked") from None
    return {"path": output, "files": len(location.names), "size": size, "left_out": []}


def _check_archive(location: ZipArchive) -> dict[str, str]:
    """The checksums of the final store in a zip file, which has all that it lists, and no more."""
    if fmt.CHECKSUMS not in location.names:
        raise StoreError(f"{location.where} is not a packed store: it has no {fmt.CHECKSUMS}")
    checksums, names = read_checksums(location), set(location.names)
    if lost := sorted(checksums.keys() - names):
        raise StoreError(f"{location.where}: {lost[0]!r:.80} is not in it")
    if odd := sorted(names - checksums.keys() - {fmt.CHECKSUMS, fmt.LOG}):
        raise StoreError(f"{location.where}: {odd[0]!r:.80} is no file of this store")
    store = open_at(location)
    if not store.is_final:
        raise StoreError(f"{location.where} holds a store that is still open, not a final one")
    check_listed_files(location.where, store, checksums)
    return checksums
