"""Remarks on anything unusual in a source or a result, which also say what was done about it.

Remarks are saved in ``remarks.csv`` with the columns where, film, annotator, what and done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import shorten
from obygaze_features.items.items import id_problem

LEFT_OUT, CUT, KEPT = "left out", "cut", "kept"
MAX_REMARKS_SHOWN = 12
COLUMNS = ("where", "film", "annotator", "what", "done")


@dataclass(frozen=True)
class Remark:
    """Something unusual in a source or in a result.

    `where` is, for instance, a file, a line and a time. `what` is the same for all remarks of one
    kind. `done` says what was done: a segment was left out, cut, or kept.
    """

    where: str
    film: str
    annotator: str
    what: str
    done: str


def describe_remarks(
    remarks: Sequence[Remark], rest: str, titles: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a line for each kind of remark, starting with remarks on what was left out.

    The line has the first remark and the number of others. `rest` says where all remarks are.
    """
    titles = titles or {}
    kinds: dict[tuple[str, str], list[Remark]] = {}
    for remark in sorted(remarks, key=lambda remark: remark.done != LEFT_OUT):
        kinds.setdefault((remark.what, remark.done), []).append(remark)

    for first, *others in list(kinds.values())[:MAX_REMARKS_SHOWN]:
        words = []
        for name in filter(None, (first.film, first.annotator)):
            if id_problem(name):  # the names in a row that was left out may be anything
                name = shorten(name)
            words.append(titles.get(name, name))
        parts = [first.where, " ".join(words), f"{first.what} ({first.done})"]
        line = ": ".join(filter(None, parts))
        if others:
            line += f", and {len(others):,} more like this"
        yield line
    if len(kinds) > MAX_REMARKS_SHOWN or len(remarks) > len(kinds):
        yield f"{len(remarks):,} remarks in all: {rest}"


def remarks_csv(remarks: Sequence[Remark]) -> str:
    """Format remarks as a CSV table."""
    return format_table({name: list(map(attrgetter(name), remarks)) for name in COLUMNS})


def read_remarks(path: Path) -> list[Remark]:
    """Read a table that `remarks_csv` wrote; return [] if the file does not exist."""
    if not path.exists():
        return []
    table = read_table(path, required=COLUMNS)
    return [Remark(*cells) for cells in zip(*map(table.get, COLUMNS), strict=True)]
