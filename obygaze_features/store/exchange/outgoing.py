"""What exports share: which rows and arrays, a part at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.progress import progress
from obygaze_features.errors import UsageError
from obygaze_features.store.format import ArraySpec, Status
from obygaze_features.store.reader import Store

__all__ = ["Exported", "chosen", "parts", "refuse_inside"]

PART_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Parameters
    ----------
    path
        Where it lies.
    rows, done
        All rows, and those that are done.
    arrays
        What it holds of each.
    size
        Its bytes.
    """

    path: Path
    rows: int
    done: int
    arrays: tuple[str, ...]
    size: int

    @classmethod
    def of(cls, path: Path, store: Store, specs: Sequence[ArraySpec]) -> Exported:
        """What was written of a store."""
        done = int((store.status == Status.DONE).sum())
        names = tuple(one.name for one in specs)
        return cls(path, len(store), done, names, path.stat().st_size)


def refuse_inside(store: str | Path, output: Path) -> None:
    """Raise if the output would be a file of the store, by its address, that it is made of."""
    if isinstance(store, Path) and store.resolve() in output.resolve().parents:
        raise UsageError(f"{output} lies inside the store; choose another output")


def chosen(store: Store, names: Sequence[str]) -> list[ArraySpec]:
    """The arrays of these names, in the store's order."""
    if unknown := [name for name in names if name not in store.arrays]:
        raise UsageError(
            f"{store.where} has no array {unknown[0]!r:.60}; it has {', '.join(store.arrays)}"
        )
    return [one for one in store.specs if one.name in names]


def parts(
    store: Store, specs: Sequence[ArraySpec]
) -> Iterator[tuple[range, NDArray[np.bool_], dict[str, NDArray[Any]]]]:
    """Go through all rows in order.

    Yields
    ------
    rows, done, values
        Some rows, which of them are done, and for each array the rows that are.
    """
    step = max(1, PART_BYTES // sum(one.row_bytes for one in specs))
    blocks = store.iter_blocks([one.name for one in specs])
    held = {one.name: np.empty((0, *one.shape), one.dtype) for one in specs}
    have = 0
    for start in progress(range(0, len(store), step), "Exporting", unit="part"):
        rows = range(start, min(start + step, len(store)))
        done = store.status[rows.start : rows.stop] == Status.DONE
        wanted = int(done.sum())
        pieces = [held]
        while have < wanted:
            ids, values = next(blocks)
            pieces.append(values)
            have += len(ids)
        joined = {name: np.concatenate([one[name] for one in pieces]) for name in held}
        yield rows, done, {name: values[:wanted] for name, values in joined.items()}
        held = {name: values[wanted:].copy() for name, values in joined.items()}
        have -= wanted
