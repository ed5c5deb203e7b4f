"""Timelines as ELAN's documents, both ways.

A tier is one annotator's: whom it names as its annotator, or else its participant, or else its
own name. An annotation says a level, and behind a colon concepts: ``Sure: Body, Look``. Dependent
tiers whose names have the word level, concepts or comment say these instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from obygaze_features.annotations.build import SourceRow
from obygaze_features.annotations.cells import format_concepts, parse_concepts
from obygaze_features.annotations.issues import LEFT_OUT, Issue
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.elan import Annotation, Document, Tier
from obygaze_features.common.text import counted, shorten
from obygaze_features.manifests.items import MAX_TIME_S, Item, format_seconds, safe_id
from obygaze_features.manifests.labels import LabelScheme, LabelSet

#: The kinds of tier that we write; the second is not read back as somebody's annotations.
SEGMENT_KIND, CLIP_KIND = "segment", "label of a clip"
TITLE, END, TIMES, NAME = "obygaze title", "obygaze end", "obygaze times", "obygaze name"
_FIELD_OF_WORD = {
    "level": "level",
    "levels": "level",
    "concept": "concepts",
    "concepts": "concepts",
    "comment": "comment",
    "comments": "comment",
    "note": "comment",
    "notes": "comment",
}


def field_of(tier: str) -> str | None:
    """Which field of a segment a dependent tier holds, by a word in its name.

    Examples
    --------
    >>> field_of("annotator1, concepts"), field_of("Comments@Anna"), field_of("dialogue")
    ('concepts', 'comment', None)
    """
    words = re.findall("[a-z]+", tier.casefold())
    return next((_FIELD_OF_WORD[word] for word in words if word in _FIELD_OF_WORD), None)


def read_rows(
    document: Document, film: str, file: str, scheme: LabelScheme, annotator: str = ""
) -> Iterator[SourceRow | Issue]:
    """The rows of a document; `annotator` made the tiers that name nobody."""
    exact = _parse_exact_times(document.properties.get(TIMES, ""))
    for tier in document.tiers:
        if tier.kind == CLIP_KIND or not tier.annotations:
            continue
        who = tier.annotator or tier.participant or annotator or tier.name
        segments = [_segment(note, film, who, exact, scheme) for note in tier.annotations]
        if any(scheme.has_level(segment.level) for segment in segments):
            for note, segment in zip(tier.annotations, segments, strict=True):
                yield SourceRow(f"{file}, {note.location}", segment)
        else:
            problem = (
                f"names no level in {counted(len(segments), 'annotation')} "
                f"(the first: {shorten(tier.annotations[0].value)})"
            )
            yield Issue(f"{file}, tier {shorten(tier.name)}", film, who, problem, LEFT_OUT)


def film_of(document: Document) -> Film:
    """The film's title and end that `to_document` wrote."""
    try:
        end = float(document.properties.get(END, ""))
    except ValueError:
        end = 0
    return Film(document.properties.get(TITLE, ""), end if 0 < end < MAX_TIME_S else None)


def film_name(document: Document, stem: str) -> str:
    """The film's name that `to_document` wrote, if the file still has it; else the file's."""
    name = document.properties.get(NAME, "")
    return name if safe_id(name) == safe_id(stem) else stem


def to_document(timelines: Timelines, film: str, media: str = "") -> Document:
    """A film's segments: a tier an annotator, concepts and comments in dependent tiers."""
    details = timelines.films.get(film, Film())
    name_of = timelines.scheme.name_of
    tiers = []
    times: list[float] = [] if details.end is None else [details.end]
    for annotator, segments in timelines.by_film[film].items():
        notes = []
        for segment in segments:
            fields = {"concepts": format_concepts(segment.concepts), "comment": segment.comment}
            fields = {name: text for name, text in fields.items() if text}
            start, end = _milliseconds(segment.start, segment.end)
            notes.append(Annotation(start, end, name_of[segment.level], fields))
            times += [segment.start, segment.end]
        tiers.append(Tier(annotator, SEGMENT_KIND, notes, annotator))
    properties = {
        TITLE: details.title,
        END: "" if details.end is None else format_seconds(details.end),
        TIMES: _format_exact_times(times),
        NAME: details.name,
    }
    properties = {name: text for name, text in properties.items() if text}
    return Document(tiers, media or details.name, properties)


def clips_tier(labels: LabelSet, items: Sequence[Item], scheme: LabelScheme) -> Tier:
    """The labels of a film's clips, projected or merged."""
    notes = []
    for item in items:
        assert item.start is not None
        assert item.end is not None
        if item.id in labels.level_of:
            fields = {"clip": item.id}
            if concepts := labels.concepts_of[item.id]:
                fields["concepts"] = format_concepts(concepts)
            value = scheme.name_of[labels.level_of[item.id]]
            notes.append(Annotation(*_milliseconds(item.start, item.end), value, fields))
    return Tier(f"{labels.name}, clips", CLIP_KIND, notes)


def _segment(
    note: Annotation, film: str, annotator: str, exact: Mapping[int, float], scheme: LabelScheme
) -> Segment:
    fields: dict[str, str] = {}
    for tier, text in note.details.items():
        if (name := field_of(tier)) and text.strip():
            fields[name] = f"{fields[name]}, {text}" if name in fields else text
    level, _, concepts = note.value.partition(":")
    comment = fields.get("comment", "")
    if "level" in fields and not scheme.has_level(level):
        # The annotation's own text is then a comment.
        concepts, comment = "", comment or note.value
    names = parse_concepts(fields.get("concepts", "")) + parse_concepts(concepts)
    start, end = (exact.get(time, time / 1000) for time in (note.start, note.end))
    level = fields.get("level", level).strip()
    return Segment(film, annotator, start, end, level, names, comment)


def _milliseconds(start: float, end: float) -> tuple[int, int]:
    """A span in ELAN's times, where it lasts at least one millisecond."""
    first = round(start * 1000)
    return first, max(round(end * 1000), first + 1)


def _format_exact_times(times: Sequence[float]) -> str:
    """The times that milliseconds round, unless two round to the same one."""
    distinct = set(times)
    shared = Counter(round(time * 1000) for time in distinct)
    rounded = (time for time in distinct if round(time * 1000) / 1000 != time)
    return " ".join(format_seconds(t) for t in sorted(rounded) if shared[round(t * 1000)] == 1)


def _parse_exact_times(text: str) -> dict[int, float]:
    """Millisecond -> exact time; a time that was moved in ELAN matches none."""
    exact = {}
    for word in text.split():
        if re.fullmatch(r"[0-9]{1,10}\.[0-9]{1,6}", word):
            exact[round(float(word) * 1000)] = float(word)
    return exact
