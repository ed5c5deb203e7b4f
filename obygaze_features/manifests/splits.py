"""Splits, which assign ids to folds, and runs, which list the ids that a model trained on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.formatting import join_some, shorten
from obygaze_features.common.tables import Table, format_table
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import Items
from obygaze_features.manifests.labels import IdTable, map_column, read_ids

ROLES = ("train", "validation")
NEIGHBOUR_S = 5.0
"""The distance, in seconds, within which two clips of a file are reported as neighbours."""
MAX_STRETCHES = 30
"""The maximum number of stretches per file: a few for each of ten folds."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Split(IdTable):
    """A fold for each id; `classes` holds the classes from the split's source, if it has any.

    The last fold is the test fold of protocols that test one fold. Folds keep their numbers when
    rows are selected by `where`.
    """

    KIND: ClassVar = "splits"
    REQUIRED: ClassVar = ("id", "fold")

    folds: list[int] = field(repr=False)
    classes: list[str] = field(default_factory=list, repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def fold_of(self) -> dict[str, int]:
        """The fold of each id."""
        return dict(zip(self.ids, self.folds, strict=True))

    @cached_property
    def class_of(self) -> dict[str, str]:
        """The class of each id, if the split's source had classes."""
        return dict(zip(self.ids, self.classes, strict=False))

    @property
    def last_fold(self) -> int:
        """The number of the last fold."""
        if not self.folds:
            raise ManifestError(f"the split {self.name!r} is empty; make it again")
        return max(self.folds)

    def fold(self, number: int) -> list[str]:
        """Return the ids in a fold."""
        return [i for i, fold in self.fold_of.items() if fold == number]

    @property
    def sizes(self) -> list[int]:
        """The number of ids in each fold, starting with fold 0."""
        return list(map(int, np.bincount(self.folds)))

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> Split:
        """Read a split from a CSV table with ``id`` and ``fold``; raise at the first bad row."""
        return cls(
            name,
            ids=read_ids(table),
            folds=map_column(table, "fold", _read_fold),
            classes=table.columns.get("class", []),
            about=about,
        )

    def to_csv(self) -> str:
        """Return the table that is saved as ``splits/NAME.csv``."""
        columns = {"id": self.ids, "fold": list(map(str, self.folds))}
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
    runs: list[Run] = field(repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any], *_: object) -> RunSet:
        """Read runs from a CSV table with ``run``, ``role`` and ``id``."""
        rows = zip(*map(table.get, cls.REQUIRED), strict=True)
        pairs: set[tuple[str, str]] = set()
        runs: dict[str, Run] = {}
        for row, (run, role, id_) in enumerate(rows):
            if role not in ROLES:
                raise table.problem(row, f"unknown role {role!r}; choose from {', '.join(ROLES)}")
            if (run, id_) in pairs:
                raise table.problem(row, f"duplicate id {id_!r} in run {run!r}")
            pairs.add((run, id_))
            ids: list[str] = getattr(runs.setdefault(run, Run(run, [], [])), role)
            ids.append(id_)
        return cls(name, list(runs.values()), about)

    def where(self, keep: Callable[[str], bool]) -> RunSet:
        """Return the runs, reduced to the ids that `keep` accepts."""
        runs = []
        for run in self.runs:
            train = list(filter(keep, run.train))
            validation = list(filter(keep, run.validation))
            if train or validation:
                runs.append(Run(run.name, train, validation))
        return RunSet(self.name, runs, self.about)

    def to_csv(self) -> str:
        """Return the table that is saved as ``runs/NAME.csv``."""
        columns: dict[str, list[str]] = {"run": [], "role": [], "id": []}
        for run in self.runs:
            for role in ROLES:
                ids = getattr(run, role)
                columns["run"] += [run.name] * len(ids)
                columns["role"] += [role] * len(ids)
                columns["id"] += ids
        return format_table(columns)


