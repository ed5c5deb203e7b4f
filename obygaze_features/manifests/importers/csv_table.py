"""Any CSV table: say which of its columns mean what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import items, labels
from obygaze_features.manifests.importers.shared import (
    delimiter_of,
    finish,
    one_character,
    output_options,
    parse_columns,
    source_argument,
    without_blank_rows,
)
from obygaze_features.manifests.items import ItemProblem, Items
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import Concept, LabelScheme, Level, obygaze_scheme

__all__ = ["import_csv"]

MEANINGS = tuple(dict.fromkeys((*items.COLUMNS, *labels.COLUMNS)))


def import_csv(
    source: Path,
    columns: Mapping[str, str] | None = None,
    *,
    delimiter: str | None = None,
    levels: Sequence[str] | None = None,
    name: str | None = None,
) -> Manifest:
    """Read any table into a manifest; columns that nobody maps are kept as they are.

    Parameters
    ----------
    source
        The table. Rows without a level are items without a label.
    columns
        Meaning -> column, for meanings (id, film, media, level ...) that go by another name.
    delimiter
        What stands between the cells; by default what the header has. Several concepts in a
        cell are separated by ``|``.
    levels
        Levels of your own, from the least to the most objectifying, with the concepts as they
        come; by default those of ObyGaze12.
    name
        The manifest's name; by default the file's.
    """
    delimiter = delimiter or delimiter_of(source)
    table = _renamed(without_blank_rows(read_table(source, delimiter=delimiter)), columns or {})
    labelled = "level" in table.columns
    left_out = set(labels.COLUMNS) - {"id"} if labelled else set()
    try:
        read = Items.from_table(_only(table, [k for k in table.columns if k not in left_out]))
    except ItemProblem as problem:
        raise table.problem(problem.row, problem.message) from None
    scheme = _scheme_of(table, levels) if levels else obygaze_scheme()
    manifest = Manifest(name or source.stem, read, scheme, source=source.name)
    if not labelled:
        return manifest
    rows = [row for row, level in enumerate(table["level"]) if level]
    wanted = _only(table, [k for k in labels.COLUMNS if k in table.columns], rows)
    about = {"rule": f"as in {source.name}"}
    try:
        label_set = LabelSet.from_table("annotations", wanted, scheme, about)
    except ManifestError as error:
        hint = "" if levels else " (levels of your own: --levels low,middle,high)"
        raise ManifestError(f"{error}{hint}") from None
    return manifest.with_parts(labels=[label_set])


def _only(table: Table, names: Sequence[str], rows: Sequence[int] | None = None) -> Table:
    """Some columns of a table, and some of its rows, which know their lines still."""
    kept = table.kept
    columns = {name: table[name] for name in names}
    if rows is not None and len(rows) < len(table):
        columns = {name: [cells[row] for row in rows] for name, cells in columns.items()}
        kept = [row if kept is None else kept[row] for row in rows]
    return Table(table.path, table.delimiter, columns, kept)


def _renamed(table: Table, columns: Mapping[str, str]) -> Table:
    for meaning, column in columns.items():
        if meaning not in MEANINGS:
            raise UsageError(f"no meaning {meaning!r}; known: {', '.join(MEANINGS)}")
        if column not in table.columns:
            raise ManifestError(
                f"{table.path}, line 1: no column {column!r}; there are {', '.join(table.columns)}"
            )
    new_names = {column: meaning for meaning, column in columns.items()}
    renamed = {new_names.get(name, name): cells for name, cells in table.columns.items()}
    if len(new_names) < len(columns) or len(renamed) < len(table.columns):
        raise UsageError("a column and a meaning can each be named once; check --column")
    if "id" not in renamed:
        near = [name for name in table.columns if name.lower() == "id"]
        example = near[0] if near else "NAME"
        raise ManifestError(
            f"{table.path}, line 1: no column 'id'; say which one is with --column id={example} "
            f"(there are {', '.join(table.columns)})"
        )
    return Table(table.path, table.delimiter, renamed, table.kept)


def _scheme_of(table: Table, levels: Sequence[str]) -> LabelScheme:
    cells = dict.fromkeys(table.columns.get("concepts", []))
    concepts = dict.fromkeys(name for cell in cells for name in labels.split_concepts(cell))
    return LabelScheme(
        table.path.stem,
        tuple(Level(text, text) for text in levels),
        tuple(Concept(text) for text in concepts),
    )


@click.command("csv")
@source_argument
@output_options("csv")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="MEANING=COLUMN",
    help=f"Which column means what: {', '.join(MEANINGS)}.",
)
@click.option("--delimiter", help="What stands between the cells; by default what the header has.")
@click.option(
    "--levels",
    metavar="LOW,...,HIGH",
    help="Levels of your own, from the least to the most; by default ObyGaze12's.",
)
@click.option("--name", help="The manifest's name; by default the file's.")
def command(
    source: Path,
    output: Path,
    overwrite: bool,
    columns: tuple[str, ...],
    delimiter: str | None,
    levels: str | None,
    name: str | None,
) -> None:
    """Any CSV table, with a column mapping.

    Columns called id, film, media, start, end, level and concepts are understood; name others
    with --column. Several concepts in a cell are separated by a bar: Body|Look. A row without a
    level is a clip without a label.

    \b
    Examples:
      obygaze manifests import csv annotations.csv -o manifests/mine
      obygaze manifests import csv clips.csv -o manifests/mine \\
        --column id=clip --column media=video --column level=tension --levels calm,tense
    """
    manifest = import_csv(
        source,
        parse_columns(columns, "id=clip"),
        delimiter=one_character(delimiter),
        levels=None if levels is None else [level.strip() for level in levels.split(",")],
        name=name,
    )
    extra = ", ".join(manifest.items.extra)
    notes = [f"columns kept as they are: {extra}"] if extra else []
    finish(manifest, output, overwrite=overwrite, notes=notes)
