"""Reproduced tables as data, and their formats: text, CSV, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from obygaze_features.common.files import to_json
from obygaze_features.common.printer import align
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import counted, format_signed, group_by
from obygaze_models.data.warnings import RunWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
"""The maximum width of a table on a terminal."""
Kind = Literal["ours", "published", "guess", "difference", "count", "beside"]
"""The source of a line's numbers. ``beside`` has our numbers from a second protocol."""
_NOT_COMPARED = {
    "synthetic": "clips or features are synthetic",
    "unknown-origin": "the origin of the features is unknown",
}
"""The reasons why numbers are not compared with the paper's numbers, by the alarm's code."""

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
    key
        Blocks with the same key have the same rows, with different scores.
    words
        The name of the score if there are several scores; else empty.
    """

    title: str
    protocol: str
    score: str
    lines: Sequence[Line]
    key: str = ""
    words: str = ""

    @property
    def heading(self) -> str:
        """The title, with the name of the score if there are several scores."""
        return f"{self.title}: {self.words}" if self.words else self.title

    @property
    def rows(self) -> list[list[Line]]:
        """A list for each line with our numbers: this line and the lines that belong to it."""
        rows: list[list[Line]] = []
        for line in self.lines:
            if line.kind == "ours":
                rows.append([line])
            elif line.is_indented and rows:
                rows[-1].append(line)
        return rows


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
        return any(block.rows for block in self.blocks)


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
        rows = _rows(table, block.lines)
        parts.append(f"{block.heading}\n{align(['', *table.columns], rows)}")
    if table.notes:
        parts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def to_screen(table: Table) -> str:
    """Format our numbers and the paper's for a terminal, in at most `WIDTH` columns.

    The text file by `to_text` has everything, including all protocols, guesses, intervals and
    notes.
    """
    parts, starred = [table.heading], False
    for block in _shown_blocks(table):
        lines = block.lines
        if any(line.kind == "guess" for line in lines):  # counts belong to the guesses
            lines = [line for line in lines if line.kind not in ("guess", "count")]
        rows = _rows(table, lines, intervals=False)
        starred |= any("*" in cell for row in rows for cell in row[1:])
        columns = zip(("", *table.columns), zip(*rows, strict=True), strict=True)
        used = [(name, *cells) for name, cells in columns if not name or any(cells)]
        header, *cells = zip(*used, strict=True)
        parts.append(f"{block.heading}\n{align(header, cells)}")
    if starred:
        parts.append("*: the 95% interval does not include 0")
    return "\n\n".join(parts) + "\n"


def _shown_blocks(table: Table) -> list[Block]:
    """Return the blocks to show on a terminal: the last blocks of a single protocol.

    The protocol is leak-free if possible. Blocks with the same rows but different scores are
    merged. If nothing was trained, return all blocks with our numbers.
    """
    blocks = [block for block in table.blocks if block.rows]
    protocols = [block.protocol for block in blocks]
    if not any(protocols):
        return blocks
    chosen = "leak-free" if "leak-free" in protocols else protocols[0]
    blocks = [block for block in blocks if block.protocol == chosen]
    blocks = [block for block in blocks if block.key == blocks[-1].key]
    return [_merge_scores(blocks)] if len(blocks) > 1 else blocks


def _merge_scores(blocks: Sequence[Block]) -> Block:
    """Keep one score per row: the score that the paper prints, or else the first score."""
    chosen: list[tuple[Block, list[Line]]] = []
    for scores_of_row in zip(*(block.rows for block in blocks), strict=True):
        by_score = list(zip(blocks, scores_of_row, strict=True))
        papers = [
            (block, lines)
            for block, lines in by_score
            if any(line.kind == "published" for line in lines)
        ]
        chosen.append((papers or by_score)[0])
    used = [block for block in blocks if any(block is first for first, _ in chosen)]
    if len(used) == 1:
        return replace(used[0], lines=[line for _, lines in chosen for line in lines])
    lines = []
    for block, (ours, *others) in chosen:
        lines += [replace(ours, name=f"{ours.name}, {block.words}"), *others]
    return replace(used[0], words="", lines=lines)


def summary(table: Table) -> str:
    """Summarise a table's differences, such as our numbers minus the paper's, in a line."""
    blocks = _shown_blocks(table)
    if not blocks:
        return f"{table.heading}: nothing to show"
    title, lines = table.title, [line for block in blocks for line in block.lines]
    # The title of a table with two protocols names both.
    if blocks[0].protocol and not any(line.kind == "beside" for line in lines):
        title += f", {blocks[0].protocol}"
    rows = counted(sum(line.kind == "ours" for line in lines), "row")
    if table.alarms:
        reasons = dict.fromkeys(_NOT_COMPARED[note.code] for note in table.alarms)
        return f"{title}: {rows}, not compared with the paper's: {' and '.join(reasons)}"
    parts = []
    for subject, pairs in group_by(_differences(lines), lambda pair: pair[0]).items():
        values = [value for _, value in pairs]
        middle, low, high = (format_signed(v) for v in (median(values), min(values), max(values)))
        numbers = counted(len(values), "number")
        parts.append(f"{subject} is {middle} (median of {numbers}, {low} to {high})")
    return f"{title}: {'; '.join(parts) or f'{rows}, none with a published number'}"


def _differences(lines: Iterable[Line]) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each difference, such as "ours minus the paper's"."""
    for line in lines:
        for value in filter(None, line.values.values()):
            if line.kind == "difference":
                yield line.name, value.mean
            elif value.difference is not None:
                yield "ours minus the paper's", value.difference


