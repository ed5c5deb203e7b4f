"""Spans that show the same seconds of a film, and so are not apart, whatever their ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from obygaze_features.manifests.items import Items

__all__ = ["Spans", "first_overlap", "met"]

Span = tuple[float, float]


class Spans:
    """Spans of films, which others are held against; any number of them at little cost.

    Parameters
    ----------
    spans
        Film -> each span's start and end.
    """

    def __init__(self, spans: Mapping[str, Iterable[Span]]) -> None:
        # For each film the starts in order, and the latest end among the spans up to each of them.
        ordered = {film: sorted(found) for film, found in spans.items()}
        self._starts = {film: [start for start, _ in found] for film, found in ordered.items()}
        self._latest = {
            film: list(accumulate((end for _, end in found), max))
            for film, found in ordered.items()
        }

    def meet(self, film: str, start: float, end: float) -> bool:
        """Whether one of them has some time in common with a span of a film."""
        if film not in self._starts:
            return False
        before = bisect_left(self._starts[film], end)
        return before > 0 and self._latest[film][before - 1] > start


def met(items: Items, tested: Sequence[str], others: Iterable[str]) -> list[str]:
    """The tested ids that are among others, or that overlap one of them in time."""
    known = set(others)
    if not _has_spans(items):
        return [identifier for identifier in tested if identifier in known]
    found: dict[str, list[Span]] = {}
    for identifier in known:
        item = items[items.row(identifier)]
        if item.start is not None and item.end is not None:
            found.setdefault(item.media or item.film, []).append((item.start, item.end))
    spans = Spans(found)

    def overlaps(identifier: str) -> bool:
        item = items[items.row(identifier)]
        if item.start is None or item.end is None:
            return False
        return spans.meet(item.media or item.film, item.start, item.end)

    return [identifier for identifier in tested if identifier in known or overlaps(identifier)]


def first_overlap(items: Items, ids: Iterable[str]) -> tuple[str, str] | None:
    """Two of the ids whose spans overlap in time, if any do."""
    if not _has_spans(items):
        return None
    found = []
    for identifier in ids:
        item = items[items.row(identifier)]
        if item.start is not None and item.end is not None:
            found.append((item.media or item.film, item.start, item.end, identifier))
    found.sort()
    reach = ("", 0.0, "")
    for film, start, end, identifier in found:
        if film == reach[0] and start < reach[1]:
            return reach[2], identifier
        if film != reach[0] or end > reach[1]:
            reach = (film, end, identifier)
    return None


def _has_spans(items: Items) -> bool:
    return bool((items.starts == items.starts).any())
