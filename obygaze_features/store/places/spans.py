"""Parts of a file in few requests: those that touch become one, and several are under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from obygaze_features.store.location import Span

__all__ = ["read_together"]

AT_ONCE = 8
"""Requests that are under way at a time."""
LARGEST = 8 * 2**20
"""Bytes from which on parts are not joined any more."""


def read_together(read: Callable[[int, int], bytes], spans: Sequence[Span]) -> list[bytes]:
    """The parts of a file, given what reads one; in their order."""
    runs = list(_runs(sorted(set(spans))))
    if len(runs) > 1:
        with ThreadPoolExecutor(min(AT_ONCE, len(runs))) as pool:
            read_all = list(pool.map(lambda run: read(run[0][0], _length(run)), runs))
    else:
        read_all = [read(run[0][0], _length(run)) for run in runs]
    found = {}
    for run, data in zip(runs, read_all, strict=True):
        for start, length in run:
            at = start - run[0][0]
            found[start, length] = data[at : at + length]
    return [found[span] for span in spans]


def _runs(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Spans that touch one another, together."""
    run: list[Span] = []
    for start, length in spans:
        touches = run and start == sum(run[-1]) and _length(run) + length <= LARGEST
        if run and not touches:
            yield run
            run = []
        run.append((start, length))
    if run:
        yield run


def _length(run: Sequence[Span]) -> int:
    return sum(run[-1]) - run[0][0]