def to_csv(table: Table) -> str:
    """Format the table as CSV with a row for each number, without the notes."""
    rows = [
        (
            *(table.name, block.heading, block.protocol, block.score),
            *(line.title, line.kind, column),
            *(value.mean, value.std, *(value.interval or (None, None)), value.difference),
        )
        for block in table.blocks
        for line in block.lines
        for column in table.columns
        if (value := line.values.get(column)) is not None
    ]
    return format_rows((dict(zip(_CSV, row, strict=True)) for row in rows), _CSV, number=repr)


def to_latex(table: Table) -> str:
    """Format the table as a LaTeX tabular with booktabs. The notes are comments above it."""
    # Each text must be a single line, because a line break would end the comment.
    texts = (table.heading, *table.missing, *table.notes)
    lines = [f"% {' '.join(str(text).split())}" for text in texts]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule"]
    lines.append(_latex_row("", *table.columns))
    for block in table.blocks:
        title = block.heading.translate(_LATEX)
        lines += [r"\midrule", rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{title}}} \\"]
        for line in block.lines:
            indent = r"\quad " if line.is_indented else ""
            lines.append(indent + _latex_row(line.title, *_cells(table, line)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_row(*cells: str) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"


def to_json_data(table: Table) -> dict[str, Any]:
    """Return the table as JSON values."""
    blocks = [
        {
            "title": block.heading,
            "protocol": block.protocol,
            "score": block.score,
            "lines": [asdict(line) | {"name": line.title} for line in block.lines],
        }
        for block in table.blocks
    ]
    return {
        "name": table.name,
        "title": table.heading,
        "columns": list(table.columns),
        "blocks": blocks,
        "notes": list(map(str, table.notes)),
        "missing": list(map(str, table.missing)),
    }


FORMS: dict[str, Callable[[Table], str]] = {
    "txt": to_text,
    "csv": to_csv,
    "tex": to_latex,
    "json": lambda table: to_json(to_json_data(table)),
}
"""The function that formats a table, by the suffix of its file."""


def _rows(table: Table, lines: Iterable[Line], *, intervals: bool = True) -> list[list[str]]:
    """Return the names and cells of lines for a terminal."""
    rows = []
    for line in lines:
        name = f"  {line.title}" if line.is_indented else line.title
        rows.append([name, *_cells(table, line, intervals=intervals)])
    return rows


def _cells(table: Table, line: Line, *, intervals: bool = True) -> list[str]:
    signed = line.kind == "difference"
    return [
        _cell(line.values[column], signed, intervals) if column in line.values else ""
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
