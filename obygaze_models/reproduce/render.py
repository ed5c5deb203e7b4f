"""A reproduced table as data, and as text, CSV, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from obygaze_features.common.files import to_json
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import counted, format_signed
from obygaze_models.data.warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
"""How wide a table on a terminal may be."""
Kind = Literal["ours", "published", "guess", "difference", "count", "beside"]
"""Whose numbers a line has; ``beside`` are ours under another protocol than the line above has."""
_NOT_COMPARED = {
    "synthetic": "clips or features are made up",
    "unknown-origin": "nobody knows what made the features",
}
"""Why numbers are not compared with the paper's, by the code of the alarm."""
_COMPARED = ", and ours minus it"

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip
_CSV = (
    "table", "block", "protocol", "score", "row", "kind", "column", "mean", "std",
    "low", "high", "ours_minus_published",
)  # fmt: skip


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

    @classmethod
    def of(cls, name: str, kind: Kind, numbers: Mapping[str, float | None]) -> Line:
        """A line of plain numbers."""
        values = {column: None if n is None else Value(n) for column, n in numbers.items()}
        return cls(name, kind, values)


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
    def alarms(self) -> list[RunWarning]:
        """The notes that say that the numbers mean nothing."""
        return [note for note in self.notes if note.voids_scores]

    @property
    def has_results(self) -> bool:
        """Whether any line has numbers of ours."""
        return any(line.kind == "ours" for block in self.blocks for line in block.lines)


def published_lines(values: Mapping[str, Value | None], name: str = "published") -> list[Line]:
    """The paper's numbers as a line, with ours minus them; none where there are no numbers."""
    return [Line(f"{name}{_COMPARED}", "published", values)] if values else []


def without_vain_comparison(table: Table) -> Table:
    """The table; without differences from the paper's numbers where alarms void ours."""
    if not table.alarms:
        return table
    columns = [name for name in table.columns if name not in table.difference_columns]

    def alone(line: Line) -> Line:
        values = {name: line.values[name] for name in columns if name in line.values}
        values = {name: value and replace(value, difference=None) for name, value in values.items()}
        return Line(line.name.removesuffix(_COMPARED), line.kind, values)

    blocks = [replace(block, lines=list(map(alone, block.lines))) for block in table.blocks]
    return replace(table, columns=columns, blocks=blocks, difference_columns=())


@dataclass(frozen=True)
class Artifacts:
    """What a table or figure of the paper becomes: tables, and figures by name."""

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)


def to_text(table: Table) -> str:
    """The table for a terminal."""
    parts = ["\n".join([table.title, *map(str, table.alarms)])]
    if table.missing:
        parts.append("\n".join(f"MISSING: {item}" for item in table.missing))
    for block in table.blocks:
        rows = [["  " * _indented(line) + line.name, *_cells(table, line)] for line in block.lines]
        parts.append(f"{block.title}\n{align(['', *table.columns], rows, fit=False)}")
    if table.notes:
        parts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def to_screen(table: Table) -> str:
    """One table for a terminal: ours and the paper's numbers, in at most `WIDTH` columns.

    The file that `to_text` makes has all protocols, guesses, intervals and notes, too.
    """
    blocks = _shown_blocks(table)
    parts, starred = [table.title], False
    for block in blocks:
        has_guesses = any(line.kind == "guess" for line in block.lines)  # which counts belong to
        left_out = ("guess", "count") if has_guesses else ()
        rows = [
            ["  " * _indented(line) + line.name, *_cells(table, line, intervals=False)]
            for line in block.lines
            if line.kind not in left_out
        ]
        starred |= any("*" in cell for row in rows for cell in row[1:])
        columns = zip(("", *table.columns), zip(*rows, strict=True), strict=True)
        used = [(name, *cells) for name, cells in columns if not name or any(cells)]
        header, *cells = zip(*used, strict=True)
        parts.append(f"{block.title}\n{align(header, cells, width=WIDTH)}")
    if starred:
        parts.append("*: the 95% interval does not include 0")
    return "\n\n".join(parts) + "\n"


def _shown_blocks(table: Table) -> list[Block]:
    """The blocks that a terminal shows: of one protocol, without leaks and on the most clips.

    Each row is shown once, by one score. All blocks where nothing was trained; none where no line
    is ours.
    """
    blocks = [block for block in table.blocks if any(line.kind == "ours" for line in block.lines)]
    protocols = [block.protocol for block in blocks]
    if not any(protocols):
        return blocks
    chosen = "leak-free" if "leak-free" in protocols else protocols[0]
    blocks = [block for block in blocks if block.protocol == chosen]
    blocks = [block for block in blocks if _setting(block) == _setting(blocks[-1])]
    return [_merge_scores(blocks)] if len(blocks) > 1 else blocks


