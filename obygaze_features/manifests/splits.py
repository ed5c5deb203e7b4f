"""Splits: a fold for each id. Runs: which ids a model trained on. Both made here, or read.

The released code of the ObyGaze12 paper draws its training folds in a way of its own. It is
rebuilt here, so that results can be compared with the very runs that were published.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests.items import Items, raise_first
from obygaze_features.manifests.labels import IdTable, repeated_ids

if TYPE_CHECKING:
    from obygaze_features.manifests.manifest import Manifest

ROLES = ("train", "validation")


@dataclass(frozen=True)
class Split(IdTable):
    """A fold for each id; `classes` keeps the class that a split's source gave them.

    Folds keep their numbers when rows are chosen.
    """

    KIND: ClassVar = "splits"
    REQUIRED: ClassVar = ("id", "fold")

    folds: list[int]
    classes: list[str] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            repeated = next(i for i, count in Counter(self.ids).items() if count > 1)
            raise ManifestError(f"the split {self.name!r} has the id {repeated!r} twice")

    def __repr__(self) -> str:
        folds = counted(len(set(self.folds)), "fold")
        return f"Split({self.name!r}, {counted(len(self), 'item')} in {folds})"

    @cached_property
    def fold_of(self) -> dict[str, int]:
        """Id -> fold."""
        return dict(zip(self.ids, self.folds, strict=True))

    @cached_property
    def class_of(self) -> dict[str, str]:
        """Id -> class, where the split's source named classes."""
        return dict(zip(self.ids, self.classes, strict=True)) if self.classes else {}

    @property
    def last_fold(self) -> int:
        """The highest fold: the test fold by convention."""
        if not self.folds:
            raise ManifestError(f"the split {self.name!r} is empty")
        return max(self.folds)

    def fold(self, number: int) -> list[str]:
        """The ids of one fold."""
        return [i for i, fold in zip(self.ids, self.folds, strict=True) if fold == number]

    @property
    def sizes(self) -> list[int]:
        """How many ids each fold has, from fold 0 on."""
        counts = Counter(self.folds)
        return [counts[number] for number in range(self.last_fold + 1)]

    @staticmethod
    def problems(table: Table, *_: object) -> Iterator[tuple[int, str]]:
        """Every row that is not right, and why."""
        yield from repeated_ids(table)
        for row, fold in enumerate(table["fold"]):
            if not (fold.isascii() and fold.isdecimal() and len(fold) < 7):
                yield row, f"fold {shorten(fold)} is not a whole number from 0 to 999999"

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> Split:
        """A split from a CSV table with ``id`` and ``fold``; raises on the first bad row."""
        raise_first(table, cls.problems(table))
        return cls(
            name,
            ids=table["id"],
            folds=[int(fold) for fold in table["fold"]],
            classes=table.columns.get("class", []),
            about=about,
        )

    def to_csv(self) -> str:
        """The table as it is saved in ``splits/NAME.csv``."""
        columns: dict[str, Sequence[str]] = {
            "id": self.ids,
            "fold": [str(fold) for fold in self.folds],
        }
        if self.classes:
            columns["class"] = self.classes
        return format_table(columns)


