"""Manifests: items in a fixed order, with label sets, splits and runs over their ids.

On disk, a manifest is a folder of tables and a small header, specified in manifests/README.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from obygaze_features.common.files import (
    new_folder,
    read_format,
    read_json,
    refuse_to_overwrite,
    to_json,
    write_bytes,
    write_files,
    write_text,
)
from obygaze_features.common.tables import Table, format_table, read_table
from obygaze_features.common.text import as_list, counted, sha256_of_text
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.items import Item, Items, id_problem, raise_first, seconds_problems
from obygaze_features.items.media import Located, locate
from obygaze_features.manifests.labels import (
    LabelScheme,
    LabelSet,
    OwnLevels,
    obygaze_scheme,
    scheme_in,
    unknown_ids,
)
from obygaze_features.manifests.splits import RunSet, Split

FORMAT = "obygaze-manifest"
FORMAT_VERSION = 1
HEADER = "manifest.json"
TEXTS = ("source", "licence", "citation")
TABLE_DIGEST = "table_sha256"
"""The key, in a table's JSON description, for the SHA-256 of the table."""
#: The parts of a manifest other than its items; each kind is stored in the folder `KIND`.
Part = LabelSet | Split | RunSet
P = TypeVar("P", bound=Part)
PARTS: dict[str, type[Part]] = {part.KIND: part for part in (LabelSet, Split, RunSet)}


