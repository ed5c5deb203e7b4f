"""Spans that show the same seconds of a film, and so are not apart, whatever their ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from obygaze_features.manifests.items import Items

__all__ = ["first_overlap", "met"]


def met(items: Items, tested: Sequence[str], others: Iterable[str]) -> list[str]:
    """The tested ids that are among others, or that overlap one of them in time."""
    known = set(others)
    if not _has_spans(items):
        return [identifier for identifier in tested if identifier in known]
    spans: dict[str, list[tuple[float, float]]] = {}
    for identifier in known:
        item = items[items.row(identifier)]
        if item.start is not None and item.end is not None:
            spans.setdefault(item.media or item.film, []).append((item.start, item.end))
    # For each film the starts in order, and the latest end among the spans up to each of them.
    ordered = {film: sorted(found) for film, found in spans.items()}
    starts = {film: [start for start, _ in found] for film, found in ordered.items()}
    latest = {f: list(accumulate((end for _, end in found), max)) for f, found in ordered.items()}

    def overlaps(identifier: str) -> bool:
        item = items[items.row(identifier)]
        film = item.media or item.film
        if item.start is None or item.end is None or film not in ordered:
            return False
        before = bisect_left(starts[film], item.end)
        return before > 0 and latest[film][before - 1] > item.start

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
