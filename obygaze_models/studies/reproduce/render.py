"""Reproduced tables as data, and their formats: text and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pandas import DataFrame

from obygaze_features.common.formatting import format_signed
from obygaze_features.common.printer import align
from obygaze_features.common.tables import escape_formula
from obygaze_models.data.run_warning import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["ours", "published", "guess", "difference", "count", "beside"]
"""The source of a line's numbers. ``beside`` has our numbers from a second protocol."""
INDENTED = ("published", "difference", "beside")
"""The kinds of lines that belong to the line above with our numbers."""
TEXTS = ["table", "block", "protocol", "score", "row", "kind", "column"]
COLUMNS = [*TEXTS, "mean", "std", "low", "high", "ours_minus_published"]


class Value(NamedTuple):
    """A number (None if it is undefined) with its standard deviation over fits, or its interval."""

    mean: float | None
    std: float | None = None
    low: float | None = None
    high: float | None = None


Values = Mapping[str, Value]
Numbers = dict[str, Value | float | None]
"""Numbers by column; those without a deviation or an interval may be plain."""


def minus(first: Values, second: Values) -> dict[str, float]:
    """Return the differences in the columns where both numbers are defined."""
    differences = {}
    for column, subtracted in second.items():
        number = first.get(column, Value(None)).mean
        if number is not None and subtracted.mean is not None:
            differences[column] = number - subtracted.mean
    return differences


@dataclass(frozen=True)
class Line:
    """A row of a table: its name, the source of its numbers, and the numbers.

    Published numbers are compared with the last line above them that is ours or a guess.
    """

    name: str
    kind: Kind
    numbers: Mapping[str, Value | float | None]

    @property
    def values(self) -> dict[str, Value]:
        """The numbers with their deviations or intervals, where they have any."""
        values = {}
        for column, number in self.numbers.items():
            values[column] = number if isinstance(number, Value) else Value(number)
        return values


@dataclass(frozen=True)
class Block:
    """The lines of a protocol and a score.

    Parameters
    ----------
    title
        The heading.
    protocol
        The protocol for drawing training and test clips; empty if nothing was trained.
    score
        The key of the metric, such as ``f1_weighted``.
    lines
        The rows. A line without numbers is left out.
    """

    title: str
    protocol: str
    score: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table, and the notes for its readers.

    Parameters
    ----------
    columns, blocks
        The content.
    notes
        Limits of the comparison, in the order in which they are printed.
    name, title
        The stem of the table's file names, and a description of the content. A target's `make`
        sets only the end of the name, and only for its second table.
    """

    columns: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    notes: Sequence[RunWarning] = ()
    name: str = ""
    title: str = ""

    @property
    def alarms(self) -> list[RunWarning]:
        """The notes that make the numbers meaningless."""
        return [note for note in self.notes if note.is_about_origin]

    @property
    def has_results(self) -> bool:
        """True if any line has our numbers."""
        return any(line.kind == "ours" for block in self.blocks for line in block.lines)


@dataclass(frozen=True)
class Artifacts:
    """The tables and figures that reproduce a table or figure of the paper.

    `facts` are the values that the target's notes in ``notes.txt`` name.
    """

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


def to_frame(table: Table) -> DataFrame:
    """Return the table as a frame with a row for each number; the index is the line's number.

    If there are alarms, our numbers are not compared with the paper's.
    """
    rows = []
    ours = {}
    lines = [(block, line) for block in table.blocks for line in block.lines]
    for number, (block, line) in enumerate(lines):
        name = line.name
        differences = {}
        if line.kind in ("ours", "guess"):
            ours = line.values
        if line.kind == "published" and not table.alarms:
            differences = minus(ours, line.values)
        if differences:
            name += ", and ours minus it"
        about = (table.name, block.title, block.protocol, block.score, name, line.kind)
        for column in table.columns:
            value = line.values.get(column, Value(None))
            if value.mean is not None:
                rows.append((number, *about, column, *value, differences.get(column)))
    # Counts stay whole numbers in a column of objects, and absent numbers stay None.
    return DataFrame(rows, columns=["line", *COLUMNS], dtype=object).set_index("line")


def to_csv(table: Table) -> str:
    """Format the table as CSV with a row for each number, without the notes."""
    frame = to_frame(table)
    frame[TEXTS] = frame[TEXTS].map(escape_formula)
    return frame.to_csv(index=False, lineterminator="\n")


def to_text(table: Table) -> str:
    """Format the table for a terminal."""
    texts = ["\n".join([f"{table.name}: {table.title}", *map(str, table.alarms)])]
    for title, cells in _cells(table).groupby(level="block", sort=False):
        columns: Any = cells.droplevel("block").reset_index(names="").to_dict("list")
        texts.append(f"{title}\n{align(columns, left=[''])}")
    if table.notes:
        texts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(texts) + "\n"


def _cells(table: Table) -> DataFrame:
    """Return the printed cells: a row for each block and line, with a dash for absent numbers."""
    frame = to_frame(table)
    indents = frame["kind"].isin(INDENTED).map({True: "  ", False: ""})
    frame["row"] = indents + frame["row"]
    frame["cell"] = [_cell(row) for row in frame.itertuples()]
    cells = frame.set_index(["block", "row", "column"], append=True)["cell"].unstack()
    cells = cells.reindex(columns=list(table.columns)).rename_axis(columns=None)
    return cells.fillna("-").droplevel("line")


def _cell(row: Any) -> str:
    if isinstance(row.mean, int):
        return f"{row.mean:,}"
    text = f"{row.mean:z.2f}"
    if row.kind == "difference":
        text = format_signed(row.mean)
    if row.std is not None:
        text += f" ({row.std:.2f})"
    if row.low is not None:
        text += f" [{row.low:z.2f}, {row.high:z.2f}]"
    if row.ours_minus_published is not None:
        text += f" {format_signed(row.ours_minus_published)}"
    return text
