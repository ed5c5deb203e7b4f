"""Any CSV table: say which of its columns mean what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import items, labels
from obygaze_features.manifests.importers.shared import finish, output_options, source_argument
from obygaze_features.manifests.items import ItemProblem, Items
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import LabelScheme, Level, obygaze_scheme

__all__ = ["import_csv"]

MEANINGS = tuple(dict.fromkeys((*items.COLUMNS, *labels.COLUMNS)))


def import_csv(
    source: Path,
    columns: Mapping[str, str] | None = None,
    *,
    delimiter: str = ",",
    own_levels: bool = False,
    name: str | None = None,
) -> Manifest:
    """Read any table into a manifest; columns that nobody maps are kept as they are.

    Parameters
    ----------
    source
        The table.
    columns
        Meaning -> column, for meanings (id, film, media, level ...) that go by another name.
    delimiter
        What stands between the cells; several concepts in a cell are separated by ``|``.
    own_levels
        Take the levels and concepts as they come, rather than those of ObyGaze12.
    name
        The manifest's name; by default the file's.
    """
    table = _renamed(read_table(source, delimiter=delimiter), columns or {})
    in_labels = set(labels.COLUMNS) - {"id"}
    try:
        read = Items.from_table(
            Table(
                table.path,
                delimiter,
                {k: v for k, v in table.columns.items() if k not in in_labels},
            )
        )
    except ItemProblem as problem:
        raise table.problem(problem.row, problem.message) from None
    manifest = Manifest(name or source.stem, read, source=source.name)
    if "level" not in table.columns:
        return manifest
    scheme = _scheme_of(table) if own_levels else obygaze_scheme()
    wanted = {k: v for k, v in table.columns.items() if k in labels.COLUMNS}
    about = {"rule": f"as in {source.name}"}
    label_set = LabelSet.from_table(
        "annotations", Table(table.path, delimiter, wanted), scheme, about
    )
    return Manifest(manifest.name, read, scheme, source=source.name).with_parts(labels=[label_set])


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
    if len(renamed) != len(table.columns):
        raise UsageError("two columns would get the same meaning; check --column")
    if "id" not in renamed:
        raise ManifestError(
            f"{table.path}, line 1: no column 'id'; say which one is with --column id=NAME "
            f"(there are {', '.join(table.columns)})"
        )
    return Table(table.path, table.delimiter, renamed)


def _scheme_of(table: Table) -> LabelScheme:
    from obygaze_features.manifests.scheme import Concept

    levels = dict.fromkeys(table["level"])
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
@click.option("--delimiter", default=",", show_default=True, help="What stands between the cells.")
@click.option("--own-levels", is_flag=True, help="Take levels and concepts as they come.")
@click.option("--name", help="The manifest's name; by default the file's.")
def command(
    source: Path,
    output: Path,
    overwrite: bool,
    columns: tuple[str, ...],
    delimiter: str,
    own_levels: bool,
    name: str | None,
) -> None:
    """Any CSV table, with a column mapping.

    Columns called id, film, media, start, end, level and concepts are understood; name others
    with --column. Several concepts in a cell are separated by a bar: Body|Look.

    \b
    Examples:
      obygaze manifests import csv annotations.csv -o manifests/mine
      obygaze manifests import csv clips.csv --delimiter ';' \\
        --column id=clip --column media=video --column level=label -o manifests/mine
    """
    pairs = [pair.partition("=") for pair in columns]
    if any(not column for _, _, column in pairs):
        raise UsageError("--column takes MEANING=COLUMN, for instance --column id=clip")
    mapping = {meaning: column for meaning, _, column in pairs}
    delimiter = "\t" if delimiter == "\\t" else delimiter
    if len(delimiter) != 1:
        raise UsageError(f"--delimiter takes one character, not {delimiter!r}")
    manifest = import_csv(source, mapping, delimiter=delimiter, own_levels=own_levels, name=name)
    finish(manifest, output, overwrite=overwrite)
