"""Import any CSV table of clips and labels; columns are recognised by name, or set by --column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from obygaze_features.common.formatting import join_some
from obygaze_features.common.tables import Table, map_cells, read_mapped_table
from obygaze_features.errors import ManifestError
from obygaze_features.items import items
from obygaze_features.items.items import (
    Items,
    format_seconds,
    id_problem,
    media_stem,
    name_film,
    safe_id,
)
from obygaze_features.items.media import (
    IMAGE_SUFFIXES,
    MEDIA_SUFFIXES,
    id_of_name,
    is_file_name,
    item_of_file,
    relative_path,
)
from obygaze_features.manifests import labels
from obygaze_features.manifests.importers.reading import parse_time, span_id
from obygaze_features.manifests.labels import (
    OWN_LEVELS,
    Concept,
    LabelScheme,
    LabelSet,
    OwnLevels,
    choose_scheme,
    map_column,
    obygaze_scheme,
)
from obygaze_features.manifests.manifest import Manifest

#: The alternative column names for each meaning.
MEANINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*items.COLUMNS, *labels.COLUMNS), ()),
    "media": ("video", "video_name", "file_name", "filename", "file", "file_path", "path", "image"),
    "level": ("label",),
}


def import_manifest(
    source: Path | Table,
    columns: Mapping[str, str] | None,
    levels: OwnLevels,
    annotator: str | None,
) -> Manifest:
    """Read any CSV table of clips, with or without labels."""
    table = _with_items(_read(source, columns))
    label_columns: set[str] = set()
    if "level" in table.columns:
        label_columns = set(labels.COLUMNS) - {"id"}
    all_items = Items.from_table(table.select(c for c in table.columns if c not in label_columns))
    scheme = _choose_scheme(table, levels) or obygaze_scheme()
    notes = []
    if all_items.extra:
        notes.append(f"columns kept unchanged: {', '.join(all_items.extra)}")
    manifest = Manifest(table.path.stem, all_items, scheme, source=table.path.name, notes=notes)
    if not label_columns:
        return manifest

    label_table = _labelled(table.select(c for c in labels.COLUMNS if c in table.columns))
    label_set = _label_set(label_table, scheme, "annotations", annotator)
    return manifest.with_parts(label_set)


def read_labels(
    source: Path,
    manifest: Manifest,
    columns: Mapping[str, str] | None = None,
    *,
    levels: OwnLevels = None,
    name: str | None = None,
    annotator: str | None = None,
) -> tuple[LabelSet, list[str]]:
    """Read labels for a manifest's items; also return the names in the table that match no item.

    Parameters
    ----------
    source
        The table. It identifies items by their ids, files (with or without folders) or file names
        without extension. Rows without a level are left out.
    manifest
        The manifest of the items.
    columns
        See `Manifest.from_csv`.
    levels
        Your levels; see `Manifest.from_csv` (default: the manifest's).
    name
        The label set's name (default: the annotator's, or else the file's).
    annotator
        The annotator, if one person made all labels.
    """
    table = _labelled(_read(source, columns, "level"))
    names = table.columns.get("id") or table["media"]
    ids_of = _ids_by_name(manifest.items)
    ids = []
    rows = []
    unmatched = []
    for row, (cell, film) in enumerate(zip(names, table.get("film"), strict=True)):
        matches = ids_of.get(cell.casefold())
        if not matches:
            item = item_of_file(relative_path(cell), film)
            matches = ids_of.get(_plain_path(item.film, item.media), [])
        if len(matches) > 1:
            raise table.problem(row, f"{cell!r} matches {join_some(matches)}; use the id")
        if matches:
            rows.append(row)
            ids += matches
        else:
            unmatched.append(cell)
    if not ids:
        raise ManifestError(
            f"{source}: no row with a level names an item, such as {join_some(manifest.ids, 2)} "
            f"(got {join_some(unmatched, 2)}); choose the column of ids or files: --column id=NAME"
        )

    label_table = table.select((c for c in table.columns if c not in items.COLUMNS), rows)
    label_table = replace(label_table, columns={"id": ids, **label_table.columns})
    scheme = _choose_scheme(table, levels)
    label_set = _label_set(label_table, scheme or manifest.scheme, source.stem, annotator)
    about = dict(label_set.about)
    if scheme:
        about["label_scheme"] = scheme.to_json()
    return replace(label_set, name=name or label_set.name, about=about), unmatched


def _read(source: Path | Table, columns: Mapping[str, str] | None, *required: str) -> Table:
    """Read a table that has the `required` columns, and ids or file names."""
    table = read_mapped_table(source, MEANINGS, columns, required=[*required, ("id", "media")])
    if "level" in table.columns and "concepts" in table.columns:
        concepts = map_cells(labels.parse_concepts, table["concepts"])
        table.columns["concepts"] = map_cells(labels.SEPARATOR.join, concepts)
    return table


def _with_items(table: Table) -> Table:
    """Return the table with safe ids, relative file names, and times in seconds."""
    columns = dict(table.columns)
    for name in ("start", "end"):
        if name in columns:
            read = partial(_read_seconds, column=name, delimiter=table.delimiter)
            columns[name] = map_column(table, name, read)
    columns |= _names(replace(table, columns=columns))
    suffixes = set(map(_suffix, set(columns["media"])))
    if "kind" not in columns and suffixes <= IMAGE_SUFFIXES:
        columns["kind"] = ["image"] * len(table)
    return replace(table, columns=columns)


def _read_seconds(cell: str, column: str, delimiter: str) -> str:
    if not cell.strip():
        return ""
    return format_seconds(parse_time(cell, column, delimiter))


def _names(table: Table) -> dict[str, list[str]]:
    """Return columns of safe ids, films and files."""
    columns: dict[str, list[str]] = {"id": [], "film": [], "media": []}
    cells = (table.get(name) for name in ("id", "film", "media", "start"))
    for row in zip(*cells, strict=True):
        for column, name in zip(columns.values(), _names_of(*row), strict=True):
            column.append(name)
    return columns


def _names_of(name: str, film: str, media: str, start: str) -> tuple[str, str, str]:
    """Return an item's safe id, film and file; `name` is an id or a file."""
    name = relative_path(name)
    media = relative_path(media)
    is_file = not name or is_file_name(name)
    id_ = id_of_name(name, film) if name else item_of_file(media, film).id
    if is_file and start:
        id_ = span_id(id_, float(start))
    if is_file or id_problem(name):
        media = media or name
    if is_file or "/" in media:
        item = item_of_file(media, film)
        film = item.film
        media = item.media
    if start:
        film = name_film(film, media)
    return id_, film, media


def _suffix(name: str) -> str:
    return "".join(name.rpartition(".")[1:]).lower()


def _ids_by_name(all_items: Items) -> dict[str, list[str]]:
    """Return the ids of items by id, path and file name, ignoring case and extensions."""
    ids_of: dict[str, list[str]] = {}
    for id_, film, media in zip(
        all_items.ids,
        all_items.films,
        all_items.media,
        strict=True,
    ):
        path = _plain_path(film, media)
        if media:
            for name in {path, path.rpartition("/")[2]}:
                ids_of.setdefault(name, []).append(id_)
    return ids_of | {id_.casefold(): [id_] for id_ in all_items.ids}


def _plain_path(film: str, media: str) -> str:
    path = "/".join(filter(None, (film, relative_path(media)))).casefold()
    if _suffix(path) in MEDIA_SUFFIXES:
        return media_stem(path)
    return path


def _labelled(table: Table) -> Table:
    """Return the rows that have a level."""
    rows = [row for row, level in enumerate(table["level"]) if level]
    return table.select(table.columns, rows)


def _label_set(table: Table, scheme: LabelScheme, name: str, annotator: str | None) -> LabelSet:
    """Return the labels of a table, named after the annotator, if there is one."""
    about = {"rule": f"as in {table.path.name}"}
    if annotator:
        about |= {"origin": "annotator", "annotator": annotator}
    try:
        return LabelSet.from_table(safe_id(annotator or name), table, about, scheme)
    except ManifestError as error:
        if all(map(scheme.has_level, table["level"])):
            raise
        raise ManifestError(f"{error} ({OWN_LEVELS})") from None


def _choose_scheme(table: Table, levels: OwnLevels) -> LabelScheme | None:
    """Return the chosen scheme; if the scheme has no concepts, add the table's concepts."""
    chosen = choose_scheme(levels)
    if chosen is None or chosen.concepts:
        return chosen
    cells = labels.SEPARATOR.join(dict.fromkeys(table.get("concepts")))
    return chosen.with_concepts(map(Concept, labels.split_concepts(cells)))
