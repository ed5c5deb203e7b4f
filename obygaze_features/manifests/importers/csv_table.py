"""Import any CSV table of clips and labels; columns are recognised by name, or set by --column."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from obygaze_features.common.tables import Table, map_cells, read_mapped_table
from obygaze_features.common.text import counted, for_shell, join_some
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items import items
from obygaze_features.items.items import Items, are_ids, id_problem, media_stem, name_film, safe_id
from obygaze_features.items.media import IMAGE_SUFFIXES, MEDIA_SUFFIXES
from obygaze_features.manifests import labels
from obygaze_features.manifests.importers.reading import item_of_file, parse_time, relative_path
from obygaze_features.manifests.labels import (
    Concept,
    LabelScheme,
    LabelSet,
    OwnLevels,
    choose_scheme,
    obygaze_scheme,
    suggest_levels,
)
from obygaze_features.manifests.manifest import Manifest

#: The alternative column names for each meaning.
MEANINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*items.COLUMNS, *labels.COLUMNS), ()),
    "media": ("video", "video_name", "file_name", "filename", "file", "file_path", "path", "image"),
    "level": ("label",),
}


def import_manifest(
    source: Path | str,
    columns: Mapping[str, str] | None = None,
    *,
    levels: OwnLevels = None,
    annotator: str | None = None,
) -> Manifest:
    """Read any CSV table of clips, with or without labels."""
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"source must be the path of a file (got {type(source).__name__}). "
            'Save the table first: table.to_csv("clips.csv", index=False)'
        )
    source = Path(source)
    table = _with_items(_read(source, columns))
    labelled = "level" in table.columns
    label_columns = set(labels.COLUMNS) - {"id"} if labelled else set()
    all_items = Items.from_table(table.select(c for c in table.columns if c not in label_columns))
    chosen = _choose_scheme(table, levels) or obygaze_scheme()
    notes = []
    if all_items.extra:
        notes.append(f"columns kept unchanged: {', '.join(all_items.extra)}")
    rows = [row for row in np.flatnonzero(np.isnan(all_items.starts)) if all_items.media[row]]
    files = ((all_items.media[row], all_items.ids[row]) for row in rows)
    named = next((pair for pair in files if media_stem(pair[0]) != pair[1]), None)
    if named:
        notes.append("for example, the id of {} is {}".format(*named))
    notes += _describe_repeats(all_items, source)
    manifest = Manifest(source.stem, all_items, chosen, source=source.name, notes=notes)
    if not labelled:
        return manifest
    present = [column for column in labels.COLUMNS if column in table.columns]
    label_table = table.select(present, _labelled_rows(table))
    label_name = safe_id(annotator or "annotations")
    label_set = _label_set(label_name, label_table, chosen, _made_by(annotator))
    return manifest.with_parts(labels=[label_set])


def _describe_repeats(all_items: Items, source: Path) -> Iterator[str]:
    """Yield a note if items have the same film and span, as in a table of several annotators."""
    repeats = all_items.repeats
    if not repeats:
        return
    row, first_row = next(iter(repeats.items()))
    pair = f"{all_items.ids[row]} has the same span as {all_items.ids[first_row]}"
    note = f"{counted(len(repeats), 'item repeats', 'items repeat')} an earlier item ({pair})"
    columns = {
        name: len(set(cells))
        for name, cells in all_items.extra.items()
        if all(cells[row] != cells[first_row] for row, first_row in repeats.items())
    }
    command = f"obygaze annotations import csv {for_shell(source)}"
    if columns:
        column = min(columns, key=lambda name: columns[name])
        note += f"; they differ in the column {column!r}"
        if column.casefold() != "annotator":
            command += f" --column {for_shell(f'annotator={column}')}"
    yield f"warning: {note}. If several people annotated the same clips, use: {command}"


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
        See `import_manifest`.
    levels
        Your levels; see `import_manifest` (default: the manifest's).
    name
        The label set's name (default: the annotator's, or else the file's).
    annotator
        The annotator, if one person made all labels.
    """
    table = _read(source, columns, "level")
    table = table.select(table.columns, _labelled_rows(table))
    find_rows = _row_finder(manifest.items)
    name_column = "id" if "id" in table.columns else "media"
    ids, rows, unmatched = [], [], []
    for row, (cell, film) in enumerate(zip(table[name_column], table.get("film"), strict=True)):
        matches = [manifest.ids[match] for match in find_rows(film, cell)]
        if len(matches) > 1:
            raise table.problem(
                row, f"{cell!r} matches {join_some(matches)}; include the folder, or use the id"
            )
        if matches:
            rows.append(row)
            ids.append(matches[0])
        else:
            unmatched.append(cell)
    if not ids:
        files = [media for media in manifest.items.media if media]
        raise ManifestError(
            f"{source}: no row names an item of {manifest.name} (got "
            f"{join_some(unmatched, 2)}; the manifest has ids such as {join_some(manifest.ids, 2)}"
            + (f" and files such as {join_some(files, 2)})" if files else ")")
            + "; choose the column of ids or files with --column id=NAME"
        )
    label_table = table.select((c for c in table.columns if c not in items.COLUMNS), rows)
    label_table = replace(label_table, columns={"id": ids, **label_table.columns})
    own = _choose_scheme(table, levels)
    about = _made_by(annotator)
    if own:
        about["label_scheme"] = own.to_json()
    name = name or safe_id(annotator or source.stem)
    return _label_set(name, label_table, own or manifest.scheme, about), unmatched


