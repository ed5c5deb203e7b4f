"""Where two annotators differ: runs of clips in a film, the longest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from obygaze_features.annotations.distances import Distances
from obygaze_features.annotations.pairs import Pair
from obygaze_features.manifests.items import Items

__all__ = ["Disagreement", "disagreements"]


@dataclass(frozen=True)
class Disagreement:
    """Consecutive clips of a film in which two annotators' levels differ.

    `levels_a` and `levels_b` are the levels in the order of the clips, each once for clips in a
    row that have it; `distance` is the mean over the clips. `seconds` is how long the clips are
    together: 0 without spans, where the times are None.
    """

    film: str
    a: str
    b: str
    first: str
    last: str
    clips: int
    seconds: float
    start: float | None
    end: float | None
    levels_a: tuple[str, ...]
    levels_b: tuple[str, ...]
    distance: float


def disagreements(pairs: Iterable[Pair], items: Items, distances: Distances) -> list[Disagreement]:
    """Every run, the longest in seconds (without spans: in clips) first, then the farthest apart.

    A clip that only one of the two has ends a run, as does one on which they agree.
    """
    found = [
        _disagreement(pair, places, items, distances) for pair in pairs for places in _runs(pair)
    ]
    return sorted(
        found,
        key=lambda one: (
            -one.seconds,
            -one.clips,
            -one.distance,
            one.film,
            one.start or 0.0,
            one.first,
            one.a,
            one.b,
        ),
    )


def _runs(pair: Pair) -> list[list[int]]:
    """The places in the pair's rows at which it differs, those in a row together."""
    runs: list[list[int]] = []
    for place, (one, other) in enumerate(zip(pair.levels_a, pair.levels_b, strict=True)):
        if one is None or other is None or one == other:
            continue
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _disagreement(
    pair: Pair, places: Sequence[int], items: Items, distances: Distances
) -> Disagreement:
    rows = [pair.rows[place] for place in places]
    a = [str(pair.levels_a[place]) for place in places]
    b = [str(pair.levels_b[place]) for place in places]
    spans = [(one.start, one.end) for one in map(items.__getitem__, rows)]
    times = [(start, end) for start, end in spans if start is not None and end is not None]
    rank = distances.rank
    return Disagreement(
        film=pair.film,
        a=pair.a,
        b=pair.b,
        first=items.ids[rows[0]],
        last=items.ids[rows[-1]],
        clips=len(rows),
        seconds=sum(end - start for start, end in times),
        start=min((start for start, _ in times), default=None),
        end=max((end for _, end in times), default=None),
        levels_a=tuple(level for level, _ in groupby(a)),
        levels_b=tuple(level for level, _ in groupby(b)),
        distance=fmean(
            float(distances.matrix[rank[x], rank[y]]) for x, y in zip(a, b, strict=True)
        ),
    )
