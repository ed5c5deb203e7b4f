"""Leaks: test clips that a model has seen, by id or as the same seconds of a film."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.items import media_stem
from obygaze_features.manifests.splits import FilmSpans

if TYPE_CHECKING:
    from obygaze_models.data.protocols import Fold


Array = NDArray[Any]

WHOLE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Leak:
    """Clips of a fold's test set that the same fold trains on, or is stopped by.

    `otherwise` are those that a model of the fold saw in another way, say to learn its concepts.
    """

    fold: int
    test: str
    clips: int
    train: list[str]
    validation: list[str]
    otherwise: list[str]

    @property
    def ids(self) -> list[str]:
        """All of them."""
        return sorted({*self.train, *self.validation, *self.otherwise})


def find_leaks(
    folds: Sequence[Fold],
    ids: Sequence[str],
    *,
    seen: Mapping[int, Array] | None = None,
    meet: Callable[[list[str], list[str]], list[str]] | None = None,
) -> list[Leak]:
    """The leaks of each fold and test set; only those that there are.

    Parameters
    ----------
    seen
        The rows that the models of a fold saw in any way, by the fold's index.
    meet
        Which of the first ids are among the second, or show the same seconds of a film; by
        default those of equal ids.
    """
    meet = meet or (lambda left, right: sorted({*left} & {*right}))

    def names(rows: Array) -> list[str]:
        return [ids[row] for row in rows.tolist()]

    leaks = []
    for fold in folds:
        used = [fold.train, fold.validation]
        others = np.setdiff1d((seen or {}).get(fold.index, fold.train), np.concatenate(used))
        for test, rows in fold.tests.items():
            met = [meet(names(rows), names(part)) for part in (*used, others)]
            leaks.append(Leak(fold.index, test, len(rows), *met))
    return [leak for leak in leaks if leak.ids]


def footage_of(items: Items, ids: Iterable[str]) -> dict[str, list[list[float] | None]]:
    """The file of each clip, without its extension: start and end, or None for all of it.

    It is kept with a model as ``footage``. Clips with neither file nor times are left out.
    """
    files: dict[str, list[list[float] | None]] = {}
    for clip in ids:
        item = items[items.row(clip)]
        if (name := _name(item)) is not None:
            span = None if item.start is None or item.end is None else [item.start, item.end]
            files.setdefault(name, []).append(span)
    return files


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
            name: [WHOLE if span is None else (span[0], span[1]) for span in spans]
            for name, spans in about.get("footage", {}).items()
        }
    )

    def is_met(item: Item) -> bool:
        if (name := _name(item)) is None:
            return False
        start, end = WHOLE if item.start is None or item.end is None else (item.start, item.end)
        return spans.overlap(name, start, end)

    return np.array([is_met(items[items.row(clip)]) for clip in ids], dtype=bool)


def _name(item: Item) -> str | None:
    """As `overlap.met` has it; but a film without times is no more than where a clip is from."""
    if item.media:
        return media_stem(item.media)
    return item.film if item.film and item.start is not None else None
