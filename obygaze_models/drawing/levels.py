"""One colour a level, in every figure."""

from __future__ import annotations

from collections.abc import Mapping

from obygaze_models.drawing.marks import Series

__all__ = ["level_series"]

COLOURS = {"EN": 4, "HN": 1, "NS": 3, "S": 2}


def level_series(names: Mapping[str, str]) -> list[Series]:
    """Code -> name, as series; a class of several levels has the colour of its first.

    Levels of other schemes have the colours in turn.
    """
    firsts = [code.partition("+")[0] for code in names]
    if not set(firsts) <= COLOURS.keys():
        return [Series(name, place % 6 + 1) for place, name in enumerate(names.values())]
    return [
        Series(name, COLOURS[first]) for first, name in zip(firsts, names.values(), strict=True)
    ]
