"""Reproduced tables as text, CSV, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from obygaze_features.common.tables import align, escape_formula, format_table
from obygaze_models.reproduce.tables import Block, Kind, Line, Table, Value

__all__ = ["as_csv", "as_json", "as_latex", "as_text"]

LESS = "ours less it"
"""What columns of differences begin with."""
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def as_text(table: Table) -> str:
    """For a terminal."""
    alarms = [note for note in table.notes if note.startswith("Not a real result")]
    parts = ["\n".join([table.title, *alarms])]
    if table.missing:
        parts.append("\n".join(f"MISSING: {one}" for one in table.missing))
    for block in table.blocks:
        rows = [
            [("  " * (line.kind in ("published", "difference"))) + line.name, *_cells(table, line)]
            for line in block.lines
        ]
        parts.append(f"{block.title}\n{align(['', *table.columns], rows)}")
    if table.notes:
        parts.append("Before you compare\n" + "\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """A row a number, for spreadsheets and scripts; the notes are in the other forms."""
    columns: dict[str, list[str]] = {
        name: []
        for name in (
            "table", "block", "protocol", "score", "row", "kind", "column", "mean", "std",
            "low", "high", "ours_minus_published",
        )
    }  # fmt: skip
    for block, line, column, value in _numbers(table):
        row = [
            table.name, escape_formula(block.title), block.protocol, block.score,
            escape_formula(line.name),
            line.kind, escape_formula(column),
            *map(_repr, (value.mean, value.std, *(value.interval or (None, None)))),
            _repr(value.difference),
        ]  # fmt: skip
        for cells, cell in zip(columns.values(), row, strict=True):
            cells.append(cell)
    return format_table({**columns})


def as_latex(table: Table) -> str:
    """A tabular for the package booktabs, with the caveats as comments above it."""
    # One line each: what comes after a line's end would no longer be a comment.
    notes = [f"% {' '.join(note.split())}" for note in (*table.missing, *table.notes)]
    wide = len(table.columns) + 1
    lines = [
        f"% {table.title}",
        *notes,
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["", *map(_escaped, table.columns)]) + r" \\",
    ]
    for block in table.blocks:
        lines += [r"\midrule", rf"\multicolumn{{{wide}}}{{l}}{{{_escaped(block.title)}}} \\"]
        for line in block.lines:
            indent = r"\quad " if line.kind in ("published", "difference") else ""
            cells = [_escaped(cell) for cell in _cells(table, line)]
            lines.append(" & ".join([indent + _escaped(line.name), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def as_json(table: Table) -> dict[str, Any]:
    """All of it."""
    return asdict(table)


def _numbers(table: Table) -> Iterator[tuple[Block, Line, str, Value]]:
    for block in table.blocks:
        for line in block.lines:
            for column, value in line.values.items():
                if value is not None:
                    yield block, line, column, value


def _cells(table: Table, line: Line) -> list[str]:
    return [
        _cell(line.values[column], "difference" if column.startswith(LESS) else line.kind)
        if column in line.values
        else ""
        for column in table.columns
    ]


def _cell(value: Value | None, kind: Kind) -> str:
    if value is None:
        return "-"
    if isinstance(value.mean, int):
        return f"{value.mean:,}"
    sign = "+" if kind == "difference" else ""
    text = f"{value.mean:{sign}.2f}"
    if value.std is not None:
        text += f" ({value.std:.2f})"
    if value.interval is not None:
        text += f" [{value.interval[0]:.2f}, {value.interval[1]:.2f}]"
    if value.difference is not None:
        text += f" {value.difference:+.2f}"
    return text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _repr(number: float | None) -> str:
    return "" if number is None else repr(number)
