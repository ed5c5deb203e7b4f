"""What a zip file of a store may hold: anything else is refused, whoever made it."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import PurePosixPath
from zipfile import ZIP_STORED, ZipInfo

from obygaze_features.errors import StoreError

_ENCRYPTED = 0x1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


def is_store_name(name: str) -> bool:
    """Whether a file of a store may have this name: inside its folder, of a safe alphabet."""
    return _NAME.fullmatch(name) is not None


def check_zip_members(where: object, infos: Sequence[ZipInfo], size: int) -> None:
    """Raise on the first member that no packed store has, by the table of contents alone.

    Parameters
    ----------
    where
        The zip file, for the message.
    infos
        What it says that it holds.
    size
        Its bytes.
    """
    names: set[str] = set()
    folders: set[str] = set()

    def refused(name: str, reason: str) -> StoreError:
        return StoreError(f"{where}: {name!r:.80} {reason}")

    for info in infos:
        name = info.orig_filename
        if name.endswith("/"):
            reason = "is a folder, so obygaze did not make this zip file; pack the store with: "
            raise refused(name, f"{reason}obygaze stores pack STORE -o NAME.zip")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise refused(name, "is a link or a device, not a plain file")
        if not is_store_name(name):
            raise refused(name, "is not a file name that a store has")
        if info.flag_bits & _ENCRYPTED:
            raise refused(name, "is encrypted")
        if info.compress_type != ZIP_STORED or info.compress_size != info.file_size:
            raise refused(name, "is compressed, which a packed store is not")
        folded = name.casefold()  # some file systems ignore case
        if folded in names:
            raise refused(name, "is there twice")
        names.add(folded)
        folders |= {str(parent) for parent in PurePosixPath(folded).parents}
        if info.header_offset + info.file_size > size:
            raise StoreError(f"{where}: {name!r:.80} claims more bytes than the zip file has")
    if clashes := sorted(names & folders):
        raise refused(clashes[0], "is a file and a folder")
    if sum(info.file_size for info in infos) > size:
        raise StoreError(f"{where}: its files claim more bytes than the zip file has")
