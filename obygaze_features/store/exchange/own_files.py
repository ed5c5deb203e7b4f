"""The files of a final store that goes elsewhere as it is: those that it lists, and no others."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from obygaze_features.errors import StoreError
from obygaze_features.store import format as spec
from obygaze_features.store.location import Folder
from obygaze_features.store.metadata import read_checksums
from obygaze_features.store.packed import is_store_name
from obygaze_features.store.reader import Store, open_store
from obygaze_features.store.verify import check_listed_files

__all__ = ["beside", "damaged", "own_files"]


def own_files(path: Path, doing: str) -> tuple[dict[str, str], list[str]]:
    """What a final store lists, and the names of all its files.

    `StoreError` if the store is open, or if its list is not that of its files; `doing` says what
    is not done then ("packed").
    """
    store = open_store(path)
    if not isinstance(store.location, Folder):
        raise StoreError(
            f"{path} is no folder, and cannot be {doing}; take it out of its archive with: "
            f"obygaze stores unpack {path} -o NAME.zarr"
        )
    if not store.is_final:
        raise StoreError(
            f"{path} is still open, and cannot be {doing}; run: obygaze stores finalise {path}"
        )
    sums = _checked_list(store)
    more = [spec.CHECKSUMS, *([spec.LOG] if (path / spec.LOG).is_file() else [])]
    return sums, [*sums, *more]


def beside(path: Path, names: Collection[str]) -> tuple[str, ...]:
    """What lies in a store's folder and is none of these files."""
    every = (file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir())
    return tuple(sorted(set(every).difference(names)))


def damaged(path: Path, name: str, why: str, doing: str) -> StoreError:
    """The refusal to hand on a file that is not right."""
    return StoreError(
        f"{path / name} {why}, so the store is not {doing}; run: obygaze stores verify {path}"
    )


def _checked_list(store: Store) -> dict[str, str]:
    sums, where = read_checksums(store.location), store.location.join(spec.CHECKSUMS)
    for name in sums:
        if not is_store_name(name):
            raise StoreError(f"{where} lists {name!r:.60}, no name of a store's")
    check_listed_files(store.where, store, sums)
    return sums
