"""A progress bar with an estimate, quiet where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["progress"]

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
