"""Find leakage: test items that are in a training pool or in a run's training set.

A span of a film also leaks if a training item shows some of the same seconds. Even if each split of
a published protocol is sound, training on one split and testing on another may leak.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from obygaze_features.errors import UsageError
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import NEIGHBOUR_S, Split, overlapping


def audit(
    manifest: Manifest,
    *,
    train: Collection[str] | None = None,
    test: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Count the test items that are also training items, for pairs of training and test splits.

    The last fold of a split is its test set. By default, every split is tested, and the training
    splits are those with runs, or all splits if none has runs. The pool is the training split
    without its last fold. Each row counts the test items that are in the pool or overlap one of its
    items in time, and counts them by class. It also has the fewest and the most leaked test items
    of any run of the training split. `neighbours` counts the other test items that are at most
    `NEIGHBOUR_S` seconds from an item of the pool in the same file.
    """
    names = manifest.split_names
    if not names:
        raise UsageError(
            f"the manifest {manifest.name!r} has no splits to audit; run: obygaze manifests split"
        )
    rows = []
    for test_name in test or names:
        for train_name in train or manifest.run_names or names:
            train_split = manifest.split(train_name)
            rows.append(_audit_pair(manifest, train_split, manifest.split(test_name)))
    return rows


def _audit_pair(manifest: Manifest, train: Split, test: Split) -> dict[str, Any]:
    tested = test.fold(test.last_fold)
    last = train.last_fold
    pool = [i for i, fold in train.fold_of.items() if fold != last]
    leaked = overlapping(manifest.items, tested, pool)
    near = overlapping(manifest.items, tested, pool, NEIGHBOUR_S)
    in_runs = []
    if train.name in manifest.run_names:
        for run in manifest.runs(train.name).runs:
            in_runs.append(len(overlapping(manifest.items, tested, run.train)))

    class_of = test.class_of
    if not class_of and manifest.default_labels:
        class_of = manifest.labels().level_of
    classes = {id_: class_of.get(id_, "unlabelled") for id_ in tested}
    by_class = dict.fromkeys(sorted(classes.values()), 0)
    for id_ in leaked:
        by_class[classes[id_]] += 1
    return {
        "test": test.name,
        "fold": test.last_fold,
        "train": train.name,
        "tested": len(tested),
        "leaked": len(leaked),
        "least_in_a_run": min(in_runs, default=None),
        "most_in_a_run": max(in_runs, default=None),
        "neighbours": len(near) - len(leaked),
        "leaked_by_class": by_class,
    }