@dataclass(frozen=True)
class Manifest:
    """Items in a fixed order, with named label sets, splits and runs over their ids.

    Label sets, splits and runs on disk are read on first use. `notes` are an importer's remarks
    about its source; they are not saved.

    Examples
    --------
    >>> items = Items.of([Item("tt0108160-001", film="tt0108160", media="tt0108160_scene_1.avi")])
    >>> manifest = Manifest("mine", items)
    >>> manifest["tt0108160-001"].film
    'tt0108160'
    """

    name: str
    items: Items
    scheme: LabelScheme = field(default_factory=obygaze_scheme)
    version: str = "1"
    source: str = ""
    licence: str = ""
    citation: str = ""
    default_labels: str | None = None
    folder: Path | None = None
    notes: Sequence[str] = ()
    _parts: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        parts = [
            counted(len(names), noun)
            for noun, names in (("label set", self.label_names), ("split", self.split_names))
            if names
        ]
        return f"Manifest({', '.join([repr(self.name), self.describe_size(), *parts])})"

    def describe_size(self) -> str:
        """Return the number of items and films as text."""
        kinds = set(self.items.kinds)
        noun = kinds.pop() if len(kinds) == 1 else "item"
        films = len(set(self.items.films) - {""})
        of_films = f" of {counted(films, 'film' if noun == 'clip' else 'group')}" if films else ""
        return counted(len(self), noun) + of_films

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __getitem__(self, identifier: str) -> Item:
        return self.items[self.items.row(identifier)]

    def __contains__(self, identifier: object) -> bool:
        return identifier in self.items.row_of

    @property
    def ids(self) -> list[str]:
        """The ids of the items, in order."""
        return self.items.ids

    @property
    def digest(self) -> str:
        """A fingerprint of the items; see manifests/README.md."""
        return self.items.digest

    @property
    def label_names(self) -> list[str]:
        """The names of the label sets."""
        return self._names("labels")

    @property
    def annotators(self) -> list[str]:
        """The names of the label sets that were each made by a single annotator."""
        sets = [self.labels(name) for name in self.label_names]
        merged = {name for labels in sets for name in labels.merged_annotators}
        return [
            labels.name
            for labels in sets
            if labels.origin == "annotator" or (not labels.origin and labels.name in merged)
        ]

    @property
    def split_names(self) -> list[str]:
        """The names of the splits."""
        return self._names("splits")

    @property
    def run_names(self) -> list[str]:
        """The names of the run sets."""
        return self._names("runs")

    def labels(self, name: str | None = None) -> LabelSet:
        """Return a label set by name (default: the manifest's default label set)."""
        names = self.label_names
        name = name or self.default_labels or (names[0] if len(names) == 1 else None)
        if name is None:
            raise UsageError(
                f"the manifest {self.name!r} has several label sets: {', '.join(names)}. Pick one "
                '(--labels NAME, or in an experiment, labels = "NAME")'
                if names
                else f"the manifest {self.name!r} has no labels; add them: "
                "obygaze manifests label MANIFEST TABLE.csv"
            )
        return self._part(LabelSet, name)

    def label_scheme(self, name: str | None = None) -> LabelScheme:
        """Return the scheme of a label set, which is the manifest's unless the set has its own."""
        labels = self.labels(name)
        return self._scheme_of(labels.name, labels.about)

    def shared_scheme(self, label_sets: Sequence[LabelSet]) -> LabelScheme:
        """Return the common scheme of label sets to compare or merge; raise if schemes differ."""
        schemes = {labels.name: self._scheme_of(labels.name, labels.about) for labels in label_sets}
        first = next(iter(schemes), "")
        for name, scheme in schemes.items():
            if scheme != schemes[first]:
                raise ManifestError(
                    f"the label sets {first!r} and {name!r} of {self.name} have different levels "
                    "or concepts and cannot be compared or merged; choose sets with the same scheme"
                )
        return schemes.get(first, self.scheme)

    def split(self, name: str) -> Split:
        """Return a split by name."""
        return self._part(Split, name)

    def runs(self, name: str) -> RunSet:
        """Return a run set by name."""
        return self._part(RunSet, name)

    def with_parts(
        self,
        *,
        labels: Collection[LabelSet] = (),
        splits: Collection[Split] = (),
        runs: Collection[RunSet] = (),
    ) -> Manifest:
        """Return a copy of the manifest to which these parts are added."""
        for label_set in labels:
            self._check_codes(label_set)
        added: list[Part] = [*labels, *splits, *runs]
        parts = self._parts | {(part.KIND, part.name): part for part in added}
        first = next((value.name for value in labels), None)
        return replace(self, _parts=parts, default_labels=self.default_labels or first)

    def add_labels(self, labels: LabelSet, *, overwrite: bool = False) -> None:
        """Add a label set, and save it to the folder that the manifest was loaded from, if any."""
        self._check_codes(labels)
        self._add(labels, overwrite=overwrite)

    def add_split(self, split: Split, *, overwrite: bool = False) -> None:
        """Add a split, and save it to the folder that the manifest was loaded from, if any."""
        self._add(split, overwrite=overwrite)

    def _add(self, part: Part, *, overwrite: bool) -> None:
        if self.folder is not None:
            save_parts(self.folder, [part], overwrite=overwrite)
        elif part.name in self._names(part.KIND) and not overwrite:
            raise UsageError(
                f"the manifest {self.name!r} already has {part.KIND}/{part.name}. Choose another "
                "name, or pass overwrite=True"
            )
        self._parts[part.KIND, part.name] = part

    def select(
        self,
        *,
        films: Collection[str] | str | None = None,
        ids: Collection[str] | str | None = None,
        levels: Collection[str] | str | None = None,
        concepts: Collection[str] | str | None = None,
        labels: str | None = None,
    ) -> Manifest:
        """Select the items that meet every condition, with their labels, splits and runs.

        In each split, the folds that still have items are renumbered from 0, in order.

        Parameters
        ----------
        films, ids
            The films and the ids of the items to keep; each must exist. Here and below, a string is
            treated as a list of one.
        levels, concepts
            The levels of the items to keep, and concepts of which each item must have at least one.
        labels
            The label set to use for `levels` and `concepts` (default: the manifest's default).
        """
        items = self.items.select(films=films, ids=ids)
        chosen = set(items.ids)
        if levels is not None:
            codes = set(map(self.label_scheme(labels).level, as_list(levels)))
            chosen &= {i for i, code in self.labels(labels).level_of.items() if code in codes}
        if concepts is not None:
            names = set(map(self.label_scheme(labels).concept, as_list(concepts)))
            concepts_of = self.labels(labels).concepts_of
            chosen &= {i for i, own in concepts_of.items() if not names.isdisjoint(own)}
        items = items.take([row for row, i in enumerate(items.ids) if i in chosen])
        keep = items.row_of.__contains__
        return replace(self, items=items, folder=None, _parts={}).with_parts(
            labels=[self.labels(name).where(keep) for name in self.label_names],
            splits=[self.split(name).select(keep) for name in self.split_names],
            runs=[self.runs(name).where(keep) for name in self.run_names],
        )

    def locate(self, videos: Path | str) -> Located:
        """Find each item's file in a folder of videos or images."""
        return locate(self.items, Path(videos))

    def check(self, *, repeats: bool = True) -> list[str]:
        """List the problems in the manifest's files, each with its file and, in tables, its line.

        Some problems are only found once others are fixed. With `repeats`, items that repeat the
        film, file and span of an earlier item are also problems.
        """
        if self.folder is None:
            raise UsageError(
                f"the manifest {self.name!r} was not loaded from a folder; save it, then load it "
                "with Manifest.load"
            )
        return check(self.folder, repeats=repeats)

    def with_subtitles(
        self, source: Path | str, *, shift: float = 0.0, films: Path | str | None = None
    ) -> Manifest:
        """Return a manifest of the words spoken in each clip, as texts with the same ids.

        A subtitle goes to the clip that contains most of it. Clips of films without subtitles are
        left out. The result's `notes` list the files and subtitles that could not be used.

        Parameters
        ----------
        source
            An SRT or WebVTT file, or a folder with one such file per film, named after the film's
            id, title or video (``tt0467406.srt``, ``Juno (2007).en.vtt``); or MObyGaze's SQL dump.
        shift
            Shift all subtitles by this many seconds; a negative number makes them earlier.
        films
            A table with the columns film and file, for subtitle files with other names.
        """
        from obygaze_features.manifests.subtitles import with_subtitles

        return with_subtitles(self, source, shift=shift, films=films)

    @staticmethod
    def from_obygaze12(
        source: Path | str | None = None, *, rule: str = "paper", url: str | None = None
    ) -> Manifest:
        """Read the annotations of the ObyGaze12 paper.

        Parameters
        ----------
        source
            ``ObyGaze12_thresh_02.csv`` or a similar file (default: downloaded).
        rule
            The name of the default label set, which is one of `RULES`.
        url
            An alternative address to download from.
        """
        return _importer("obygaze12")(source, rule=rule, url=url)

    @staticmethod
    def from_accede(source: Path | str, *, threshold: float = 0.15, scale: str = "1-5") -> Manifest:
        """Read LIRIS-ACCEDE's violence, valence and arousal.

        The folder has the text files of MediaEval 2015 and ACCEDE: MEDIAEVALsets.txt,
        MEDIAEVALviolence.txt, MEDIAEVALaffect.txt, and the corresponding ACCEDE files. If there is
        no file of affect classes, they are computed from the values in ACCEDEranking.txt.

        Parameters
        ----------
        source
            A folder with ``ACCEDE*.txt``, ``MEDIAEVAL*.txt`` or both. It must contain at least one
            file of sets, affect, violence or ranking.
        threshold
            If there is no file of affect classes, clips with scores above `threshold` are positive
            or active, and clips with scores below ``-threshold`` are negative or calm.
        scale
            The scale of values in ``ACCEDEranking.txt``: from 1 to 5 (the score is then (v - 3) /
            2, which is an assumption, because the files do not state the scale), or scores from -1
            to 1.
        """
        return _importer("accede")(source, threshold=threshold, scale=scale)

    @staticmethod
    def from_folder(
        source: Path | str, *, ids: str | None = None, kind: str | None = None
    ) -> Manifest:
        """List the videos, sound files or images in any folder.

        The folder contains the files, or one folder per film or group of images. Folders may be
        nested. A sound file (.wav, .mp3 ...) is a clip unless a video of the same name is next to
        it. tt0108160_scene_1.avi becomes tt0108160-001, as in ObyGaze12, except with
        ``ids="names"``.

        Parameters
        ----------
        source
            The folder. A file belongs to the film that its outermost folder in `source` is named
            after.
        ids
            ``names``: the id is the file's name, prefixed with its film unless it already starts
            with the film. By default, tt0108160_scene_1.avi becomes tt0108160-001.
        kind
            ``clip`` or ``image`` (default: clips, or images in a folder without videos).
        """
        return _importer("folder")(source, ids=ids, kind=kind)

    @staticmethod
    def from_prompts(
        source: Path | str,
        templates: Sequence[str] = (),
        *,
        article: str = "letter",
    ) -> Manifest:
        """Make texts by putting each stimulus into each template.

        The manifest has columns for the set, stimulus and template of each text, so that you can
        select texts by them. An id consists of the set and the text.

        Parameters
        ----------
        source
            A table with a ``stimulus`` column and optionally a ``set`` column (other columns are
            kept); or a battery of association tests, as a JSON file or the name of a built-in
            battery.
        templates
            Texts with ``{}`` for the stimulus (default: the battery's, or `TEMPLATES`).
        article
            The rule for the article before the stimulus, one of `ARTICLES`.
        """
        return _importer("prompts")(source, templates, article=article)

    @staticmethod
    def from_csv(
        source: Path | str,
        columns: Mapping[str, str] | None = None,
        *,
        levels: OwnLevels = None,
        annotator: str | None = None,
    ) -> Manifest:
        """Read any CSV table of clips, with or without labels.

        Columns called id, film, media (or video, file_name, path ...), start, end, level (or label)
        and concepts are recognised; `columns` maps other names. If there are no ids, or they are
        file names, ids are made from the file names. Times are in seconds or h:mm:ss. Separate
        several concepts in a cell with bars, commas or semicolons. A row without a level is an
        unlabelled clip. Spans of a file (start, end) that have no film belong to the film that the
        file is named after.

        Parameters
        ----------
        source
            The table. Columns that are not recognised are kept unchanged.
        columns
            Column names by meaning (id, film, media, level ...), for columns with other names.
        levels
            Your levels, from lowest to highest (concepts are then taken from the table); or a
            `LabelScheme`, a TOML or JSON file, or the folder of a manifest or of timelines
            (default: ObyGaze12's).
        annotator
            The annotator, if one person made all labels; the label set gets this name.
        """
        return _importer("csv_table")(source, columns, levels=levels, annotator=annotator)

    @classmethod
    def load(cls, folder: Path | str) -> Manifest:
        """Read a manifest from a folder; label sets, splits and runs are read on first use."""
        folder = Path(folder)
        header = read_header(folder)
        items = Items.from_table(read_table(folder / "items.csv", required=["id"]))
        labels = sorted(path.stem for path in (folder / "labels").glob("*.csv"))
        only = labels[0] if len(labels) == 1 else None
        return cls(
            name=header["name"],
            items=items,
            scheme=scheme_in(header, folder / HEADER),
            version=header.get("version", "1"),
            **{key: header.get(key, "") for key in TEXTS},
            default_labels=header.get("default_labels") or only,
            folder=folder,
        )

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write the whole manifest to a folder, which appears only when it is complete.

        If the folder already has a manifest of the same items, its other label sets, splits and
        runs are kept. If its items differ, these parts would not fit, and saving is refused.
        """
        folder = Path(folder)
        with new_folder(folder, overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(self.header()))
            write_text(new / "items.csv", self.items.to_csv())
            for kind, part in PARTS.items():
                for name in self._names(kind):
                    _write_part(new, self._part(part, name))
            if folder.exists() and read_header(folder).get("digest") == self.digest:
                for kind in PARTS:
                    for old in (folder / kind).glob("*.*"):
                        if old.is_file() and not (new / kind / old.name).exists():
                            write_bytes(new / kind / old.name, old.read_bytes())

    def header(self) -> dict[str, Any]:
        """Return the contents of ``manifest.json``."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "version": self.version,
            **{key: getattr(self, key) for key in TEXTS},
            "items": len(self),
            "digest": self.digest,
            "default_labels": self.default_labels,
            "label_scheme": self.scheme.to_json(),
        }

    def _scheme_of(self, name: str, about: Mapping[str, Any]) -> LabelScheme:
        folder = self.folder or Path(self.name)
        return scheme_in(about, folder / "labels" / f"{name}.json", self.scheme)

    def _check_codes(self, labels: LabelSet) -> None:
        """Raise if a level or a concept is not in the scheme, because it could not be read back."""
        scheme = self._scheme_of(labels.name, labels.about)
        for noun, codes, names in (
            ("level", labels.levels, scheme.codes),
            ("concept", chain(*{*map(tuple, labels.concepts)}), scheme.concept_names),
        ):
            if unknown := sorted(set(codes).difference(names)):
                raise ManifestError(
                    f"the label set {labels.name!r}: {unknown[0]!r} is not a {noun} of the scheme "
                    f"({', '.join(names) or 'none'}); convert spellings with scheme.{noun}(text)"
                )

    def _names(self, kind: str) -> list[str]:
        in_memory = [name for part_kind, name in self._parts if part_kind == kind]
        files = [] if self.folder is None else [p.stem for p in (self.folder / kind).glob("*.csv")]
        return list(dict.fromkeys([*sorted(files), *in_memory]))

    def _part(self, cls: type[P], name: str) -> P:
        kind = cls.KIND
        if (kind, name) not in self._parts:
            if name not in self._names(kind) or self.folder is None:
                command = {"splits": "split", "labels": "label"}.get(kind)
                noun = "split" if command == "split" else f"{command or 'run'} set"
                remedy = f". To add one, see: obygaze manifests {command} --help" if command else ""
                raise UsageError(
                    f"the manifest {self.name!r} has no {noun} {name!r} "
                    f"({noun}s: {', '.join(self._names(kind)) or 'none'}){remedy}"
                )
            path = self.folder / kind / f"{name}.csv"
            table = read_table(path, required=cls.REQUIRED)
            if table["id"] != self.ids:
                raise_first(table, unknown_ids(table, self.items.row_of))
            self._parts[kind, name] = cls.from_table(name, table, read_about(path), self.scheme)
        loaded: P = self._parts[kind, name]
        return loaded


