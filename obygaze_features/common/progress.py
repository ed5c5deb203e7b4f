"""Show progress: a bar with an estimate or, without a terminal, a line every 30 seconds."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, TypeVar

from obygaze_features.common.text import format_duration, format_size

LINE_EVERY_S = 30.0
"""Seconds between lines. Work that takes less time prints no lines."""

T = TypeVar("T")
_OPTIONS: Any = {"dynamic_ncols": True, "leave": False}


def progress(
    values: Iterable[T], label: str, *, unit: str = "it", total: int | None = None
) -> Iterator[T]:
    """Iterate over `values` with a progress bar."""
    if total is None and isinstance(values, Sized):
        total = len(values)
    with meter(total, label, unit=unit) as advance:
        for value in values:
            yield value
            advance(1)


@contextlib.contextmanager
def meter(total: int | None, label: str, *, unit: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar, and yield the function that advances it, ``advance(steps, note)``."""
    if sys.stderr and sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(None, label, total, unit=unit, unit_scale=unit == "B", **_OPTIONS) as bar:

            def advance(steps: int, note: str = "") -> None:
                bar.set_postfix_str(note, refresh=False)
                bar.update(steps)

            yield advance
        return
    lines, ended = _Lines(total, label, unit), threading.Event()
    thread = threading.Thread(target=lines.write, args=[ended], daemon=True)
    thread.start()
    try:
        yield lines.advance
    finally:
        ended.set()
        thread.join()


@dataclass
class _Lines:
    """Lines about progress, printed on standard error even while no step is finished."""

    total: int | None
    label: str
    unit: str
    done: int = 0
    note: str = ""
    begin: float = field(default_factory=lambda: time.monotonic())

    def advance(self, steps: int, note: str = "") -> None:
        self.done, self.note = self.done + steps, note

    def write(self, ended: threading.Event) -> None:
        """Print a line every `LINE_EVERY_S`, and a last line if the work took that long."""
        is_over = False
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            while not is_over:
                is_over = ended.wait(LINE_EVERY_S)
                if not is_over or time.monotonic() - self.begin >= LINE_EVERY_S:
                    sys.stderr.write(f"{self}\n")

    def __str__(self) -> str:
        seconds, left = max(1e-3, time.monotonic() - self.begin), 0.0
        amount = format_size if self.unit == "B" else "{:,}".format
        text = f"{self.label}: {amount(self.done)}"
        text += "" if self.total is None else f" of {amount(self.total)}"
        text += "" if self.unit == "B" else f" {self.unit}s"
        if self.done:
            rate = self.done / seconds
            text += f", {format_size(round(rate)) if self.unit == 'B' else f'{rate:.3g}'}/s"
            left = ((self.total or 0) - self.done) / rate
        text += f", about {format_duration(left)} left" if left > 0 else ""
        text += "" if left > 0 else f", after {format_duration(seconds)}"
        return f"{text}; {self.note}" if self.note else text
