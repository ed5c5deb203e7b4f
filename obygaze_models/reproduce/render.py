"""Reproduced tables as data, and their formats: text, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pandas import DataFrame

from obygaze_features.common.printer import align
from obygaze_features.common.tables import escape_formula
from obygaze_features.common.text import format_signed
from obygaze_models.data.warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["ours", "published", "guess", "difference", "count", "beside"]
"""The source of a line's numbers. ``beside`` has our numbers from a second protocol."""

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip
_COLUMNS = [
    "table", "block", "protocol", "score", "row", "kind", "column", "mean", "std",
    "low", "high", "ours_minus_published",
]  # fmt: skip


@dataclass(frozen=True)
class Value:
    """A number with its standard deviation over fits, or with its interval.

    `difference`, for published numbers only, is our number minus the published number.
    """

    mean: float
    std: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, mean: float | None, std: float | None = None) -> Value | None:
        """Return a number as a value, or None if it is undefined."""
        return None if mean is None else cls(mean, std)


Values = Mapping[str, Value | None]
"""Numbers by column. Empty cells are absent; an undefined number is None."""


@dataclass(frozen=True)
class Line:
    """A row of a table: its name, the source of its numbers, and the numbers."""

    name: str
    kind: Kind
    values: Values

    @classmethod
    def of(cls, name: str, kind: Kind, numbers: Mapping[str, float | None]) -> Line:
        """Make a line from numbers without deviations or intervals."""
        return cls(name, kind, {column: Value.of(n) for column, n in numbers.items()})

    def beside(self, paper: Values, name: str = "published") -> list[Line]:
        """Return the line, followed by a line with the paper's numbers if there are any."""
        values: dict[str, Value | None] = {}
        for column, value in self.values.items():
            if published := paper.get(column):
                difference = value.mean - published.mean if value else None
                values[column] = replace(published, difference=difference)
        return [self, Line(name, "published", values)] if values else [self]

    @property
    def title(self) -> str:
        """The name, with a note if our numbers are compared with the published numbers."""
        differences = [value.difference for value in self.values.values() if value]
        compared = any(difference is not None for difference in differences)
        return f"{self.name}, and ours minus it" if compared else self.name

    @property
    def is_indented(self) -> bool:
        """True if the line belongs to the line above with our numbers."""
        return self.kind in ("published", "difference", "beside")


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
        The rows.
    """

    title: str
    protocol: str
    score: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Missing:
    """A part that a table lacks, and what the part needs."""

    part: str
    need: str

    def __str__(self) -> str:
        return f"{self.part}: {self.need}"


@dataclass(frozen=True)
class Table:
    """A table, and the notes for its readers.

    Parameters
    ----------
    columns, blocks
        The content.
    notes
        Limits of the comparison, in the order in which they are printed.
    missing
        The parts that are not in the table.
    name, title, about
        The stem of the table's file names, the title in the paper, such as "Table 2", and a
        description of the content.
    """

    columns: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    notes: Sequence[RunWarning] = ()
    missing: Sequence[Missing] = ()
    name: str = ""
    title: str = ""
    about: str = ""

    @property
    def heading(self) -> str:
        """The title, with the description of the content."""
        return f"{self.title}: {self.about}" if self.about else self.title

    @property
    def alarms(self) -> list[RunWarning]:
        """The notes that make the numbers meaningless."""
        return [note for note in self.notes if note.voids_scores]

    @property
    def has_results(self) -> bool:
        """True if any line has our numbers."""
        return any(line.kind == "ours" for block in self.blocks for line in block.lines)


def without_vain_comparison(table: Table) -> Table:
    """Remove the differences from the paper if alarms make our numbers meaningless."""
    if not table.alarms:
        return table

    def alone(line: Line) -> Line:
        values = {name: v and replace(v, difference=None) for name, v in line.values.items()}
        return replace(line, values=values)

    blocks = [replace(block, lines=list(map(alone, block.lines))) for block in table.blocks]
    return replace(table, blocks=blocks)


@dataclass(frozen=True)
class Artifacts:
    """The tables and figures that reproduce a table or figure of the paper."""

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)


def to_text(table: Table) -> str:
    """Format the table for a terminal."""
    parts = ["\n".join([table.heading, *map(str, table.alarms)])]
    if table.missing:
        parts.append("\n".join(f"MISSING: {item}" for item in table.missing))
    for block in table.blocks:
        rows = []
        for line in block.lines:
            name = f"  {line.title}" if line.is_indented else line.title
            rows.append([name, *_cells(table, line)])
        parts.append(f"{block.title}\n{align(['', *table.columns], rows)}")
    if table.notes:
        parts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def leak_free_part(table: Table) -> Table:
    """Return the leak-free blocks, or all if there are none, with no notes but the alarms."""
    blocks = [block for block in table.blocks if block.protocol == "leak-free"]
    return replace(table, blocks=blocks or table.blocks, notes=table.alarms, missing=())


def to_frame(table: Table) -> DataFrame:
    """Return the table as a frame with a row for each number, without the notes."""
    rows = []
    for block in table.blocks:
        for line in block.lines:
            for column in table.columns:
                value = line.values.get(column)
                if value is None:
                    continue
                low, high = value.interval or (None, None)
                rows.append({
                    "table": table.name,
                    "block": block.title,
                    "protocol": block.protocol,
                    "score": block.score,
                    "row": line.title,
                    "kind": line.kind,
                    "column": column,
                    "mean": value.mean,
                    "std": value.std,
                    "low": low,
                    "high": high,
                    "ours_minus_published": value.difference,
                })  # fmt: skip
    # Counts stay whole numbers in a column of objects, and absent numbers stay None.
    return DataFrame(rows, columns=_COLUMNS, dtype=object)


def to_csv(table: Table) -> str:
    """Format the table as CSV with a row for each number, without the notes."""
    frame = to_frame(table)
    texts = frame[_COLUMNS[:7]].map(escape_formula)
    return frame.assign(**texts).to_csv(index=False, lineterminator="\n")


def to_latex(table: Table) -> str:
    """Format the table as a LaTeX tabular with booktabs. The notes are comments above it."""
    # Each text must be a single line, because a line break would end the comment.
    texts = (table.heading, *table.missing, *table.notes)
    lines = [f"% {' '.join(str(text).split())}" for text in texts]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    lines.append(_latex_row("", *table.columns))
    for block in table.blocks:
        title = block.title.translate(_LATEX)
        lines += [r"\midrule", rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{title}}} \\"]
        for line in block.lines:
            indent = r"\quad " if line.is_indented else ""
            lines.append(indent + _latex_row(line.title, *_cells(table, line)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_row(*cells: str) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"


FORMS: dict[str, Callable[[Table], str]] = {"txt": to_text, "csv": to_csv, "tex": to_latex}
"""The function that formats a table, by the suffix of its file."""


def _cells(table: Table, line: Line) -> list[str]:
    cells = []
    for column in table.columns:
        cells.append(_cell(line, column) if column in line.values else "")
    return cells


def _cell(line: Line, column: str) -> str:
    value = line.values[column]
    if value is None:
        return "-"
    if isinstance(value.mean, int):
        return f"{value.mean:,}"
    text = format_signed(value.mean) if line.kind == "difference" else f"{value.mean:z.2f}"
    if value.std is not None:
        text += f" ({value.std:.2f})"
    if value.interval is not None:
        text += " [{:z.2f}, {:z.2f}]".format(*value.interval)
    if value.difference is not None:
        text += f" {format_signed(value.difference)}"
    return text