def save_parts(folder: Path, parts: Sequence[Part], *, overwrite: bool = False) -> None:
    """Add label sets, splits or runs to a manifest on disk; raise if one exists already."""
    for part in parts:
        refuse_to_overwrite(folder / part.KIND / f"{part.name}.csv", overwrite=overwrite)
    for part in parts:
        _write_part(folder, part, overwrite=overwrite)


def _write_part(folder: Path, part: Part, *, overwrite: bool = False) -> None:
    if id_problem(part.name):
        raise UsageError(f"{part.name!r} cannot be a file name in {part.KIND}/; choose another")
    path = folder / part.KIND / f"{part.name}.csv"
    table = part.to_csv()
    about = dict(part.about) | {TABLE_DIGEST: sha256_of_text(table)}
    files = {path: table, path.with_suffix(".json"): to_json(about)}
    write_files(files, overwrite=overwrite, first_is_described=True)


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``manifest.json``."""
    path = folder / HEADER
    if not path.is_file() and (folder / "timelines.json").is_file():
        raise ManifestError(
            f"{folder} has timelines, not a manifest of clips; make a manifest: "
            f"obygaze annotations project {folder} --grid 60 -o FOLDER"
        )
    make = "obygaze manifests import KIND SOURCE -o FOLDER"
    header = read_format(path, FORMAT, FORMAT_VERSION, ManifestError, make=make)
    for key in ("name", "version", "source", "licence", "citation", "default_labels"):
        value = header.get(key, None if key == "name" else "")
        if not isinstance(value, str) and (key != "default_labels" or value is not None):
            raise ManifestError(f"{path}: {key} must be a string (got {value!r})")
    return header


def read_about(path: Path) -> dict[str, Any]:
    """Read the JSON description of a table, without the table's digest."""
    about = _read_description(path)
    return {key: value for key, value in about.items() if key != TABLE_DIGEST}


