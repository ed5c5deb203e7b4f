"""Manifests: items in a fixed order, with label sets, splits and runs over their ids.

On disk, a manifest is a folder of tables and a small header, specified in manifests/README.md.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from obygaze_features.common.files import (
    new_folder,
    read_format,
    read_json,
    to_json,
    write_bytes,
    write_files,
    write_text,
)
from obygaze_features.common.formatting import counted, join_some
from obygaze_features.common.names import as_list
from obygaze_features.common.tables import Table, parse_table, read_table, table_of_frame
from obygaze_features.errors import ManifestError, UsageError, translate
from obygaze_features.items.films import select_rows
from obygaze_features.items.items import Item, Items, id_problem
from obygaze_features.manifests.labels import (
    LabelScheme,
    LabelSet,
    OwnLevels,
    map_column,
    obygaze_scheme,
    scheme_in,
)
from obygaze_features.manifests.splits import RunSet, Split

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "obygaze-manifest"
FORMAT_VERSION = 1
HEADER = "manifest.json"
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
    scheme: LabelScheme = field(default_factory=obygaze_scheme, repr=False)
    version: str = "1"
    source: str = field(default="", repr=False)
    licence: str = field(default="", repr=False)
    citation: str = field(default="", repr=False)
    default_labels: str | None = None
    folder: Path | None = None
    notes: Sequence[str] = field(default=(), repr=False)
    _parts: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __repr__(self) -> str:
        return f"Manifest({self.name!r}, {counted(len(self.items), 'item')})"

    def __getitem__(self, id_: str) -> Item:
        return self.items[self.items.row(id_)]

    def __contains__(self, id_: object) -> bool:
        return id_ in self.items.row_of

    @property
    def ids(self) -> list[str]:
        """The ids of the items, in order."""
        return self.items.ids

    @property
    def has_papers_clips(self) -> bool:
        """True for ObyGaze12, whose numbers can be compared with the paper's."""
        return self.name == "obygaze12"

    @property
    def digest(self) -> str:
        """A fingerprint of the items; see manifests/README.md."""
        return self.items.digest

    @property
    def about(self) -> dict[str, str]:
        """What a store says about its manifest: the name, the licence and the citation."""
        return {"manifest": self.name, "licence": self.licence, "citation": self.citation}

    @property
    def label_names(self) -> list[str]:
        """The names of the label sets."""
        return self._names("labels")

    @property
    def annotators(self) -> list[str]:
        """The names of the label sets that were each made by a single annotator."""
        sets = [self.labels(name) for name in self.label_names]
        merged = {name for labels in sets for name in labels.merged_annotators}
        names = []
        for labels in sets:
            # Labels of unknown origin count as an annotator's once they have been merged.
            if labels.origin == "annotator" or (not labels.origin and labels.name in merged):
                names.append(labels.name)
        return names

    @property
    def split_names(self) -> list[str]:
        """The names of the splits."""
        return self._names("splits")

    @property
    def run_names(self) -> list[str]:
        """The names of the run sets."""
        return self._names("runs")

    def labels(self, name: str | None = None) -> LabelSet:
        """Return a label set by name (default: the manifest's default, or its only label set)."""
        names = self.label_names
        name = name or self.default_labels
        if name is None and len(names) == 1:
            name = names[0]
        if name is None:
            raise UsageError(
                f"the manifest {self.name!r} has no default label set. Name one (it has "
                f"{', '.join(names) or 'none'}), set default_labels in its manifest.json, or add "
                "one: obygaze manifests label"
            )
        return self._part(LabelSet, name)

    def label_scheme(self, name: str | None = None) -> LabelScheme:
        """Return a label set's own scheme, or else the manifest's scheme."""
        return self._scheme_of(self.labels(name))

    def shared_scheme(self, label_sets: Sequence[LabelSet]) -> LabelScheme:
        """Return the common scheme of label sets to compare or merge; raise if schemes differ."""
        schemes = [*map(self._scheme_of, label_sets), self.scheme]
        for labels, scheme in zip(label_sets, schemes, strict=False):
            if scheme != schemes[0]:
                raise ManifestError(
                    f"the label sets {label_sets[0].name!r} and {labels.name!r} of {self.name} "
                    "have schemes with different names, levels or concepts, so they cannot be "
                    "compared or merged; choose sets with the same scheme"
                )
        return schemes[0]

    def split(self, name: str) -> Split:
        """Return a split by name."""
        return self._part(Split, name)

    def runs(self, name: str) -> RunSet:
        """Return a run set by name."""
        return self._part(RunSet, name)

    def with_parts(self, *parts: Part) -> Manifest:
        """Return a copy of the manifest to which label sets, splits or runs are added.

        Raise `ManifestError` if a part could not be saved and read back as it is.
        """
        default = self.default_labels
        added = dict(self._parts)
        for part in parts:
            self._check(part)
            if isinstance(part, LabelSet):
                default = default or part.name
            added[part.KIND, part.name] = part
        return replace(self, _parts=added, default_labels=default)

    def add(self, part: Part, *, overwrite: bool = False) -> None:
        """Add a label set, a split or runs, also to the folder of a manifest that was loaded.

        Raise `ManifestError` if the part could not be read back as it is.
        """
        self._check(part)
        if self.folder is not None:
            _write_part(self.folder, part, overwrite=overwrite)
        elif part.name in self._names(part.KIND) and not overwrite:
            raise UsageError(
                f"manifest {self.name!r} already has {part.KIND}/{part.name}; pass overwrite=True"
            )
        self._parts[part.KIND, part.name] = part

    def select(
        self,
        *,
        films: Iterable[str] | None = None,
        ids: Iterable[str] | None = None,
        levels: Iterable[str] | None = None,
        concepts: Iterable[str] | None = None,
        labels: str | None = None,
    ) -> Manifest:
        """Select the items that meet every condition, with their labels, splits and runs.

        A split is left out if one of its folds would become empty.

        Parameters
        ----------
        films, ids
            The films (by id, title or pattern) and the ids of the items to keep; each must exist.
            Here and below, you can pass a single name as a string, and an empty list means none.
        levels, concepts
            The levels of the items to keep, and concepts of which each item must have at least one.
        labels
            The label set to use for `levels` and `concepts` (default: the manifest's default).
        """
        rows: list[int] = select_rows(self.items, films=films, ids=ids).tolist()
        if levels is not None:
            codes = set(map(self.label_scheme(labels).level, as_list(levels)))
            level_of = self.labels(labels).level_of
            rows = [row for row in rows if level_of.get(self.ids[row]) in codes]
        if concepts is not None:
            names = set(map(self.label_scheme(labels).concept, as_list(concepts)))
            concepts_of = self.labels(labels).concepts_of
            rows = [row for row in rows if names.intersection(concepts_of.get(self.ids[row], ()))]
        items = self.items.take(rows)

        parts = {}
        for section, cls in PARTS.items():
            for name in self._names(section):
                part: Any = self._part(cls, name)
                selected = part.where(items.row_of.__contains__)
                if section == Split.KIND and set(selected.folds) != set(part.folds):
                    continue
                parts[section, name] = selected
        return replace(self, items=items, folder=None, _parts=parts)

    @staticmethod
    def from_obygaze12(source: Path | str) -> Manifest:
        """Read the annotations of the ObyGaze12 paper.

        The label sets are ``paper`` (the default), ``released`` and ``raw``.

        Parameters
        ----------
        source
            ``ObyGaze12_thresh_02.csv`` or a similar file.
        """
        from obygaze_features.manifests.importers.obygaze12 import import_manifest

        return import_manifest(source)

    @staticmethod
    def from_accede(source: Path | str, *, threshold: float = 0.15) -> Manifest:
        """Read LIRIS-ACCEDE's violence, valence and arousal.

        The text files are named ``MEDIAEVALsets.txt`` or ``ACCEDEsets.txt``, and likewise with
        ``violence``, ``affect`` or ``ranking``. One file is enough.

        Parameters
        ----------
        source
            The folder of the text files.
        threshold
            If no ``affect`` file has classes, clips get them from their mean ratings in
            ``ranking``, which range from 1 to 5: scores (rating - 3) / 2 below ``-threshold`` are
            negative or calm, and scores above ``threshold`` are positive or active.
        """
        from obygaze_features.manifests.importers.accede import import_manifest

        return import_manifest(source, threshold)

    @staticmethod
    def from_folder(
        source: Path | str,
        *,
        kind: str | None = None,
        every: float | None = None,
    ) -> Manifest:
        """List the videos, sound files or images in any folder.

        The folder contains the files, or one folder per film or group of images. Folders may be
        nested. A sound file (.wav, .mp3 ...) is a clip unless a video of the same name is next to
        it. tt0108160_scene_1.avi becomes tt0108160-001, as in ObyGaze12.

        Parameters
        ----------
        source
            The folder. A file's film is named after the outermost folder in `source` that holds it.
        kind
            ``clip`` or ``image`` (default: clips, or images if there are images and no videos).
        every
            Cut each film into spans of this many seconds. A span is named after the file and its
            start (``Juno-90s``), so a longer version of a film keeps the ids. A film ends with its
            last picture, and a remainder of less than a second is left out.
        """
        from obygaze_features.manifests.importers.folder import import_manifest

        return import_manifest(source, kind=kind, every=every)

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
        from obygaze_features.manifests.importers.prompts import import_manifest

        return import_manifest(source, templates, article=article)

    @staticmethod
    def from_csv(
        source: Path | str,
        columns: Mapping[str, str] | None = None,
        *,
        levels: OwnLevels = None,
        annotator: str | None = None,
    ) -> Manifest:
        """Read any CSV table of clips, with or without labels.

        Columns called id, kind, film, media (or video, file_name, path ...), text, start, end,
        level (or label), concepts and ratio are recognised; `columns` maps other names. If there
        are no ids, or they are file names, ids are made from the file names. Times are in seconds
        or h:mm:ss. Separate several concepts in a cell with bars, commas or semicolons. A row
        without a level is an unlabelled clip. If a span of a file (start, end) has no film, its
        film is named after the file.

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
        from obygaze_features.manifests.importers.csv_table import import_manifest

        return import_manifest(Path(source), columns, levels, annotator)

    @staticmethod
    def from_pandas(
        frame: pd.DataFrame,
        columns: Mapping[str, str] | None = None,
        *,
        levels: OwnLevels = None,
        annotator: str | None = None,
        name: str = "frame",
    ) -> Manifest:
        """Read a DataFrame of clips, with or without labels, like the table of `from_csv`.

        An index that has a name is a column. A cell of concepts can be a list.

        Parameters
        ----------
        frame
            The DataFrame. Columns that are not recognised are kept as text.
        columns, levels, annotator
            As in `from_csv`.
        name
            The name of the manifest.
        """
        from obygaze_features.manifests.importers.csv_table import import_manifest

        return import_manifest(table_of_frame(frame, name), columns, levels, annotator)

    @classmethod
    def load(cls, folder: Manifest | Path | str) -> Manifest:
        """Read a manifest from a folder; label sets, splits and runs are read on first use.

        A `Manifest` is returned as it is, so functions that call this take either.
        """
        if isinstance(folder, Manifest):
            return folder
        folder = Path(folder)
        header = read_header(folder)
        items = Items.from_table(read_table(folder / "items.csv", required=["id"]))
        labels = [path.stem for path in (folder / "labels").glob("*.csv")]
        if len(labels) == 1:
            header["default_labels"] = header["default_labels"] or labels[0]
        texts = {name: header[name] for name in _Header.__struct_fields__}
        scheme = scheme_in(header, folder / HEADER)
        return cls(items=items, scheme=scheme, folder=folder, **texts)

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write the whole manifest to a folder, which appears only when it is complete.

        If the folder already has label sets, splits or runs that this manifest lacks, `overwrite`
        keeps them if the items are the same, and raises `OutputExists` if the items differ. Raises
        `ManifestError` if the manifest could not be read back.
        """
        folder = Path(folder)
        with new_folder(folder, overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(self.header()))
            write_text(new / "items.csv", self.items.to_csv())
            for section, part in PARTS.items():
                for name in self._names(section):
                    _write_part(new, self._part(part, name))
            if folder.exists() and read_header(folder).get("digest") == self.digest:
                for section in PARTS:
                    for old in (folder / section).glob("*.*"):
                        if old.is_file() and not (new / section / old.name).exists():
                            write_bytes(new / section / old.name, old.read_bytes())
            for problem in check(new):
                raise ManifestError(problem)

    def header(self) -> dict[str, Any]:
        """Return the contents of ``manifest.json``."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **{name: getattr(self, name) for name in _Header.__struct_fields__},
            "items": len(self),
            "digest": self.digest,
            "label_scheme": self.scheme.to_json(),
        }

    def _scheme_of(self, labels: LabelSet) -> LabelScheme:
        path = Path(self.folder or self.name, "labels", f"{labels.name}.json")
        return scheme_in(labels.about, path, self.scheme)

    def _check(self, part: Part) -> None:
        """Raise `ManifestError` if a part would not be read back as it is."""
        if id_problem(part.name):
            raise UsageError(f"{part.name!r} cannot be a file name in {part.KIND}/; choose another")
        path = Path(self.folder or self.name, part.KIND, f"{part.name}.csv")
        text = part.to_csv()
        table = parse_table(path, io.StringIO(text, newline=""), required=part.REQUIRED)
        again = self._read(type(part), table, part.about).to_csv()
        if again != text:
            changed = sorted({*text.splitlines()} - {*again.splitlines()})
            raise ManifestError(
                f"{path} would change when read back ({join_some(changed, 1)}); pass the scheme's "
                "own codes and names: scheme.level(text), scheme.concept(text)"
            )

    def _read(self, cls: type[P], table: Table, about: Mapping[str, Any]) -> Any:
        """Make a part from its table; raise if an id is not in the manifest."""
        if table["id"] != self.ids:
            map_column(table, "id", self.items.row)
        return cls.from_table(table.path.stem, table, about, self.scheme)

    def _names(self, section: str) -> list[str]:
        names = []
        if self.folder is not None:
            names = sorted(path.stem for path in (self.folder / section).glob("*.csv"))
        names += [name for part_section, name in self._parts if part_section == section]
        return list(dict.fromkeys(names))

    def _part(self, cls: type[P], name: str) -> P:
        section = cls.KIND
        if (section, name) not in self._parts:
            names = self._names(section)
            if name not in names or self.folder is None:
                raise UsageError(
                    f"the manifest {self.name!r} has no {section}/{name}; it has "
                    f"{', '.join(names) or 'none'}"
                )
            path = self.folder / section / f"{name}.csv"
            table = read_table(path, required=cls.REQUIRED)
            self._parts[section, name] = self._read(cls, table, read_about(path))
        loaded: P = self._parts[section, name]
        return loaded


def _write_part(folder: Path, part: Part, *, overwrite: bool = False) -> None:
    path = folder / part.KIND / f"{part.name}.csv"
    files = {path: part.to_csv(), path.with_suffix(".json"): to_json(dict(part.about))}
    write_files(files, overwrite=overwrite)


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``manifest.json``."""
    path = folder / HEADER
    header = read_format(
        path,
        FORMAT,
        FORMAT_VERSION,
        ManifestError,
        "a manifest (from obygaze manifests import or annotations project)",
    )
    with translate(ManifestError, path, "is malformed ({}); correct it"):
        return header | msgspec.structs.asdict(msgspec.convert(header, _Header))


