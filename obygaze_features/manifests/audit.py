"""Find leakage: test items that are in a training pool or in a run's training set.

A span of a film also leaks if a training item shows some of the same seconds. Even if each split of
a published protocol is sound, training on one split and testing on another may leak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.text import group_by
from obygaze_features.errors import UsageError
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import NEIGHBOUR_S, overlapping


@dataclass(frozen=True)
class Leak:
    """The test items of a split that are also in the pool or a run of a training split.

    `where` is "pool" (every item of the training split outside its own test fold) or the name of a
    run. `ids` are the test items found there; `by_class` maps each class to its number of `ids` and
    its number of test items. `neighbours` are the remaining test items that touch, or nearly touch,
    a training item of the same file.
    """

    test: str
    test_fold: int
    train: str
    where: str
    tested: list[str]
    ids: list[str]
    by_class: Mapping[str, tuple[int, int]]
    neighbours: list[str]


def audit(
    manifest: Manifest,
    *,
    train: Collection[str] | None = None,
    test: Collection[str] | None = None,
    gap: float = NEIGHBOUR_S,
) -> list[Leak]:
    """Find the test items that are also training items, for each pair of training and test splits.

    By default, the last fold of every split is a test set, and the training splits are those with
    runs, or all splits if none has runs. Neighbours are at most `gap` seconds apart.
    """
    names = manifest.split_names
    if not names:
        raise UsageError(f"the manifest {manifest.name!r} has no splits to audit")
    leaks = []
    for test_name in test or names:
        for train_name in train or manifest.run_names or names:
            leaks += _leaks_of_pair(manifest, train_name, test_name, gap)
    return leaks


def _leaks_of_pair(manifest: Manifest, train_name: str, test_name: str, gap: float) -> list[Leak]:
    train = manifest.split(train_name)
    test = manifest.split(test_name)
    fold = test.last_fold
    tested = test.fold(fold)
    class_of = test.class_of
    if not class_of and manifest.default_labels:
        class_of = manifest.labels().level_of

    sources = {"pool": [i for i, own in train.fold_of.items() if own != train.last_fold]}
    if train_name in manifest.run_names:
        for run in manifest.runs(train_name).runs:
            sources[f"run {run.name}"] = run.train
    in_all = Counter(class_of.get(i, "unlabelled") for i in tested)
    leaks = []
    for where, ids in sources.items():
        leaked = dict.fromkeys(overlapping(manifest.items, tested, ids))
        near = overlapping(manifest.items, tested, ids, gap)
        neighbours = [i for i in near if i not in leaked]
        of_class = Counter(class_of.get(i, "unlabelled") for i in leaked)
        by_class = {name: (of_class[name], in_all[name]) for name in sorted(in_all)}
        leak = Leak(test_name, fold, train_name, where, tested, [*leaked], by_class, neighbours)
        leaks.append(leak)
    return leaks


def audit_rows(leaks: Sequence[Leak]) -> list[dict[str, Any]]:
    """Return a row for each test set and training split, with the range over the split's runs."""
    rows = []
    for pool, *runs in group_by(leaks, lambda leak: (leak.test, leak.train)).values():
        counts = [len(run.ids) for run in runs]
        rows.append(
            {
                "test": pool.test,
                "fold": pool.test_fold,
                "train": pool.train,
                "tested": len(pool.tested),
                "leaked": len(pool.ids),
                "least_in_a_run": min(counts, default=None),
                "most_in_a_run": max(counts, default=None),
                "neighbours": len(pool.neighbours),
                "leaked_by_class": {name: own[0] for name, own in pool.by_class.items()},
            }
        )
    return rows