def _read_description(path: Path) -> dict[str, Any]:
    """Read the JSON description of a table; return {} if the file does not exist."""
    json_path = path.with_suffix(".json")
    about = read_json(json_path, ManifestError) if json_path.exists() else {}
    if not isinstance(about, dict):
        raise ManifestError(f"{json_path}: must contain a JSON object (got {about!r})")
    return about


def check(folder: Path, *, repeats: bool = True) -> list[str]:
    """List the problems in a manifest's files; see `Manifest.check`."""
    problems: list[str] = []
    header: dict[str, Any] = {}
    with _noting(problems):
        header = read_header(folder)
    if problems:
        return problems
    scheme: LabelScheme | None = None
    with _noting(problems):
        scheme = scheme_in(header, folder / HEADER)
    ids: Container[str] | None = None
    with _noting(problems):
        table = read_table(folder / "items.csv", required=["id"])
        items = Items.from_table(table, check=False)
        ids = items.row_of
        item_problems = sorted([*items.problems(), *seconds_problems(table)])
        problems += _located(table, item_problems)
        if not item_problems:
            problems += _header_problems(folder, header, items)
            if repeats:
                problems += _located(table, _repeat_problems(items))
    for part in (LabelSet, RunSet, Split):
        for path in sorted((folder / part.KIND).glob("*.csv")):
            with _noting(problems):
                about = read_about(path)
                table = read_table(path, required=part.REQUIRED)
                rows = sorted(part.problems(table, about, scheme))
                if ids is not None:
                    rows += unknown_ids(table, ids)
                problems += _located(table, rows) if rows else _description_problems(table)
    return problems


