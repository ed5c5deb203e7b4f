"""A manifest: items in a fixed order, and the label sets, splits and runs that hang on them.

On disk a folder of tables and a small header, specified in manifests/README.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Protocol, TypeVar

from obygaze_features.common.files import (
    new_folder,
    read_format,
    read_json,
    refuse_to_overwrite,
    to_json,
    write_bytes,
    write_text,
)
from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.text import counted
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.items import Item, ItemProblem, Items, id_problem
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.runs import RunSet
from obygaze_features.manifests.scheme import LabelScheme, obygaze_scheme
from obygaze_features.manifests.splits import Split

__all__ = [
    "FORMAT_VERSION",
    "HEADER",
    "Manifest",
    "Part",
    "read_about",
    "read_header",
    "save_parts",
    "scheme_of",
]

FORMAT = "obygaze-manifest"
FORMAT_VERSION = 1
HEADER = "manifest.json"
REQUIRED = {
    "labels": ("id", "level"),
    "splits": ("id", "fold"),
    "runs": ("run", "role", "id"),
}


class Part(Protocol):
    """What hangs on the items: a label set, a split or a set of runs."""

    @property
    def name(self) -> str:
        """The file's name without .csv."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Where it comes from."""

    def to_csv(self) -> str:
        """The file."""


P = TypeVar("P")


