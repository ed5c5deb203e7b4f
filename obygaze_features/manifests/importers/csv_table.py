"""Any CSV table of clips and labels: columns are known by their names, or by --column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import click

from obygaze_features.common.cli import levels_option, table_options
from obygaze_features.common.tables import Table, map_columns, read_table
from obygaze_features.common.text import join_some, shorten
from obygaze_features.errors import ManifestError
from obygaze_features.manifests import items, labels
from obygaze_features.manifests.importers.shared import (
    clock_seconds,
    decimal_point,
    finish,
    item_of_file,
    output_options,
    safe_id,
    source_argument,
    without_blank_rows,
)
from obygaze_features.manifests.items import ItemProblem, Items, id_problem, media_stem
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.locate import IMAGE_SUFFIXES, MEDIA_SUFFIXES
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.moviegraphs import id_from_file
from obygaze_features.manifests.scheme import Concept, LabelScheme, Level, obygaze_scheme

__all__ = ["import_csv", "read_labels"]

#: Meaning -> other names of its column.
MEANINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*items.COLUMNS, *labels.COLUMNS), ()),
    "media": ("video", "video_name", "file_name", "filename", "file", "file_path", "path", "image"),
    "level": ("label",),
}


def import_csv(
    source: Path,
    columns: Mapping[str, str] | None = None,
    *,
    delimiter: str | None = None,
    levels: Sequence[str] | None = None,
    name: str | None = None,
) -> Manifest:
    """Read any table into a manifest; columns without a meaning are kept as they are.

    Parameters
    ----------
    source
        The table. Rows without a level are items without a label. Without ids, or where ids are
        names of files, ids are made of the files' names.
    columns
        Meaning -> column, for meanings (id, film, media, level ...) that have another name.
    delimiter
        What separates the cells; by default what the header has. Several concepts in a
        cell are separated by ``|``.
    levels
        Levels of your own, from the least to the most objectifying, with the concepts as they
        come; by default those of ObyGaze12.
    name
        The manifest's name; by default the file's.
    """
    table = _with_items(_read(source, columns, delimiter))
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
    labelled_rows = _only(
        table, [k for k in labels.COLUMNS if k in table.columns], _labelled_rows(table)
    )
    return manifest.with_parts(labels=[_label_set("annotations", labelled_rows, scheme)])


def read_labels(
    source: Path,
    manifest: Manifest,
    columns: Mapping[str, str] | None = None,
    *,
    delimiter: str | None = None,
    levels: Sequence[str] | None = None,
    name: str | None = None,
) -> tuple[LabelSet, list[str]]:
    """Read labels of a manifest's items; also the names in the table that fit no item.

    Parameters
    ----------
    source
        The table. It names items by their ids, their files (with or without folders) or the
        files' names without extension. Rows without a level are left out.
    manifest
        Whose items they are.
    columns, delimiter
        As for `import_csv`.
    levels
        Levels of your own, as for `import_csv`; by default those of the manifest.
    name
        The label set's name; by default the file's.
    """
    table = _read(source, columns, delimiter, "level")
    by = "id" if "id" in table.columns else "media"
    table = _only(table, list(table.columns), _labelled_rows(table))
    row_of = _finder(manifest.items)
    ids, rows, strangers = [], [], []
    for row, (cell, film) in enumerate(
        zip(table[by], table.columns.get("film", [""] * len(table)), strict=True)
    ):
        matches = row_of(film, cell)
        if len(matches) > 1:
            meant = join_some([manifest.ids[match] for match in matches])
            raise table.problem(
                row, f"{cell!r} could be each of {meant}; give its folders, too, or its id"
            )
        if matches:
            rows.append(row)
            ids.append(manifest.ids[matches[0]])
        else:
            strangers.append(cell)
    if not ids:
        files = [name for name in manifest.items.media if name]
        raise ManifestError(
            f"{source}: no row names an item of {manifest.name} (looked for "
            f"{join_some(strangers, 2)}; it has ids such as {join_some(manifest.ids, 2)}"
            + (f" and files such as {join_some(files, 2)})" if files else ")")
            + "; say which column names them with --column id=NAME"
        )
    keep = [k for k in table.columns if k not in items.COLUMNS]
    labelled_rows = _only(table, keep, rows)
    labelled_rows = replace(labelled_rows, columns={"id": ids, **labelled_rows.columns})
    scheme = _scheme_of(table, levels) if levels else manifest.scheme
    about = {"label_scheme": scheme.to_json()} if levels else {}
    return _label_set(name or safe_id(source.stem), labelled_rows, scheme, about), strangers


def _read(
    source: Path, columns: Mapping[str, str] | None, delimiter: str | None, *required: str
) -> Table:
    """A table with the `required` columns, and ids or names of files."""
    source_table = without_blank_rows(read_table(source, delimiter=delimiter))
    table = map_columns(source_table, MEANINGS, columns)
    by = "media" if "media" in table.columns else "id"
    return map_columns(source_table, MEANINGS, columns, required=[*required, by])


def _with_items(table: Table) -> Table:
    """The table with safe ids, names of files and times in seconds; ids may be names of files."""
    source = table.columns
    empty = [""] * len(table)
    cells = zip(
        *(source.get(name, empty) for name in ("id", "film", "media", "start")), strict=True
    )
    number: Counter[str] = Counter()
    triples: list[tuple[str, str, str]] = []
    for identifier, film, media, start in cells:
        identifier, media = _relative(identifier), _relative(media)
        file = "/" in identifier or _suffix(identifier) in MEDIA_SUFFIXES
        if file or not identifier:
            item = item_of_file(media or identifier, film)
            named = id_from_file(PurePosixPath(identifier or media).name)
            safe = named[0] if named else item_of_file(identifier or media, film).id
            film, media = item.film or (named[1] if named else ""), item.media
            number[safe] += 1
            safe = f"{safe}-{number[safe]:03d}" if start else safe  # spans of one file
        else:
            safe = safe_id(identifier) if id_problem(identifier) else identifier
            media = media or (identifier if safe != identifier else "")
            if "/" in media:
                item = item_of_file(media, film)
                film, media = item.film, item.media
        triples.append((safe, film, media))
    ids, films, files = map(list, zip(*triples, strict=True)) if triples else ([], [], [])
    columns = {"id": ids, "film": films, "media": files}
    suffixes = set(map(_suffix, files))
    if "kind" not in source and suffixes and suffixes <= IMAGE_SUFFIXES:
        columns["kind"] = ["image"] * len(table)
    for name in {"start", "end"} & source.keys():
        columns[name] = [_seconds(table, row, cell) for row, cell in enumerate(source[name])]
    return replace(table, columns={**source, **columns})


def _suffix(name: str) -> str:
    return "".join(name.rpartition(".")[1:]).lower()


def _relative(path: str) -> str:
    """A path with slashes; only the name of one that starts at the root of some machine."""
    path = path.strip().replace("\\", "/").removeprefix("./")
    return path.rpartition("/")[2] if path.startswith("/") or path[1:3] == ":/" else path


def _seconds(table: Table, row: int, cell: str) -> str:
    text = decimal_point(cell, table.delimiter)
    seconds = clock_seconds(text)
    if seconds is None and ":" in text:
        raise table.problem(row, f"{shorten(cell)} is not a time; write seconds or h:mm:ss")
    return text if seconds is None else f"{seconds:.6f}"


def _finder(all_items: Items) -> Callable[[str, str], list[int]]:
    """Look up items by what a table says of their film and their id or file."""
    row_of_id = {identifier.casefold(): row for row, identifier in enumerate(all_items.ids)}
    rows_of_stem: dict[str, list[tuple[int, list[str]]]] = {}
    for row, (film, media) in enumerate(zip(all_items.films, all_items.media, strict=True)):
        if media:
            folders, stem = _parts(f"{film}/{media}")
            rows_of_stem.setdefault(stem, []).append((row, folders))

    def find(film: str, cell: str) -> list[int]:
        if (row := row_of_id.get(cell.casefold())) is not None:
            return [row]
        folders, stem = _parts(f"{film}/{cell.strip()}")
        rows = []
        for row, others in rows_of_stem.get(stem, []):
            shared = min(len(folders), len(others))
            if folders[len(folders) - shared :] == others[len(others) - shared :]:
                rows.append(row)
        row = row_of_id.get(safe_id(stem).casefold())
        return rows or ([] if row is None else [row])

    return find


def _parts(path: str) -> tuple[list[str], str]:
    """The folders and the stem of a file, in lower case."""
    *folders, name = path.casefold().replace("\\", "/").split("/")
    stem, dot, suffix = name.rpartition(".")
    name = stem if dot + suffix in MEDIA_SUFFIXES else name
    return [folder for folder in folders if folder], name


def _labelled_rows(table: Table) -> list[int]:
    return [row for row, level in enumerate(table["level"]) if level]


def _label_set(
    name: str, table: Table, scheme: LabelScheme, about: Mapping[str, object] | None = None
) -> LabelSet:
    for level in dict.fromkeys(table["level"]):
        try:
            scheme.level(level)
        except ManifestError as error:
            levels = join_some(sorted(set(table["level"])), 8)
            hint = (
                "levels of your own, from the least to the most: --levels LOW,...,HIGH; "
                f"the table has {levels}"
            )
            raise table.problem(table["level"].index(level), f"{error} ({hint})") from None
    rule = f"as in {table.path.name}"
    return LabelSet.from_table(name, table, scheme, {"rule": rule, **(about or {})})


def _only(table: Table, names: Sequence[str], rows: Sequence[int] | None = None) -> Table:
    """Some columns of a table, and some of its rows, which still know their lines."""
    rows_of_file = table.kept
    columns = {name: table[name] for name in names}
    if rows is not None and len(rows) < len(table):
        columns = {name: [cells[row] for row in rows] for name, cells in columns.items()}
        rows_of_file = [row if rows_of_file is None else rows_of_file[row] for row in rows]
    return replace(table, columns=columns, kept=rows_of_file)


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
@table_options(", ".join(MEANINGS), "id=clip")
@levels_option
@click.option("--name", help="The manifest's name; by default the file's.")
def command(
    source: Path,
    output: Path,
    overwrite: bool,
    columns: dict[str, str],
    delimiter: str | None,
    levels: list[str] | None,
    name: str | None,
) -> None:
    """Any CSV table, with a column mapping.

    Columns called id, film, media (or video, file_name, path ...), start, end, level (or label)
    and concepts are understood; name others with --column. Without ids, or where ids are names of
    files, ids are made of the files' names. Times are seconds or h:mm:ss. Several concepts in a
    cell are separated by a bar: Body|Look. A row without a level is a clip without a label.

    \b
    Examples:
      obygaze manifests import csv annotations.csv -o manifests/mine
      obygaze manifests import csv clips.csv -o manifests/mine \\
        --column id=clip --column media=video --column level=tension --levels calm,tense
    """
    manifest = import_csv(source, columns, delimiter=delimiter, levels=levels, name=name)
    extra = ", ".join(manifest.items.extra)
    notes = [f"columns kept as they are: {extra}"] if extra else []
    named = [item for item in manifest if item.media and media_stem(item.media) != item.id]
    if named:
        notes.append(f"ids: {named[0].media} is {named[0].id}")
    finish(manifest, output, overwrite=overwrite, notes=notes)
