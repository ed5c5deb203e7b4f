"""What ELAN exports as tab-delimited text, in either of its two forms.

Without a header a row is an annotation: tier, participant, times, text. With one, tiers have
columns of their own, and annotations of the same times share a row. Either has begin, end and
duration in up to three formats each, and names them in the user's language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from obygaze_features.annotations.elan import part_of
from obygaze_features.common.elan import Document, Span, Tier
from obygaze_features.common.elan_reader import Reading, read_text
from obygaze_features.errors import AnnotationError

__all__ = ["read_tabs"]

#: A format of times: how its columns are headed behind the word for begin or end, and its cells.
FORMATS = (
    ("- hh:mm:ss.ms", re.compile(r"(\d{1,4}):(\d\d):(\d\d\.\d{1,3})", re.ASCII)),
    ("- ss.msec", re.compile(r"(\d{1,9}\.\d{1,3})", re.ASCII)),
    ("- msec", re.compile(r"(\d{1,12})", re.ASCII)),
)
_TIME_HEAD = re.compile(r"- (?:hh:mm:ss[.:]\w+|ss\.msec|msec)\b")
_TIME_CODE = re.compile(r"\d\d:\d\d:\d\d[:;]\d\d", re.ASCII)
#: A header's words where a row is an annotation, as when ELAN heads the columns of the first form.
_TIERS = ("tier", "tier name")
_TEXTS = ("annotation", "annotation value", "value", "text")
_SAID_OF = re.compile(r'"?#file:.*?([^/\\\r"]+)\.eaf\b')
_TIME_CELL = re.compile(r"\d+:\d\d:\d\d[.:]\d+|\d+(?:\.\d+)?", re.ASCII)

#: Tier, participant, and twelve columns of times at most, stand before the text.
TIMES_END = 16

Line = tuple[int, list[str]]


@dataclass(frozen=True)
class _Note:
    """A cell with an annotation's text, and what its row says of it."""

    film: str
    tier: str
    participant: str
    span: Span
    whole: bool  #: its times are whole numbers, and nothing says of what


def read_tabs(path: Path) -> dict[str, Reading]:
    """The documents of an export: film -> document; the film is empty where no column names it.

    A tier whose name has that of another in it, and the word level, concepts or comment, is taken
    for one below that.
    """
    text = read_text(path, AnnotationError, exported=True)
    split = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1)]
    # Lines about media files come first: "#file:///films/juno.mp4 -- offset: 0
    lines = [
        (number, line.split("\t"))
        for number, line in split
        if line.strip() and not line.lstrip('"').startswith("#")
    ]
    headed = bool(lines) and any(map(_TIME_HEAD.search, lines[0][1]))
    found = list(_headed(lines) if headed else _plain(lines))
    notes = [one for one in found if isinstance(one, _Note)]
    if not notes and any(_TIME_CODE.fullmatch(cell) for _, cells in lines for cell in cells):
        raise AnnotationError(
            f"{path} has its times as time code only (hh:mm:ss:ff), and not how many frames are a "
            "second; export it again with the time format hh:mm:ss.ms ticked"
        )
    if not notes:
        raise AnnotationError(
            f"{path} is not what ELAN exports as tab-delimited text: it has no rows with a tier, "
            "begin and end times and a text"
        )
    left_out = [one for one in found if not isinstance(one, _Note)]
    kept = []
    if not headed and all(one.whole for one in notes):
        kept = ["its times are whole numbers, and were taken for milliseconds"]
    # A film that no row names may be named above them all.
    said = [name[1] for _, line in split if (name := _SAID_OF.match(line))]
    only = said[0] if len(said) == 1 else ""
    films = list(dict.fromkeys(note.film for note in notes))
    readings = {}
    for at, film in enumerate(films):
        of_film = [note for note in notes if note.film == film]
        readings[film or only] = replace(_reading(of_film, [] if at else left_out), kept=kept)
    return readings


