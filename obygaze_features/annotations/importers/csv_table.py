"""Any CSV table of segments: columns are found by their names, or by --column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from obygaze_features.annotations.build import Films, SourceRow, build_timelines
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.tables import Table, map_columns, read_mapped_table
from obygaze_features.common.text import counted, for_shell, shorten
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.manifests.importers.reading import decimal_point, parse_time
from obygaze_features.manifests.items import safe_id
from obygaze_features.manifests.labels import OwnLevels, choose_scheme, parse_concepts

TIMES, FRAMES = ("start", "end"), ("start_frame", "end_frame")
#: Meaning -> other names of its column.
MEANINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("film", "annotator", *TIMES, *FRAMES, "framerate", "concepts", "comment"), ()),
    "level": ("label",),
}
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?", re.ASCII)


def import_timelines(
    source: Path | str,
    columns: Mapping[str, str] | None = None,
    films: Films = None,
    *,
    delimiter: str | None = None,
    frame_rate: float | None = None,
    levels: OwnLevels = None,
) -> Timelines:
    """Read a table with one row per segment; columns without a meaning are ignored.

    Parameters
    ----------
    source
        The table. Times are in ``start`` and ``end``, as seconds or h:mm:ss, or else frames in
        ``start_frame`` and ``end_frame``, whose end frame belongs to the segment.
    columns
        Meaning -> column, for meanings (film, annotator, start ...) that have another name.
    films
        Titles and ends of the films, or a table with them.
    delimiter
        What separates the cells; by default what the header has.
    frame_rate
        Frames per second, for rows that do not have it in a column ``framerate``.
    levels
        Your levels, from the least to the most, with the concepts as they come; or a
        `LabelScheme`, or a TOML or JSON file, or the folder of a manifest or of timelines that has
        one. By default those of ObyGaze12.
    """
    source = Path(source)
    bad_rows: list[tuple[int, int]] = []
    table = read_mapped_table(source, MEANINGS, columns, delimiter=delimiter, bad_rows=bad_rows)
    if "imdb_key" in table.columns and "film" not in table.columns:
        command = f"obygaze annotations import mobygaze {for_shell(source)} -o FOLDER"
        raise AnnotationError(f"{source} looks like MObyGaze's table; import it with: {command}")
    by_frames = not set(TIMES) <= set(table.columns) and FRAMES[0] in table.columns
    times = FRAMES if by_frames else TIMES
    table = map_columns(table, MEANINGS, required=("film", "annotator", *times, "level"))
    if by_frames and frame_rate is None and "framerate" not in table.columns:
        raise AnnotationError(
            f"{source}, line 1: frames, and no column 'framerate'; "
            "give the frames per second with --frame-rate"
        )
    default_rate = "" if frame_rate is None else f"{frame_rate:.6f}"
    width = len(table.columns)
    rows: list[SourceRow | Remark] = []
    for line, cells in bad_rows:
        problem = f"{counted(cells, 'cell')} where the header has {width}"
        rows.append(Remark(f"{source.name}, line {line}", "", "", problem, LEFT_OUT))
    rows += read_rows(table, by_frames=by_frames, default_rate=default_rate)
    own = choose_scheme(source.stem, levels)
    return build_timelines(safe_id(source.stem), rows, films, own, source=source.name)


def read_rows(
    table: Table,
    *,
    by_frames: bool,
    default_rate: str = "",
    parse_concepts: Callable[[str], Iterable[str]] = parse_concepts,
) -> Iterator[SourceRow | Remark]:
    """The segments of a table whose columns are called after `MEANINGS`."""
    for line, cells in zip(table.lines, table.rows(), strict=True):
        location = f"{table.path.name}, line {line}"
        film, annotator = (cells[name].strip() for name in ("film", "annotator"))
        try:
            if by_frames:
                rate = decimal_point(cells.get("framerate", ""), table.delimiter) or default_rate
                frames = {name: cells[name].strip() for name in FRAMES}
                start, end = _frame_span({**frames, "framerate": rate})
            else:
                start, end = (parse_time(cells[name], name, table.delimiter) for name in TIMES)
            concepts = tuple(parse_concepts(cells.get("concepts", "")))
        except (AnnotationError, ManifestError) as error:
            yield Remark(location, film, annotator, str(error), LEFT_OUT)
        else:
            comment = cells.get("comment", "")
            segment = Segment(film, annotator, start, end, cells["level"], concepts, comment)
            yield SourceRow(location, segment)


def _frame_span(cells: Mapping[str, str]) -> tuple[float, float]:
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