def _setting(block: Block) -> str:
    """The title without the score."""
    setting, _, score = block.title.rpartition(": ")
    return setting or score


def _merge_scores(blocks: Sequence[Block]) -> Block:
    """Each row once: with the score that the paper prints for it, else the first."""
    by_name: dict[str, tuple[Block, list[Line]]] = {}
    for block in blocks:
        for rows in _rows_of(block):
            has_paper = any(line.kind == "published" for line in rows)
            if has_paper or rows[0].name not in by_name:
                by_name[rows[0].name] = block, rows
    used = {id(block) for block, _ in by_name.values()}
    lines = []
    for block, (ours, *others) in by_name.values():
        score = f", {block.title.rpartition(': ')[2]}" if len(used) > 1 else ""
        lines += [replace(ours, name=ours.name + score), *others]
    first = next(block for block in blocks if id(block) in used)
    return replace(first, title=_setting(first) if len(used) > 1 else first.title, lines=lines)


def _rows_of(block: Block) -> list[list[Line]]:
    """Each line of ours with those that belong to it."""
    rows: list[list[Line]] = []
    for line in block.lines:
        if line.kind == "ours":
            rows.append([line])
        elif _indented(line) and rows:
            rows[-1].append(line)
    return rows


def summary(table: Table) -> str:
    """The shown part of the table in a line: how far our numbers are from the paper's."""
    blocks = _shown_blocks(table)
    if not blocks:
        return f"{table.title}: nothing to show"
    title, protocol = table.title.partition(":")[0], blocks[0].protocol
    title += f", {protocol}" if protocol and " and " not in protocol else ""
    lines = [line for block in blocks for line in block.lines]
    if table.alarms:
        reasons = dict.fromkeys(_NOT_COMPARED[note.code] for note in table.alarms)
        rows = counted(sum(line.kind == "ours" for line in lines), "row")
        return f"{title}: {rows}, not compared with the paper's: {' and '.join(reasons)}"
    subjects: dict[str, list[float]] = {}
    for line in lines:
        for column, value in line.values.items():
            number, subject = value.difference if value else None, "ours minus the paper's"
            if value and line.kind == "difference":
                number, subject = value.mean, line.name
            elif value and line.kind == "ours" and column in table.difference_columns:
                number = value.mean
            if number is not None:
                subjects.setdefault(subject, []).append(number)
    if not subjects:
        rows = counted(sum(line.kind == "ours" for line in lines), "row")
        return f"{title}: {rows}, none with a published number"
    parts = []
    for subject, values in subjects.items():
        middle, low, high = (format_signed(v) for v in (median(values), min(values), max(values)))
        numbers = counted(len(values), "number")
        parts.append(f"{subject} by {middle} (median of {numbers}, {low} to {high})")
    return f"{title}: {'; '.join(parts)}"


def to_csv(table: Table) -> str:
    """One row for each number, for spreadsheets and scripts; the notes are in the other forms."""
    rows = [
        (
            *(table.name, block.title, block.protocol, block.score, line.name, line.kind, column),
            *(value.mean, value.std, *(value.interval or (None, None)), value.difference),
        )
        for block in table.blocks
        for line in block.lines
        for column, value in line.values.items()
        if value is not None
    ]
    return format_rows((dict(zip(_CSV, row, strict=True)) for row in rows), _CSV, number=repr)


def to_latex(table: Table) -> str:
    """A tabular for the booktabs package, with the notes as comments above it."""
    # Each on one line: a line break would end the comment.
    lines = [
        f"% {' '.join(str(text).split())}" for text in (table.title, *table.missing, *table.notes)
    ]

    def add_row(*cells: str) -> None:
        lines.append(" & ".join(cell.translate(_LATEX) for cell in cells) + r" \\")

    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    add_row("", *table.columns)
    for block in table.blocks:
        title = block.title.translate(_LATEX)
        lines += [r"\midrule", rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{title}}} \\"]
        for line in block.lines:
            add_row(line.name, *_cells(table, line))
            lines[-1] = r"\quad " * _indented(line) + lines[-1]
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


FORMS: dict[str, Callable[[Table], str]] = {
    "txt": to_text,
    "csv": to_csv,
    "tex": to_latex,
    "json": lambda table: to_json(to_json_data(table)),
}
"""How a table is written, by the suffix of its file."""


def _indented(line: Line) -> bool:
    """Whether a line belongs to the one above it."""
    return line.kind in ("published", "difference", "beside")


def _cells(table: Table, line: Line, *, intervals: bool = True) -> list[str]:
    signed = {
        column: line.kind == "difference" or column in table.difference_columns
        for column in table.columns
    }
    return [
        _cell(line.values[column], signed[column], intervals) if column in line.values else ""
        for column in table.columns
    ]


def _cell(value: Value | None, signed: bool, interval: bool) -> str:
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
