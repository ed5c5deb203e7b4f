"""A progress bar with an estimate, quiet where nobody watches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["meter", "progress"]

T = TypeVar("T")


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
def meter(total: int, what: str, *, unit: str) -> Iterator[Callable[[int, str], None]]:
    """A bar that the block moves on by calling what it gets: by how much, and how things go."""
    if not sys.stderr.isatty():
        yield lambda steps, words: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, unit=unit, dynamic_ncols=True, leave=False) as bar:

        def advance(steps: int, words: str) -> None:
            bar.set_postfix_str(words, refresh=False)
            bar.update(steps)

        yield advance
