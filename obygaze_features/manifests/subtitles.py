"""Read the words spoken in each clip from subtitles in the formats SRT and WebVTT."""

from __future__ import annotations

import codecs
import html
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from obygaze_features.common.files import read_bytes
from obygaze_features.common.grouping import group_by
from obygaze_features.common.names import composed
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.films import film_titles, match_films
from obygaze_features.items.items import WITHHELD, Items, media_stem
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.manifest import Manifest

SUFFIXES = (".srt", ".vtt")
_TIME = r"((?:\d{1,4}:)?\d{1,2}:\d{1,2}[.,]\d{1,3})"
#: A line of times and the number above it; some files have no blank line between subtitles.
_TIMES = re.compile(
    rf"^(?:[ \t]*\d+[ \t]*\n)?[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}.*\n?", re.ASCII | re.MULTILINE
)
_TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_LANGUAGE = re.compile(r"\.[a-z]{2,3}(?:-[A-Za-z]{2,4})?$")


class Line(NamedTuple):
    """A subtitle, shown from `start` to `end` (in seconds of the film)."""

    start: float
    end: float
    text: str


def with_subtitles(manifest: Manifest, source: Path | str, *, shift: float = 0.0) -> Manifest:
    """Return a manifest of the words spoken in each clip, as texts with the same ids and columns.

    A subtitle goes to the clip that contains most of it. Clips of films without subtitles are left
    out. The result's `notes` name films and files that could not be used, and count the subtitles
    that belong to no clip.

    Parameters
    ----------
    manifest
        The clips, which are spans of films.
    source
        An SRT or WebVTT file, or a folder with one such file per film. The name of a file is its
        film's id, title or video (``tt0467406.srt``, ``Juno (2007).en.vtt``).
    shift
        Shift all subtitles by this many seconds; a negative number makes them earlier.
    """
    items = manifest.items
    source = Path(source)
    if np.isnan(items.starts).all():
        raise ManifestError(
            f"{manifest.name} has no spans of films (columns start and end), which are needed to "
            "find a clip's words. Import a table of spans: obygaze manifests import csv"
        )

    lines_of, notes = _read_films(source, items)
    texts = [""] * len(items)
    used = []
    for film, rows in group_by(range(len(items)), items.films.__getitem__).items():
        if film not in lines_of:
            notes.append(f"{film}: no subtitles (clips left out: {len(rows):,})")
            continue
        used += rows
        outside = 0
        for line in lines_of[film]:
            shifted = Line(line.start + shift, line.end + shift, line.text)
            heard = _clips_with(shifted, items.starts[rows], items.ends[rows])
            outside += not heard
            for clip in heard:
                row = rows[clip]
                texts[row] = f"{texts[row]} {line.text}".lstrip()
        if outside:
            notes.append(
                f"{film}: subtitles in no clip: {outside:,} of {len(lines_of[film]):,}. Check that "
                "the file is for this cut of the film, or shift the times with --shift SECONDS"
            )
    if not any(texts):
        raise ManifestError(f"{source}: no clip of {manifest.name} has any words: {notes[0]}")

    spoken = replace(
        items,
        kinds=["text"] * len(items),
        media=[""] * len(items),
        texts=texts,
        extra={name: cells for name, cells in items.extra.items() if name != WITHHELD},
    )
    return replace(
        manifest,
        name=manifest.name + "-words",
        items=spoken.take(sorted(used)),
        source=f"{manifest.source}; subtitles: {source.name}",
        default_labels=None,
        folder=None,
        notes=notes,
        _parts={},
    )


def read_subtitles(path: Path) -> list[Line]:
    """Return the subtitles of an SRT or WebVTT file, ordered by time, without style tags.

    Subtitles that end before they start are left out.
    """
    text = re.sub(r"\r\n?", "\n", _decode(path))
    lines = []
    _, *pieces = _TIMES.split(text)
    for start_text, end_text, below in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        start = parse_time(start_text, "start", "\n")
        end = parse_time(end_text, "end", "\n")
        words = re.split(r"(?:^|\n)\s*\n", below)[0]
        plain = " ".join(html.unescape(_TAG.sub(" ", words)).split())
        if plain and start <= end:
            lines.append(Line(start, end, plain))
    if not lines:
        raise ManifestError(path, "has no subtitles with times (00:01:02,500 --> 00:01:04,000)")
    return sorted(lines)


def _read_films(source: Path, items: Items) -> tuple[dict[str, list[Line]], list[str]]:
    """Return the subtitles of each film, and a note on each file that cannot be used."""
    titles = film_titles(items)
    videos = {}
    for film, media in zip(items.films, items.media, strict=True):
        videos[composed(media_stem(Path(media).name))] = film

    paths = [source]
    if source.is_dir():
        paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)

    lines_of = {}
    notes = []
    for path in paths:
        # The stem of "Juno (2007).en.srt" is "Juno (2007)".
        stem = composed(_LANGUAGE.sub("", path.stem))
        try:
            film, *_ = match_films(videos.get(stem, stem), titles)
            lines = read_subtitles(path)
        except (ManifestError, UsageError) as error:
            notes.append(f"{path.name} is not used: {error}")
            continue
        if film in lines_of:
            notes.append(f"{path.name} is not used: {film} already has subtitles")
        else:
            lines_of[film] = lines
    return lines_of, notes


def _clips_with(line: Line, starts: np.ndarray, ends: np.ndarray) -> list[int]:
    """Return the clip that contains most of a subtitle.

    Overlapping clips that contain equally much of it, such as two annotators' clips, share it.
    """
    end = max(line.end, line.start + 1e-3)  # some subtitles have no duration
    shares = np.round(np.minimum(end, ends) - np.maximum(line.start, starts), 6)
    best = int(np.nan_to_num(shares, nan=-np.inf).argmax())
    if not shares[best] > 0:
        return []
    together = np.minimum(ends, ends[best]) - np.maximum(starts, starts[best]) > 1e-6
    clips: list[int] = np.flatnonzero((shares == shares[best]) & together).tolist()
    return clips


def _decode(path: Path) -> str:
    data = read_bytes(path, ManifestError)
    encoding = "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")