def stratified(
    manifest: Manifest,
    *,
    folds: int = 10,
    seed: int = 0,
    labels: str | None = None,
    name: str = "leak-free",
) -> Split:
    """One fold for every labelled item, the levels spread evenly over the folds.

    Within a level the items are shuffled and assigned to folds one after another; the next level
    continues where the last one stopped, so that neither a level's nor the folds' sizes differ by
    more than one. Shuffled means in the order of the SHA-256 of "seed:id": a split that a paper
    names by its seed is the same for everybody, whatever the release of any library.
    """
    label_set = manifest.labels(labels)
    if folds < 2:
        raise UsageError(f"a split needs at least 2 folds, not {folds}")
    if folds > len(label_set):
        raise UsageError(
            f"there are {len(label_set)} labelled items for {folds} folds; take fewer folds"
        )
    if overlap := first_overlap(manifest.items, label_set.ids):
        raise UsageError(
            f"{overlap[0]} and {overlap[1]} show the same seconds of a film, so that folds of "
            "single items would leak; leave whole films out with --by-film"
        )
    fold_of: dict[str, int] = {}
    for level in sorted(set(label_set.levels)):
        members = [identifier for identifier, code in label_set.level_of.items() if code == level]
        members.sort(key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())
        for identifier in members:
            fold_of[identifier] = len(fold_of) % folds
    about: dict[str, Any] = {"method": "stratified by level", "labels": label_set.name}
    about |= {"folds": folds, "seed": seed}
    return Split(name, label_set.ids, [fold_of[i] for i in label_set.ids], about=about)


def leave_film_out(
    manifest: Manifest, *, labels: str | None = None, name: str = "leave-film-out"
) -> Split:
    """One fold per film, films in order of their id; of all items, or of a label set's."""
    ids = manifest.labels(labels).ids if labels else list(manifest.ids)
    film_of = {i: manifest.items.films[manifest.items.row(i)] for i in ids}
    films = sorted(set(film_of.values()))
    if len(films) < 2:
        raise UsageError("leave-film-out needs items of at least two films")
    number = {film: fold for fold, film in enumerate(films)}
    about = {"method": "one fold a film", "films": films}
    return Split(name, ids, [number[film_of[i]] for i in ids], about=about)


@dataclass(frozen=True)
class Run:
    """The ids that one model was trained on, and those that chose its best epoch."""

    name: str
    train: list[str]
    validation: list[str]


@dataclass(frozen=True)
class RunSet:
    """The runs of one training split."""

    KIND: ClassVar = "runs"
    REQUIRED: ClassVar = ("run", "role", "id")

    name: str
    runs: list[Run]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RunSet({self.name!r}, {counted(len(self.runs), 'run')})"

    @staticmethod
    def problems(table: Table, *_: object) -> Iterator[tuple[int, str]]:
        """Every row that is not right, and why."""
        seen: set[tuple[str, str]] = set()
        for row, (run, role, identifier) in enumerate(
            zip(*map(table.__getitem__, RunSet.REQUIRED), strict=True)
        ):
            if role not in ROLES:
                yield row, f"unknown role {role!r} (known: {', '.join(ROLES)})"
            if (run, identifier) in seen:
                yield row, f"id {identifier!r} is twice in run {run!r}"
            seen.add((run, identifier))

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> RunSet:
        """Runs from a CSV table with ``run``, ``role`` and ``id``."""
        raise_first(table, cls.problems(table))
        runs: dict[str, Run] = {}
        for run, role, identifier in zip(table["run"], table["role"], table["id"], strict=True):
            ids: list[str] = getattr(runs.setdefault(run, Run(run, [], [])), role)
            ids.append(identifier)
        return cls(name, list(runs.values()), about)

    def where(self, keep: Callable[[str], bool]) -> RunSet:
        """The runs with only the ids that `keep` accepts."""
        runs = [
            Run(run.name, list(filter(keep, run.train)), list(filter(keep, run.validation)))
            for run in self.runs
        ]
        return RunSet(self.name, runs, self.about)

    def to_csv(self) -> str:
        """The table as it is saved in ``runs/NAME.csv``."""
        rows = [
            (run.name, role, identifier)
            for run in self.runs
            for role in ROLES
            for identifier in getattr(run, role)
        ]
        names, roles, ids = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
        return format_table({"run": names, "role": roles, "id": ids})


