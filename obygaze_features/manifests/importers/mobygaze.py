"""MObyGaze: what annotators marked in 20 films, as spans of their own cutting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click

from obygaze_features.annotations.timelines import Segment
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table, map_columns, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.shared import (
    fetched,
    finish,
    output_options,
    parse_list,
    url_options,
)
from obygaze_features.manifests.items import Item, ItemProblem, Items
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import Concept, LabelScheme, obygaze_scheme

__all__ = ["frame_span", "import_mobygaze", "read_mobygaze", "read_segments"]

REQUIRED = (
    "annotator",
    "label",
    "concepts",
    "start_frame",
    "end_frame",
    "imdb_key",
    "framerate",
)
#: Kept beside the labels and not beside the items, which are copied into stores: subtitles are
#: the film's own words.
LABEL_EXTRAS = ("annotator", "comment", "subtitle", "text")


_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?", re.ASCII)


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


def read_segments(table: Table, scheme: LabelScheme) -> Iterator[Segment]:
    """The segments of ``mobygaze_dataframe.csv``; raises on the first row that is not one."""
    for row, cells in enumerate(table.rows()):
        try:
            start, end = frame_span(cells)
            level = scheme.level(cells["label"])
            concepts = scheme.in_order(map(scheme.concept, parse_list(cells["concepts"])))
        except ManifestError as error:
            raise table.problem(row, str(error)) from None
        yield Segment(cells["imdb_key"], cells["annotator"], start, end, level, concepts)


def read_mobygaze(source: Path) -> Table:
    """The table as published, with all columns that its segments need."""
    table = map_columns(read_table(source, delimiter=None), {"index": [""]})
    if missing := [name for name in REQUIRED if name not in table.columns]:
        raise ManifestError(
            f"{source} is not MObyGaze's table: it has no {', '.join(missing)}; any other table "
            "is read by: obygaze annotations import csv"
        )
    return table


def import_mobygaze(source: Path) -> tuple[Manifest, list[str]]:
    """Read MObyGaze's segments into a manifest of spans; also the concepts it does not list."""
    table = read_mobygaze(source)
    scheme, unlisted = _with_unlisted(table, obygaze_scheme())
    segments = list(read_segments(table, scheme))
    numbers: Counter[tuple[str, str]] = Counter()
    items = []
    for segment in segments:
        numbers[segment.film, segment.annotator] += 1
        number = numbers[segment.film, segment.annotator]
        items.append(
            Item(
                id=f"{segment.film}-{segment.annotator}-{number:04d}",
                film=segment.film,
                media=segment.film,
                start=segment.start,
                end=segment.end,
            )
        )
    used = {*REQUIRED, *LABEL_EXTRAS} - {"annotator", "framerate", "start_frame", "end_frame"}
    kept = {name: cells for name, cells in table.columns.items() if name not in used}
    labels = LabelSet(
        "annotations",
        [item.id for item in items],
        [segment.level for segment in segments],
        [segment.concepts for segment in segments],
        extra={
            **{name: table[name] for name in LABEL_EXTRAS if name in table.columns},
            "raw_label": table["label"],
            "raw_concepts": table["concepts"],
        },
        about={"rule": "as annotated, one span an annotator's segment"},
    )
    about = reference_json("sources.json")["mobygaze"]
    try:
        held = Items.of(items, kept)
    except ItemProblem as problem:
        raise table.problem(problem.row, problem.message) from None
    manifest = Manifest(
        name="mobygaze",
        items=held,
        scheme=scheme,
        source=f"{about['repository']} at {about['revision']}",
        licence=about["licence"],
        citation=about["citation"],
    ).with_parts(labels=[labels])
    return manifest, unlisted


def _with_unlisted(table: Table, scheme: LabelScheme) -> tuple[LabelScheme, list[str]]:
    """The scheme and, as not visual, the concepts that annotators used without listing them."""
    unlisted: dict[str, None] = {}
    for row, cell in enumerate(table["concepts"]):
        try:
            names = parse_list(cell)
        except ManifestError as error:
            raise table.problem(row, str(error)) from None
        for name in names:
            try:
                scheme.concept(name)
            except ManifestError:
                unlisted[name] = None
    added = tuple(Concept(name, visual=False) for name in unlisted)
    return replace(scheme, concepts=scheme.concepts + added), list(unlisted)


def _number(text: str, what: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ManifestError(f"{what} {shorten(text)} is not a number")
    return float(text)


@click.command("mobygaze")
@url_options
@output_options("mobygaze")
def command(
    source: Path | None, fetch: bool, url: str | None, output: Path, overwrite: bool
) -> None:
    """MObyGaze's segments of 20 films.

    SOURCE is mobygaze_dataframe.csv, or let --download fetch it. Every annotator's segment becomes
    a span of its film, whose video is looked for under the film's IMDb id (tt0097576.mp4, say).

    \b
    Example:
      obygaze manifests import mobygaze mobygaze_dataframe.csv -o manifests/mobygaze
    """
    with fetched("mobygaze", source, fetch=fetch, url=url) as path:
        manifest, unlisted = import_mobygaze(path)
    notes = [f"concepts that its thesaurus does not list, kept: {', '.join(unlisted)}"]
    finish(manifest, output, overwrite=overwrite, notes=notes if unlisted else [])