def _read_fold(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise ManifestError(f"fold {shorten(text)} is not a whole number from 0 to 999999")
    return int(text)


def cut_files(items: Items, ids: Sequence[str], gap: float) -> list[str]:
    """Return each item's stretch, or the item's own id if `gap` is 0 or the item has no times.

    A stretch has the id of its first item, and is about as long as the gap plus an item. In long
    files, stretches are longer, so that fewer clips are lost to gaps.
    """
    stretch_of = dict(zip(ids, ids, strict=True))
    rows = items.find(ids)
    rows = rows[~np.isnan(items.starts[rows])]
    if not gap or not len(rows):
        return list(ids)
    order = np.lexsort((items.ends[rows], items.starts[rows], items.files[rows]))
    rows = rows[order]
    file_begins = np.flatnonzero(np.diff(items.files[rows])) + 1
    for in_file in np.split(rows, file_begins):
        starts = items.starts[in_file]
        ends = items.ends[in_file]
        fitting = int((ends.max() - starts.min()) // (gap + (ends - starts).mean()))
        for part in np.array_split(in_file, min(max(fitting, 1), len(in_file), MAX_STRETCHES)):
            stretch_of |= dict.fromkeys([items.ids[row] for row in part], items.ids[part[0]])
    return [stretch_of[id_] for id_ in ids]


def meet_in_time(
    items: Items,
    tested: Array,
    others: Array,
    gap: float | None,
) -> Array:
    """Return a mask of the tested rows that overlap in time with any of `others` in the same file.

    Parameters
    ----------
    tested, others
        The rows of `items` to compare.
    gap
        Also count rows that touch or are at most this many seconds apart.
    """
    if not len(others):
        return np.zeros(len(tested), dtype=bool)
    starts = np.rint(items.starts * 1e6)
    ends = np.rint(items.ends * 1e6)
    latest = np.nan_to_num(ends).max()
    margin = 0.0
    if gap is not None:
        margin = min(np.rint(gap * 1e6), latest) + 1
    # All files follow each other on one line of time, further apart than the margin.
    offsets = items.files * (latest + 2 * margin + 1)
    starts += offsets
    ends += offsets

    others = others[np.argsort(starts[others])]
    latest_ends = np.maximum.accumulate(ends[others])
    # The last other row that starts before a tested row ends.
    last = np.searchsorted(starts[others], ends[tested] + margin) - 1
    near = (last >= 0) & (latest_ends[last] > starts[tested] - margin)
    return np.asarray(near)


def overlapping(
    items: Items,
    tested: Sequence[str],
    training: Collection[str],
    gap: float | None = None,
) -> list[str]:
    """Return the tested ids that are training ids or overlap one in time; see `meet_in_time`."""
    rows = items.find(tested)
    others = items.find(training)
    near = meet_in_time(items, rows, others, gap) | np.isin(rows, others)
    return list(compress(tested, near))


def neighbours(items: Items, split: Split, gap: float | None = None) -> list[str]:
    """Return the ids that overlap in time with an id in another fold; see `meet_in_time`."""
    if np.isnan(items.starts).all():
        return []
    rows = items.find(split.ids)
    folds = np.array(split.folds)
    files = items.files[rows]
    file_of, _ = np.unique([files, folds], axis=1)
    divided = np.bincount(file_of)[files] > 1

    near = np.zeros(len(rows), dtype=bool)
    for fold in np.unique(folds[divided]):
        tested = divided & (folds == fold)
        others = divided & (folds != fold)
        near[tested] = meet_in_time(items, rows[tested], rows[others], gap)
    return list(compress(split.ids, near))


def describe_neighbours(items: Items, split: Split) -> str:
    """Describe the clips within `NEIGHBOUR_S` of a clip in another fold.

    Return "" if there are no such clips.
    """
    near = neighbours(items, split, NEIGHBOUR_S)
    if not near:
        return ""
    return (
        f"{len(near):,} clips ({join_some(near, 2)}) are within {NEIGHBOUR_S:g} s of a "
        f"clip of the same file in another fold"
    )
