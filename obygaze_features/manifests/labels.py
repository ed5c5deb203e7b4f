"""Label schemes (levels and concepts), and label sets over items' ids.

A manifest can have many label sets, and a label set may cover only some of the items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec

from obygaze_features.common.files import describe_absent, read_json, read_toml
from obygaze_features.common.names import unknown_name
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table, format_table, map_cells
from obygaze_features.errors import ManifestError, errors_as, translate
from obygaze_features.items.items import pick_rows

COLUMNS = ("id", "level", "concepts", "ratio")
#: The keys of levels and concepts that describe them, and are ignored in comparisons.
DESCRIPTIONS = ("sense", "about", "source", "instances", "examples", "further")
SEPARATOR = "|"
#: How to pass levels that are not in the scheme.
OWN_LEVELS = "to use your own levels, list them in order: --levels LOWEST,...,HIGHEST"
V = TypeVar("V")
E = TypeVar("E", "Level", "Concept")
#: The origin of a label set; empty if unknown.
Origin = Literal["annotator", "merge", "rule", ""]


def _describing(default: Any) -> Any:
    """Return a dataclass field for a description, which is ignored in comparisons."""
    return field(default=default, compare=False, repr=False)


@dataclass(frozen=True)
class Level:
    """A level of a scheme; `about` explains its meaning."""

    code: str
    name: str
    aliases: tuple[str, ...] = ()
    about: str = _describing("")

    @property
    def texts(self) -> tuple[str, ...]:
        """The code, the name and the aliases of the level."""
        return (self.code, self.name, *self.aliases)


#: How a concept is perceived: in frames, words or sound, or only through the story.
Sense = Literal["seen", "said", "heard", "told", ""]


@dataclass(frozen=True)
class Concept:
    """A concept that annotators tick; `visual` concepts can be seen in the frames.

    `sense` says how the concept is perceived, and is empty if unknown. The thesaurus's texts are
    ignored in comparisons: `about`, `instances` and `examples`, which come from `source`, and
    `further` instances, which come from MObyGaze.
    """

    name: str
    visual: bool = True
    aliases: tuple[str, ...] = ()
    sense: Sense = field(default="", compare=False, repr=False)
    about: str = _describing("")
    source: str = _describing("")
    instances: tuple[str, ...] = _describing(())
    examples: tuple[str, ...] = _describing(())
    further: tuple[str, ...] = _describing(())

    @property
    def texts(self) -> tuple[str, ...]:
        """The name and the aliases of the concept."""
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class LabelScheme:
    """The levels, from lowest to highest, and the concepts of a label set."""

    name: str
    levels: tuple[Level, ...]
    concepts: tuple[Concept, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the levels, in ascending order."""
        return tuple(self.name_of)

    @property
    def name_of(self) -> dict[str, str]:
        """The name of each level by its code."""
        return {level.code: level.name for level in self.levels}

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The names of all concepts, in the scheme's order."""
        return tuple(concept.name for concept in self.concepts)

    @property
    def visual_concepts(self) -> tuple[str, ...]:
        """The names of the concepts that can be seen in the frames."""
        return tuple(concept.name for concept in self.concepts if concept.visual)

    @property
    def senses(self) -> dict[str, str]:
        """The sense of each concept; empty if unknown.

        Examples
        --------
        >>> [obygaze_scheme().senses[name] for name in ("Look", "Speech", "Narratology")]
        ['seen', 'said', 'told']
        """
        return {concept.name: concept.sense for concept in self.concepts}

    @property
    def is_obygaze(self) -> bool:
        """True if the levels have ObyGaze's codes and names; other schemes may share the codes."""
        return self.name_of == obygaze_scheme().name_of

    @property
    def order(self) -> str:
        """The levels in one line, so that users notice a wrong order."""
        return f"levels: {' < '.join(level.name for level in self.levels)} (the highest)"

    def level(self, text: str) -> str:
        """Return the code of the level with this code, name or alias."""
        level = self._level_of.get(name_key(text))
        if level is None:
            raise ManifestError(unknown_name("level", text, self.name_of.values()))
        return level.code

    def concept(self, text: str) -> str:
        """Return the name of the concept with this name or alias."""
        concept = self._concept_of.get(name_key(text))
        if concept is None:
            raise ManifestError(unknown_name("concept", text, self.concept_names))
        return concept.name

    def has_level(self, text: str) -> bool:
        """Return True if a level has this code, name or alias."""
        return name_key(text) in self._level_of

    def has_concept(self, text: str) -> bool:
        """Return True if a concept has this name or alias."""
        return name_key(text) in self._concept_of

    def with_concepts(self, concepts: Iterable[Concept]) -> LabelScheme:
        """Return the scheme plus the concepts that it lacks, each in its first spelling."""
        added: dict[str, Concept] = {}
        for concept in concepts:
            if not self.has_concept(concept.name):
                added.setdefault(name_key(concept.name), concept)
        return replace(self, concepts=(*self.concepts, *added.values()))

    def in_order(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the concepts with these names or aliases, each once, in the scheme's order."""
        names = set(map(self.concept, texts))
        return tuple(name for name in self.concept_names if name in names)

    @cached_property
    def _level_of(self) -> dict[str, Level]:
        return _by_text("level", self.levels)

    @cached_property
    def _concept_of(self) -> dict[str, Concept]:
        return _by_text("concept", self.concepts)

    def __post_init__(self) -> None:
        if not self._level_of:
            raise ManifestError(f"the label scheme {self.name!r} has no levels; list at least one")
        self._concept_of  # noqa: B018 (raises if two concepts share a name)

    @classmethod
    def from_json(cls, value: Any) -> LabelScheme:
        """Read a scheme from JSON in the format of manifests and shipped files.

        A level or a concept may be written as just its name.
        """
        if isinstance(value, dict):
            value = {key: _with_codes(entries) for key, entries in value.items()}
        with translate(ManifestError, "the label scheme", "is malformed ({}); correct it"):
            scheme = msgspec.convert(value, cls)

        shipped = obygaze_scheme()
        if scheme.to_json() == shipped.to_json():
            return shipped
        return scheme

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `from_json` reads; ObyGaze's own descriptions are left out."""
        value: dict[str, Any] = msgspec.to_builtins(asdict(self))
        is_shipped = value == msgspec.to_builtins(asdict(obygaze_scheme()))
        for entry in (*value["levels"], *value["concepts"]):
            for key in DESCRIPTIONS:
                if is_shipped or not entry.get(key):
                    entry.pop(key, None)
        return value


def _by_text(noun: str, entries: Iterable[E]) -> dict[str, E]:
    """Return levels or concepts by each of their texts; raise if two of them share one."""
    owners: dict[str, E] = {}
    for entry in entries:
        for text in entry.texts:
            if not text.strip() or SEPARATOR in text:
                raise ManifestError(f"{noun} {text!r}: use a non-empty name without '|'")
            if owners.setdefault(name_key(text), entry) is not entry:
                raise ManifestError(
                    f"two {noun}s are called {text!r} (ignoring case, spaces, - and _); rename one"
                )
    return owners


def _with_codes(entries: Any) -> Any:
    """Return levels or concepts as JSON objects; a name or a code stands for both."""
    if not isinstance(entries, list):
        return entries
    named = [entry if isinstance(entry, dict) else {"name": entry} for entry in entries]
    return [{"code": x.get("name"), "name": x.get("code"), **x} for x in named]


def obygaze_scheme() -> LabelScheme:
    """Return the scheme of the ObyGaze12 paper: four levels, eight visual concepts, four others.

    It includes the definitions and examples of the thesaurus.

    Examples
    --------
    >>> look = obygaze_scheme().concepts[1]
    >>> look.name, look.about, look.instances
    ('Look', "characters' gaze", ('voyeurism', 'a gaze that is not returned'))
    """
    return msgspec.convert(reference_json("scheme-obygaze.json"), LabelScheme)


#: An argument of `choose_scheme`: levels, a scheme, a path to a scheme, or None for the default.
OwnLevels = Sequence[str] | LabelScheme | Path | None


@lru_cache(1 << 12)
def name_key(text: str) -> str:
    """Return a lookup key for a level or concept, ignoring case and how words are separated.

    Examples
    --------
    >>> name_key("Easy  Negative") == name_key("easy_negative") == name_key("EASY-NEGATIVE")
    True
    >>> name_key("-1") == name_key("1")
    False
    """
    return " ".join(re.sub(r"(?<=\w)[_-]+(?=\w)", " ", text).split()).casefold()


def choose_scheme(levels: OwnLevels) -> LabelScheme | None:
    """Return the scheme for `levels`: a list of levels or a path; None for the default.

    An unnamed scheme is called ``own``, so that tables with equal levels have equal schemes.

    A string with commas is a list of levels; a string without commas is a path. The path leads to a
    TOML or JSON file with a scheme as in manifests (a level or a concept may be just a string); to
    the header of a manifest or of timelines, or the JSON file of a label set that has a scheme; or
    to the folder of a manifest or of timelines.
    """
    if isinstance(levels, str) and "," in levels:
        levels = list(filter(None, map(str.strip, levels.split(","))))
    if levels is None or isinstance(levels, LabelScheme):
        return levels
    if not isinstance(levels, str | Path):
        return LabelScheme("own", tuple(Level(text, text) for text in levels))

    path = Path(levels)
    if not path.exists():
        wish = "levels separated by commas, or a file or folder that has them"
        raise ManifestError(describe_absent(path, wish))
    for header in ("timelines.json", "manifest.json"):
        if (path / header).exists():
            path /= header
    read = read_toml if path.suffix.lower() == ".toml" else read_json
    about = read(path, ManifestError)
    if not isinstance(about, dict):
        raise ManifestError(f"{path} has no label scheme; add levels and concepts")
    return scheme_in({"label_scheme": {"name": "own", **about}, **about}, path)


def scheme_in(
    about: Mapping[str, Any],
    path: Path,
    default: LabelScheme | None = None,
) -> LabelScheme:
    """Return the scheme in a header or a label set's JSON file, or else `default` or ObyGaze's.

    `path` is the file to name in error messages.
    """
    value = about.get("label_scheme")
    if value is None:
        return default or obygaze_scheme()
    with errors_as(ManifestError, str(path)):
        return LabelScheme.from_json(value)


class _Made(msgspec.Struct):
    """The fields of a label set's JSON file that say who or what made the labels.

    `of` describes the label sets that were merged.
    """

    origin: Origin = ""
    annotator: str = ""
    of: dict[str, _Made] = {}
    rule: str = ""

    def __post_init__(self) -> None:
        if self.origin:
            return
        # Versions before 0.3 wrote no origin.
        if self.annotator:
            self.origin = "annotator"
        elif self.of:
            self.origin = "merge"
        elif self.rule and not self.rule.startswith("as in "):
            self.origin = "rule"

    def annotators(self) -> Iterator[str]:
        """Yield the annotators' label sets that a merge includes, also through other merges."""
        for name, source in self.of.items():
            if source.origin == "merge":
                yield from source.annotators()
            elif source.origin != "rule":
                yield name


def map_column(table: Table, column: str, function: Callable[[str], V]) -> list[V]:
    """Map a function over a column, once for equal cells; an error names the first bad line."""
    cells = table.get(column)

    def read(cell: str) -> V:
        try:
            return function(cell)
        except ManifestError as error:
            raise table.problem(cells.index(cell), str(error)) from None

    return map_cells(read, cells)


def read_ids(table: Table, column: str = "id") -> list[str]:
    """Return the ids of a table; raise an error that names the line of a duplicate id."""
    seen: set[str] = set()
    for row, id_ in enumerate(table[column]):
        if id_ in seen:
            raise table.problem(row, f"duplicate id {id_!r}")
        seen.add(id_)
    return table[column]


@dataclass(frozen=True)
class IdTable:
    """A table with one row per id of a manifest, stored as columns."""

    name: str
    ids: list[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, keep: Callable[[str], bool]) -> Self:
        """Return the rows whose ids `keep` accepts; empty columns stay empty."""
        rows = [row for row, id_ in enumerate(self.ids) if keep(id_)]
        return replace(self, **pick_rows(vars(self), rows))


@dataclass(frozen=True)
class LabelSet(IdTable):
    """The levels and concepts of items.

    `ratio` is the share of each item that its annotation covers, as text, if the source had it.
    `about` describes who or what made the labels (`origin`) and by which rule.
    """

    KIND: ClassVar = "labels"
    REQUIRED: ClassVar = ("id", "level")

    levels: list[str] = field(repr=False)
    concepts: list[tuple[str, ...]] = field(repr=False)
    ratio: list[str] = field(default_factory=list, repr=False)
    extra: Mapping[str, list[str]] = field(default_factory=dict, repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> Origin:
        """The origin of the labels: an annotator, a merge or a rule; empty if unknown."""
        return self._made.origin

    @property
    def display_name(self) -> str:
        """The annotator's name as written, in any script, or else the label set's name."""
        return self._made.annotator or self.name

    @property
    def merged_from(self) -> list[str]:
        """The names of the label sets that this label set was merged from, if any."""
        return list(self._made.of)

    @property
    def merged_annotators(self) -> list[str]:
        """The annotators' label sets that this set was merged from, directly or indirectly."""
        return list(dict.fromkeys(self._made.annotators()))

    @cached_property
    def _made(self) -> _Made:
        return msgspec.convert(self.about, _Made)

    @cached_property
    def level_of(self) -> dict[str, str]:
        """The level code of each id."""
        return dict(zip(self.ids, self.levels, strict=True))

    @cached_property
    def concepts_of(self) -> dict[str, tuple[str, ...]]:
        """The concepts of each id."""
        return dict(zip(self.ids, self.concepts, strict=True))

    @classmethod
    def from_table(
        cls,
        name: str,
        table: Table,
        about: Mapping[str, Any],
        default: LabelScheme,
    ) -> LabelSet:
        """Read labels from a CSV table; raise at the first cell that does not fit the scheme.

        `default` is the scheme of the manifest, for labels without a scheme of their own.
        """
        path = table.path.with_suffix(".json")
        scheme = scheme_in(about, path, default)
        with translate(ManifestError, path, "is malformed ({}); correct it"):
            msgspec.convert(about, _Made)

        def read_concepts(text: str) -> tuple[str, ...]:
            return tuple(map(scheme.concept, split_concepts(text)))

        return cls(
            name,
            ids=read_ids(table),
            levels=map_column(table, "level", scheme.level),
            concepts=map_column(table, "concepts", read_concepts),
            ratio=table.columns.get("ratio", []),
            extra={k: v for k, v in table.columns.items() if k not in COLUMNS},
            about=about,
        )

    def to_csv(self) -> str:
        """Return the table that is saved as ``labels/NAME.csv``."""
        columns = {
            "id": self.ids,
            "level": self.levels,
            "concepts": map_cells(SEPARATOR.join, self.concepts),
        }
        if self.ratio:
            columns["ratio"] = self.ratio
        return format_table({**columns, **self.extra})


def split_concepts(text: str) -> list[str]:
    """Split a cell of concepts at each ``|``."""
    names = [" ".join(part.split()) for part in text.split(SEPARATOR)]
    return list(filter(None, names))


def parse_concepts(text: str) -> tuple[str, ...]:
    """Split a cell of concepts at bars, or at commas and semicolons if it has no bar.

    Examples
    --------
    >>> parse_concepts("Body, Look"), parse_concepts("Body|Sex, drugs")
    (('Body', 'Look'), ('Body', 'Sex, drugs'))
    """
    if SEPARATOR not in text:
        text = re.sub("[,;]", SEPARATOR, text)
    return tuple(split_concepts(text))
