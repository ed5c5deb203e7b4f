"""Make splits: folds with even levels, or one fold per film."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from obygaze_features.common.text import counted, join_some
from obygaze_features.errors import UsageError
from obygaze_features.items.items import group_noun
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.splits import Split, cut_files, neighbours


def stratified(
    manifest: Manifest,
    *,
    folds: int = 10,
    seed: int = 0,
    labels: str | None = None,
    groups: str | None = None,
    gap: float = 0.0,
    name: str = "leak-free",
) -> Split:
    """Assign every labelled item to a fold, with the levels spread evenly over the folds.

    Within a level the items are shuffled and assigned to one fold after another; the next level
    continues where the last one stopped, so that neither a level's nor the folds' sizes differ by
    more than one. Items are shuffled by the SHA-256 of "seed:id": a split that a paper names by its
    seed is the same for everybody, with any release of any library.

    With `groups`, a column of the items such as ``film`` or ``media``, the items of a group are in
    one fold; then levels are as even as whole groups allow. With a `gap` (seconds that will
    separate test and training clips), stretches of each file are the groups, long enough for the
    gap to leave some of their clips (`cut_files`).
    """
    label_set = manifest.labels(labels)
    ids = label_set.ids
    if folds < 2:
        raise UsageError(f"a split needs at least 2 folds (got {folds})")
    units = manifest.items.groups(groups, ids) if groups else cut_files(manifest.items, ids, gap)
    if folds > (count := len(set(units))):
        units_text = counted(count, group_noun(groups)) if groups else f"{count} labelled items"
        raise UsageError(f"{units_text} are not enough for {folds} folds; use fewer folds")
    deal = _deal_groups if groups or gap else _deal_items
    fold_of = deal(label_set.levels, units, folds, seed)
    about: dict[str, Any] = {"method": "stratified by level", "labels": label_set.name}
    about |= {"folds": folds, "seed": seed} | ({"groups": groups} if groups else {})
    about |= {"gap": gap} if gap else {}
    split = Split(name, ids, [fold_of[unit] for unit in units], about=about)
    if shared := neighbours(manifest.items, split):
        raise UsageError(
            f"{counted(len(shared), 'clip shows', 'clips show')} the same seconds of a file as a "
            f"clip of another fold ({join_some(shared, 2)}), so the folds would leak; keep "
            'the clips of a file together: --by media (in an experiment groups = "media")'
        )
    return split


def _deal_items(levels: Sequence[str], ids: Sequence[str], folds: int, seed: int) -> dict[str, int]:
    """Return the fold of each item."""
    fold_of: dict[str, int] = {}
    for level in sorted(set(levels)):
        members = [i for i, own in zip(ids, levels, strict=True) if own == level]
        for identifier in sorted(members, key=partial(_shuffled, seed)):
            fold_of[identifier] = len(fold_of) % folds
    return fold_of


def _deal_groups(
    levels: Sequence[str], groups: Sequence[str], folds: int, seed: int
) -> dict[str, int]:
    """Assign groups to folds: the largest first, each to the fold with the fewest of its levels.

    Whole numbers only, so that every machine assigns alike.
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
    name: str = "leave-film-out",
) -> Split:
    """Make one fold per film, in order of their ids, from all items or a label set.

    Groups may be another column of the items, such as ``media``.
    """
    ids = manifest.labels(labels).ids if labels else list(manifest.ids)
    group_of = manifest.items.groups(groups, ids)
    names, noun = sorted(set(group_of)), group_noun(groups)
    if len(names) < 2:
        raise UsageError(f"leave-{noun}-out needs items of at least two {noun}s")
    number = {group: fold for fold, group in enumerate(names)}
    about = {"method": f"one fold a {noun}", f"{noun}s": names}
    return Split(name, ids, [number[group] for group in group_of], about=about)
