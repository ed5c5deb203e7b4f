"""A reproduced table as data, and as text, CSV, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from obygaze_features.common.tables import align, escape_formula, format_table
from obygaze_features.common.text import counted, format_signed
from obygaze_models.warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Artifacts",
    "Block",
    "Kind",
    "Line",
    "Table",
    "Value",
    "summary",
    "to_csv",
    "to_json_data",
    "to_latex",
    "to_screen",
    "to_text",
]

WIDTH = 100
"""How wide a table on a terminal may be."""
Kind = Literal["ours", "published", "guess", "difference", "count"]
"""Whose numbers a line has."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A number with its deviation over fits or its interval.

    `difference` belongs to published numbers: how far ours is above it.
    """

    mean: float
    std: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Parameters
    ----------
    name
        The text in front of it.
    kind
        Whose numbers it has.
    values
        By column. A column is absent where there is no number, and None where it is not defined.
    """

    name: str
    kind: Kind
    values: Mapping[str, Value | None]


@dataclass(frozen=True)
class Block:
    """Lines of one protocol and one score.

    Parameters
    ----------
    title
        The text above them.
    protocol
        How training and test clips were drawn; empty for numbers that nothing was trained for.
    score
        The key of the metric, such as ``f1_weighted``.
    lines
        The rows.
    """

    title: str
    protocol: str
    score: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table, and what its reader must know.

    Parameters
    ----------
    name
        The stem of its file names.
    title, columns, blocks
        Its contents.
    notes
        What limits the comparison, in the order in which it is printed.
    missing
        What is not in the table, and what it needs.
    difference_columns
        Columns whose numbers are differences, and printed with their sign.
    """

    name: str
    title: str
    columns: Sequence[str]
    blocks: Sequence[Block]
    notes: Sequence[RunWarning] = ()
    missing: Sequence[str] = ()
    difference_columns: Sequence[str] = ()

    @property
    def synthetic(self) -> list[RunWarning]:
        """The notes that say that the numbers are no real results."""
        return [note for note in self.notes if note.code == "synthetic"]

    @property
    def has_results(self) -> bool:
        """Whether any line has numbers of ours."""
        return any(line.kind == "ours" for block in self.blocks for line in block.lines)


@dataclass(frozen=True)
class Artifacts:
    """What a table or figure of the paper becomes: tables, and figures by name."""

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)


def to_text(table: Table) -> str:
    """The table for a terminal."""
    parts = ["\n".join([table.title, *map(str, table.synthetic)])]
    if table.missing:
        parts.append("\n".join(f"MISSING: {item}" for item in table.missing))
    for block in table.blocks:
        rows = [["  " * _indented(line) + line.name, *_cells(table, line)] for line in block.lines]
        parts.append(f"{block.title}\n{align(['', *table.columns], rows)}")
    if table.notes:
        parts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def to_screen(table: Table) -> str:
    """The table for a terminal: ours and the paper's numbers, in at most `WIDTH` columns.

    The file that `to_text` makes has guesses, intervals and notes, too.
    """
    parts, starred = [table.title], False
    for block in table.blocks:
        has_guesses = any(line.kind == "guess" for line in block.lines)  # which counts belong to
        left_out = ("guess", "count") if has_guesses else ()
        lines = [line for line in block.lines if line.kind not in left_out]
        if not any(line.kind == "ours" for line in lines):
            continue
        rows = []
        for line in lines:
            cells = _cells(table, line, intervals=False)
            starred |= any("*" in cell for cell in cells)
            rows.append(["  " * _indented(line) + line.name, *cells])
        used = [at for at in range(len(table.columns)) if any(row[at + 1] for row in rows)]
        header = ["", *(table.columns[at] for at in used)]
        shown = [[row[0], *(row[at + 1] for at in used)] for row in rows]
        parts.append(f"{block.title}\n{align(header, shown, width=WIDTH)}")
    if starred:
        parts.append("*: the 95% interval does not include 0")
    return "\n\n".join(parts) + "\n"


def summary(table: Table) -> str:
    """The table in a line: how many rows are ours, and how far they are from the paper's."""
    lines = [line for block in table.blocks for line in block.lines]
    ours = sum(line.kind == "ours" for line in lines)
    if not ours:
        return f"{table.title}: nothing to show"
    differences = [
        value.mean if column in table.difference_columns else value.difference
        for line in lines
        if line.kind in ("ours", "published")
        for column, value in line.values.items()
        if value is not None
        and (column in table.difference_columns or value.difference is not None)
    ]
    known = [difference for difference in differences if difference is not None]
    if not known:
        return f"{table.title}: {counted(ours, 'row')}, none with a published number"
    low, middle, high = (format_signed(value) for value in (min(known), median(known), max(known)))
    numbers = counted(len(known), "number")
    return (
        f"{table.title}: {counted(ours, 'row')}; {numbers} to compare with the paper's, "
        f"differences (ours minus the paper's) from {low} to {high}, median {middle}"
    )


