"""Timelines: the segments that annotators marked in films, without a fixed grid of clips.

On disk, timelines are a folder with ``timelines.json`` (the source, the label scheme, the films),
``segments.csv`` (one row per segment, in order of film, annotator and time) and ``remarks.csv``
(anything unusual in the source, and what was done about it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from operator import attrgetter, lt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from obygaze_features.annotations.remarks import Remark, read_remarks, remarks_csv
from obygaze_features.common.files import new_folder, read_format, to_json, write_text
from obygaze_features.common.tables import Table, format_table, map_cells, read_table
from obygaze_features.common.text import MAX_TIME_S, counted, group_by, sha256_of_text
from obygaze_features.errors import AnnotationError, ManifestError
from obygaze_features.items.films import known_titles
from obygaze_features.items.items import are_ids, format_seconds, id_problem, safe_id
from obygaze_features.manifests.importers.reading import at_row, parse_time
from obygaze_features.manifests.labels import (
    SEPARATOR,
    LabelScheme,
    OwnLevels,
    obygaze_scheme,
    split_concepts,
)
from obygaze_features.manifests.manifest import Manifest

if TYPE_CHECKING:
    from obygaze_features.annotations.project import ProjectedLabels

FORMAT = "obygaze-timelines"
FORMAT_VERSION = 1
HEADER = "timelines.json"
MAKE = "obygaze annotations import KIND SOURCE -o FOLDER"
COLUMNS = ("film", "annotator", "start", "end", "level", "concepts", "comment")
ORIGIN = ("source", "licence", "citation")
#: Rows of ``segments.csv`` that are formatted at a time.
CSV_ROWS = 4096


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

    @property
    def seconds(self) -> float:
        """The duration of the segment."""
        return self.end - self.start


@dataclass(frozen=True)
class Film:
    """A film's title, its end in seconds, and its name in the source if that is not a valid id."""

    title: str = ""
    end: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIME_S)] | None = None
    name: str = ""


class Coverage(NamedTuple):
    """The time that an annotator marked in a film: seconds by level and in total.

    Overlaps count once. `remarks` is the number of remarks on the annotator in this film.
    """

    film: str
    annotator: str
    segments: int
    levels: dict[str, float]
    covered: float
    remarks: int


Films = Mapping[str, Film] | Path | str | None