@dataclass(frozen=True)
class Manifest:
    """Items, and by name the label sets, splits and runs that hang on their ids.

    Label sets, splits and runs of a manifest on disk are read when they are asked for.

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
    _parts: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        parts = [
            counted(len(names), noun)
            for noun, names in (("label set", self.label_names), ("split", self.split_names))
            if names
        ]
        return f"Manifest({', '.join([repr(self.name), self.describe_size(), *parts])})"

    def _repr_html_(self) -> str:
        rows = [("items", self.describe_size()), *self._parts_in_words()]
        cells = "".join(f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>" for n, v in rows)
        return f"<table><caption>{escape(self.name)}</caption>{cells}</table>"

    def describe_size(self) -> str:
        """The numbers of items and films, as text."""
        kinds = set(self.items.kinds)
        noun = kinds.pop() if len(kinds) == 1 else "item"
        films = len(set(self.items.films) - {""})
        of_films = f" of {counted(films, 'film' if noun == 'clip' else 'group')}" if films else ""
        return counted(len(self), noun) + of_films

    def _parts_in_words(self) -> Iterator[tuple[str, str]]:
        for name in self.label_names:
            labels = self.labels(name)
            often = Counter(labels.levels)
            levels = ", ".join(f"{c} {often[c]:,}" for c in self.label_scheme(name).codes)
            yield f"labels {name}", levels
        for name in self.split_names:
            split = self.split(name)
            yield f"split {name}", f"{counted(len(split), 'item')}, {len(split.sizes)} folds"

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
        """The ids, in order."""
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
    def split_names(self) -> list[str]:
        """The names of the splits."""
        return self._names("splits")

    @property
    def run_names(self) -> list[str]:
        """The names of the sets of runs."""
        return self._names("runs")

    def labels(self, name: str | None = None) -> LabelSet:
        """A label set; without a name the manifest's default one."""
        name = name or self.default_labels
        if name is None:
            known = ", ".join(self.label_names)
            raise UsageError(
                f"the manifest {self.name!r} has several label sets; name one of {known} "
                '(--labels NAME, or in an experiment labels = "NAME")'
                if known
                else f"the manifest {self.name!r} has no labels; add some: "
                "obygaze manifests label MANIFEST TABLE.csv"
            )
        return self._part(
            "labels", name, lambda t, a: LabelSet.from_table(name, t, self._scheme_of(name, a), a)
        )

    def label_scheme(self, name: str | None = None) -> LabelScheme:
        """The scheme of a label set: the manifest's, unless the set brought one of its own."""
        labels = self.labels(name)
        return self._scheme_of(labels.name, labels.about)

    def shared_scheme(self, label_sets: Sequence[LabelSet]) -> LabelScheme:
        """The scheme of label sets that are to be compared; refused where they have several."""
        schemes = {one.name: self._scheme_of(one.name, one.about) for one in label_sets}
        first = next(iter(schemes), "")
        for name, scheme in schemes.items():
            if scheme != schemes[first]:
                raise ManifestError(
                    f"the label sets {first!r} and {name!r} of {self.name} have different levels "
                    "or concepts, and cannot be compared or merged; name those that belong together"
                )
        return schemes.get(first, self.scheme)

    def split(self, name: str) -> Split:
        """A split by its name."""
        return self._part("splits", name, lambda t, a: Split.from_table(name, t, a))

    def runs(self, name: str) -> RunSet:
        """A set of runs by its name."""
        return self._part("runs", name, lambda t, a: RunSet.from_table(name, t, a))

    def with_parts(
        self,
        *,
        labels: Collection[LabelSet] = (),
        splits: Collection[Split] = (),
        runs: Collection[RunSet] = (),
    ) -> Manifest:
        """A manifest that has these besides what it had."""
        parts = dict(self._parts)
        for room, values in (("labels", labels), ("splits", splits), ("runs", runs)):
            parts.update({(room, value.name): value for value in values})
        first = next((value.name for value in labels), None)
        return replace(self, _parts=parts, default_labels=self.default_labels or first)

    def select(
        self,
        *,
        films: Collection[str] | str | None = None,
        ids: Collection[str] | str | None = None,
        levels: Collection[str] | str | None = None,
        concepts: Collection[str] | str | None = None,
        labels: str | None = None,
    ) -> Manifest:
        """The items that meet every condition, with their labels, splits and runs.

        Parameters
        ----------
        films, ids
            Keep items of these films, or with these ids (each of which must exist). Here and
            below, a string stands for a list of one.
        levels, concepts
            Keep items whose level is one of these, or that have at least one of these concepts.
        labels
            The label set that `levels` and `concepts` look at; by default the default one.
        """
        films, ids, levels, concepts = map(_listed, (films, ids, levels, concepts))
        for identifier in ids or ():
            self.items.row(identifier)
        conditions: list[Callable[[Item], bool]] = []
        if films is not None:
            unknown = sorted(set(films) - set(self.items.films))
            if unknown:
                raise UsageError(f"no item is of the film {unknown[0]!r}")
            of_films = set(films)
            conditions.append(lambda item: item.film in of_films)
        if ids is not None:
            wanted = set(ids)
            conditions.append(lambda item: item.id in wanted)
        if levels is not None:
            level_of, scheme = self.labels(labels).level_of, self.label_scheme(labels)
            codes = {scheme.level(level) for level in levels}
            conditions.append(lambda item: level_of.get(item.id) in codes)
        if concepts is not None:
            concepts_of, scheme = self.labels(labels).concepts_of, self.label_scheme(labels)
            names = {scheme.concept(concept) for concept in concepts}
            conditions.append(lambda item: not names.isdisjoint(concepts_of.get(item.id, ())))
        rows = [
            row for row, item in enumerate(self) if all(condition(item) for condition in conditions)
        ]
        chosen = self.items.take(rows)
        keep = chosen.row_of.__contains__
        return replace(self, items=chosen, folder=None, _parts={}).with_parts(
            labels=[self.labels(name).where(keep) for name in self.label_names],
            splits=[self.split(name).where(keep) for name in self.split_names],
            runs=[self.runs(name).where(keep) for name in self.run_names],
        )

    @classmethod
    def load(cls, folder: Path | str) -> Manifest:
        """Read a manifest's header and items; what hangs on them is read when asked for."""
        folder = Path(folder)
        header = read_header(folder)
        table = read_table(folder / "items.csv", required=["id"])
        try:
            items = Items.from_table(table)
        except ItemProblem as problem:
            raise table.problem(problem.row, problem.message) from None
        labels = sorted(path.stem for path in (folder / "labels").glob("*.csv"))
        only = labels[0] if len(labels) == 1 else None
        return cls(
            name=header["name"],
            items=items,
            scheme=scheme_of(header, folder / HEADER),
            version=header.get("version", "1"),
            source=header.get("source", ""),
            licence=header.get("licence", ""),
            citation=header.get("citation", ""),
            default_labels=header.get("default_labels") or only,
            folder=folder,
        )

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        """Write the whole manifest as a folder, which appears complete or not at all.

        What an earlier manifest of the same items has and this one lacks (a split that somebody
        made) is kept. With other items it would not fit, and saving is refused.
        """
        with new_folder(folder, overwrite=overwrite, marker=HEADER) as new:
            write_text(new / HEADER, to_json(self.header()))
            write_text(new / "items.csv", self.items.to_csv())
            for room in REQUIRED:
                for name in self._names(room):
                    part = getattr(self, "split" if room == "splits" else room)(name)
                    _write_part(new, room, part)
            if folder.exists() and read_header(folder).get("digest") == self.digest:
                for room in REQUIRED:
                    for old in (folder / room).glob("*.*"):
                        if old.is_file() and not (new / room / old.name).exists():
                            write_bytes(new / room / old.name, old.read_bytes())

    def header(self) -> dict[str, Any]:
        """The contents of ``manifest.json``."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "version": self.version,
            "source": self.source,
            "licence": self.licence,
            "citation": self.citation,
            "items": len(self),
            "digest": self.digest,
            "default_labels": self.default_labels,
            "label_scheme": self.scheme.to_json(),
        }

    def _scheme_of(self, name: str, about: Mapping[str, Any]) -> LabelScheme:
        place = self.folder or Path(self.name)
        return scheme_of(about, place / "labels" / f"{name}.json", self.scheme)

    def _names(self, room: str) -> list[str]:
        held = [name for where, name in self._parts if where == room]
        files = [] if self.folder is None else [p.stem for p in (self.folder / room).glob("*.csv")]
        return list(dict.fromkeys([*sorted(files), *held]))

    def _part(self, room: str, name: str, read: Callable[[Table, Mapping[str, Any]], P]) -> P:
        found: P | None = self._parts.get((room, name))
        if found is None:
            if name not in self._names(room) or self.folder is None:
                known = ", ".join(self._names(room)) or "none"
                raise UsageError(
                    f"the manifest {self.name!r} has no {room} called {name!r}; it has {known}"
                )
            path = self.folder / room / f"{name}.csv"
            table = read_table(path, required=REQUIRED[room])
            for row, identifier in enumerate(table["id"]):
                if identifier not in self.items.row_of:
                    raise table.problem(row, f"id {identifier!r} is not in items.csv")
            found = read(table, read_about(path))
            self._parts[room, name] = found
        return found


def _listed(names: Collection[str] | str | None) -> Collection[str] | None:
    return [names] if isinstance(names, str) else names


def read_header(folder: Path) -> dict[str, Any]:
    """Read and check ``manifest.json``."""
    path = folder / HEADER
    make = "obygaze manifests import KIND SOURCE -o FOLDER"
    if not path.is_file() and (folder / "timelines.json").is_file():
        raise ManifestError(
            f"{folder} holds timelines, and a manifest of clips is meant; make one: "
            f"obygaze annotations project {folder} --grid 60 -o FOLDER"
        )
    header = read_format(path, FORMAT, FORMAT_VERSION, ManifestError, make=make)
    for key in ("name", "version", "source", "licence", "citation", "default_labels"):
        value = header.get(key, None if key == "name" else "")
        if not isinstance(value, str) and (key != "default_labels" or value is not None):
            raise ManifestError(f"{path}: {key} is {value!r}, and a text is meant")
    return header


def read_about(path: Path) -> dict[str, Any]:
    """What the JSON file beside a table says of it; nothing where there is none."""
    about = path.with_suffix(".json")
    said = read_json(about, ManifestError) if about.exists() else {}
    if not isinstance(said, dict):
        raise ManifestError(f"{about}: {said!r} where an object is meant")
    return said


def scheme_of(
    said: Mapping[str, Any], path: Path, default: LabelScheme | None = None
) -> LabelScheme:
    """The scheme that a header or a label set's JSON file names; else `default`, or ObyGaze's.

    Parameters
    ----------
    said
        What the file holds.
    path
        The file, for messages.
    default
        Where it names none.
    """
    value = said.get("label_scheme")
    try:
        return (default or obygaze_scheme()) if value is None else LabelScheme.from_json(value)
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from None


def save_parts(
    folder: Path, parts: Sequence[LabelSet | Split | RunSet], *, overwrite: bool = False
) -> list[Path]:
    """Add label sets, splits or runs to a manifest on disk, unless one of them is there."""
    rooms = {LabelSet: "labels", Split: "splits", RunSet: "runs"}
    places = [(rooms[type(part)], part) for part in parts]
    for room, part in places:
        refuse_to_overwrite(folder / room / f"{part.name}.csv", overwrite=overwrite)
    return [_write_part(folder, room, part) for room, part in places]


def _write_part(folder: Path, room: str, part: Part) -> Path:
    if id_problem(part.name):
        raise UsageError(f"{part.name!r} cannot be the name of a file in {room}/")
    path = folder / room / f"{part.name}.csv"
    write_text(path.with_suffix(".json"), to_json(dict(part.about)))
    write_text(path, part.to_csv())
    return path
