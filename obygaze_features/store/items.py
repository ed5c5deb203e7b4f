"""The items that a store was made for, as they lie in it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from obygaze_features.common.files import sha256_of
from obygaze_features.common.tables import read_table
from obygaze_features.errors import ManifestError, StoreError
from obygaze_features.manifests import Items
from obygaze_features.store import format as spec
from obygaze_features.store.location import Location, as_file, read_json_at

__all__ = ["read_items"]


def read_items(location: Location, attributes: Mapping[str, Any]) -> Items:
    """The items of a store; `StoreError` if they are not as they were written.

    The digest of the items leaves out films, by which stores are cut and joined; so the file is
    held to its checksum, too, where there is one.
    """
    where = location.join(spec.ITEMS)
    try:
        with as_file(location, spec.ITEMS) as file:
            items = Items.from_table(read_table(file, required=["id"]))
            sha256 = sha256_of(file)
    except ManifestError as problem:
        raise StoreError(f"{where}: {problem}") from None
    sums: object = {}
    with contextlib.suppress(StoreError, OSError):  # a list that is lost is `repair`'s to make
        sums = read_json_at(location, spec.CHECKSUMS)
    known = sums.get(spec.ITEMS) if isinstance(sums, dict) else None
    if known not in (None, sha256) or items.digest != attributes["items_digest"]:
        raise StoreError(
            f"{where} is not the table that the store was made for; put back a copy of it, from "
            "the manifest or from another copy of the store"
        )
    return items