def _read(source: Path, columns: Mapping[str, str] | None, *required: str) -> Table:
    """Read a table that has the `required` columns, and ids or file names."""
    table = read_mapped_table(source, MEANINGS, columns, required=[*required, ("id", "media")])
    if not {"level", "concepts"} <= {*table.columns}:
        return table
    concepts = map_cells(_join_concepts, table["concepts"])
    return replace(table, columns={**table.columns, "concepts": concepts})


def _join_concepts(cell: str) -> str:
    return labels.SEPARATOR.join(labels.parse_concepts(cell))


def _with_items(table: Table) -> Table:
    """Return the table with safe ids, relative file names, and times in seconds."""
    columns = _plain_names(table) or _safe_names(table)
    if not {"id", "start"} & {*table.columns}:
        _refuse_repeats(table, columns["id"])
    suffixes = {_suffix(name) for name in {*columns["media"]}}
    if "kind" not in table.columns and suffixes and suffixes <= IMAGE_SUFFIXES:
        columns["kind"] = ["image"] * len(table)
    for name in [name for name in ("start", "end") if name in table.columns]:
        columns[name] = _seconds_texts(table, name)
    return replace(table, columns={**table.columns, **columns})


def _refuse_repeats(table: Table, ids: Sequence[str]) -> None:
    """Raise `ManifestError` if rows without ids and times have the same file."""
    seen: set[str] = set()
    for row, identifier in enumerate(ids):
        if identifier in seen:
            raise table.problem(
                row,
                f"duplicate id {identifier!r}, from the file's name. If each row is a span of its "
                "file, name the columns of the times: --column start=NAME --column end=NAME",
            )
        seen.add(identifier)


def _plain_names(table: Table) -> dict[str, list[str]] | None:
    """Return ids, films and files; None if an id is unsafe or a file name has folders."""
    ids, films = table.get("id"), table.get("film")
    media = map_cells(relative_path, table.get("media"))
    if not are_ids(ids) or "." in "".join(ids) or any("/" in name for name in {*media}):
        return None
    if not all(films):
        places = zip(films, media, table.get("start"), strict=True)
        films = [name_film(film, name) if start else film for film, name, start in places]
    return {"id": ids, "film": films, "media": media}


def _seconds_texts(table: Table, name: str) -> list[str]:
    """Return a column of times, converted to seconds, as text."""
    texts = {}
    for cell in dict.fromkeys(table[name]):
        try:
            seconds = parse_time(cell, name, table.delimiter) if cell.strip() else None
        except ManifestError as error:
            raise table.problem(table[name].index(cell), str(error)) from None
        texts[cell] = "" if seconds is None else f"{seconds:.6f}"
    return [texts[cell] for cell in table[name]]


