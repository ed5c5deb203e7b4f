"""A reproduced table as data: blocks of lines, ours and the published ones beneath them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Block", "Kind", "Line", "Made", "Table", "Value"]

Kind = Literal["ours", "published", "guess", "difference", "count"]


@dataclass(frozen=True)
class Value:
    """A number, its deviation over runs or its interval, and how far ours lies above it.

    The last is of published numbers.
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
        What stands before it.
    kind
        Whose numbers these are.
    values
        By column; None where a number is not defined, nothing where there is none.
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
        What stands above them.
    protocol
        How train and test were drawn; empty where nothing was.
    score
        What the numbers are, such as ``f1_weighted``.
    lines
        The rows.
    """

    title: str
    protocol: str
    score: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Table:
    """A table, and what its reader has to know.

    Parameters
    ----------
    name
        Of its files.
    title, columns, blocks
        What it says.
    notes
        Caveats that follow from the data.
    missing
        What is not in it, and what it would take.
    """

    name: str
    title: str
    columns: Sequence[str]
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Made:
    """What a table or figure of the paper became: tables, and figures by name."""

    tables: Sequence[Table]
    figures: Mapping[str, Figure] = field(default_factory=dict)
