"""MObyGaze: the segments of 20 films, as published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from obygaze_features.annotations.gathering import Row, gather
from obygaze_features.annotations.importers.shared import finish, output_options, read_films
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.commands.manifests_import import download_options
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.mobygaze import frame_span, read_mobygaze
from obygaze_features.manifests.importers.reading import parse_list, source_or_download

__all__ = ["import_mobygaze"]


def import_mobygaze(source: Path, films: dict[str, Film] | None = None) -> Timelines:
    """Read ``mobygaze_dataframe.csv``; films are named by their IMDb keys."""
    table = read_mobygaze(source)
    titles = dict(zip(table["imdb_key"], table.columns.get("movie_title", []), strict=False))
    known = {film: Film(title) for film, title in titles.items() if film}
    about = reference_json("sources.json")["mobygaze"]
    return gather(
        "mobygaze",
        _rows(table),
        known | (films or {}),
        source=f"{about['repository']} at {about['revision']}",
        licence=about["licence"],
        citation=about["citation"],
    )


def _rows(table: Table) -> Iterator[Row | Remark]:
    for line, cells in zip(table.lines, table.rows(), strict=True):
        where = f"{table.path.name}, line {line}"
        film, annotator = cells["imdb_key"], cells["annotator"]
        try:
            start, end = frame_span(cells)
            concepts = tuple(parse_list(cells["concepts"]))
        except ManifestError as error:
            yield Remark(where, film, annotator, str(error), LEFT_OUT)
        else:
            comment = _comment(cells.get("comment", ""))
            yield Row(where, film, annotator, start, end, cells["label"], concepts, comment)


def _comment(cell: str) -> str:
    """Comments are published as a list; one that is none is kept as it is."""
    try:
        return "; ".join(parse_list(cell))
    except ManifestError:
        return cell


@click.command("mobygaze")
@download_options
@output_options
def command(
    source: Path | None,
    download: bool,
    url: str | None,
    films: Path | None,
    output: Path,
    overwrite: bool,
    as_json: bool,
) -> None:
    """MObyGaze's segments of 20 films.

    SOURCE is mobygaze_dataframe.csv, or let --download fetch it. Frames become seconds by each
    row's own frame rate; the end frame belongs to the segment. Ends with exit code 3 if rows had
    to be left out.

    \b
    Examples:
      obygaze annotations import mobygaze mobygaze_dataframe.csv -o timelines/mobygaze
      obygaze annotations import mobygaze --download -o timelines/mobygaze
    """
    known = read_films(films)
    with source_or_download("mobygaze", source, download=download, url=url) as path:
        found = import_mobygaze(path, known)
    finish(found, output, overwrite=overwrite, as_json=as_json)