def _safe_names(table: Table) -> dict[str, list[str]]:
    """Return columns of safe ids, films and files, made row by row."""
    numbers: Counter[str] = Counter()
    rows: list[tuple[str, str, str]] = []
    for identifier, film, media, start in zip(
        *map(table.get, ("id", "film", "media", "start")), strict=True
    ):
        identifier, media = relative_path(identifier), relative_path(media)
        is_file = "/" in identifier or _suffix(identifier) in MEDIA_SUFFIXES
        if is_file or not identifier:
            safe = item_of_file(identifier or media, film).id
            item = item_of_file(media or identifier, film)
            film, media = item.film, item.media
            numbers[safe] += 1
            safe = f"{safe}-{numbers[safe]:03d}" if start else safe  # a span of a file
        else:
            safe = safe_id(identifier) if id_problem(identifier) else identifier
            media = media or (identifier if safe != identifier else "")
            if "/" in media:
                item = item_of_file(media, film)
                film, media = item.film, item.media
        rows.append((safe, name_film(film, media) if start else film, media))
    ids, films, files = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    return {"id": ids, "film": films, "media": files}


def _suffix(name: str) -> str:
    return "".join(name.rpartition(".")[1:]).lower()


def _row_finder(all_items: Items) -> Callable[[str, str], list[int]]:
    """Return a function that finds the rows for a film and an id or file name from a table."""
    row_of_id = {identifier.casefold(): [row] for row, identifier in enumerate(all_items.ids)}
    rows_of_file: dict[str, list[int]] = {}  # also under paths without their first folders
    rows_of_path: dict[str, list[int]] = {}
    for row, (film, media) in enumerate(zip(all_items.films, all_items.media, strict=True)):
        if media:
            path, *ends = _ends_of_path(f"{film}/{media}")
            rows_of_path.setdefault(path, []).append(row)
            for end in (path, *ends):
                rows_of_file.setdefault(end, []).append(row)

    def find_rows(film: str, cell: str) -> list[int]:
        path, *ends = _ends_of_path(f"{film}/{cell.strip()}")
        matches = [row_of_id.get(cell.casefold()), rows_of_file.get(path)]
        matches += map(rows_of_path.get, ends)
        stem = path.rpartition("/")[2]
        return next(filter(None, [*matches, row_of_id.get(safe_id(stem).casefold())]), [])

    return find_rows


def _ends_of_path(path: str) -> list[str]:
    """Return a path in lower case without its extension, then the path with fewer folders."""
    path = path.casefold().replace("\\", "/").lstrip("/")
    parts = (path.rpartition(".")[0] if _suffix(path) in MEDIA_SUFFIXES else path).split("/")
    return ["/".join(parts[first:]) for first in range(len(parts))]


def _labelled_rows(table: Table) -> list[int]:
    return [row for row, level in enumerate(table["level"]) if level]


def _made_by(annotator: str | None) -> dict[str, object]:
    return {"origin": "annotator", "annotator": annotator} if annotator else {}


def _label_set(
    name: str, table: Table, scheme: LabelScheme, about: Mapping[str, object]
) -> LabelSet:
    about = {"rule": f"as in {table.path.name}", **about}
    cells = table["level"], table.get("concepts")
    for level, concepts in dict.fromkeys(zip(*cells, strict=True)):
        try:
            scheme.level(level)
            list(map(scheme.concept, labels.split_concepts(concepts)))
        except ManifestError as error:
            row = list(zip(*cells, strict=True)).index((level, concepts))
            raise table.problem(row, f"{error} ({suggest_levels(table['level'])})") from None
    return LabelSet.from_table(name, table, about, scheme)


def _choose_scheme(table: Table, levels: OwnLevels) -> LabelScheme | None:
    """Return the chosen scheme; if the scheme has no concepts, add the table's concepts."""
    chosen = choose_scheme(table.path.stem, levels)
    if chosen is None or chosen.concepts:
        return chosen
    cells = dict.fromkeys(table.get("concepts"))
    return chosen.with_concepts(Concept(n) for cell in cells for n in labels.split_concepts(cell))
