"""Timelines: the segments that annotators cut freely from films, as a folder of two tables.

The folder holds ``timelines.json`` (where they come from, the label scheme, what is known of the
films), ``segments.csv`` (a row a segment, in order of film, annotator and time) and
``remarks.csv`` (what was odd in the source, and what was done about it).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from obygaze_features.annotations.remarks import Remark, read_remarks, remarks_csv
from obygaze_features.common.files import new_folder, read_format, to_json, write_text
from obygaze_features.common.tables import Table, format_table, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.manifests.items import id_problem
from obygaze_features.manifests.labels import SEPARATOR, LabelScheme, obygaze_scheme, split_concepts

__all__ = ["HEADER", "Film", "Segment", "Timelines", "decimal", "seconds"]

FORMAT = "obygaze-timelines"
FORMAT_VERSION = 1
HEADER = "timelines.json"
MAKE = "obygaze annotations import KIND SOURCE -o FOLDER"
COLUMNS = ("film", "annotator", "start", "end", "level", "concepts", "comment")
LONGEST = 1e9


@dataclass(frozen=True)
class Segment:
    """A span of a film that one annotator marked, in seconds."""

    film: str
    annotator: str
    start: float
    end: float
    level: str
    concepts: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class Film:
    """What is known of a film beside its segments; `end` is how long it is, in seconds.

    `name` is what the source calls it, where that is no id: its file is likely to have that name.
    """

    title: str = ""
    end: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Timelines:
    """Segments by film and annotator.

    Segments are kept in order of film, annotator, start, end and level, whatever the order in
    which they came; films in the order in which they are first named.
    """

    name: str
    segments: Sequence[Segment]
    scheme: LabelScheme = field(default_factory=obygaze_scheme)
    films: Mapping[str, Film] = field(default_factory=dict)
    remarks: Sequence[Remark] = ()
    source: str = ""
    licence: str = ""
    citation: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    """Annotators' names as the source has them, where these are no ids."""

    @cached_property
    def by_film(self) -> dict[str, dict[str, list[Segment]]]:
        """Film -> annotator -> segments, in time."""
        found: dict[str, dict[str, list[Segment]]] = {}
        for one in self.segments:
            found.setdefault(one.film, {}).setdefault(one.annotator, []).append(one)
        return found

    @cached_property
    def sha256(self) -> str:
        """Of the segments, as they are saved."""
        return hashlib.sha256(self.to_csv().encode()).hexdigest()

    @property
    def annotators(self) -> list[str]:
        """All annotators' names, sorted."""
        return sorted({one.annotator for one in self.segments})

    def end_of(self, film: str) -> float:
        """Where a film ends, in seconds; where nobody said, where its last segment does."""
        known = self.films[film].end if film in self.films else None
        if known is not None:
            return known
        return max(one.end for spans in self.by_film[film].values() for one in spans)

    @classmethod
    def of(cls, name: str, segments: Iterable[Segment], **about: Any) -> Timelines:
        """Timelines of segments in any order."""
        scheme: LabelScheme = about.get("scheme") or obygaze_scheme()
        films: dict[str, Film] = dict(about.pop("films", {}))
        rank = {code: place for place, code in enumerate(scheme.codes)}
        segments = list(segments)
        for film in sorted({one.film for one in segments} - set(films)):
            films[film] = Film()
        place = {film: number for number, film in enumerate(films)}

        def key(one: Segment) -> tuple[Any, ...]:
            when = (one.start, one.end, rank[one.level], one.concepts, one.comment)
            return place[one.film], one.annotator, *when

        return cls(name, tuple(sorted(segments, key=key)), films=films, **about)

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the folder, which appears complete or not at all."""
        with new_folder(folder, overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(self.header()))
            write_text(new / "segments.csv", self.to_csv())
            write_text(new / "remarks.csv", remarks_csv(self.remarks))

    def to_csv(self) -> str:
        """The segments as they are saved in ``segments.csv``."""
        every = self.segments
        return format_table(
            {
                "film": [one.film for one in every],
                "annotator": [one.annotator for one in every],
                "start": [decimal(one.start) for one in every],
                "end": [decimal(one.end) for one in every],
                "level": [one.level for one in every],
                "concepts": [SEPARATOR.join(one.concepts) for one in every],
                "comment": [one.comment for one in every],
            }
        )

    def header(self) -> dict[str, Any]:
        """The contents of ``timelines.json``."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "source": self.source,
            "licence": self.licence,
            "citation": self.citation,
            "films": {
                film: {"title": one.title, "end": one.end, "name": one.name}
                for film, one in self.films.items()
            },
            "annotators": dict(self.names),
            "label_scheme": self.scheme.to_json(),
        }

    @classmethod
    def load(cls, folder: Path | str) -> Timelines:
        """Read a folder that `save` wrote, or that somebody edited since."""
        folder = Path(folder)
        header = read_format(folder / HEADER, FORMAT, FORMAT_VERSION, AnnotationError, make=MAKE)
        try:
            scheme = LabelScheme.from_json(header["label_scheme"])
            films = {str(film): _film(about) for film, about in header["films"].items()}
            names = {who: str(name) for who, name in header.get("annotators", {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise AnnotationError(f"{folder / HEADER} is not in its form ({problem})") from None
        texts = {key: str(header.get(key, "")) for key in ("source", "licence", "citation")}
        table = read_table(folder / "segments.csv", required=COLUMNS[:5])
        return cls.of(
            str(header.get("name", folder.name)),
            _segments(table, scheme),
            scheme=scheme,
            films=films,
            names=names,
            remarks=tuple(read_remarks(folder / "remarks.csv")),
            **texts,
        )


def seconds(text: str, what: str) -> float:
    """A time in seconds from a cell: a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        raise AnnotationError(f"{what} {shorten(text)} is not a number of seconds") from None
    if not 0 <= value <= LONGEST:
        raise AnnotationError(f"{what} {shorten(text)} is not a time in a film")
    return round(value, 6)


def decimal(value: float) -> str:
    """Seconds to the microsecond, without zeros that say nothing."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _segments(table: Table, scheme: LabelScheme) -> list[Segment]:
    empty = [""] * len(table)
    cells = (table.columns.get(name, empty) for name in COLUMNS)
    found = []
    for row, (film, annotator, start, end, level, concepts, comment) in enumerate(
        zip(*cells, strict=True)
    ):
        try:
            for what, name in (("film", film), ("annotator", annotator)):
                if problem := id_problem(name):
                    raise AnnotationError(f"{what}: {problem}")
            begin, finish = seconds(start, "start"), seconds(end, "end")
            if not begin < finish:
                raise AnnotationError(f"the segment ends ({end}) before it starts ({start})")
            names = scheme.in_order(map(scheme.concept, split_concepts(concepts)))
            found.append(
                Segment(film, annotator, begin, finish, scheme.level(level), names, comment)
            )
        except (AnnotationError, ManifestError) as error:
            raise table.problem(row, str(error)) from None
    return found


def _film(about: Mapping[str, Any]) -> Film:
    end = about.get("end")
    if end is not None and not (isinstance(end, int | float) and 0 < end < math.inf):
        raise ValueError(f"a film ends at {end!r}")
    return Film(str(about.get("title", "")), end, str(about.get("name", "")))