def _headed(lines: Sequence[Line]) -> Iterator[_Note | tuple[str, str]]:
    header = [cell.strip() for cell in lines[0][1]]
    places = [[at for at, cell in enumerate(header) if cell.endswith(head)] for head, _ in FORMATS]
    best = _best(places)
    tiers = {at: cell for at, cell in enumerate(header) if not _TIME_HEAD.search(cell)}
    words = [cell.casefold() for cell in header]
    tier_at, text_at, who_at = (
        next((at for at, word in enumerate(words) if word in known), None)
        for known in (_TIERS, _TEXTS, ("participant",))
    )
    for number, cells in lines[1:]:
        times = _times(cells, best, places)
        film = _film(cells)
        if tier_at is not None and text_at is not None:
            who = "" if who_at is None else _cell(cells, who_at).strip()
            tier, text = _cell(cells, tier_at).strip(), _cell(cells, text_at)
            yield _note(film, tier, who, times, text, f"line {number}")
            continue
        for at, cell in enumerate(cells):
            if at in tiers and cell.strip() and not cell.strip().endswith(".eaf"):
                yield _note(film, tiers[at], "", times, cell, f"line {number}")


def _plain(lines: Sequence[Line]) -> Iterator[_Note | tuple[str, str]]:
    def mostly(pattern: re.Pattern[str], column: int) -> bool:
        fit = sum(bool(pattern.fullmatch(_cell(cells, column))) for _, cells in lines)
        return 2 * fit > len(lines)

    places = [[at for at in range(1, TIMES_END) if mostly(cell, at)] for _, cell in FORMATS]
    best = _best(places)
    if best is None:
        return
    first = text_at = places[best][0]
    while mostly(_TIME_CELL, text_at):
        text_at += 1
    for number, cells in lines:
        participant = _cell(cells, 1).strip() if first > 1 else ""
        times, text = _times(cells, best, places), _cell(cells, text_at)
        film = _film(cells[text_at + 1 :])
        whole = FORMATS[best][0] == "- msec"
        yield _note(film, cells[0].strip(), participant, times, text, f"line {number}", whole)


def _best(places: Sequence[Sequence[int]]) -> int | None:
    """The first format of which there are a begin and an end."""
    return next((at for at, columns in enumerate(places) if len(columns) >= 2), None)


def _cell(cells: Sequence[str], column: int) -> str:
    return cells[column] if column < len(cells) else ""


def _times(
    cells: Sequence[str], best: int | None, places: Sequence[Sequence[int]]
) -> list[int | None]:
    if best is None:
        return [None, None]
    return [_milliseconds(_cell(cells, column), best) for column in places[best][:2]]


def _note(
    film: str,
    tier: str,
    participant: str,
    times: Sequence[int | None],
    text: str,
    where: str,
    whole: bool = False,
) -> _Note | tuple[str, str]:
    start, end = times
    if start is None or end is None:
        return where, "has no times where other rows have them"
    return _Note(film, tier, participant, Span(start, end, text, {}, where), whole)


def _milliseconds(cell: str, place: int) -> int | None:
    found = FORMATS[place][1].fullmatch(cell.strip())
    if found is None:
        return None
    if place == 0:
        hours, minutes, rest = found.groups()
        return int(hours) * 3_600_000 + int(minutes) * 60_000 + round(float(rest) * 1000)
    return round(float(found[1]) * 1000) if place == 1 else int(found[1])


def _film(cells: Sequence[str]) -> str:
    """The film by the file that a row of an export of several says it is from."""
    named = next((cell.strip() for cell in cells if cell.strip().endswith(".eaf")), "")
    return PurePosixPath(named.replace("\\", "/")).stem


def _reading(notes: Sequence[_Note], left_out: Sequence[tuple[str, str]]) -> Reading:
    """The notes of one film as a document, with tiers below others where they belong."""
    spans: dict[str, list[Span]] = {}
    participants: dict[str, str] = {}
    for note in notes:
        spans.setdefault(note.tier, []).append(note.span)
        participants.setdefault(note.tier, note.participant)
    left_out = list(left_out)
    above = {tier: _above(tier, spans) for tier in spans}
    for tier, parent in above.items():
        if parent is None:
            continue
        row_of = {(one.start, one.end): row for row, one in enumerate(spans[parent])}
        for one in spans[tier]:
            row = row_of.get((one.start, one.end))
            if row is None:
                left_out.append((one.where, f"hangs on no annotation of {parent!r}"))
            else:
                upper = spans[parent][row]
                spans[parent][row] = replace(upper, beside={**upper.beside, tier: one.value})
    tiers = [
        Tier(tier, "", spans[tier], participant=participants[tier])
        for tier, parent in above.items()
        if parent is None
    ]
    return Reading(Document(tiers), left_out)


def _above(tier: str, tiers: Iterable[str]) -> str | None:
    """The tier that one is below, by their names."""
    if part_of(tier) is None:
        return None
    return max(
        (one for one in tiers if part_of(one) is None and one in tier), key=len, default=None
    )
