"""A model's predictions film by film, as files that other programs open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from obygaze_features.common.tables import escape_formula, format_table
from obygaze_features.manifests import Item, Items
from obygaze_models.experiments.experiment import folder_name
from obygaze_models.scoring import Predictions

__all__ = ["SaidOfClip", "clips_of", "film_tables", "unique_names"]

NO_FILM = "no-film"
MARK = "\ufeff"
"""Without it Excel takes UTF-8 for the local encoding."""


@dataclass(frozen=True)
class SaidOfClip:
    """What a model says of one clip."""

    item: Item
    said: str
    probabilities: tuple[float, ...]
    seen: str


def clips_of(found: Predictions, items: Items) -> list[SaidOfClip]:
    """Predictions with the items that they are of, in the items' order."""
    rows = sorted(
        zip(
            map(items.row, found.ids),
            found.said,
            found.probabilities.tolist(),
            found.seen,
            strict=True,
        )
    )
    return [SaidOfClip(items[row], said, tuple(of), seen) for row, said, of, seen in rows]


def film_tables(found: Predictions, items: Items) -> dict[str, str]:
    """A table a film for spreadsheets: file name -> text.

    Numbers are left as such; a text that a spreadsheet would compute gets an apostrophe before it.
    """
    films: dict[str, list[SaidOfClip]] = {}
    for one in clips_of(found, items):
        films.setdefault(one.item.film, []).append(one)
    names = unique_names((film or NO_FILM for film in films), ".csv")
    classes = found.about["classes"]
    return {
        name: MARK + _table(clips, classes)
        for name, clips in zip(names, films.values(), strict=True)
    }


def _table(clips: Sequence[SaidOfClip], classes: Sequence[str]) -> str:
    columns: dict[str, Sequence[str]] = {
        "clip": [escape_formula(one.item.id) for one in clips],
        "film": [escape_formula(one.item.film) for one in clips],
        "file": [escape_formula(one.item.media) for one in clips],
        "start": [_seconds(one.item.start) for one in clips],
        "end": [_seconds(one.item.end) for one in clips],
        "said": [escape_formula(one.said) for one in clips],
    }
    for place, name in enumerate(classes):
        columns[f"probability of {name}"] = [f"{one.probabilities[place]:.6f}" for one in clips]
    columns["seen in training"] = [one.seen for one in clips]
    return format_table(columns)


def unique_names(wanted: Iterable[str], suffix: str) -> list[str]:
    """A file name for each, safe on any file system; also where case tells nothing apart."""
    taken: set[str] = set()
    names = []
    for one in wanted:
        stem = name = folder_name(one)[:100].strip(".") or "-"
        number = 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name + suffix)
    return names


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
