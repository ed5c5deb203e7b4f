"""Splits, which assign ids to folds, and runs, which list the ids that a model trained on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.items.items import Items, group_noun, raise_first, safe_id
from obygaze_features.manifests.labels import IdTable, repeated_ids

if TYPE_CHECKING:
    from obygaze_features.manifests.manifest import Manifest

ROLES = ("train", "validation")
NEIGHBOUR_S = 5.0
"""The distance, in seconds, within which two clips of a file are reported as neighbours."""
MAX_STRETCHES = 30
"""The maximum number of stretches per file: a few for each of ten folds."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Split(IdTable):
    """A fold for each id; `classes` holds the classes from the split's source, if it has any.

    Folds keep their numbers when rows are selected by `where` or `take`.
    """

    KIND: ClassVar = "splits"
    REQUIRED: ClassVar = ("id", "fold")

    folds: list[int]
    classes: list[str] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            repeated = next(i for i, count in Counter(self.ids).items() if count > 1)
            raise ManifestError(f"the split {self.name!r} has a duplicate id, {repeated!r}")

    def __repr__(self) -> str:
        folds = counted(len(set(self.folds)), "fold")
        return f"Split({self.name!r}, {counted(len(self), 'item')} in {folds})"

    @cached_property
    def fold_of(self) -> dict[str, int]:
        """The fold of each id."""
        return dict(zip(self.ids, self.folds, strict=True))

    @cached_property
    def class_of(self) -> dict[str, str]:
        """The class of each id, if the split's source had classes."""
        return dict(zip(self.ids, self.classes, strict=True)) if self.classes else {}

    @property
    def last_fold(self) -> int:
        """The number of the last fold."""
        if not self.folds:
            raise ManifestError(f"the split {self.name!r} is empty")
        return max(self.folds)

    @property
    def test_fold(self) -> int:
        """The test fold, which is the last by convention; raises `ManifestError` if it was lost."""
        if self.about.get("last_before") in self.lost_folds:
            raise ManifestError(
                f"the split {self.name!r} lost its test fold ({self.about['last_before']}) when "
                'clips were selected. Test each fold (protocol = "split"), or split '
                "the clips again: obygaze manifests split MANIFEST --by film --overwrite"
            )
        return self.last_fold

    @property
    def lost_folds(self) -> list[int]:
        """The former numbers of the folds that lost all ids when ids were selected."""
        left = self.about.get("kept_folds", [])
        return [fold for fold in range(self.about.get("last_before", -1) + 1) if fold not in left]

    def select(self, keep: Callable[[str], bool]) -> Split:
        """Return the rows whose ids `keep` accepts, with folds renumbered from 0, in order.

        The former numbers are kept in `about`, for protocols that assign roles to folds.
        """
        selected = self.where(keep)
        remaining = sorted(set(selected.folds))
        if not remaining or len(remaining) == self.last_fold + 1:
            return selected
        numbers = {fold: number for number, fold in enumerate(remaining)}
        former = self.about.get("kept_folds", range(self.last_fold + 1))
        about = {
            "last_before": self.last_fold,
            **self.about,
            "kept_folds": [former[fold] for fold in remaining],
        }
        return replace(selected, folds=[numbers[fold] for fold in selected.folds], about=about)

    def fold(self, number: int) -> list[str]:
        """Return the ids in a fold."""
        return [i for i, fold in zip(self.ids, self.folds, strict=True) if fold == number]

    @property
    def sizes(self) -> list[int]:
        """The number of ids in each fold, starting with fold 0."""
        counts = Counter(self.folds)
        return [counts[number] for number in range(self.last_fold + 1)]

    @staticmethod
    def problems(table: Table, *_: object) -> Iterator[tuple[int, str]]:
        """Yield every invalid row with its problem."""
        yield from repeated_ids(table)
        for row, fold in enumerate(table["fold"]):
            if not (fold.isascii() and fold.isdecimal() and len(fold) < 7):
                yield row, f"fold {shorten(fold)} is not a whole number from 0 to 999999"

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> Split:
        """Read a split from a CSV table with ``id`` and ``fold``; raise at the first bad row."""
        raise_first(table, cls.problems(table))
        return cls(
            name,
            ids=table["id"],
            folds=[int(fold) for fold in table["fold"]],
            classes=table.columns.get("class", []),
            about=about,
        )

    def to_csv(self) -> str:
        """Return the table that is saved as ``splits/NAME.csv``."""
        columns: dict[str, Sequence[str]] = {
            "id": self.ids,
            "fold": [str(fold) for fold in self.folds],
        }
        if self.classes:
            columns["class"] = self.classes
        return format_table(columns)


