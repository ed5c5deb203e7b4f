"""Runs: which items a model trained on and was stopped by, as lists of ids.

The released code of the ObyGaze12 paper draws its training folds in a way of its own. It is
rebuilt here, so that results can be compared with the very runs that were published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from obygaze_features.common.tables import Table, format_table
from obygaze_features.common.text import counted
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.splits import Split

__all__ = ["Run", "RunSet", "problems", "released_runs"]

ROLES = ("train", "validation")


@dataclass(frozen=True)
class Run:
    """The ids that one model was trained on, and those that chose its best epoch."""

    name: str
    train: list[str]
    validation: list[str]


@dataclass(frozen=True)
class RunSet:
    """The runs of one training split."""

    name: str
    runs: list[Run]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"RunSet({self.name!r}, {counted(len(self.runs), 'run')})"

    @classmethod
    def from_table(cls, name: str, table: Table, about: Mapping[str, Any]) -> RunSet:
        """Runs from a CSV table with ``run``, ``role`` and ``id``."""
        for row, message in problems(table):
            raise table.problem(row, message)
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

    The test fold is the last one; run `v` validates on fold `v`. Each class is given a number of
    slots in inverse proportion to its size, and takes that many folds from a wheel of the folds
    1 to 9 without `v + 1`, run after run going on around the wheel. A slot that meets the
    validation or the test fold is lost, so that fold 0 never trains and classes are only roughly
    balanced. Rows without a media file are left out.
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
        chosen = {
            name: _slots(wheel, round(8 * min(tenths.values()) / tenth), validation)
            for name, tenth in tenths.items()
        }
        runs.append(
            Run(
                str(validation),
                train=sorted(i for i, fold, name in pool if fold in chosen[name]),
                validation=sorted(i for i, fold, _ in usable if fold == validation),
            )
        )
    about = {"method": "the training folds of the released code", "split": split.name}
    return RunSet(split.name, runs, about)


def problems(table: Table) -> Iterator[tuple[int, str]]:
    """Every row of a table of runs that is not right, and why."""
    seen: set[tuple[str, str]] = set()
    for row, (run, role, identifier) in enumerate(
        zip(table["run"], table["role"], table["id"], strict=True)
    ):
        if role not in ROLES:
            yield row, f"unknown role {role!r} (known: {', '.join(ROLES)})"
        if (run, identifier) in seen:
            yield row, f"id {identifier!r} is twice in run {run!r}"
        seen.add((run, identifier))


def _slots(wheel: Sequence[int], slots: int, run: int) -> set[int]:
    return {wheel[(run * slots + slot) % len(wheel)] for slot in range(slots)}
