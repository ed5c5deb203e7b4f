"""Timelines as documents of ELAN's, both ways.

A tier is one annotator's: whom it names as its annotator, or else its participant, or else its
own name. An annotation says a level, and behind a colon concepts: ``Sure: Body, Look``. Tiers
below it whose names have the word level, concepts or comment say these instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from obygaze_features.annotations.cells import concept_cell, concept_names
from obygaze_features.annotations.gathering import Row
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.annotations.timelines import Film, Timelines, decimal
from obygaze_features.common.elan import Document, Span, Tier
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.items import Item, safe_id
from obygaze_features.manifests.labels import LabelScheme, LabelSet

__all__ = ["clips_tier", "document_of", "film_of", "name_of", "part_of", "rows_of"]

SEGMENT, CLIP = "segment", "label of a clip"
"""The kinds of tier that we write; the second is not read back as somebody's annotations."""
TITLE, END, TIMES = "obygaze title", "obygaze end", "obygaze times"
NAME = "obygaze name"
_PARTS = {
    "level": "level",
    "levels": "level",
    "concept": "concepts",
    "concepts": "concepts",
    "comment": "comment",
    "comments": "comment",
    "note": "comment",
    "notes": "comment",
}


def part_of(tier: str) -> str | None:
    """What a tier says of the one above it: level, concepts or comment, by a word in its name.

    Examples
    --------
    >>> part_of("annotator1, concepts"), part_of("Comments@Anna"), part_of("dialogue")
    ('concepts', 'comment', None)
    """
    words = re.findall("[a-z]+", tier.casefold())
    return next((_PARTS[word] for word in words if word in _PARTS), None)


def rows_of(
    document: Document, film: str, file: str, scheme: LabelScheme, annotator: str = ""
) -> Iterator[Row | Remark]:
    """The rows of a document; `annotator` has made the tiers that name nobody."""
    exact = _exact(document.notes.get(TIMES, ""))
    for tier in document.tiers:
        who = tier.annotator or tier.participant or annotator or tier.name
        if tier.kind == CLIP or not tier.spans:
            continue
        rows = [_row(span, film, who, file, exact, scheme) for span in tier.spans]
        if any(_is_level(row.level, scheme) for row in rows):
            yield from rows
            continue
        what = (
            f"names no level in {counted(len(rows), 'annotation')} "
            f"(the first: {shorten(tier.spans[0].value)})"
        )
        yield Remark(f"{file}, tier {shorten(tier.name)}", film, who, what, LEFT_OUT)


def film_of(document: Document) -> Film:
    """What `document_of` has noted of the film."""
    try:
        end = float(document.notes.get(END, ""))
    except ValueError:
        end = 0
    return Film(document.notes.get(TITLE, ""), end if 0 < end < 1e9 else None)


def name_of(document: Document, file: str) -> str:
    """What the film is called: as `document_of` noted, if the file still has its name."""
    noted = document.notes.get(NAME, "")
    return noted if safe_id(noted) == safe_id(file) else file


def document_of(timelines: Timelines, film: str, media: str = "") -> Document:
    """A film's segments: a tier an annotator, with their concepts and comments below it."""
    known = timelines.films.get(film, Film())
    names = {level.code: level.name for level in timelines.scheme.levels}
    tiers = []
    times: list[float] = [] if known.end is None else [known.end]
    for annotator, segments in timelines.by_film[film].items():
        spans = []
        for one in segments:
            beside = {"concepts": concept_cell(one.concepts), "comment": one.comment}
            told = {what: text for what, text in beside.items() if text}
            start, end = _milliseconds(one.start, one.end)
            spans.append(Span(start, end, names[one.level], told))
            times += [one.start, one.end]
        tiers.append(Tier(annotator, SEGMENT, spans, annotator))
    end_text = "" if known.end is None else decimal(known.end)
    notes = {TITLE: known.title, END: end_text, TIMES: _inexact(times), NAME: known.name}
    return Document(
        tiers, media or known.name, {name: text for name, text in notes.items() if text}
    )


def clips_tier(labels: LabelSet, items: Sequence[Item], scheme: LabelScheme) -> Tier:
    """The labels of a film's clips: what was projected or merged."""
    names = {level.code: level.name for level in scheme.levels}
    spans = []
    for one in items:
        assert one.start is not None
        assert one.end is not None
        if one.id in labels.level_of:
            beside = {"clip": one.id}
            if concepts := labels.concepts_of[one.id]:
                beside["concepts"] = concept_cell(concepts)
            value = names[labels.level_of[one.id]]
            spans.append(Span(*_milliseconds(one.start, one.end), value, beside))
    return Tier(f"{labels.name}, clips", CLIP, spans)


def _row(
    span: Span, film: str, who: str, file: str, exact: Mapping[int, float], scheme: LabelScheme
) -> Row:
    said: dict[str, str] = {}
    for tier, text in span.beside.items():
        if (part := part_of(tier)) and text.strip():
            said[part] = f"{said[part]}, {text}" if part in said else text
    own_level, _, own_concepts = span.value.partition(":")
    level, comment = said.get("level", own_level), said.get("comment", "")
    if "level" in said and not _is_level(own_level, scheme):
        # The annotation's own text is then what its annotator had to say.
        own_concepts, comment = "", comment or span.value
    concepts = concept_names(said.get("concepts", "")) + concept_names(own_concepts)
    start, end = (exact.get(place, place / 1000) for place in (span.start, span.end))
    where = f"{file}, {span.where}"
    return Row(where, film, who, start, end, level.strip(), concepts, comment)


def _is_level(text: str, scheme: LabelScheme) -> bool:
    try:
        scheme.level(text)
    except ManifestError:
        return False
    return True


def _milliseconds(start: float, end: float) -> tuple[int, int]:
    """A span in ELAN's times, in which nothing is shorter than one."""
    first = round(start * 1000)
    return first, max(round(end * 1000), first + 1)


def _inexact(times: Sequence[float]) -> str:
    """The times that lose something as milliseconds, where only one becomes that millisecond."""
    distinct = set(times)
    shared = Counter(round(one * 1000) for one in distinct)
    lost = (one for one in distinct if round(one * 1000) / 1000 != one)
    return " ".join(decimal(one) for one in sorted(lost) if shared[round(one * 1000)] == 1)


def _exact(text: str) -> dict[int, float]:
    """Millisecond -> the time that `_inexact` noted; one that was moved in ELAN finds none."""
    found = {}
    for word in text.split():
        if re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,6}", word):
            found[round(float(word) * 1000)] = float(word)
    return found
