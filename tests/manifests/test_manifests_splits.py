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
    count = len(levels)
    labels = LabelSet("l", items.ids[:count], levels, [()] * count)
    return of.Manifest("m", items).with_parts(labels)


def even(rows, folds):
    """Return whether each fold has as many rows as another, or one more."""
    counts = np.bincount(rows, minlength=folds)
    return counts.max() - counts.min() <= 1


LEVELS = st.lists(st.sampled_from(["EN", "HN", "NS", "S"]), min_size=10, max_size=200)


@given(LEVELS, st.integers(2, 10), st.integers(0, 99))
def test_folds_and_levels_are_balanced(levels, folds, seed):
    manifest = labelled(levels)
    split = of.stratified(manifest, folds=folds, seed=seed)
    level_of = manifest.labels().level_of
    assert split.ids == list(level_of)
    assert set(split.folds) <= set(range(folds))
    assert even(split.folds, folds)
    for level in set(levels):
        assert even([split.fold_of[i] for i in level_of if level_of[i] == level], folds)


def test_the_split_of_a_seed_never_changes():
    """Papers name a split by its seed, so no release may change it."""
    manifest = labelled(["S"] * 6 + ["EN"] * 6)
    split = of.stratified(manifest, folds=4, seed=0)
    assert split.folds == [2, 3, 0, 2, 1, 3, 0, 2, 0, 1, 1, 3]
    assert of.stratified(manifest, folds=4, seed=1).folds != split.folds
    for folds in (1, 13):
        with pytest.raises(UsageError, match="fold"):
            of.stratified(manifest, folds=folds)


GROUPED = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["EN", "S"]))


@given(st.lists(GROUPED, min_size=2, max_size=80), st.integers(2, 5), st.integers(0, 99))
def test_groups_of_any_column_stay_whole(rows, folds, seed):
    groups, levels = map(list, zip(*rows, strict=True))
    items = [Item(f"i{row}", media=f"{row}") for row, _ in enumerate(rows)]
    manifest = labelled(levels, Items.of(items, {"director": groups}))
    sizes = Counter(groups)
    if len(sizes) < folds:
        with pytest.raises(UsageError, match=f"got {folds} folds for {len(sizes)}"):
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
    pair = [Item("a", film="f"), Item("b")]
    manifest = labelled(["S", "S"], Items.of(pair, {"director": ["x", "y"]}))
    with pytest.raises(ManifestError, match="choose from film, media, kind, director"):
        of.leave_film_out(manifest, groups="series")
    with pytest.raises(ManifestError, match="b has no film"):
        of.leave_film_out(manifest)
    assert of.leave_film_out(manifest, groups="director").folds == [0, 1]


def test_groups_join_overlapping_spans():
    """Two annotators of one file: spans that show the same seconds are not split."""
    spans = [Item(f"a{n}", media="f", start=n, end=n + 2) for n in range(3)]
    clips = [*spans, Item("c", media="g")]
    pair = labelled(["S"] * 4, Items.of(clips, {"scene": list("abcd")}))
    with pytest.raises(UsageError, match=r"the same seconds.*a0, a1.*by media"):
        of.leave_film_out(pair, groups="scene")
    assert of.stratified(pair, folds=2, groups="media").folds == [0, 0, 0, 1]
    namesakes = Items.of([Item(f, film=f, media="1.mp4", start=0, end=1) for f in "fg"])
    namesakes = labelled(["S"] * 2, namesakes)
    assert of.stratified(namesakes, folds=2).sizes == [1, 1]


def test_folds_with_a_gap_are_stretches_of_files():
    spans = [Item(f"{n:03}", media="f", start=n, end=n + 1) for n in range(90)]
    manifest = labelled(["EN", "S"] * 45, Items.of(spans))
    split = of.stratified(manifest, folds=3, gap=2)
    lengths = [len([*same]) for _, same in groupby(split.folds)]
    assert min(lengths) >= 3  # as long as the gap and a clip
    assert max(Counter(split.folds).values()) <= 33
    far_apart = [Item(f"{n}", media="f", start=100 * n, end=100 * n + 1) for n in range(6)]
    manifest = labelled(["EN", "S"] * 3, Items.of(far_apart))
    assert of.stratified(manifest, folds=3, gap=2).sizes == [2, 2, 2]


SPAN = st.tuples(st.sampled_from("fg"), st.integers(0, 30), st.integers(1, 8))


@given(
    st.lists(SPAN, min_size=2, max_size=12),
    st.integers(1, 11),
    st.sampled_from([None, 0, 1, 3, np.inf]),
)
def test_overlaps_in_time_equal_brute_force(spans, cut, gap):
    items = []
    for row, (film, start, length) in enumerate(spans):
        items.append(Item(f"i{row}", media=film, start=start, end=start + length))
    items = Items.of(items)
    ids = items.ids

    def meet(a, b):
        film, start, length = spans[a]
        second, begin, duration = spans[b]
        apart = max(start, begin) - min(start + length, begin + duration)
        return film == second and (apart < 0 if gap is None else apart <= gap)

    rows = range(len(spans))
    expected = [ids[a] for a in rows[:cut] if any(meet(a, b) for b in rows[cut:])]
    assert overlapping(items, ids[:cut], ids[cut:], gap) == expected
    split = Split("x", ids, [row % 3 for row in rows])
    expected = [ids[a] for a in rows if any(meet(a, b) for b in rows if a % 3 != b % 3)]
    assert neighbours(items, split, gap) == expected


def test_columns_are_split_and_neighbours_counted(obygaze, tmp_path):
    lines = []
    for file in "fgh":
        lines += [f"{file}.mp4,{span},S,{file}" for span in ("0,2", "2,4", "9,11")]
    table = write(tmp_path / "t.csv", "file,start,end,label,series", *lines)
    folder = tmp_path / "m"
    obygaze("manifests", "import", "csv", table, "-o", folder, code=0)
    split = ("manifests", "split", folder, "--by")
    obygaze(*split, "clips", "--folds", 3, code=0)
    [leak] = json.loads(obygaze("manifests", "audit", folder, "--json").stdout)
    manifest = of.Manifest.load(folder)
    drawn = manifest.split("leak-free")
    near = neighbours(manifest.items, drawn, 5)
    assert leak["neighbours"] == [drawn.fold_of[i] for i in near].count(2)
    obygaze(*split, "media", "--name", "../up", code=2)
    obygaze(*split, "media", code=0)
    obygaze(*split, "series", "--folds", 2, code=0)
    manifest = of.Manifest.load(folder)
    assert manifest.split("leave-file-out").sizes == [3, 3, 3]
    assert sorted(manifest.split("by-series").sizes) == [3, 6]


def test_a_split_that_loses_a_fold_is_left_out():
    split = Split("x", ITEMS.ids[:4], [0, 1, 2, 2])
    manifest = of.Manifest("m", ITEMS).with_parts(split)
    chosen = manifest.select(ids=["i0", "i1", "i2", "i9"])
    assert chosen.split("x").folds == [0, 1, 2]
    assert manifest.select(ids=["i0", "i2", "i3"]).split_names == []
