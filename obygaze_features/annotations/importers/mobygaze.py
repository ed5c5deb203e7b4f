"""Import MObyGaze as published: the segments of 20 films."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from obygaze_features.annotations.build import build_timelines, read_films
from obygaze_features.annotations.importers.csv_table import read_rows
from obygaze_features.annotations.timelines import Film, Films, Timelines
from obygaze_features.common.formatting import shorten
from obygaze_features.common.tables import read_mapped_table
from obygaze_features.errors import ManifestError
from obygaze_features.items.films import known_titles
from obygaze_features.manifests.importers.reading import parse_list, published
from obygaze_features.manifests.labels import SEPARATOR, split_concepts

REQUIRED = ("annotator", "concepts", "start_frame", "end_frame", "framerate")
RENAMED = {"level": "label", "film": "imdb_key"}
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,12})?", re.ASCII)


def import_timelines(source: Path | str, films: Films) -> Timelines:
    """Read MObyGaze's segments of 20 films."""
    table = read_mapped_table(Path(source), dict.fromkeys(RENAMED, ()), RENAMED, required=REQUIRED)
    known = known_titles()
    titles = dict(zip(table["film"], table.get("movie_title"), strict=True))
    titled = {film: Film(known.get(film, title)) for film, title in titles.items() if film}
    table.columns["comment"] = list(map(_comment, table.get("comment")))
    rows = read_rows(table, _frame_span, _concepts)
    return build_timelines(films=titled | read_films(films), rows=rows, **published("mobygaze"))


def _concepts(cell: str) -> list[str]:
    """Parse a list of concepts; a bar in a name separates two concepts, as in obygaze's tables."""
    return split_concepts(SEPARATOR.join(parse_list(cell)))


def _comment(cell: str) -> str:
    """Join comments, which are published as a list; return any other cell unchanged."""
    try:
        return "; ".join(parse_list(cell))
    except ManifestError:
        return cell


def _frame_span(cells: Mapping[str, str], delimiter: str) -> tuple[float, float]:
    """Return a segment's start and end in seconds, using the row's own frame rate.

    The end frame is part of the segment, so the segment lasts until the next frame begins.
    """
    rate = _number(cells["framerate"], "framerate")
    first = _number(cells["start_frame"], "start_frame")
    last = _number(cells["end_frame"], "end_frame")
    if not rate > 0:
        raise ManifestError(f"framerate must be above 0 (got {cells['framerate']!r})")
    return round(first / rate, 6), round((last + 1) / rate, 6)


def _number(text: str, column: str) -> float:
    """Parse a number, even if a spreadsheet saved it with a decimal comma."""
    plain = text.strip().replace(",", ".")
    if _NUMBER.fullmatch(plain) is None:
        raise ManifestError(f"{column} {shorten(text)} is not a number")
    return float(plain)
