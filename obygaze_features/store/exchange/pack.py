"""A final store as one zip file, stored and not compressed, so that it can be read in place.

Any zip program takes it apart, and Zarr's ``ZipStore`` reads it as it is. Equal stores give equal
archives but for their logs: times, order and permissions are fixed. The largest files come first,
so that whoever reads the end of the archive has its table of contents and all small files.
"""

from __future__ import annotations

import hashlib
import stat
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.common.files import disk_errors, new_file
from obygaze_features.common.progress import progress
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store.exchange.outgoing import refuse_inside
from obygaze_features.store.exchange.own_files import beside, damaged, own_files

__all__ = ["ALIGNMENT", "Packed", "pack"]

ALIGNMENT = 64
"""Data begin at multiples of this, so that a mapped archive gives arrays that are aligned."""
COPIED = 1 << 20
_PADDING = 0xD935
"""The kind of extra field by which Android aligns the data in its archives, too."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Packed:
    """An archive that was written.

    Parameters
    ----------
    path
        Where it lies.
    files, size
        How many files are in it, and its bytes.
    left_out
        What lies in the store's folder and is no file of the store.
    """

    path: Path
    files: int
    size: int
    left_out: tuple[str, ...] = ()


def pack(path: Path, output: Path, *, overwrite: bool = False) -> Packed:
    """Write a final store into one zip file; each file is held to its checksum on the way.

    Parameters
    ----------
    path
        The store. `StoreError` if it is open, or damaged; nothing is written then.
    output
        The archive, ``NAME.zip``.
    overwrite
        Replace the file that lies at `output`.
    """
    if output.suffix.lower() != ".zip":
        raise UsageError(f"{output}: the name of a packed store ends in .zip")
    refuse_inside(path, output)
    sums, names = own_files(path, "packed")
    sizes = {name: _size(path, name) for name in names}
    names.sort(key=lambda name: (-sizes[name], name))
    with (
        disk_errors(output, StoreError),
        new_file(output, overwrite=overwrite) as temporary,
        temporary.open("wb") as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        for name in progress(names, "Packing", unit="file"):
            info = _entry(name, sizes[name], file.tell())
            sha256 = _copy(path, info, archive)
            if sums.get(name, sha256) != sha256:
                raise damaged(path, name, "is not as it was written", "packed")
    return Packed(output, len(names), output.stat().st_size, beside(path, names))


def _size(path: Path, name: str) -> int:
    try:
        return (path / name).stat().st_size
    except OSError as problem:
        why = f"cannot be read ({problem.strerror})"
        raise damaged(path, name, why, "packed") from None


def _entry(name: str, size: int, offset: int) -> zipfile.ZipInfo:
    """How a file is entered at `offset`, padded so that its data are aligned."""
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3  # Unix, wherever it is packed
    info.external_attr = (stat.S_IFREG | 0o444) << 16
    info.file_size = size
    header = 30 + len(name) + (20 if _is_large(size) else 0)
    begin = offset + header + 6
    padding = bytes(-begin % ALIGNMENT)
    info.extra = struct.pack("<HHH", _PADDING, 2 + len(padding), ALIGNMENT) + padding
    return info


def _copy(path: Path, info: zipfile.ZipInfo, archive: zipfile.ZipFile) -> str:
    """Copy a file into the archive; gives its SHA-256."""
    digest, large = hashlib.sha256(), _is_large(info.file_size)
    with (
        (path / info.filename).open("rb") as file,
        archive.open(info, "w", force_zip64=large) as entry,
    ):
        while data := file.read(COPIED):
            digest.update(data)
            entry.write(data)
    return digest.hexdigest()


def _is_large(size: int) -> bool:
    """Whether an entry needs the larger header (ZIP64)."""
    return size * 1.05 > zipfile.ZIP64_LIMIT  # as zipfile itself decides
