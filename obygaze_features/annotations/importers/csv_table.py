"""Any CSV table of segments: say which of its columns mean what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from obygaze_features.annotations.cells import concept_names, moment, unguarded
from obygaze_features.annotations.gathering import Row, gather
from obygaze_features.annotations.importers.shared import finish, output_options, read_films
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.commands.manifests_import import source_argument
from obygaze_features.common.cli import table_options
from obygaze_features.common.tables import Table, map_columns, read_table
from obygaze_features.common.text import counted
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.manifests.importers.mobygaze import frame_span
from obygaze_features.manifests.importers.reading import decimal_point
from obygaze_features.manifests.items import safe_id

__all__ = ["import_csv"]

TIMES, FRAMES = ("start", "end"), ("start_frame", "end_frame")
_SAME = ("film", "annotator", *TIMES, *FRAMES, "framerate", "concepts", "comment")
MEANINGS: dict[str, tuple[str, ...]] = {**dict.fromkeys(_SAME, ()), "level": ("label",)}


def import_csv(
    source: Path,
    columns: Mapping[str, str] | None = None,
    films: Mapping[str, Film] | None = None,
    *,
    delimiter: str | None = None,
    frame_rate: float | None = None,
) -> Timelines:
    """Read a table with a row a segment; columns that mean nothing are left alone.

    Parameters
    ----------
    source
        The table. Times are in ``start`` and ``end``, as seconds or h:mm:ss, or else frames in
        ``start_frame`` and ``end_frame``, whose end frame belongs to the segment.
    columns
        Meaning -> column, for meanings (film, annotator, start ...) that go by another name.
    films
        What is known of the films.
    delimiter
        What stands between the cells; by default what the header has.
    frame_rate
        Frames a second, for rows that do not say it in a column ``framerate``.
    """
    uneven: list[tuple[int, int]] = []
    table = read_table(source, delimiter=delimiter, bad_rows=uneven).without_blank_rows()
    table = map_columns(table, MEANINGS, columns)
    by_frames = not set(TIMES) <= set(table.columns) and FRAMES[0] in table.columns
    times = FRAMES if by_frames else TIMES
    table = map_columns(table, MEANINGS, required=("film", "annotator", *times, "level"))
    if frame_rate is not None and not by_frames:
        raise UsageError(
            f"a frame rate is for the columns {' and '.join(FRAMES)}; {source} has "
            f"{' and '.join(TIMES)}"
        )
    if by_frames and frame_rate is None and "framerate" not in table.columns:
        raise AnnotationError(
            f"{source}, line 1: frames, and no column 'framerate'; "
            "say how many there are a second with --frame-rate"
        )
    rate = None if not by_frames else "" if frame_rate is None else f"{frame_rate:.6f}"
    width = len(table.columns)
    short = [
        Remark(
            f"{source.name}, line {line}",
            "",
            "",
            f"{counted(cells, 'cell')} where the header has {width}",
            LEFT_OUT,
        )
        for line, cells in uneven
    ]
    rows = [*short, *_rows(table, rate)]
    return gather(safe_id(source.stem), rows, films, source=source.name)


def _rows(table: Table, rate: str | None) -> Iterator[Row | Remark]:
    """`rate` is None where times are not in frames, and empty where each row has its own."""
    for line, cells in zip(table.lines, table.rows(), strict=True):
        where = f"{table.path.name}, line {line}"
        film, annotator = unguarded(cells["film"].strip()), cells["annotator"].strip()
        try:
            if rate is None:
                start, end = (moment(cells[name], name, table.delimiter) for name in TIMES)
            else:
                own = decimal_point(cells.get("framerate", ""), table.delimiter) or rate
                frames = {name: cells[name].strip() for name in FRAMES}
                start, end = frame_span({**frames, "framerate": own})
        except (AnnotationError, ManifestError) as error:
            yield Remark(where, film, annotator, str(error), LEFT_OUT)
        else:
            concepts = concept_names(unguarded(cells.get("concepts", "")))
            comment = unguarded(cells.get("comment", ""))
            yield Row(where, film, annotator, start, end, cells["level"], concepts, comment)


@click.command("csv")
@source_argument
@table_options(", ".join(MEANINGS), "annotator=who")
@click.option(
    "--frame-rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Frames a second, where times are in frames and rows do not say it.",
)
@output_options
def command(
    source: Path,
    columns: dict[str, str],
    delimiter: str | None,
    frame_rate: float | None,
    films: Path | None,
    output: Path,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Any CSV table of segments, with a column mapping.

    A row is a segment. Columns called film, annotator, start, end, level, concepts and comment
    are understood; name others with --column. Times are seconds (75.5) or h:mm:ss (0:01:15.5).
    Frames go by the columns start_frame and end_frame, the end frame being part of the segment,
    with a column framerate or --frame-rate. Several concepts in a cell are separated by bars or
    commas. Ends with exit code 3 if rows had to be left out.

    \b
    Examples:
      obygaze annotations import csv segments.csv -o timelines/mine --films films.csv
      obygaze annotations import csv marks.csv -o timelines/mine --column annotator=who \\
        --column start_frame=from --column end_frame=to --frame-rate 25
    """
    known = read_films(films)
    found = import_csv(
        source,
        columns,
        known,
        delimiter=delimiter,
        frame_rate=frame_rate,
    )
    finish(found, output, overwrite=overwrite, as_json=as_json)
