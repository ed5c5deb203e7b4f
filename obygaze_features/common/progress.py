"""A progress bar with an estimate, silent where standard error is not a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Advance(Protocol):
    """Moves a bar forward."""

    def __call__(self, steps: int, note: str = "") -> None:
        """Add steps, and show a note beside the bar."""


def progress(
    values: Iterable[T], label: str, *, unit: str = "it", total: int | None = None
) -> Iterator[T]:
    """Iterate over `values` with a bar."""
    from tqdm import tqdm

    yield from tqdm(values, label, total, unit=unit, dynamic_ncols=True, leave=False, disable=None)


@contextlib.contextmanager
def meter(total: int | None, label: str, *, unit: str) -> Iterator[Advance]:
    """A bar that the block moves by calling the value it gets."""
    from tqdm import tqdm

    scale = unit == "B"
    with tqdm(
        None,
        label,
        total,
        leave=False,
        unit=unit,
        unit_scale=scale,
        dynamic_ncols=True,
        disable=None,
    ) as bar:

        def advance(steps: int, note: str = "") -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(steps)

        yield advance
