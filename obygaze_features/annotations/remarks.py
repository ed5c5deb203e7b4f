"""Remarks: what was odd in a source, or in what was made of it, and what was done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import shorten
from obygaze_features.manifests.items import id_problem

__all__ = [
    "CUT",
    "KEPT",
    "LEFT_OUT",
    "Remark",
    "any_left_out",
    "in_order",
    "read_remarks",
    "remark_lines",
    "remarks_csv",
]

LEFT_OUT, CUT, KEPT = "left out", "cut", "kept"
SHOWN = 12


@dataclass(frozen=True)
class Remark:
    """Something odd in the source, or in what was made of it.

    `where` names the place (file and line, say); `done` says what was done about it: a segment
    was left out, cut, or kept.
    """

    where: str
    film: str
    annotator: str
    what: str
    done: str


COLUMNS = tuple(field.name for field in fields(Remark))


def in_order(remarks: Sequence[Remark]) -> list[Remark]:
    """By place: line 9 comes before line 10."""

    def place(one: Remark) -> list[tuple[int, str]]:
        parts = re.split("([0-9]+)", one.where)
        return [(int(part) if at % 2 else 0, part) for at, part in enumerate(parts)]

    return sorted(remarks, key=place)


def any_left_out(remarks: Sequence[Remark]) -> bool:
    """Whether something was left out, with which commands end with exit code 3."""
    return any(one.done == LEFT_OUT for one in remarks)


def remark_lines(remarks: Sequence[Remark], rest: str) -> Iterator[str]:
    """Remarks for a terminal, what was left out first; `rest` says what has those not shown."""
    for one in sorted(remarks, key=lambda one: one.done != LEFT_OUT)[:SHOWN]:
        names = filter(None, (one.film, one.annotator))
        # Those of a row that was left out may be anything.
        who = " ".join(shorten(name) if id_problem(name) else name for name in names)
        yield f"{one.where}: {f'{who}: ' if who else ''}{one.what} ({one.done})"
    if (more := len(remarks) - SHOWN) > 0:
        yield f"and {more:,} more; {rest}"


def remarks_csv(remarks: Sequence[Remark]) -> str:
    """Remarks as a table."""
    return format_table({name: [getattr(one, name) for one in remarks] for name in COLUMNS})


def read_remarks(path: Path) -> list[Remark]:
    """The remarks of a table that `remarks_csv` made; none where there is no such file."""
    if not path.exists():
        return []
    table = read_table(path, required=COLUMNS)
    return [Remark(*cells) for cells in zip(*map(table.__getitem__, COLUMNS), strict=True)]