@contextlib.contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Add a manifest error raised in the block to `problems`."""
    try:
        yield
    except ManifestError as error:
        problems.append(str(error))


def _header_problems(folder: Path, header: dict[str, object], items: Items) -> Iterator[str]:
    path = folder / HEADER
    if header.get("items") != len(items):
        yield f"{path}: lists {header.get('items')} items, but items.csv has {len(items)}"
    if header.get("digest") != items.digest:
        yield (
            f"{path}: the digest does not match items.csv; if you changed items.csv on purpose, "
            f"set the digest to {items.digest} (stores made from the old items will be refused)"
        )
    default = header.get("default_labels")
    if default is not None and not (folder / "labels" / f"{default}.csv").is_file():
        yield f"{path}: default_labels is {default!r}, but labels/{default}.csv does not exist"


def _repeat_problems(items: Items) -> Iterator[tuple[int, str]]:
    for row, first_row in items.repeats.items():
        yield row, f"{items.ids[row]!r} has the same film and span as {items.ids[first_row]!r}"


def _description_problems(table: Table) -> Iterator[str]:
    """Yield a problem if a table does not match the digest in its description.

    Line endings and quotes are ignored, because spreadsheets change them. Earlier versions wrote no
    digest.
    """
    listed = _read_description(table.path).get(TABLE_DIGEST)
    digest = sha256_of_text(format_table(table.columns))
    if listed not in (None, digest):
        yield (
            f"{table.path.with_suffix('.json')}: {TABLE_DIGEST} does not match "
            f"{table.path.name}. If you changed the table on purpose, set it to {digest}; "
            "otherwise, write both files again (--overwrite)"
        )


def _located(table: Table, problems: Iterable[tuple[int, str]]) -> Iterator[str]:
    return (str(table.problem(row, message)) for row, message in problems)


def _importer(name: str) -> Callable[..., Manifest]:
    """Return the function of an importer, which is imported only when it is needed."""
    function: Callable[..., Manifest] = import_module(
        f"obygaze_features.manifests.importers.{name}"
    ).import_manifest
    return function
