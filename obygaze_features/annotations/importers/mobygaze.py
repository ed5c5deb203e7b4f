"""MObyGaze: the segments of 20 films, as published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from obygaze_features.annotations.build import Films, SourceRow, build_timelines, read_films
from obygaze_features.annotations.issues import LEFT_OUT, Issue
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.mobygaze import frame_span, read_mobygaze
from obygaze_features.manifests.importers.reading import parse_list


def import_timelines(
    source: Path | str | None = None,
    films: Films = None,
    *,
    url: str | None = None,
) -> Timelines:
    """Read ``mobygaze_dataframe.csv``, by default downloaded; films are named by IMDb keys."""
    table = read_mobygaze(source, url)
    titles = dict(zip(table["imdb_key"], table.columns.get("movie_title", []), strict=False))
    titled = {film: Film(title) for film, title in titles.items() if film}
    about = reference_json("sources.json")["mobygaze"]
    return build_timelines(
        "mobygaze",
        _rows(table),
        titled | read_films(films),
        source=f"{about['repository']} at {about['revision']}",
        licence=about["licence"],
        citation=about["citation"],
    )


def _rows(table: Table) -> Iterator[SourceRow | Issue]:
    for line, cells in zip(table.lines, table.rows(), strict=True):
        location = f"{table.path.name}, line {line}"
        film, annotator = cells["imdb_key"], cells["annotator"]
        try:
            start, end = frame_span(cells)
            concepts = tuple(parse_list(cells["concepts"]))
        except ManifestError as error:
            yield Issue(location, film, annotator, str(error), LEFT_OUT)
        else:
            comment = _comment(cells.get("comment", ""))
            segment = Segment(film, annotator, start, end, cells["label"], concepts, comment)
            yield SourceRow(location, segment)


def _comment(cell: str) -> str:
    """Comments are published as a list; any other cell is kept as it is."""
    try:
        return "; ".join(parse_list(cell))
    except ManifestError:
        return cell
