"""The items that a store was made for, as they lie in it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json, sha256_of
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.manifests import Items
from obygaze_features.store import format as spec

__all__ = ["read_items"]


def read_items(path: Path, attributes: Mapping[str, Any]) -> Items:
    """The items of the store at `path`; `StoreError` if they are not as they were written.

    The digest of the items leaves out films, by which stores are cut and joined; so the file is
    held to its checksum, too, where there is one.
    """
    table = path / spec.ITEMS
    try:
        items = Items.from_table(read_table(table, required=["id"]))
    except ManifestError as problem:
        raise StoreError(f"{table}: {problem}") from None
    sums: object = {}
    with contextlib.suppress(StoreError):  # a list that is lost is `repair`'s to make again
        sums = read_json(path / spec.CHECKSUMS, StoreError)
    known = sums.get(spec.ITEMS) if isinstance(sums, dict) else None
    changed = known not in (None, sha256_of(table))
    if changed or items.digest != attributes["items_digest"]:
        raise StoreError(
            f"{table} is not the table that the store was made for; put back a copy of it, from "
            "the manifest or from another copy of the store"
        )
    return items
