"""Everything that is wrong with a manifest, in one pass over its files."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.format import HEADER, read_about, read_header
from obygaze_features.manifests.items import Items, seconds_problems
from obygaze_features.manifests.labels import LabelScheme, LabelSet, scheme_in, unknown_ids
from obygaze_features.manifests.splits import RunSet, Split


def check(folder: Path) -> list[str]:
    """Every problem of a manifest, each with its file and line; none for a sound one."""
    problems: list[str] = []
    header: dict[str, Any] = {}
    with _noting(problems):
        header = read_header(folder)
    if problems:
        return problems
    scheme: LabelScheme | None = None
    with _noting(problems):
        scheme = scheme_in(header, folder / HEADER)
    ids: Container[str] | None = None
    with _noting(problems):
        table = read_table(folder / "items.csv", required=["id"])
        items = Items.from_table(table, check=False)
        ids = items.row_of
        item_problems = sorted([*items.problems(), *seconds_problems(table)])
        problems += _located(table, item_problems)
        if not item_problems:
            problems += _header_problems(folder, header, items)
    for part in (LabelSet, RunSet, Split):
        for path in sorted((folder / part.KIND).glob("*.csv")):
            with _noting(problems):
                about = read_about(path)
                table = read_table(path, required=part.REQUIRED)
                problems += _located(table, sorted(part.problems(table, about, scheme)))
                if ids is not None:
                    problems += _located(table, unknown_ids(table, ids))
    return problems


@contextlib.contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """An error is one of the problems."""
    try:
        yield
    except ManifestError as error:
        problems.append(str(error))


def _header_problems(folder: Path, header: dict[str, object], items: Items) -> Iterator[str]:
    path = folder / HEADER
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


def _located(table: Table, problems: Iterable[tuple[int, str]]) -> Iterator[str]:
    for row, message in problems:
        yield f"{table.path}, line {table.lines[row]}: {message}"
