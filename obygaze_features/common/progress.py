"""A progress bar with an estimate, silent where standard error is not a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_OPTIONS: Any = {"dynamic_ncols": True, "leave": False, "disable": None}


def progress(
    values: Iterable[T], label: str, *, unit: str = "it", total: int | None = None
) -> Iterator[T]:
    """Iterate over `values` with a bar."""
    from tqdm import tqdm

    yield from tqdm(values, label, total, unit=unit, **_OPTIONS)


@contextlib.contextmanager
def meter(total: int | None, label: str, *, unit: str) -> Iterator[Callable[..., None]]:
    """A bar that the block moves by calling what it gets: ``advance(steps, note)``."""
    from tqdm import tqdm

    options = {**_OPTIONS, "unit": unit, "unit_scale": unit == "B"}
    with tqdm(None, label, total, **options) as bar:

        def advance(steps: int, note: str = "") -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(steps)

        yield advance
