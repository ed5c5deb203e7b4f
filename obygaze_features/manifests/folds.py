"""Draw folds, and make a split of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from obygaze_features.common.formatting import join_some
from obygaze_features.errors import UsageError
from obygaze_features.items.items import group_noun, safe_id
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split, cut_files, neighbours

FEW_GROUPS = 20
"""The maximum number of groups that get a fold each."""


def stratified(
    manifest: Manifest | str | Path,
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
    one. Items are shuffled by the SHA-256 of "seed:id", so a seed stated in a paper gives the same
    split on every machine and with every version of every library.

    With `groups`, a column of the items such as ``film`` or ``media``, all items of a group are in
    one fold, and the levels are spread about evenly. With a `gap` (the seconds that will separate
    test and training clips), the groups are stretches of each file that are long enough for some of
    their clips to remain (see `cut_files`); `groups` takes no gap.

    By default, the split is called ``leak-free``, or ``by-`` and the column.
    """
    if groups and gap:
        raise UsageError("folds of whole groups have no gap; pass groups or gap, not both")
    manifest = Manifest.load(manifest)
    label_set = manifest.labels(labels)
    ids = label_set.ids
    default = "leak-free"
    deal = _deal_groups if groups or gap else _deal_items
    units = cut_files(manifest.items, ids, gap)
    if groups:
        default = f"by-{safe_id(groups)}"
        units = manifest.items.groups(groups, ids)
    count = len(set(units))
    if not 2 <= folds <= count:
        raise UsageError(
            "folds must be at least 2, and at most the number of clips or groups "
            f"(got {folds} folds for {count})"
        )

    fold_of = deal(label_set.levels, units, folds, seed)
    about = {
        "method": "stratified by level",
        "labels": label_set.name,
        "folds": folds,
        "seed": seed,
    }
    if groups:
        about["groups"] = groups
    if gap:
        about["gap"] = gap
    split = Split(name or default, ids, [fold_of[unit] for unit in units], about=about)
    return _require_apart(manifest, split)


def _require_apart(manifest: Manifest, split: Split) -> Split:
    """Return a split; raise `UsageError` if its folds overlap in time."""
    shared = neighbours(manifest.items, split)
    if shared:
        raise UsageError(
            f"clips in several folds show the same seconds of a file: {join_some(shared, 2)}. Keep "
            "files whole: group clips by media or by film"
        )
    return split


def _deal_items(levels: Sequence[str], ids: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """Assign each item to a fold."""
    order = zip(levels, map(partial(_shuffled, seed), ids), ids, strict=True)
    return {id_: row % folds for row, (*_, id_) in enumerate(sorted(order))}


def _deal_groups(
    levels: Sequence[str],
    groups: Sequence[str],
    folds: int,
    seed: int,
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
    largest_first = sorted(
        range(len(names)),
        key=lambda row: (-counts[row].sum(), _shuffled(seed, names[row])),
    )
    for row in largest_first:
        fold = int(np.lexsort((dealt.sum(axis=1), dealt @ (counts[row] * weights)))[0])
        dealt[fold] += counts[row]
        fold_of[names[row]] = fold
    return fold_of


def _shuffled(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()


def whole_groups(
    manifest: Manifest,
    *,
    groups: str = "film",
    labels: str | None = None,
    seed: int = 0,
) -> Split:
    """Make one fold per group; with more than `FEW_GROUPS` groups, ten folds of whole groups.

    The ten folds have labelled items only, with their levels spread about evenly (`stratified`).
    """
    ids = manifest.ids
    if labels or manifest.default_labels:
        ids = manifest.labels(labels).ids
    if len({*manifest.items.groups(groups, ids)}) > FEW_GROUPS:
        return stratified(manifest, seed=seed, labels=labels, groups=groups)
    return leave_film_out(manifest, labels=labels, groups=groups)


def leave_film_out(
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
    groups: str = "film",
) -> Split:
    """Make one fold per film, in order of film ids, from all items or from a label set.

    With `groups`, make one fold per value of another column of the items, such as ``media``.
    """
    manifest = Manifest.load(manifest)
    ids = manifest.ids
    if labels:
        ids = manifest.labels(labels).ids
    names, folds = np.unique(manifest.items.groups(groups, ids), return_inverse=True)
    noun = group_noun(groups)
    if len(names) < 2:
        raise UsageError(f"leave-{noun}-out needs at least two {noun}s; split by clips")
    about = {"method": f"one fold per {noun}", noun + "s": names.tolist()}
    name = f"leave-{safe_id(noun)}-out"
    return _require_apart(manifest, Split(name, ids, folds.tolist(), about=about))
