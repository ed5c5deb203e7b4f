"""Splits: balanced folds, the same for the same seed; the released ones and their leaks."""

import json
from collections import Counter
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import Item, Items, LabelSet, Split

# Brute force is compared with the clips themselves, of which the public functions only say enough.
from obygaze_features.manifests.splits import neighbours, overlapping
from tests.kit.files import write

ITEMS = Items.of([Item(f"i{row}") for row in range(200)])


def labelled(levels, items=ITEMS):
    labels = LabelSet("l", items.ids[: len(levels)], levels, [()] * len(levels))
    return of.Manifest("m", items).with_parts(labels)


LEVELS = st.lists(st.sampled_from(["EN", "HN", "NS", "S"]), min_size=10, max_size=200)


@given(LEVELS, st.integers(2, 10), st.integers(0, 99))
def test_folds_and_levels_are_balanced(levels, folds, seed):
    manifest = labelled(levels)
    split = of.stratified(manifest, folds=folds, seed=seed)
    level_of = manifest.labels().level_of
    assert split.ids == list(level_of)
    assert set(split.folds) <= set(range(folds))
    for level in (None, *set(levels)):
        counts = Counter(split.fold_of[i] for i in level_of if level in (None, level_of[i]))
        assert max(counts.values()) - min(counts[fold] for fold in range(folds)) <= 1


def test_the_split_of_a_seed_never_changes():
    """Papers name a split by its seed, so no release may change it."""
    manifest = labelled(["S"] * 6 + ["EN"] * 6)
    split = of.stratified(manifest, folds=4, seed=0)
    assert split.folds == [2, 3, 0, 2, 1, 3, 0, 2, 0, 1, 1, 3]
    assert of.stratified(manifest, folds=4, seed=1).folds != split.folds
    for folds in (1, 13):
        with pytest.raises(UsageError, match="fold"):
            of.stratified(manifest, folds=folds)


GROUPED = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["EN", "S"])), min_size=2, max_size=80
)


@given(GROUPED, st.integers(2, 5), st.integers(0, 99))
def test_groups_of_any_column_stay_whole(rows, folds, seed):
    groups, levels = map(list, zip(*rows, strict=True))
    items = [Item(f"i{row}", media=f"{row}") for row in range(len(rows))]
    manifest = labelled(levels, Items.of(items, {"director": groups}))
    sizes = Counter(groups)
    if len(sizes) < folds:
        with pytest.raises(UsageError, match=f"got {folds} folds of {len(sizes)}"):
            of.stratified(manifest, folds=folds, groups="director")
        return
    split = of.stratified(manifest, folds=folds, seed=seed, groups="director")
    assert split.folds == of.stratified(manifest, folds=folds, seed=seed, groups="director").folds
    assert len({*zip(groups, split.folds, strict=True)}) == len(sizes)
    assert {*split.folds} == {*range(folds)}
    if len({*levels}) == 1:  # as even as the largest group allows
        counts = Counter(split.folds).values()
        assert max(counts) - min(counts) <= max(sizes.values())


def test_groups_need_a_filled_column():
    items = Items.of([Item("a", film="f"), Item("b")], {"director": ["x", "y"]})
    manifest = labelled(["S", "S"], items)
    with pytest.raises(ManifestError, match="choose from film, media, kind, director"):
        of.leave_film_out(manifest, groups="series")
    with pytest.raises(ManifestError, match="b has no film"):
        of.leave_film_out(manifest)
    assert of.leave_film_out(manifest, groups="director").folds == [0, 1]


def test_groups_join_overlapping_spans():
    """Two annotators of one file: spans that show the same seconds are not split."""
    spans = [Item(f"a{n}", media="f", start=5 * n, end=5 * n + 10) for n in range(3)]
    pair = labelled(["S"] * 4, Items.of([*spans, Item("c", media="g")], {"scene": list("abcd")}))
    with pytest.raises(UsageError, match=r"the same seconds.*a0, a1.*--by media"):
        of.leave_film_out(pair, groups="scene")
    assert of.stratified(pair, folds=2, groups="media").folds == [0, 0, 0, 1]
    namesakes = Items.of([Item(f, film=f, media="1.mp4", start=0, end=1) for f in "fg"])
    assert of.stratified(labelled(["S"] * 2, namesakes), folds=2).sizes == [1, 1]


def test_folds_with_a_gap_are_stretches_of_files():
    items = Items.of(Item(f"{n:03}", media="f", start=5 * n, end=5 * n + 5) for n in range(90))
    split = of.stratified(labelled(["EN", "S"] * 45, items), folds=3, gap=10)
    lengths = [len([*same]) for _, same in groupby(split.folds)]
    assert min(lengths) >= 3  # as long as the gap and a clip
    assert max(Counter(split.folds).values()) <= 33


SPAN = st.tuples(st.sampled_from("fg"), st.integers(0, 30), st.integers(1, 8))


@given(
    st.lists(SPAN, min_size=2, max_size=12),
    st.integers(1, 11),
    st.sampled_from([None, 0, 1, 3, np.inf]),
)
def test_overlaps_in_time_equal_brute_force(spans, cut, gap):
    items = Items.of(
        Item(f"i{row}", media=film, start=start, end=start + length)
        for row, (film, start, length) in enumerate(spans)
    )

    def meet(a, b):
        film, start, length = spans[a]
        second, begin, duration = spans[b]
        apart = max(start, begin) - min(start + length, begin + duration)
        return film == second and (apart < 0 if gap is None else apart <= gap)

    rows = range(len(spans))
    assert overlapping(items, items.ids[:cut], items.ids[cut:], gap) == [
        f"i{a}" for a in rows[:cut] if any(meet(a, b) for b in rows[cut:])
    ]
    split = Split("x", items.ids, [row % 3 for row in rows])
    assert neighbours(items, split, gap) == [
        f"i{a}" for a in rows if any(meet(a, b) for b in rows if a % 3 != b % 3)
    ]


def test_columns_are_split_and_neighbours_counted(obygaze, tmp_path):
    lines = (f"{file}.mp4,{start},{start + 2},S,{file}" for file in "fgh" for start in (0, 2, 9))
    table = write(tmp_path / "t.csv", "file,start,end,label,series", *lines)
    folder = tmp_path / "m"
    obygaze("manifests", "import", "csv", table, "-o", folder, code=0)
    split = ("manifests", "split", folder, "--by")
    obygaze(*split, "clips", "--folds", 3, code=0)
    [leak] = json.loads(obygaze("manifests", "audit", folder, "--json").stdout)
    manifest = of.Manifest.load(folder)
    drawn = manifest.split("leak-free")
    near = [i for i in neighbours(manifest.items, drawn, 5) if drawn.fold_of[i] == 2]
    assert leak["neighbours"] == len(near)
    obygaze(*split, "media", "--name", "../up", code=2)
    obygaze(*split, "media", code=0)
    obygaze(*split, "series", "--folds", 2, code=0)
    manifest = of.Manifest.load(folder)
    assert manifest.split("leave-file-out").sizes == [3, 3, 3]
    assert sorted(manifest.split("by-series").sizes) == [3, 6]


def test_a_split_that_loses_a_fold_is_left_out():
    split = Split("x", ITEMS.ids[:4], [0, 1, 2, 2])
    manifest = of.Manifest("m", ITEMS).with_parts(split)
    assert manifest.select(ids=["i0", "i1", "i2", "i9"]).split("x").folds == [0, 1, 2]
    assert manifest.select(ids=["i0", "i2", "i3"]).split_names == []
