"""``clips.csv``: the annotated clips of a run, those that took no part too, and why not."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_features.manifests.statistics import film_titles
from obygaze_models.dataset import Join

__all__ = ["Clip", "clip_table", "read_clip_table"]

_COLUMNS = (
    "id", "film", "title", "media", "start", "end", "level", "concepts", "fold", "used",
)  # fmt: skip
_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class Clip:
    """An annotated clip.

    Parameters
    ----------
    id, film, media
        As in the manifest.
    title
        The film's; its id where it is not known.
    start, end
        Seconds in the film; None where the clip is a file of its own.
    level, concepts
        As annotated.
    fold
        In the fold column that the run trained by, if it has a place there.
    used
        Why it took no part; empty if it did.
    """

    id: str
    film: str
    title: str
    media: str
    start: float | None
    end: float | None
    level: str
    concepts: tuple[str, ...]
    fold: int | None
    used: str

    @property
    def number(self) -> int | None:
        """The scene's, from the end of the id; None where it ends otherwise."""
        found = _NUMBER.search(self.id)
        return int(found[1]) if found else None


def clip_table(
    manifest: Manifest,
    labels: LabelSet,
    fold_of: Mapping[str, int],
    joined: Join,
    wanted: Collection[str],
) -> str:
    """The table of all clips that `labels` has, in the manifest's order.

    Parameters
    ----------
    fold_of
        The folds that the run trained by.
    joined
        What took part and what did not.
    wanted
        The levels that the run's tasks ask for.
    """
    titles = film_titles(manifest)
    reasons = dict.fromkeys(joined.without_fold, "no fold")
    reasons |= dict.fromkeys(joined.without_features, "no features")
    columns: dict[str, list[str]] = {name: [] for name in _COLUMNS}
    for item in manifest:
        level = labels.level_of.get(item.id)
        if level is None:
            continue
        row = {
            "id": item.id,
            "film": item.film,
            "title": titles.get(item.film, item.film),
            "media": item.media,
            "start": "" if item.start is None else repr(item.start),
            "end": "" if item.end is None else repr(item.end),
            "level": level,
            "concepts": "|".join(labels.concepts_of[item.id]),
            "fold": str(fold_of.get(item.id, "")),
            "used": reasons.get(item.id, "") if level in wanted else "not in the task",
        }
        for name, value in row.items():
            columns[name].append(value)
    return format_table({**columns})


def read_clip_table(path: Path) -> dict[str, Clip]:
    """The clips by id, in the table's order."""
    try:
        table = read_table(path, required=_COLUMNS)
        return {
            row["id"]: Clip(
                id=row["id"],
                film=row["film"],
                title=row["title"],
                media=row["media"],
                start=float(row["start"]) if row["start"] else None,
                end=float(row["end"]) if row["end"] else None,
                level=row["level"],
                concepts=tuple(filter(None, row["concepts"].split("|"))),
                fold=int(row["fold"]) if row["fold"] else None,
                used=row["used"],
            )
            for row in table.rows()
        }
    except (ManifestError, ValueError) as problem:
        raise ExperimentError(f"{path} cannot be read: {problem}") from None
