"""Times and concepts in the cells of tables, as people write them and as we write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from obygaze_features.common.text import shorten
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.importers.reading import clock_seconds, decimal_point
from obygaze_features.manifests.items import MAX_TIME_S
from obygaze_features.manifests.labels import SEPARATOR

_SECONDS = re.compile(r"\d{1,10}(?:\.\d*)?|\.\d+", re.ASCII)
_COMMAS = re.compile(r"[,;]")


def parse_seconds(text: str, column: str) -> float:
    """A time in seconds from a cell: a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise AnnotationError(f"{column} {shorten(text)} is not a number of seconds") from None
    if not 0 <= value <= MAX_TIME_S:
        raise AnnotationError(f"{column} {shorten(text)} is not a time in a film")
    return round(value, 6)


def parse_time(text: str, column: str, delimiter: str = ",") -> float:
    """A time in seconds from a cell that holds seconds, m:ss or h:mm:ss.

    Examples
    --------
    >>> parse_time("75.5", "start"), parse_time("1:15.5", "start")
    (75.5, 75.5)
    """
    plain = decimal_point(text, delimiter)
    if (seconds := clock_seconds(plain)) is not None:
        return seconds
    if _SECONDS.fullmatch(plain):
        return parse_seconds(plain, column)
    raise AnnotationError(
        f"{column} {shorten(text.strip())} is not a time; write seconds or h:mm:ss"
    )


def format_time(seconds: float) -> str:
    """Seconds as h:mm:ss, to the millisecond.

    Examples
    --------
    >>> format_time(75.5), format_time(3600), format_time(0.0004)
    ('0:01:15.5', '1:00:00', '0:00:00')
    """
    whole, rest = divmod(round(seconds * 1000), 1000)
    text = f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{text}.{rest:03d}".rstrip("0") if rest else text


def parse_concepts(text: str) -> tuple[str, ...]:
    """The concepts of a cell, separated by bars, or where there is no bar, by commas.

    Examples
    --------
    >>> parse_concepts("Body, Look"), parse_concepts("Body|Sex, drugs")
    (('Body', 'Look'), ('Body', 'Sex, drugs'))
    """
    parts = text.split(SEPARATOR) if SEPARATOR in text else _COMMAS.split(text)
    return tuple(name for part in parts if (name := " ".join(part.split())))


def format_concepts(names: Sequence[str]) -> str:
    """A cell for `parse_concepts`: commas, and bars where a name has a comma itself.

    Examples
    --------
    >>> format_concepts(["Body", "Look"]), format_concepts(["Sex, drugs"])
    ('Body, Look', 'Sex, drugs|')
    """
    if any(map(_COMMAS.search, names)):
        return SEPARATOR.join(names) + (SEPARATOR if len(names) == 1 else "")
    return ", ".join(names)
