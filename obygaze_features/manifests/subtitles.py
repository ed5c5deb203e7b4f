"""Read the words spoken in each clip from subtitles: SRT, WebVTT, or MObyGaze's SQL dump."""

from __future__ import annotations

import codecs
import contextlib
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from obygaze_features.common.files import require_readable
from obygaze_features.common.tables import read_table
from obygaze_features.common.text import MAX_TIME_S, counted, format_time, join_some
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.films import match_film, titles_in
from obygaze_features.items.items import Items, media_stem
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.manifest import Manifest

SUFFIXES = (".srt", ".vtt")
DUMP, DUMP_OF_FILMS = "tractive_subtitles.sql", "tractive_movies.sql"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}", re.ASCII)
_BROKEN_TIMES = re.compile(
    r"[ \t]*\d[\d:.,]*+[^\n]{0,40}?(?:->|[-\u2013\u2014]>)[ \t]*\d", re.ASCII
)
_TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_ROW = re.compile(
    r"\(\d+,(\d+),\d+,\d+,'([0-9:.]+)','([0-9:.]+)',(?:NULL|'((?:[^'\\]|\\.)*)'),-?\d+\)", re.DOTALL
)
_FILM_ROW = re.compile(r"\((\d+),'(tt\d+)','")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "", "Z": ""}


class Line(NamedTuple):
    """A subtitle, shown from `start` to `end` (in seconds of the film)."""

    start: float
    end: float
    text: str


def with_subtitles(
    manifest: Manifest, source: Path | str, *, shift: float = 0.0, films: Path | str | None = None
) -> Manifest:
    """Return a manifest of the words spoken in each clip; see `Manifest.with_subtitles`."""
    items, source = manifest.items, Path(source)
    if not abs(shift) <= MAX_TIME_S:
        raise UsageError(f"--shift must be within ±{MAX_TIME_S:g} seconds (got {shift})")
    if np.isnan(items.starts).all():
        raise ManifestError(
            f"{manifest.name} has no spans of films (columns start and end), which are needed to "
            "find a clip's words. Import a table of spans: obygaze manifests import csv"
        )
    problems: list[str] = []
    texts = [""] * len(items)
    videos = {media_stem(Path(item.media).name): item.film for item in items if item.media}
    lines_of = dict(_read(source, titles_in(items), videos, films, problems))
    for film in dict.fromkeys(items.films):
        lines = [
            Line(line.start + shift, line.end + shift, line.text) for line in lines_of.get(film, ())
        ]
        rows = np.flatnonzero(np.array(items.films) == film)
        for row, words in _assign(film, lines, items, rows, problems).items():
            texts[row] = " ".join(words)
    if not any(texts):
        reason = problems[0] if problems else "no subtitle has words"
        raise ManifestError(f"{source}: no clip of {manifest.name} has any words ({reason})")
    used = [row for row, film in enumerate(items.films) if lines_of.get(film)]
    columns = (items.ids, items.films, texts)
    ids, of_films, words = ([column[row] for row in used] for column in columns)
    starts, ends, blank = items.starts[used], items.ends[used], [""] * len(used)
    spoken = Items(ids, ["text"] * len(used), of_films, blank, words, starts, ends)
    return replace(
        manifest,
        name=f"{manifest.name}-words",
        items=spoken,
        source=f"{manifest.source}; subtitles: {source.name}",
        default_labels=None,
        folder=None,
        notes=problems,
        _parts={},
    )


def read_subtitles(path: Path) -> tuple[list[Line], list[str]]:
    """Return the subtitles of an SRT or WebVTT file, ordered by time, without style tags.

    Also return the lines of the file whose times cannot be read, or whose end precedes the start.
    """
    lines, broken = [], []
    times: re.Match[str] | None = None
    words: list[str] = []
    for number, row in enumerate([*re.split(r"\r\n|\r|\n", _decode(path)), ""], start=1):
        match = _TIMES.match(row)
        if match and _seconds(match, 4) < _seconds(match, 0):
            match = None
        is_times = match or _BROKEN_TIMES.match(row)
        if is_times and not match:
            broken.append(f"line {number}: {row.strip()[:60]}")
        if is_times or not row.strip():  # some files lack the blank line before the next number
            words = words[:-1] if is_times and words and words[-1].strip().isdigit() else words
            if times and (text := _plain(" ".join(words))):
                lines.append(Line(_seconds(times, 0), _seconds(times, 4), text))
            times, words = match, []
        elif times:
            words.append(row)
    if not lines:
        raise ManifestError(path, "has no subtitles with times (00:01:02,500 --> 00:01:04,000)")
    return sorted(lines), broken


