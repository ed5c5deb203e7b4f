"""The files of a store that never change, held to the list that was kept of their checksums."""

from __future__ import annotations

import hashlib
import json

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.location import Location, read_json_at, sha256_at

__all__ = ["CHANGED", "compare", "read_checksums", "without_consolidated"]

CHANGED = "it is not as it was written"


def read_checksums(location: Location) -> dict[str, str]:
    """The SHA-256 of each file that a store's ``checksums.json`` lists."""
    where = location.join(spec.CHECKSUMS)
    try:
        sums = read_json_at(location, spec.CHECKSUMS)
    except OSError as problem:
        raise StoreError(f"{where} cannot be read: {problem.strerror}") from None
    if not isinstance(sums, dict):
        raise StoreError(f"{where} is not a list of checksums")
    return {str(name): str(sha256) for name, sha256 in sums.items()}


def compare(location: Location, name: str, sha256: str | None) -> str | None:
    """What is wrong with a file, if anything; without a checksum only whether it can be read."""
    try:
        have = sha256_at(location, name)
    except FileNotFoundError:
        return "it is lost"
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    return CHANGED if sha256 and have != sha256 else None


def without_consolidated(data: bytes, sha256: str | None) -> bytes | None:
    """A group's ``zarr.json`` as it was before somebody consolidated its metadata.

    None where that does not give the file of this checksum, so that more was changed.
    """
    try:
        group = json.loads(data)
        del group["consolidated_metadata"]
        before = json.dumps(group, indent=2).encode()  # as Zarr writes it
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return before if hashlib.sha256(before).hexdigest() == sha256 else None