@dataclass(frozen=True)
class Run:
    """The ids that a model was trained on, and the ids on which its best epoch was chosen."""

    name: str
    train: list[str]
    validation: list[str]


@dataclass(frozen=True)
class RunSet:
    """The runs that share a training split."""

    KIND: ClassVar = "runs"
    REQUIRED: ClassVar = ("run", "role", "id")

    name: str
    runs: list[Run]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RunSet({self.name!r}, {counted(len(self.runs), 'run')})"

    @staticmethod
    def problems(table: Table, *_: object) -> Iterator[tuple[int, str]]:
        """Yield every invalid row with its problem."""
        seen: set[tuple[str, str]] = set()
        for row, (run, role, identifier) in enumerate(
            zip(*map(table.__getitem__, RunSet.REQUIRED), strict=True)
        ):
            if role not in ROLES:
                yield row, f"unknown role {role!r}; choose from {', '.join(ROLES)}"
            if (run, identifier) in seen:
                yield row, f"duplicate id {identifier!r} in run {run!r}"
            seen.add((run, identifier))

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> RunSet:
        """Read runs from a CSV table with ``run``, ``role`` and ``id``."""
        raise_first(table, cls.problems(table))
        runs: dict[str, Run] = {}
        for run, role, identifier in zip(table["run"], table["role"], table["id"], strict=True):
            ids: list[str] = getattr(runs.setdefault(run, Run(run, [], [])), role)
            ids.append(identifier)
        return cls(name, list(runs.values()), about)

    def where(self, keep: Callable[[str], bool]) -> RunSet:
        """Return the runs, reduced to the ids that `keep` accepts."""
        runs = [
            Run(run.name, list(filter(keep, run.train)), list(filter(keep, run.validation)))
            for run in self.runs
        ]
        return RunSet(self.name, runs, self.about)

    def to_csv(self) -> str:
        """Return the table that is saved as ``runs/NAME.csv``."""
        rows = [
            (run.name, role, identifier)
            for run in self.runs
            for role in ROLES
            for identifier in getattr(run, role)
        ]
        names, roles, ids = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
        return format_table({"run": names, "role": roles, "id": ids})


