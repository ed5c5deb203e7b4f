"""What an archive of a store may hold: whoever made it, nothing else is read or unpacked."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from pathlib import PurePosixPath
from zipfile import ZIP_STORED, ZipInfo

from obygaze_features.errors import StoreError

__all__ = ["check_entries", "is_store_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_ENCRYPTED = 0x1


def is_store_name(name: str) -> bool:
    """Whether a file of a store may have this name: one below its folder, of a safe alphabet."""
    return _NAME.fullmatch(name) is not None


def check_entries(where: object, entries: Sequence[ZipInfo], size: int) -> None:
    """Raise on the first entry that no packed store has; the table of contents is enough.

    Parameters
    ----------
    where
        The archive, for the message.
    entries
        What it says that it holds.
    size
        Its bytes.
    """
    names: set[str] = set()
    folders: set[str] = set()

    def refused(name: str, why: str) -> StoreError:
        return StoreError(f"{where}: {name!r:.80} {why}")

    for info in entries:
        name = info.orig_filename
        if name.endswith("/"):
            why = "is a folder, so obygaze did not make this archive; pack the store with: "
            raise refused(name, f"{why}obygaze stores pack STORE -o NAME.zip")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise refused(name, "is a link, or the like, and no plain file")
        if not is_store_name(name):
            raise refused(name, "is no name of a store's file")
        if info.flag_bits & _ENCRYPTED:
            raise refused(name, "is encrypted")
        if info.compress_type != ZIP_STORED or info.compress_size != info.file_size:
            raise refused(name, "is compressed, which a packed store is not")
        # As file systems do that ignore case, wherever this one stands.
        folded = name.casefold()
        if folded in names:
            raise refused(name, "is there twice")
        names.add(folded)
        folders |= {str(parent) for parent in PurePosixPath(folded).parents}
    if both := sorted(names & folders):
        raise refused(both[0], "is a file and a folder")
    if sum(info.file_size for info in entries) > size:
        raise StoreError(f"{where}: its files are said to be larger than the archive is")
