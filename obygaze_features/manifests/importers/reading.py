"""Helpers for importers: list literals, times, films of files, published data."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from obygaze_features.common.formatting import MAX_TIME_S, shorten
from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import format_seconds, name_film
from obygaze_features.items.media import MEDIA_SUFFIXES, item_of_file, relative_path

_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):([0-5]?\d(?:\.\d*)?)", re.ASCII)
_SECONDS = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_STRING = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*(?:{_STRING})\s*)*+)?\]")
_STRINGS = re.compile(_STRING)


def parse_list(text: str) -> list[str]:
    """Parse a list of strings as Python prints it, without evaluating it.

    Examples
    --------
    >>> parse_list("['Speech', ' Exp of  emotion']")
    ['Speech', 'Exp of emotion']
    >>> parse_list("['']")
    []
    """
    if _LIST.fullmatch(text.strip()) is None:
        raise ManifestError(f"{shorten(text)} is not a list such as ['Body', 'Look']")
    strings = (" ".join(quoted[1:-1].split()) for quoted in _STRINGS.findall(text))
    return [string for string in strings if string]


def parse_time(text: str, column: str, delimiter: str = ",") -> float:
    """Parse a cell that holds seconds, m:ss or h:mm:ss, and return the time in seconds.

    Examples
    --------
    >>> parse_time("75.5", "start"), parse_time("1:15,5", "start", ";")
    (75.5, 75.5)
    """
    plain = text.strip()
    if delimiter != "," and plain.count(",") == 1:
        plain = plain.replace(",", ".")  # as in spreadsheets of many languages
    clock = _CLOCK.fullmatch(plain)
    if clock and (clock[1] is None or int(clock[2]) < 60):
        hours, minutes, rest = clock.groups(default="0")
        return round(int(hours) * 3600 + int(minutes) * 60 + float(rest), 6)
    if not _SECONDS.fullmatch(plain) or float(plain) > MAX_TIME_S:
        raise ManifestError(
            f"{column} {shorten(text.strip())} is not a time; write seconds or h:mm:ss, up to "
            f"{MAX_TIME_S:g} seconds"
        )
    return round(float(plain), 6)


def span_id(id_: str, start: float) -> str:
    """Return the id of a span of a file: the file's id, and where the span starts.

    Examples
    --------
    >>> span_id("Juno", 90.0)
    'Juno-90s'
    """
    return f"{id_}-{format_seconds(start)}s"


def published(dataset: str) -> dict[str, Any]:
    """Return the name, source, licence and citation of a published data set."""
    about = reference_json("sources.json")[dataset]
    return {
        "name": dataset,
        "source": f"{about['repository']} at {about['revision']}",
        "licence": about["licence"],
        "citation": about["citation"],
    }


def film_of_file(name: str) -> str:
    """Return the film that a media file belongs to; a name without a media suffix is unchanged.

    Examples
    --------
    >>> film_of_file("New Moon.mp4"), film_of_file("Juno/part 1.mp4"), film_of_file("Dr. No")
    ('New Moon', 'Juno', 'Dr. No')
    """
    path = relative_path(name)
    if PurePosixPath(path).suffix.lower() not in MEDIA_SUFFIXES:
        return name
    item = item_of_file(path)
    return name_film(item.film, item.media)