def cut_files(items: Items, ids: Sequence[str], gap: float) -> list[str]:
    """Return the stretch that each item is in, or its id if `gap` is 0 or the item has no times.

    A stretch is named after its first item, and is about as long as the gap plus an item. Stretches
    of long files are longer, so that most clips remain if a tenth of the stretches is tested and
    the gaps around them are left out.
    """
    stretch_of = dict(zip(ids, ids, strict=True))
    rows = np.array([*map(items.row, ids)], dtype=np.int64)
    rows = rows[~np.isnan(items.starts[rows] + items.ends[rows])]
    if not gap or not len(rows):
        return list(ids)
    rows = rows[np.lexsort((items.ends[rows], items.starts[rows], items.files[rows]))]
    file_begins = np.flatnonzero(np.diff(items.files[rows])) + 1
    for own in np.split(rows, file_begins):
        starts, ends = items.starts[own], items.ends[own]
        fitting = int((ends.max() - starts.min()) // (gap + (ends - starts).mean()))
        for part in np.array_split(own, min(max(fitting, 1), len(own), MAX_STRETCHES)):
            stretch_of |= dict.fromkeys([items.ids[row] for row in part], items.ids[part[0]])
    return [stretch_of[identifier] for identifier in ids]


def meet_in_time(
    spans: Sequence[Array], tested: Array, others: Array, gap: float | None = None
) -> Array:
    """Return a mask of the tested rows that overlap in time with any of `others` in the same file.

    Parameters
    ----------
    spans
        Each row's file number, start and end; NaN if a row has no times.
    tested, others
        The rows of `spans` to compare.
    gap
        Also count rows that touch or are at most this many seconds apart.
    """
    if not len(others):
        return np.zeros(len(tested), dtype=bool)
    margin = 0.0 if gap is None else float(np.rint(gap * 1e6)) + 1
    files, starts, ends = spans[0], *(np.rint(times * 1e6) for times in spans[1:])
    others = others[np.lexsort((starts[others], files[others]))]
    # The latest end among the other rows of a file, up to each row.
    by_end = np.lexsort((ends[others], files[others]))
    rank = np.empty(len(others), dtype=np.int64)
    rank[by_end] = np.arange(len(others))
    latest = ends[others[by_end]][np.maximum.accumulate(rank)]
    # The last other row that starts before each tested row ends.
    rows = np.concatenate([tested, others])
    is_other = np.arange(len(rows)) >= len(tested)
    order = np.lexsort(
        (is_other, np.where(is_other, starts[rows], ends[rows] + margin), files[rows])
    )
    before = np.empty(len(rows), dtype=np.int64)
    before[order] = np.cumsum(is_other[order]) - 1
    last = before[: len(tested)]
    same_file = (last >= 0) & (files[others[last]] == files[tested])
    return np.asarray(same_file & (latest[last] > starts[tested] - margin))


def overlapping(
    items: Items, tested: Sequence[str], training: Collection[str], gap: float | None = None
) -> list[str]:
    """Return the tested ids that are training ids or overlap one in time; see `meet_in_time`."""
    trained, near = set(training), np.zeros(len(tested), dtype=bool)
    if not np.isnan(items.starts).all():
        rows, others = (np.array([*map(items.row, ids)], dtype=int) for ids in (tested, training))
        near = meet_in_time((items.files, items.starts, items.ends), rows, others, gap)
    return [i for i, meets in zip(tested, near.tolist(), strict=True) if meets or i in trained]


def neighbours(items: Items, split: Split, gap: float | None = None) -> list[str]:
    """Return the ids that overlap in time with an id in another fold; see `meet_in_time`."""
    if np.isnan(items.starts).all():
        return []
    rows, folds = np.array([*map(items.row, split.ids)], dtype=int), np.array(split.folds)
    near, files = np.zeros(len(rows), dtype=bool), items.files[rows]
    file_of, fold_counts = np.unique(np.unique([files, folds], axis=1)[0], return_counts=True)
    divided = np.isin(files, file_of[fold_counts > 1])
    for fold in np.unique(folds[divided]):
        own, others = (divided & (part) for part in (folds == fold, folds != fold))
        spans = items.files, items.starts, items.ends
        near[own] = meet_in_time(spans, rows[own], rows[others], gap)
    return [split.ids[row] for row in np.flatnonzero(near).tolist()]


def describe_neighbours(items: Items, split: Split) -> str:
    """Describe the clips within `NEIGHBOUR_S` of a clip in another fold.

    Return "" if there are no such clips.
    """
    near = neighbours(items, split, NEIGHBOUR_S)
    if not near:
        return ""
    clips = counted(len(near), "clip is", "clips are")
    text = f"{clips} within {NEIGHBOUR_S:g} s of a clip of the same file in another fold, such as "
    return f"{text}{join_some(near, 2)}"


def stratified(
    manifest: Manifest,
    *,
    folds: int = 10,
    seed: int = 0,
    labels: str | None = None,
    groups: str | None = None,
    gap: float = 0.0,
    name: str | None = None,
) -> Split:
    """Assign every labelled item to a fold, with the levels spread evenly over the folds.

    The items of a level are shuffled and assigned to the folds in turn. The next level continues
    where the previous one stopped, so fold sizes, in total and within each level, differ by at most
    one. Items are shuffled by the SHA-256 of "seed:id", so a seed stated in a paper
    gives the same split on every machine and with every version of every library.

    With `groups`, a column of the items such as ``film`` or ``media``, all items of a group are in
    one fold, and the levels are spread as evenly as whole groups allow. With a `gap` (the seconds
    that will separate test and training clips), the groups are stretches of each file that are long
    enough for some of their clips to remain (see `cut_files`).

    By default, the split is called ``leak-free``, or ``by-`` and the column.
    """
    label_set = manifest.labels(labels)
    ids = label_set.ids
    if name is None:
        name = f"by-{safe_id(groups)}" if groups else "leak-free"
    if folds < 2:
        raise UsageError(f"a split needs at least 2 folds (got {folds})")
    units = manifest.items.groups(groups, ids) if groups else cut_files(manifest.items, ids, gap)
    if folds > (count := len(set(units))):
        nouns = "stretches" if gap else "labelled items"
        if groups:
            nouns = f"{group_noun(groups)}s"
        raise UsageError(f"{folds} folds need {folds} {nouns} (got only {count}); use fewer folds")
    deal = _deal_groups if groups or gap else _deal_items
    fold_of = deal(label_set.levels, units, folds, seed)
    about: dict[str, Any] = {"method": "stratified by level", "labels": label_set.name}
    about |= {"folds": folds, "seed": seed} | ({"groups": groups} if groups else {})
    about |= {"gap": gap} if gap else {}
    split = Split(name, ids, [fold_of[unit] for unit in units], about=about)
    if shared := neighbours(manifest.items, split):
        raise UsageError(
            f"{counted(len(shared), 'clip shows', 'clips show')} the same seconds of a file as a "
            f"clip in another fold ({join_some(shared, 2)}), so the folds would leak. Keep the "
            'clips of a file together: --by media (in an experiment, groups = "media")'
        )
    return split


def _deal_items(levels: Sequence[str], ids: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """Assign each item to a fold."""
    fold_of: dict[str, int] = {}
    for level in sorted(set(levels)):
        members = [i for i, own in zip(ids, levels, strict=True) if own == level]
        for identifier in sorted(members, key=partial(_shuffled, seed)):
            fold_of[identifier] = len(fold_of) % folds
    return fold_of


def _deal_groups(
    levels: Sequence[str], groups: Sequence[str], folds: int, seed: int
) -> dict[str, int]:
    """Assign groups to folds, largest first, each to the fold with the fewest items of its levels.

    The computation uses only integers, so every machine gets the same result.
    """
    group_names, rows = np.unique(groups, return_inverse=True)
    names: list[str] = group_names.tolist()
    levels_seen, codes = np.unique(levels, return_inverse=True)
    counts = np.zeros((len(names), len(levels_seen)), dtype=np.int64)
    np.add.at(counts, (rows, codes), 1)
    totals = counts.sum(axis=0)
    weights = totals.max() ** 2 // totals**2  # the rarer of two levels matters more
    dealt = np.zeros((folds, len(levels_seen)), dtype=np.int64)
    fold_of = {}
    for row in sorted(
        range(len(names)), key=lambda row: (-counts[row].sum(), _shuffled(seed, names[row]))
    ):
        fold = int(np.lexsort((dealt.sum(axis=1), dealt @ (counts[row] * weights)))[0])
        dealt[fold] += counts[row]
        fold_of[names[row]] = fold
    return fold_of


def _shuffled(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()


def leave_film_out(
    manifest: Manifest,
    *,
    labels: str | None = None,
    groups: str = "film",
    name: str | None = None,
) -> Split:
    """Make one fold per film, in order of film ids, from all items or from a label set.

    With `groups`, make one fold per value of another column of the items, such as ``media``.
    """
    ids = manifest.labels(labels).ids if labels else list(manifest.ids)
    group_of = manifest.items.groups(groups, ids)
    names, noun = sorted(set(group_of)), group_noun(groups)
    if len(names) < 2:
        raise UsageError(f"leave-{noun}-out needs items from at least two {noun}s")
    number = {group: fold for fold, group in enumerate(names)}
    about = {"method": f"one fold per {noun}", f"{noun}s": names}
    name = name or f"leave-{safe_id(noun)}-out"
    return Split(name, ids, [number[group] for group in group_of], about=about)
