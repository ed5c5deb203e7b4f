"""A progress bar with an estimate, quiet where nobody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

__all__ = ["Advance", "meter", "progress"]

T = TypeVar("T")


class Advance(Protocol):
    """Moves a bar on."""

    def __call__(self, steps: int, words: str = "") -> None:
        """By so many steps, with a word on how things go."""


def progress(
    values: Iterable[T], what: str, *, unit: str = "it", total: int | None = None
) -> Iterator[T]:
    """Go through `values` with a bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield from values
        return
    from tqdm import tqdm

    yield from tqdm(values, desc=what, unit=unit, total=total, dynamic_ncols=True, leave=False)


@contextlib.contextmanager
def meter(total: int | None, what: str, *, unit: str) -> Iterator[Advance]:
    """A bar that the block moves on by calling what it gets: by how much, and how things go."""
    if not sys.stderr.isatty():
        yield lambda steps, words="": None
        return
    from tqdm import tqdm

    scale = unit == "B"
    with tqdm(
        total=total, desc=what, unit=unit, unit_scale=scale, dynamic_ncols=True, leave=False
    ) as bar:

        def advance(steps: int, words: str = "") -> None:
            bar.set_postfix_str(words, refresh=False)
            bar.update(steps)

        yield advance