def _read(
    source: Path,
    titles: Mapping[str, str],
    videos: Mapping[str, str],
    films: Path | str | None,
    problems: list[str],
) -> Iterator[tuple[str, list[Line]]]:
    """Yield each film with its subtitles; add a message to `problems` for each unusable file."""
    if not source.exists():
        raise ManifestError(f"{source} does not exist; pass a file or folder of subtitles")
    if source.suffix == ".sql" or (source / DUMP).is_file():
        yield from _read_dump(source if source.suffix == ".sql" else source / DUMP, titles)
        return
    files = _subtitle_files(source)
    names = [p.relative_to(source).as_posix() if p != source else p.name for p in files]
    named = _read_film_table(films) if films else {}
    for file in sorted(named.keys() - {*names, *(path.name for path in files)}):
        problems.append(f"{named[file]}: {films} lists {file}, which is not in {source}")
    used: dict[str, Path] = {}
    for path, name in zip(files, names, strict=True):
        # The stem of "Juno (2007).en.srt" is "Juno (2007)".
        stem = re.sub(r"\.[a-z]{2,3}(?:-[A-Za-z]{2,4})?$", "", path.stem)
        film_name = named.get(name) or named.get(path.name) or videos.get(stem) or stem
        try:
            film = match_film(film_name, titles)
            if film in used:
                raise ManifestError(f"{used[film].name} already has the subtitles of {film}")
            lines, broken = read_subtitles(path)
            yield film, lines
            used[film] = path
            if broken:
                problems.append(
                    f"{name}: {counted(len(broken), 'subtitle')} ignored, because the times cannot "
                    f"be read, or the end precedes the start: {join_some(broken, 2)}"
                )
        except UsageError:
            problems.append(
                f"{name}: ignored, as {film_name!r} is not the id, title or video of exactly one "
                "film. List its film in a table: --film-table TABLE.csv (columns film, file)"
            )
        except ManifestError as problem:
            problems.append(f"{name}: ignored ({problem.reason})")


def _subtitle_files(source: Path) -> list[Path]:
    """Return the subtitle files in a folder, or the file itself."""
    if not source.is_dir():
        return [source]
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise ManifestError(f"{source} has no subtitle files ({', '.join(SUFFIXES)}) and no {DUMP}")
    return files


def _read_film_table(path: Path | str) -> dict[str, str]:
    """Return the film of each file that the table lists."""
    table = read_table(Path(path), delimiter=None, required=["film", "file"])
    return dict(zip(table["file"], table["film"], strict=True))


def _read_dump(path: Path, titles: Mapping[str, str]) -> Iterator[tuple[str, list[Line]]]:
    """Yield each film with its subtitles from MObyGaze's dump.

    The dump's second file maps film numbers to IMDb ids.
    """
    numbers = path.with_name(DUMP_OF_FILMS)
    if not numbers.is_file():
        raise ManifestError(f"{path}: put {DUMP_OF_FILMS} next to it, to identify its films")
    film_of = dict(_FILM_ROW.findall(_decode(numbers)))
    lines: dict[str, list[Line]] = {}
    for number, start, end, text in _ROW.findall(_decode(path)):
        if (film := film_of.get(number, "")) in titles:
            words = re.sub(r"\\(.)", lambda mark: _ESCAPES.get(mark[1], mark[1]), text)
            with contextlib.suppress(UnicodeError):  # the dump encodes accents twice
                words = words.encode("latin-1").decode()
            times = parse_time(start, "start"), parse_time(end, "end")
            lines.setdefault(film, []).append(Line(*times, _plain(words)))
    if not lines:
        raise ManifestError(f"{path} has no subtitles for any film of the manifest")
    for film, of_film in lines.items():
        yield film, sorted(of_film)


def _assign(
    film: str, lines: list[Line], items: Items, rows: np.ndarray, problems: list[str]
) -> dict[int, list[str]]:
    """Return the words of each row of a film.

    A subtitle goes to the clip that contains most of it. Overlapping clips, such as those of two
    annotators, may share a subtitle.
    """
    if not lines:
        problems.append(f"{film}: no subtitles; {counted(len(rows), 'clip')} left out")
        return {}
    starts, ends = items.starts[rows], items.ends[rows]
    words: dict[int, list[str]] = {}
    outside = []
    for line in lines:
        end = max(line.end, line.start + 1e-3)  # some subtitles have no duration
        shares = np.round(np.minimum(end, ends) - np.maximum(line.start, starts), 6)
        best = int(np.nanargmax(np.nan_to_num(shares, nan=-np.inf)))
        if not shares[best] > 0:
            outside.append(line)
            continue
        together = (np.minimum(ends, ends[best]) - np.maximum(starts, starts[best])) > 1e-6
        for clip in np.flatnonzero((shares == shares[best]) & together).tolist():
            words.setdefault(int(rows[clip]), []).append(line.text)
    if outside:
        last = format_time(float(np.nanmax(ends)))
        problems.append(
            f"{film}: {len(outside):,} of {counted(len(lines), 'subtitle')} are in no clip (first "
            f"at {format_time(outside[0].start)}; the last clip ends at {last}). Check that the "
            "subtitles are for this cut of the film, or shift them with --shift SECONDS"
        )
    return words


def _decode(path: Path) -> str:
    require_readable(path, ManifestError)
    data = path.read_bytes()
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if b"\0" in data and encoding != "utf-16":
        raise ManifestError(path, "is not a text file")
    for name in (encoding or "utf-8", "cp1252"):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(name)
    return data.decode("latin-1")


def _plain(text: str) -> str:
    """Return the text without tags, entities and line breaks."""
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def _seconds(times: re.Match[str], first: int) -> float:
    hours, minutes, seconds, fraction = times.groups()[first : first + 4]
    full_seconds = int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
    return round(full_seconds + float(f"0.{fraction}"), 3)
