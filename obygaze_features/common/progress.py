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
def meter(total: int, what: str, *, unit: str) -> Iterator[Callable[[str], None]]:
    """A bar that the block moves on by calling what it gets with a few words on how things go."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, unit=unit, dynamic_ncols=True, leave=False) as bar:

        def advance(words: str) -> None:
            bar.set_postfix_str(words, refresh=False)
            bar.update()

        yield advance
