"""Everything that is wrong with a manifest, in one pass over its files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from pathlib import Path

from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError
from obygaze_features.manifests import labels, runs, splits
from obygaze_features.manifests.items import Items, seconds_problems
from obygaze_features.manifests.manifest import (
    HEADER,
    REQUIRED,
    read_about,
    read_header,
    scheme_of,
)
from obygaze_features.manifests.scheme import LabelScheme

__all__ = ["check"]

Problems = Iterator[tuple[int, str]]


def check(folder: Path) -> list[str]:
    """Every problem of a manifest, each with its file and line; none for a sound one."""
    try:
        header = read_header(folder)
    except ManifestError as error:
        return [str(error)]
    found: list[str] = []
    try:
        scheme = scheme_of(header, folder / HEADER)
    except ManifestError as error:
        found.append(str(error))
        scheme = None
    known: Container[str] | None = None
    try:
        table = read_table(folder / "items.csv", required=["id"])
        items = Items.from_table(table, check=False)
        known = items.row_of
        wrong = sorted([*items.problems(), *seconds_problems(table)])
        found += _located(table, iter(wrong))
        if not wrong:
            found += _header_problems(folder, header, items)
    except ManifestError as error:
        found.append(str(error))
    rooms: dict[str, Callable[[Table], Problems]] = {
        "splits": splits.problems,
        "runs": runs.problems,
        "labels": partial(_label_problems, default=scheme),
    }
    for room, problems in sorted(rooms.items()):
        for path in sorted((folder / room).glob("*.csv")):
            found += _table_problems(path, room, problems, known)
    found += _stale_merges(folder / "labels")
    return found


def _stale_merges(folder: Path) -> Iterator[str]:
    """Merged label sets that say other things of what they were merged from than is there now."""
    about: dict[str, Mapping[str, object]] = {}
    for path in sorted(folder.glob("*.csv")):
        with contextlib.suppress(ManifestError):
            about[path.stem] = read_about(path)
    for name, said in about.items():
        of = said.get("of")
        for part, then in of.items() if isinstance(of, dict) else ():
            if part in about and about[part] != then:
                yield (
                    f"{folder / name}.json: merged from another {part} than is there now; merge "
                    f"anew: obygaze annotations merge {folder.parent} --name {name} --overwrite"
                )


def _header_problems(folder: Path, header: dict[str, object], items: Items) -> Iterator[str]:
    path = folder / "manifest.json"
    if header.get("items") != len(items):
        yield f"{path}: says {header.get('items')} items, items.csv has {len(items)}"
    if header.get("digest") != items.digest:
        yield (
            f"{path}: the digest is of other items; if items.csv was changed on purpose, "
            f"put {items.digest} (stores of the old items will be refused)"
        )
    default = header.get("default_labels")
    if default is not None and not (folder / "labels" / f"{default}.csv").is_file():
        yield f"{path}: default_labels is {default!r}, but there is no labels/{default}.csv"


def _table_problems(
    path: Path, room: str, problems: Callable[[Table], Problems], known: Container[str] | None
) -> Iterator[str]:
    try:
        read_about(path)
        table = read_table(path, required=REQUIRED[room])
        wrong = list(problems(table))
    except ManifestError as error:
        yield str(error)
        return
    yield from _located(table, iter(wrong))
    yield from _located(
        table,
        (
            (row, f"id {identifier!r} is not in items.csv")
            for row, identifier in enumerate(table["id"])
            if known is not None and identifier not in known
        ),
    )


def _label_problems(table: Table, default: LabelScheme | None) -> Problems:
    """By the scheme of their own that labels have, if any; by none where the header's is wrong."""
    said = read_about(table.path)
    if default is not None or "label_scheme" in said:
        scheme = scheme_of(said, table.path.with_suffix(".json"), default)
        yield from labels.problems(table, scheme)


def _located(table: Table, problems: Problems) -> Iterator[str]:
    lines: list[int] = []
    for row, message in problems:
        lines = lines or table.lines()
        yield f"{table.path}, line {lines[row]}: {message}"