def released_runs(split: Split, with_media: Set[str]) -> RunSet:
    """The eight runs of the released code on one of its split files.

    The test fold is the last one; run `v` validates on fold `v`. Each class gets a number of
    slots in inverse proportion to its size, and takes that many folds from a wheel of the folds
    1 to 9 without `v + 1`; each run continues around the wheel where the one before it stopped.
    A slot that hits the validation or the test fold is lost, so that fold 0 never trains and
    classes are only roughly balanced. Rows without a media file are left out.
    """
    if not split.classes:
        raise ManifestError(f"the split {split.name!r} does not say each clip's class")
    test = split.last_fold
    usable = [
        (identifier, fold, name)
        for identifier, fold, name in zip(split.ids, split.folds, split.classes, strict=True)
        if identifier in with_media
    ]
    runs = []
    for validation in range(test - 1):
        pool = [row for row in usable if row[1] not in (validation, test)]
        tenths = {name: count // 10 for name, count in Counter(r[2] for r in pool).items()}
        if scarce := [name for name, tenth in tenths.items() if not tenth]:
            raise ManifestError(
                f"the split {split.name!r} has fewer than ten clips of class {scarce[0]!r} to "
                "train on; the released code draws tenths of each class"
            )
        wheel = [fold for fold in range(1, test + 1) if fold != validation + 1]
        chosen = {}
        for name, tenth in tenths.items():
            slots = round(8 * min(tenths.values()) / tenth)
            first = validation * slots
            chosen[name] = {wheel[(first + slot) % len(wheel)] for slot in range(slots)}
        runs.append(
            Run(
                str(validation),
                train=sorted(i for i, fold, name in pool if fold in chosen[name]),
                validation=sorted(i for i, fold, _ in usable if fold == validation),
            )
        )
    about = {"method": "the training folds of the released code", "split": split.name}
    return RunSet(split.name, runs, about)


class FilmSpans:
    """Spans of films, sorted, so that any number of others can be checked for overlap.

    It is made of film -> each span's start and end.
    """

    def __init__(self, spans: Mapping[str, Iterable[tuple[float, float]]]) -> None:
        # For each film the starts in order, and the latest end among the spans up to each of them.
        ordered = {film: sorted(pairs) for film, pairs in spans.items()}
        self._starts = {film: [start for start, _ in pairs] for film, pairs in ordered.items()}
        self._latest = {
            film: list(accumulate((end for _, end in pairs), max))
            for film, pairs in ordered.items()
        }

    def overlap(self, film: str, start: float, end: float) -> bool:
        """Whether a span of a film has time in common with one of these."""
        if film not in self._starts:
            return False
        before = bisect_left(self._starts[film], end)
        return before > 0 and self._latest[film][before - 1] > start


def overlapping(items: Items, tested: Sequence[str], training: Iterable[str]) -> list[str]:
    """The tested ids that are among the training ids, or overlap one of them in time."""
    trained = set(training)
    spans: dict[str, list[tuple[float, float]]] = {}
    for _, film, start, end in _spans(items, trained):
        spans.setdefault(film, []).append((start, end))
    film_spans = FilmSpans(spans)
    leaked = {
        i for i, film, start, end in _spans(items, tested) if film_spans.overlap(film, start, end)
    }
    return [identifier for identifier in tested if identifier in trained or identifier in leaked]


def first_overlap(items: Items, ids: Iterable[str]) -> tuple[str, str] | None:
    """Two of the ids whose spans overlap in time, if any do."""
    ordered = sorted((film, start, end, i) for i, film, start, end in _spans(items, ids))
    # Where any two overlap, so do two that follow each other.
    for (film, _, end, first), (other, start, _, second) in pairwise(ordered):
        if film == other and start < end:
            return first, second
    return None


def _spans(items: Items, ids: Iterable[str]) -> Iterator[tuple[str, str, float, float]]:
    """Id, film's file, start and end of each item that is a span."""
    if not (items.starts == items.starts).any():
        return
    for identifier in ids:
        item = items[items.row(identifier)]
        if item.start is not None and item.end is not None:
            yield identifier, item.media or item.film, item.start, item.end
