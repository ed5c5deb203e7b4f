"""Timelines: the segments that annotators marked in films, without a fixed grid of clips.

On disk, timelines are a folder with ``timelines.json`` (the source, the label scheme, the films),
``segments.csv`` (one row per segment, in order of film, annotator and time) and ``remarks.csv``
(anything unusual in the source, and what was done about it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.annotations.remarks import Remark, read_remarks, remarks_csv
from obygaze_features.common.files import (
    new_folder,
    read_format,
    sha256_of_text,
    to_json,
    write_text,
)
from obygaze_features.common.formatting import MAX_TIME_S, counted
from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.items.films import find_films, known_titles
from obygaze_features.items.items import format_seconds, id_problem
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.labels import (
    SEPARATOR,
    LabelScheme,
    OwnLevels,
    map_column,
    obygaze_scheme,
    split_concepts,
)

FORMAT = "obygaze-timelines"
FORMAT_VERSION = 1
HEADER = "timelines.json"
COLUMNS = ("film", "annotator", "start", "end", "level", "concepts", "comment")
ORIGIN = ("source", "licence", "citation")


@dataclass(frozen=True, slots=True)
class Segment:
    """A span of a film, in seconds, that an annotator marked."""

    film: str
    annotator: str
    start: float
    end: float
    level: str
    concepts: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class Film:
    """A film's title, its end in seconds, and its name in the source if that is not a valid id.

    `media` is the name of the video that was annotated, if the source names one.
    """

    title: str = ""
    end: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIME_S)] | None = None
    name: str = ""
    media: str = ""


Films = Mapping[str, Film] | Path | str | None


@dataclass(frozen=True)
class Timelines:
    """The segments that annotators marked in films.

    Segments are sorted by film, annotator, start, end and level. Films are in the order of `films`;
    films that it lacks are added. `names` maps annotators to their names in the source, if these
    are not valid ids.
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

    def __post_init__(self) -> None:
        films = dict(self.films)
        for film in sorted({segment.film for segment in self.segments} - films.keys()):
            films[film] = Film()
        film_rank = {film: rank for rank, film in enumerate(films)}
        codes = self.scheme.codes

        def key(s: Segment) -> tuple[Any, ...]:
            level = codes.index(s.level)
            return film_rank[s.film], s.annotator, s.start, s.end, level, s.concepts, s.comment

        object.__setattr__(self, "films", films)
        object.__setattr__(self, "segments", tuple(sorted(self.segments, key=key)))

    def __repr__(self) -> str:
        return f"Timelines({self.name!r}, {self.describe_size()})"

    def describe_size(self) -> str:
        """Return the number of segments, films and annotators as text."""
        segments = counted(len(self.segments), "segment")
        films = counted(len(self.by_film), "film")
        return f"{segments} of {films} by {counted(len(self.annotators), 'annotator')}"

    @cached_property
    def by_film(self) -> dict[str, dict[str, list[Segment]]]:
        """The segments by film and annotator, ordered by time."""
        by_film: dict[str, dict[str, list[Segment]]] = {}
        for segment in self.segments:
            of_film = by_film.setdefault(segment.film, {})
            of_film.setdefault(segment.annotator, []).append(segment)
        return by_film

    @cached_property
    def titles(self) -> dict[str, str]:
        """The title of each film (with the year, if known), or else its name in the source."""
        shipped = known_titles()
        titles = {}
        for film, about in self.films.items():
            titles[film] = shipped.get(film) or about.title or about.name or film
        return titles

    def of_films(self, names: Iterable[str]) -> Timelines:
        """Return the timelines with only these films, by id, title or pattern."""
        films = find_films(names, self.titles)
        segments = [segment for segment in self.segments if segment.film in films]
        remarks = [remark for remark in self.remarks if remark.film in films]
        about = {film: self.films[film] for film in self.films if film in films}
        return replace(self, segments=segments, remarks=remarks, films=about)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of ``segments.csv``."""
        return sha256_of_text(self.to_csv())

    @property
    def annotators(self) -> list[str]:
        """The ids of all annotators, sorted."""
        return sorted({segment.annotator for segment in self.segments})

    def end_of(self, film: str) -> float:
        """Return the end of a film in seconds; if unknown, the end of its last segment."""
        return self.films[film].end or max(s.end for s in self.segments if s.film == film)

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """The seconds that each annotator marked in each film, by level and in total.

        Overlaps count once. A row also has the number of segments and the film's end.
        """
        rows = []
        for film, of_film in self.by_film.items():
            for annotator, segments in of_film.items():
                row: dict[str, Any] = {"film": film, "title": self.titles[film]}
                row |= {"annotator": annotator, "segments": len(segments)}
                for code in self.scheme.codes:
                    row[code] = _covered(s for s in segments if s.level == code)
                row["covered"] = _covered(segments)
                row["film_lasts"] = self.films[film].end
                rows.append(row)
        return rows

    @staticmethod
    def from_mobygaze(source: Path | str, films: Films = None) -> Timelines:
        """Read MObyGaze's segments of 20 films.

        Frames are converted to seconds with each row's own frame rate; the end frame is part of the
        segment.

        Parameters
        ----------
        source
            ``mobygaze_dataframe.csv``.
        films
            Titles and lengths of the films by IMDb key, or the path of a table with them.
        """
        from obygaze_features.annotations.importers.mobygaze import import_timelines

        return import_timelines(source, films)

    @staticmethod
    def from_elan(
        *sources: Path | str,
        films: Films = None,
        film: str | None = None,
        levels: OwnLevels = None,
    ) -> Timelines:
        """Read ELAN files.

        Each file belongs to one film. Each tier belongs to one annotator, named in the tier's
        Annotator field, or else by the tier's name. If a file has only one tier that has no
        annotator and whose name is a default (default, annotator1) or is used in several folders,
        the name of the file's folder is used instead, unless the only source is the file or that
        folder.

        An annotation has a level and, after a colon, concepts: "Sure: Body, Look". Alternatively,
        levels, concepts and comments are in dependent tiers whose names contain these words. Tiers
        without any known level are not read. Files from `obygaze annotations export`, and files
        made from a template of `obygaze manifests thesaurus`, contain their levels and concepts, so
        `levels` is not needed. If no level is known, the error lists the files' pick-lists.

        Times are those of the video that a file links to, whose name is kept. Nothing that a file
        refers to is opened.

        Parameters
        ----------
        sources
            ``.eaf`` files, or folders of them.
        films
            Titles and lengths of the films, or the path of a table with them. They take precedence
            over the titles and lengths in the files.
        film
            The film of all files (default: the film that each file is named after).
        levels
            Your levels; see `from_csv` (default: the levels in the files, or ObyGaze's).
        """
        from obygaze_features.annotations.importers.elan import import_timelines

        return import_timelines(*sources, films=films, film=film, levels=levels)

    @staticmethod
    def from_csv(
        source: Path | str,
        columns: Mapping[str, str] | None = None,
        films: Films = None,
        *,
        levels: OwnLevels = None,
    ) -> Timelines:
        """Read any CSV table of segments, with a column mapping.

        Each row is a segment. Columns called film, annotator, start, end, level (or label),
        concepts and comment are recognised; `columns` maps other names. Times are in seconds (75.5)
        or h:mm:ss (0:01:15.5). Separate several concepts in a cell with bars, commas or semicolons.
        A ``file``, ``media`` or ``video`` column can also name the film: "New Moon.mp4" belongs to
        New Moon.

        Parameters
        ----------
        source
            The table. Columns that are not recognised are ignored.
        columns
            Column names by meaning (film, annotator, start ...), for columns with other names.
        films
            Titles and lengths of the films, or the path of a table with them.
        levels
            Your levels, from lowest to highest (concepts are taken from the table); or a
            `LabelScheme`, a TOML or JSON file, or the folder of a manifest or of timelines
            (default: ObyGaze12's).
        """
        from obygaze_features.annotations.importers.csv_table import import_timelines

        return import_timelines(source, columns, films, levels=levels)

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write the timelines to a folder, which appears only when it is complete.

        Raises an error if they could not be read back.
        """
        header = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **{key: getattr(self, key) for key in ("name", *ORIGIN)},
            "films": {film: asdict(about) for film, about in self.films.items()},
            "annotators": dict(self.names),
            "label_scheme": self.scheme.to_json(),
        }
        with new_folder(Path(folder), overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(header))
            write_text(new / "segments.csv", self.to_csv())
            write_text(new / "remarks.csv", remarks_csv(self.remarks))
            if Timelines.load(new).to_csv() != self.to_csv():
                raise AnnotationError(
                    new, "would change when read back; use the scheme's concepts and microseconds"
                )

    def to_csv(self) -> str:
        """Return the table that is saved as ``segments.csv``."""
        columns = {name: [getattr(s, name) for s in self.segments] for name in COLUMNS}
        for name in ("start", "end"):
            columns[name] = list(map(format_seconds, columns[name]))
        columns["concepts"] = list(map(SEPARATOR.join, columns["concepts"]))
        return format_table(columns)

    @classmethod
    def load(cls, folder: Path | str) -> Timelines:
        """Read timelines from a folder that `save` wrote and that may have been edited since."""
        folder = Path(folder)
        wish = "a folder of timelines"
        content = read_format(folder / HEADER, FORMAT, FORMAT_VERSION, AnnotationError, wish)
        try:
            header = msgspec.convert(content, _Header)
            scheme = LabelScheme.from_json(header.label_scheme)
        except (msgspec.ValidationError, ManifestError) as problem:
            raise AnnotationError(
                f"{folder / HEADER} is malformed ({problem}); import the timelines again"
            ) from None
        return cls(
            header.name or folder.name,
            _read_segments(folder / "segments.csv", scheme),
            scheme=scheme,
            films=header.films,
            names=header.annotators,
            remarks=tuple(read_remarks(folder / "remarks.csv")),
            **{key: getattr(header, key) for key in ORIGIN},
        )


class _Header(msgspec.Struct):
    """The fields that are read from ``timelines.json``."""

    label_scheme: dict[str, Any]
    films: dict[str, Film]
    annotators: dict[str, str] = {}
    name: str = ""
    source: str = ""
    licence: str = ""
    citation: str = ""


def _covered(segments: Iterable[Segment]) -> float:
    """Return the number of seconds that segments cover, counting overlaps once."""
    total = reached = 0.0
    for segment in sorted(segments, key=lambda s: s.start):
        total += max(0.0, segment.end - max(segment.start, reached))
        reached = max(reached, segment.end)
    return round(total, 6)


def _read_segments(path: Path, scheme: LabelScheme) -> list[Segment]:
    table = read_table(path, required=COLUMNS[:5])

    def concepts_of(cell: str) -> tuple[str, ...]:
        return scheme.in_order(split_concepts(cell))

    starts = map_column(table, "start", partial(parse_time, column="start"))
    ends = map_column(table, "end", partial(parse_time, column="end"))
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start >= end:
            raise table.problem(row, f"the end ({end:g}) must be after the start")

    columns = (
        map_column(table, "film", _checked_id),
        map_column(table, "annotator", _checked_id),
        starts,
        ends,
        map_column(table, "level", scheme.level),
        map_column(table, "concepts", concepts_of),
        table.get("comment"),
    )
    return list(map(Segment, *columns))


def _checked_id(name: str) -> str:
    problem = id_problem(name)
    if problem:
        raise ManifestError(problem)
    return name
