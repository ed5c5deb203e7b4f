"""Files in a store's folder that no record and no list of checksums names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.damage import Damage, record_of
from obygaze_features.store.location import Folder
from obygaze_features.store.reader import Store

__all__ = ["committed", "leftovers"]

_IN_TURN = re.compile(r"(blocks|claims)/[0-9]{6,}\.json")


def leftovers(store: Store, ids: Sequence[str], sums: Mapping[str, str]) -> Iterator[Damage]:
    """Files that no record and no list of checksums names; looked for where they can be listed."""
    if not isinstance(store.location, Folder):
        return
    root = store.path
    every = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    if store.is_final:
        # A list that is damaged itself says nothing about the others.
        names = set(every) - {*sums, spec.CHECKSUMS, spec.LOG} if sums else set()
        reason = "it is not part of the store"
    else:
        places = (spec.STAGING, spec.RECORDS, spec.CLAIMS, *(f"{one}/c" for one in store.arrays))
        inside = tuple(f"{place}/" for place in places)
        names = {one for one in every if one.startswith((*inside, "."))} - committed(store, ids)
        names = {one for one in names if not _IN_TURN.fullmatch(one)}
        reason = "it belongs to no block: a writer was killed, or is writing it"
    for name in sorted(names):
        array = name.partition("/c/")[0] if "/c/" in name else None
        yield Damage(name, array, (), reason, harmless=True)


def committed(store: Store, ids: Sequence[str]) -> set[str]:
    """Where the shards may lie that a record names."""
    names: set[str] = set()
    for block in range(store.blocks):
        try:
            record = record_of(store, ids, block)
        except StoreError:
            continue
        for one in store.specs if record else ():
            assert record is not None
            if sha256 := record.shards[one.name]:
                names |= {spec.staged_name(one, block, sha256), spec.shard_name(one, block)}
    return names
