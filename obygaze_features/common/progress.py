"""Show a progress bar with an estimate of the time left; a log gets a new one every 30 s."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

LOG_EVERY_S = 30.0
"""Seconds between bars if there is no terminal; work that takes less time then shows no bar."""

FORMAT = "{desc} {percentage:3.0f}% |{bar}| {rate_fmt}, {remaining} left{postfix}"
"""What a bar shows; what is left of the line is the bar itself."""

T = TypeVar("T")


def progress(
    values: Iterable[T],
    label: str,
    *,
    unit: str,
    total: int | None = None,
) -> Iterator[T]:
    """Iterate over `values` with a progress bar."""
    yield from _bar(values, label, total, unit=unit)


@contextlib.contextmanager
def meter(total: int | None, label: str, *, unit: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar, and yield the function that advances it, ``advance(steps, note)``."""
    with _bar(None, label, total, unit=unit) as bar:

        def advance(steps: int, note: str) -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(steps)

        yield advance


def _bar(values: Iterable[Any] | None, label: str, total: int | None, **options: Any) -> Any:
    from tqdm import tqdm

    if sys.stderr.isatty():
        options["leave"] = False
    else:
        options |= {"mininterval": LOG_EVERY_S, "delay": LOG_EVERY_S}
    return tqdm(values, label, total, dynamic_ncols=True, bar_format=FORMAT, **options)
