"""Import any CSV table of segments; columns are recognised by name, or set by --column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Films, Segment, Timelines
from obygaze_features.common.tables import Table, map_cells, read_mapped_table
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.items.items import safe_id
from obygaze_features.manifests.importers.reading import film_of_file, parse_time
from obygaze_features.manifests.labels import OwnLevels, choose_scheme, parse_concepts

TIMES = ("start", "end")
REQUIRED = ("film", "annotator", *TIMES, "level")
#: The alternative column names for each meaning.
MEANINGS: dict[str, tuple[str, ...]] = {
    "film": ("file", "media", "video"),
    **dict.fromkeys(("annotator", *TIMES, "concepts", "comment"), ()),
    "level": ("label",),
}


def import_timelines(
    source: Path | str,
    columns: Mapping[str, str] | None,
    films: Films,
    levels: OwnLevels,
) -> Timelines:
    """Read any CSV table of segments, with a column mapping."""
    source = Path(source)
    table = read_mapped_table(source, MEANINGS, columns, required=REQUIRED)
    table.columns["film"] = map_cells(film_of_file, table["film"])
    rows = read_rows(table, _seconds_span)
    scheme = choose_scheme(levels)
    return build_timelines(safe_id(source.stem), rows, films, scheme, source=source.name)


def _seconds_span(cells: Mapping[str, str], delimiter: str) -> tuple[float, ...]:
    return tuple(parse_time(cells[name], name, delimiter) for name in TIMES)


def read_rows(
    table: Table,
    read_span: Callable[[Mapping[str, str], str], Iterable[float]],
    parse_concepts: Callable[[str], Iterable[str]] = parse_concepts,
) -> Iterator[SourceRow | Remark]:
    """Yield a segment for each row of a table, or a remark if the row cannot be read.

    The table must have the columns film, annotator and level. `read_span` gets a row and the
    table's delimiter.
    """
    concepts_of = cache(lambda cell: tuple(parse_concepts(cell)))
    for line, cells in zip(table.lines, table.rows(), strict=True):
        location = f"{table.path.name}, line {line}"
        film = cells["film"].strip()
        annotator = cells["annotator"].strip()
        try:
            start, end = read_span(cells, table.delimiter)
            concepts = concepts_of(cells.get("concepts", ""))
        except (AnnotationError, ManifestError) as error:
            yield Remark(location, film, annotator, str(error), LEFT_OUT)
            continue
        comment = cells.get("comment", "")
        segment = Segment(film, annotator, start, end, cells["level"], concepts, comment)
        yield SourceRow(location, segment)