class _Header(msgspec.Struct):
    """The texts of ``manifest.json``."""

    name: str
    version: str = "1"
    source: str = ""
    licence: str = ""
    citation: str = ""
    default_labels: str | None = None


def read_about(path: Path) -> dict[str, Any]:
    """Read the JSON description of a table; return {} if the file does not exist."""
    json_path = path.with_suffix(".json")
    if not json_path.exists():
        return {}
    about = read_json(json_path, ManifestError)
    if not isinstance(about, dict):
        raise ManifestError(f"{json_path} must contain a JSON object (got {about!r})")
    about.pop("table_sha256", None)  # written by version 0.3
    return about


def check(folder: Path) -> list[str]:
    """List the problems of a manifest on disk, at most one of each table."""
    try:
        manifest = Manifest.load(folder)
    except ManifestError as error:
        return [str(error)]

    problems = []
    digest = read_header(folder).get("digest")
    if digest != manifest.digest:
        problems.append(f"{folder / HEADER} must have the digest of items.csv: {manifest.digest}")
    if manifest.default_labels not in (None, *manifest.label_names):
        problems.append(
            f"{folder / HEADER}: default_labels needs labels/{manifest.default_labels}.csv"
        )
    for section, part in PARTS.items():
        for name in manifest._names(section):
            try:
                manifest._part(part, name)
            except ManifestError as error:
                problems.append(str(error))
    return problems
