"""MObyGaze: what annotators marked in 20 films, as spans that they cut themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from obygaze_features.common.tables import Table, map_columns, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.reading import (
    at_row,
    parse_list,
    published,
    source_or_download,
)
from obygaze_features.manifests.items import Items, format_seconds
from obygaze_features.manifests.labels import Concept, LabelSet, obygaze_scheme
from obygaze_features.manifests.manifest import Manifest

REQUIRED = ("annotator", "label", "concepts", "start_frame", "end_frame", "imdb_key", "framerate")
#: In the label set, not in the items, which are copied into stores: subtitles are the film's.
LABEL_EXTRAS = ("annotator", "comment", "subtitle", "text")
LABEL_COLUMNS = {"label", "concepts", "imdb_key", "comment", "subtitle", "text"}
ITEM_COLUMNS = ("id", "film", "media", "start", "end")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?", re.ASCII)


def import_manifest(source: Path | str | None = None, *, url: str | None = None) -> Manifest:
    """Read MObyGaze's segments into a manifest of spans; by default they are downloaded."""
    table = read_mobygaze(source, url)
    rows, levels, named = [], [], []
    counts: Counter[tuple[str, str]] = Counter()
    scheme = obygaze_scheme()
    for row, cells in enumerate(table.rows()):
        film, annotator = cells["imdb_key"], cells["annotator"]
        counts[film, annotator] += 1
        identifier = f"{film}-{annotator}-{counts[film, annotator]:04d}"
        with at_row(table, row):
            rows.append((identifier, film, film, *map(format_seconds, frame_span(cells))))
            levels.append(scheme.level(cells["label"]))
            named.append(parse_list(cells["concepts"]))
    unlisted = [n for n in dict.fromkeys(chain(*named)) if not scheme.has_concept(n)]
    scheme = scheme.with_concepts(Concept(name, visual=False) for name in unlisted)
    concepts = [scheme.in_order(map(scheme.concept, names)) for names in named]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(ITEM_COLUMNS)}
    extra = {name: table[name] for name in table.columns if name not in LABEL_COLUMNS}
    labels = LabelSet(
        "annotations",
        columns["id"],
        levels,
        concepts,
        extra={
            **{name: table[name] for name in LABEL_EXTRAS if name in table.columns},
            "raw_label": table["label"],
            "raw_concepts": table["concepts"],
        },
        about={"rule": "as annotated, one span per annotator's segment"},
    )
    note = f"concepts that its thesaurus does not list, kept: {', '.join(unlisted)}"
    return Manifest(
        **published("mobygaze"),
        items=Items.from_table(replace(table, columns=extra | columns)),
        scheme=scheme,
        notes=[note] if unlisted else [],
    ).with_parts(labels=[labels])


def read_mobygaze(source: Path | str | None = None, url: str | None = None) -> Table:
    """The table as published, with all columns that its segments need."""
    with source_or_download("mobygaze", source, url) as path:
        table = map_columns(read_table(path, delimiter=None), {"index": [""]})
    if missing := [name for name in REQUIRED if name not in table.columns]:
        raise ManifestError(
            f"{table.path} is not MObyGaze's table: it has no {', '.join(missing)}; "
            "import any other table with: obygaze annotations import csv"
        )
    return table


def frame_span(cells: Mapping[str, str]) -> tuple[float, float]:
    """A segment's start and end in seconds, by its own frame rate.

    The end frame belongs to the segment, so that the segment lasts until the next frame begins.
    """
    rate = _number(cells["framerate"], "framerate")
    first = _number(cells["start_frame"], "start_frame")
    last = _number(cells["end_frame"], "end_frame")
    if not rate > 0:
        raise ManifestError(f"framerate {cells['framerate']!r} is not above 0")
    if last < first:
        raise ManifestError(f"the segment ends (frame {last:g}) before it starts ({first:g})")
    return round(first / rate, 6), round((last + 1) / rate, 6)


def _number(text: str, column: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ManifestError(f"{column} {shorten(text)} is not a number")
    return float(text)
