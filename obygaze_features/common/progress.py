"""A progress bar with an estimate; where there is no terminal, a line to the log now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Any, TypeVar

from obygaze_features.common.text import counted, format_duration, format_size

LINE_EVERY_S = 30.0
"""What takes no longer than this has no line."""

T = TypeVar("T")
_OPTIONS: Any = {"dynamic_ncols": True, "leave": False}


def progress(
    values: Iterable[T], label: str, *, unit: str = "it", total: int | None = None
) -> Iterator[T]:
    """Iterate over `values` with a bar."""
    if total is None and isinstance(values, Sized):
        total = len(values)
    with meter(total, label, unit=unit) as advance:
        for value in values:
            yield value
            advance(1)


@contextlib.contextmanager
def meter(total: int | None, label: str, *, unit: str) -> Iterator[Callable[..., None]]:
    """A bar that the block moves by calling what it gets: ``advance(steps, note)``.

    With ``kept=True`` the steps were done before, and do not count for the time left.
    """
    if not (sys.stderr and sys.stderr.isatty()):
        with _Lines(total, label, unit) as lines:
            yield lines.advance
        return
    from tqdm import tqdm

    with tqdm(None, label, total, unit=unit, unit_scale=unit == "B", **_OPTIONS) as bar:

        def advance(steps: int, note: str = "", *, kept: bool = False) -> None:
            bar.set_postfix_str(note, refresh=False)
            bar.update(steps)

        yield advance


@dataclass
class _Lines:
    """Writes to standard error how far something is, also while it takes no step."""

    total: int | None
    label: str
    unit: str
    done: int = 0
    kept: int = 0
    note: str = ""
    begin: float = field(default_factory=time.monotonic)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> _Lines:
        self._thread = threading.Thread(target=self._write_lines, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def advance(self, steps: int, note: str = "", *, kept: bool = False) -> None:
        self.done += steps
        self.note = note
        if kept:
            self.kept += steps
            self.begin = time.monotonic() if self.done == self.kept else self.begin

    def _write_lines(self) -> None:
        ended = is_long = False
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            while not ended:
                ended = self._ended.wait(LINE_EVERY_S)
                is_long |= not ended
                if is_long:
                    sys.stderr.write(f"{self.line()}\n")
                    sys.stderr.flush()

    def line(self) -> str:
        """What is done, how fast, and the time left or, at the end, taken."""
        seconds, steps = max(1e-3, time.monotonic() - self.begin), self.done - self.kept
        is_bytes = self.unit == "B"
        text = f"{self.label}: "
        if self.total is not None:
            text += f"{format_size(self.done) if is_bytes else f'{self.done:,}'} of "
        count = self.done if self.total is None else self.total
        text += format_size(count) if is_bytes else counted(count, self.unit)
        left = 0.0
        if steps:
            rate, period = steps / seconds, "second"
            if rate < 1:
                rate, period = 60 * rate, "minute"
            speed = format_size(round(rate)) if is_bytes else f"{rate:.1f}"
            text += f", {speed} a {period}"
            left = seconds / steps * ((self.total or 0) - self.done)
        text += f", about {format_duration(left)} left" if left > 0 else ""
        text += "" if left > 0 else f", after {format_duration(seconds)}"
        return f"{text}; {self.note}" if self.note else text
