"""Helpers for importers: list literals, times, clips from file names, pinned downloads."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from obygaze_features.common.formatting import MAX_TIME_S, shorten
from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import format_seconds, name_film
from obygaze_features.items.media import MEDIA_SUFFIXES, item_of_file, relative_path

MAX_DOWNLOAD_BYTES = 256 * 2**20
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


@contextlib.contextmanager
def source_or_download(dataset: str, source: Path | str | None) -> Iterator[Path]:
    """Yield the path of the source, or of the downloaded public file if `source` is None."""
    if source is not None:
        yield Path(source)
        return
    about = reference_json("sources.json")[dataset]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(about["file"]).name)
        path.write_bytes(download_pinned(about["url"], sha256=about["sha256"]))
        yield path


def download_pinned(url: str, *, sha256: str) -> bytes:
    """Return the contents of a public file; raise an error if the checksum differs.

    The address must start with http or https, so that no local file can be read.
    """
    if not url.startswith(("https://", "http://")):
        raise ManifestError(f"{url} is not an http address")
    import http.client  # imported here, because these imports would slow down every command
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 (checked above)
            data: bytes = answer.read(MAX_DOWNLOAD_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ManifestError(
            f"{url} cannot be downloaded ({error}); download the file by other means and pass its "
            "path as SOURCE"
        ) from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise ManifestError(
            f"{url} is not the expected file (SHA-256 {digest}, not {sha256}); pass a SOURCE"
        )
    return data