def to_csv(table: Table) -> str:
    """One row for each number, for spreadsheets and scripts; the notes are in the other forms."""
    header = (
        "table", "block", "protocol", "score", "row", "kind", "column", "mean", "std",
        "low", "high", "ours_minus_published",
    )  # fmt: skip
    rows = [
        [
            table.name, escape_formula(block.title), block.protocol, block.score,
            escape_formula(line.name), line.kind, escape_formula(column),
            *map(_csv_number, (value.mean, value.std, *(value.interval or (None, None)))),
            _csv_number(value.difference),
        ]
        for block, line, column, value in _numbers(table)
    ]  # fmt: skip
    return format_table({name: [row[at] for row in rows] for at, name in enumerate(header)})


def to_latex(table: Table) -> str:
    """A tabular for the booktabs package, with the notes as comments above it."""
    # Each on one line: a line break would end the comment.
    notes = [f"% {' '.join(str(note).split())}" for note in (*table.missing, *table.notes)]
    width = len(table.columns) + 1
    lines = [
        f"% {table.title}",
        *notes,
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["", *map(_escape, table.columns)]) + r" \\",
    ]
    for block in table.blocks:
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{{_escape(block.title)}}} \\"]
        for line in block.lines:
            name = r"\quad " * _indented(line) + _escape(line.name)
            cells = [_escape(cell) for cell in _cells(table, line)]
            lines.append(" & ".join([name, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def to_json_data(table: Table) -> dict[str, Any]:
    """The table as JSON values."""
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "blocks": [asdict(block) for block in table.blocks],
        "notes": [str(note) for note in table.notes],
        "missing": list(table.missing),
    }


def _numbers(table: Table) -> Iterator[tuple[Block, Line, str, Value]]:
    for block in table.blocks:
        for line in block.lines:
            for column, value in line.values.items():
                if value is not None:
                    yield block, line, column, value


def _indented(line: Line) -> bool:
    """Whether a line belongs to the one above it."""
    return line.kind in ("published", "difference")


def _cells(table: Table, line: Line, *, intervals: bool = True) -> list[str]:
    cells = []
    for column in table.columns:
        signed = line.kind == "difference" or column in table.difference_columns
        value = line.values.get(column)
        text = _cell(value, signed=signed, interval=intervals) if column in line.values else ""
        cells.append(text)
    return cells


def _cell(value: Value | None, *, signed: bool, interval: bool = True) -> str:
    if value is None:
        return "-"
    if isinstance(value.mean, int):
        return f"{value.mean:,}"
    text = format_signed(value.mean) if signed else f"{value.mean:z.2f}"
    if value.std is not None and (interval or value.difference is None):
        text += f" ({value.std:.2f})"
    if value.interval is not None and interval:
        text += f" [{value.interval[0]:z.2f}, {value.interval[1]:z.2f}]"
    elif value.interval is not None:
        text += "*" if value.interval[0] * value.interval[1] > 0 else " "
    if value.difference is not None:
        text += f" {format_signed(value.difference)}"
    return text


def _escape(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _csv_number(number: float | None) -> str:
    return "" if number is None else repr(number)
