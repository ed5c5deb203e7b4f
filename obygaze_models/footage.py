"""What a model has seen of which files, so that it is known again under another id."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.items import media_stem
from obygaze_features.manifests.splits import FilmSpans

__all__ = ["footage_of", "overlapping"]

WHOLE = (-math.inf, math.inf)


def footage_of(items: Items, ids: Iterable[str]) -> dict[str, list[list[float] | None]]:
    """The file of each clip, without its extension: start and end, or None for all of it.

    It is kept with a model as ``footage``. Clips with neither file nor times are left out.
    """
    found: dict[str, list[list[float] | None]] = {}
    for one in ids:
        item = items[items.row(one)]
        if (name := _name(item)) is not None:
            span = None if item.start is None or item.end is None else [item.start, item.end]
            found.setdefault(name, []).append(span)
    return found


def overlapping(about: Mapping[str, Any], items: Items, ids: Sequence[str]) -> NDArray[np.bool_]:
    """For each clip whether a model has seen some of its seconds, under whichever id.

    Parameters
    ----------
    about
        What `load_model` gave beside the model.
    items
        Those of the store that is asked about.
    ids
        Some of them.
    """
    spans = FilmSpans(
        {
            name: [WHOLE if one is None else (one[0], one[1]) for one in of]
            for name, of in about.get("footage", {}).items()
        }
    )

    def is_met(item: Item) -> bool:
        if (name := _name(item)) is None:
            return False
        start, end = WHOLE if item.start is None or item.end is None else (item.start, item.end)
        return spans.overlap(name, start, end)

    return np.array([is_met(items[items.row(one)]) for one in ids], dtype=bool)


def _name(item: Item) -> str | None:
    """As `overlap.met` has it; but a film without times is no more than where a clip is from."""
    if item.media:
        return media_stem(item.media)
    return item.film if item.film and item.start is not None else None