@dataclass(frozen=True)
class Timelines:
    """The segments that annotators marked in films.

    Segments are sorted by film, annotator, start, end and level. Films are in the order of `films`.
    `names` maps annotators to their names in the source, if these are not valid ids.
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

    def __repr__(self) -> str:
        return f"Timelines({self.name!r}, {self.describe_size()})"

    def describe_size(self) -> str:
        """Return the number of segments, films and annotators as text."""
        segments, films = counted(len(self.segments), "segment"), counted(len(self.by_film), "film")
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
        return {
            film: shipped.get(film) or about.title or about.name or film
            for film, about in self.films.items()
        }

    def of_films(self, films: Sequence[str]) -> Timelines:
        """Return the timelines with only these films."""
        segments = [segment for segment in self.segments if segment.film in films]
        remarks = [remark for remark in self.remarks if remark.film in films]
        about = {film: self.films[film] for film in self.films if film in films}
        return replace(self, segments=segments, remarks=remarks, films=about)

    def named_as(self, films: Iterable[str]) -> Timelines:
        """Return the timelines with film ids replaced by the names that the ids were made from."""
        names = {safe_id(film): film for film in films}
        segments = [replace(s, film=names.get(s.film, s.film)) for s in self.segments]
        about = {names.get(film, film): details for film, details in self.films.items()}
        return replace(self, segments=segments, films=about)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of ``segments.csv``."""
        return sha256_of_text(self.to_csv())

    @property
    def annotators(self) -> list[str]:
        """The names of all annotators, sorted."""
        return sorted({segment.annotator for segment in self.segments})

    def end_of(self, film: str) -> float:
        """Return the end of a film in seconds; if unknown, the end of its last segment."""
        end = self.films[film].end if film in self.films else None
        if end is not None:
            return end
        return max(s.end for segments in self.by_film[film].values() for s in segments)

    @cached_property
    def coverage(self) -> list[Coverage]:
        """The time that each annotator marked in each film."""
        remarks = Counter((remark.film, remark.annotator) for remark in self.remarks)
        return [
            Coverage(
                film,
                annotator,
                len(segments),
                {
                    code: _covered(s for s in segments if s.level == code)
                    for code in self.scheme.codes
                },
                _covered(segments),
                remarks[film, annotator],
            )
            for film in self.films
            for annotator, segments in self.by_film.get(film, {}).items()
        ]

    def project(
        self, grid: float | str | Path | Manifest, threshold: float = 0.2
    ) -> ProjectedLabels:
        """Label clips by the segments that cover them; return one label set per annotator.

        An annotator's label set covers all clips of the films that the annotator marked.

        Parameters
        ----------
        grid
            The clips: a length in seconds, or a manifest (or its folder) whose items have spans.
        threshold
            The share of a clip, above 0 and up to 1, that a segment must cover to count. A
            shortfall of up to two microseconds is ignored, because times are rounded.
        """
        from obygaze_features.annotations.project import project

        return project(self, grid, threshold)

    @staticmethod
    def from_mobygaze(
        source: Path | str | None = None, films: Films = None, *, url: str | None = None
    ) -> Timelines:
        """Read MObyGaze's segments of 20 films.

        Frames are converted to seconds with each row's own frame rate; the end frame is part of the
        segment.

        Parameters
        ----------
        source
            ``mobygaze_dataframe.csv`` (default: downloaded).
        films
            Titles and lengths of the films by IMDb key, or the path of a table with them.
        url
            An alternative address to download from.
        """
        return _importer("mobygaze")(source, films, url=url)

    @staticmethod
    def from_elan(
        *sources: Path | str, films: Films = None, film: str | None = None, levels: OwnLevels = None
    ) -> Timelines:
        """Read ELAN files.

        Each file belongs to one film. Each tier belongs to one annotator: the tier's annotator, or
        else its participant, or else the tier's own name. If that name is a default (default,
        annotator1), or if files in several folders use it, the folder's name is used instead.

        An annotation has a level and, after a colon, concepts: "Sure: Body, Look". Alternatively,
        levels, concepts and comments are in dependent tiers whose names contain these words. Tiers
        without any level are left out. Files from `obygaze annotations export`, and files made from
        a template of `obygaze manifests thesaurus`, contain their levels and concepts, so `levels`
        is not needed. Nothing that a file refers to is fetched.

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
            Your levels; see `csv_table` (default: the levels in the files, or ObyGaze's).
        """
        return _importer("elan")(*sources, films=films, film=film, levels=levels)

    @staticmethod
    def from_csv(
        source: Path | str,
        columns: Mapping[str, str] | None = None,
        films: Films = None,
        *,
        levels: OwnLevels = None,
    ) -> Timelines:
        """Read any CSV table of segments, with a column mapping.

        Each row is a segment. Columns called film, annotator, start, end, level, concepts and
        comment are recognised; `columns` maps other names. Times are in seconds (75.5) or h:mm:ss
        (0:01:15.5). Separate several concepts in a cell with bars, commas or semicolons. A `file`,
        `media` or `video` column also names the film: "New Moon.mp4" belongs to New Moon.

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
        return _importer("csv_table")(source, columns, films, levels=levels)

    @classmethod
    def of(
        cls,
        name: str,
        segments: Iterable[Segment],
        *,
        scheme: LabelScheme | None = None,
        films: Mapping[str, Film] | None = None,
        remarks: Sequence[Remark] = (),
        source: str = "",
        licence: str = "",
        citation: str = "",
        names: Mapping[str, str] | None = None,
    ) -> Timelines:
        """Make timelines from segments in any order; the options are attributes of `Timelines`."""
        scheme = scheme or obygaze_scheme()
        # Sort one film at a time, because keys take more memory than segments.
        of_film = group_by(segments, attrgetter("film"))
        films = dict(films or {})
        for film in sorted(of_film.keys() - films):
            films[film] = Film()
        level_rank = {code: rank for rank, code in enumerate(scheme.codes)}

        def key(s: Segment) -> tuple[Any, ...]:
            order = s.annotator, s.start, s.end, level_rank[s.level]
            return *order, s.concepts, s.comment

        ordered = tuple(s for film in films for s in sorted(of_film.pop(film, ()), key=key))
        origin = {"source": source, "licence": licence, "citation": citation}
        return cls(name, ordered, scheme, films, remarks, **origin, names=names or {})

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write the timelines to a folder, which appears only when it is complete."""
        with new_folder(Path(folder), overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(self.header()))
            with (new / "segments.csv").open("w", encoding="utf-8", newline="") as table:
                table.writelines(self._csv_parts())
            write_text(new / "remarks.csv", remarks_csv(self.remarks))

    def to_csv(self) -> str:
        """Return the table that is saved as ``segments.csv``."""
        return "".join(self._csv_parts())

    def _csv_parts(self) -> Iterator[str]:
        """Yield the table in parts, because its cells take more memory than the segments."""
        for first in range(0, max(len(self.segments), 1), CSV_ROWS):
            segments = self.segments[first : first + CSV_ROWS]
            columns = {name: [getattr(s, name) for s in segments] for name in COLUMNS}
            for name in ("start", "end"):
                columns[name] = list(map(format_seconds, columns[name]))
            columns["concepts"] = list(map(SEPARATOR.join, columns["concepts"]))
            yield format_table(columns, header=first == 0)

    def header(self) -> dict[str, Any]:
        """Return the contents of ``timelines.json``."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **{key: getattr(self, key) for key in ("name", *ORIGIN)},
            "films": {film: asdict(about) for film, about in self.films.items()},
            "annotators": dict(self.names),
            "label_scheme": self.scheme.to_json(),
        }

    @classmethod
    def load(cls, folder: Path | str) -> Timelines:
        """Read timelines from a folder that `save` wrote and that may have been edited since."""
        folder = Path(folder)
        content = read_format(folder / HEADER, FORMAT, FORMAT_VERSION, AnnotationError, make=MAKE)
        try:
            header = msgspec.convert(content, _Header)
            scheme = LabelScheme.from_json(header.label_scheme)
        except (msgspec.ValidationError, ManifestError) as problem:
            raise AnnotationError(f"{folder / HEADER} is malformed ({problem})") from None
        return cls.of(
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
    """Read a table of segments by column; if a cell is invalid, read by row to name its line."""
    segments = _convert_columns(read_table(path, required=COLUMNS[:5]), scheme)
    if segments is None:
        segments = _convert_rows(read_table(path, required=COLUMNS[:5]), scheme)
    return segments


def _convert_columns(table: Table, scheme: LabelScheme) -> list[Segment] | None:
    """Make segments from a table, removing its time columns; return None if any cell is invalid."""
    films, annotators = table["film"], table["annotator"]
    if not are_ids([*{*films, *annotators}]):
        return None

    def read_concepts(names: str) -> tuple[str, ...]:
        return scheme.in_order(map(scheme.concept, split_concepts(names)))

    try:
        starts = [parse_time(cell, "start") for cell in table.columns.pop("start")]
        ends = [parse_time(cell, "end") for cell in table.columns.pop("end")]
        levels = map_cells(scheme.level, table["level"])
        concepts = map_cells(read_concepts, table.get("concepts"))
    except ManifestError:
        return None
    if not all(map(lt, starts, ends)):
        return None
    cells = films, annotators, starts, ends, levels, concepts, table.get("comment")
    return list(map(Segment, *cells))


def _convert_rows(table: Table, scheme: LabelScheme) -> list[Segment]:
    segments = []
    for row, (film, annotator, start_text, end_text, level, names, comment) in enumerate(
        zip(*map(table.get, COLUMNS), strict=True)
    ):
        with at_row(table, row):
            for noun, name in (("film", film), ("annotator", annotator)):
                if problem := id_problem(name):
                    raise AnnotationError(f"{noun}: {problem}")
            start, end = parse_time(start_text, "start"), parse_time(end_text, "end")
            if not start < end:
                raise AnnotationError(
                    f"the segment's end ({end_text}) must be after its start ({start_text})"
                )
            concepts = scheme.in_order(map(scheme.concept, split_concepts(names)))
            level = scheme.level(level)
        segments.append(Segment(film, annotator, start, end, level, concepts, comment))
    return segments


def _importer(name: str) -> Callable[..., Timelines]:
    """Return the function of an importer, which is imported only when it is needed."""
    function: Callable[..., Timelines] = import_module(
        f"obygaze_features.annotations.importers.{name}"
    ).import_timelines
    return function
