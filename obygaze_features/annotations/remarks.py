"""Remarks on anything unusual in a source or a result, and on what was done about it.

The remarks of timelines are saved in ``remarks.csv``, with a column for each field of `Remark`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from obygaze_features.common.grouping import group_by
from obygaze_features.common.tables import format_table, read_table

LEFT_OUT = "left out"
CUT = "cut"
KEPT = "kept"
MAX_KINDS_SHOWN = 12
COLUMNS = ("where", "film", "annotator", "what", "done")


@dataclass(frozen=True)
class Remark:
    """Something unusual in a source or in a result.

    `where` is, for instance, a file, a line and a time. `what` is the same for all remarks of one
    kind. `done` says what was done about it, such as `LEFT_OUT`.
    """

    where: str
    film: str
    annotator: str
    what: str
    done: str


def remark_rows(remarks: Sequence[Remark]) -> list[dict[str, Any]]:
    """Return a row for each kind of remark, at most `MAX_KINDS_SHOWN`; omissions come first.

    A row has the number of remarks of its kind, and the location, film and annotator of the first.
    """
    left_out_first = sorted(remarks, key=lambda remark: remark.done != LEFT_OUT)
    kinds = group_by(left_out_first, lambda remark: (remark.what, remark.done))
    rows = []
    for (what, done), same in kinds.items():
        first = same[0]
        row = {"times": len(same), "done": done, "first": first.where, "film": first.film}
        rows.append({**row, "annotator": first.annotator, "remark": what})
    return rows[:MAX_KINDS_SHOWN]


def remarks_csv(remarks: Sequence[Remark]) -> str:
    """Format remarks as a CSV table."""
    return format_table({name: list(map(attrgetter(name), remarks)) for name in COLUMNS})


def read_remarks(path: Path) -> list[Remark]:
    """Read a table that `remarks_csv` wrote; return [] if the file does not exist."""
    if not path.exists():
        return []
    table = read_table(path, required=COLUMNS)
    return list(map(Remark, *map(table.get, COLUMNS)))
