"""The annotated clips of a run or a manifest, one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

from obygaze_features.manifests.labels import SEPARATOR

_NUMBER = re.compile(r"(?<!\d)(\d++)$")


@dataclass(frozen=True)
class Clip:
    """A row of `Run.clips`. `start`, `end` and `fold` are None if they are unknown.

    `used` is the reason why the run did not use the clip: ``no-features``, ``no-fold``,
    ``not-in-task`` or, on a page of a larger label set, ``not-in-labels``.
    """

    id: str
    film: str
    title: str
    media: str
    start: float | None
    end: float | None
    level: str
    concepts: tuple[str, ...]
    fold: int | None = None
    used: str = ""
    group: str = ""
    leaked: bool = False
    blank: bool = False

    @property
    def number(self) -> int | None:
        """The scene's number at the end of the id, or None."""
        match = _NUMBER.search(self.id)
        return int(match[1]) if match else None


def clips_by_id(clips: pd.DataFrame) -> dict[str, Clip]:
    """Convert a table of clips to clips by id, in the table's order."""
    own = clips[list(Clip.__dataclass_fields__)]
    rows: Any = own.astype(object).where(own.notna(), None).to_dict("records")
    by_id = {}
    for row in rows:
        concepts = tuple(filter(None, row["concepts"].split(SEPARATOR)))
        by_id[row["id"]] = Clip(**row | {"concepts": concepts})
    return by_id
