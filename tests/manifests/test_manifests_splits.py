"""Splits: every clip in one fold, levels spread evenly, the same again from the same seed."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Item, Items, LabelSet
from obygaze_features.manifests.splits import first_overlap, overlapping

ITEMS = Items.of([Item(f"i{row}") for row in range(200)])


def labelled(levels, items=ITEMS):
    labels = LabelSet("l", items.ids[: len(levels)], levels, [()] * len(levels))
    return of.Manifest("m", items).with_parts(labels=[labels])


LEVELS = st.lists(st.sampled_from(["EN", "HN", "NS", "S"]), min_size=10, max_size=200)


@given(LEVELS, st.integers(2, 10), st.integers(0, 99))
def test_folds_and_levels_are_even(levels, folds, seed):
    manifest = labelled(levels)
    split = of.stratified(manifest, folds=folds, seed=seed)
    level_of = manifest.labels().level_of
    assert split.ids == list(level_of)
    assert set(split.folds) <= set(range(folds))
    for level in (None, *set(levels)):
        counts = Counter(split.fold_of[i] for i in level_of if level in (None, level_of[i]))
        assert max(counts.values()) - min(counts[fold] for fold in range(folds)) <= 1
    assert of.stratified(manifest, folds=folds, seed=seed).folds == split.folds


def test_split_of_a_seed_never_changes():
    """A split is named in papers by its seed; a new release of anything must not redeal it."""
    manifest = labelled(["S"] * 6 + ["EN"] * 6)
    split = of.stratified(manifest, folds=4, seed=0)
    assert split.folds == [2, 3, 0, 2, 1, 3, 0, 2, 0, 1, 1, 3]
    # The first of the first level (EN) by the hash that manifests/README.md gives.
    first = min(split.ids[6:], key=lambda i: hashlib.sha256(f"0:{i}".encode()).digest())
    assert split.fold_of[first] == 0
    assert of.stratified(manifest, folds=4, seed=1).folds != split.folds
    for folds in (1, 13):
        with pytest.raises(UsageError, match="fold"):
            of.stratified(manifest, folds=folds)


def test_overlapping_spans_are_not_split():
    """Two annotators of one film: their spans show the same seconds."""
    spans = [Item("a1", media="f", start=0, end=10), Item("a2", media="f", start=10, end=20)]
    apart = Items.of([*spans, Item("b1", media="g", start=5, end=15)])
    assert of.stratified(labelled(["S"] * 3, apart), folds=3)
    pair = Items.of([*spans, Item("b1", media="f", start=5, end=15)])
    with pytest.raises(UsageError, match=r"a1 and b1 show the same seconds.*--by-film"):
        of.stratified(labelled(["S"] * 3, pair), folds=3)


SPAN = st.tuples(st.sampled_from("fg"), st.integers(0, 30), st.integers(1, 8))


@given(st.lists(SPAN, min_size=2, max_size=12), st.integers(1, 11))
def test_overlaps_in_time_against_brute_force(spans, cut):
    items = Items.of(
        [
            Item(f"i{row}", media=film, start=start, end=start + length)
            for row, (film, start, length) in enumerate(spans)
        ]
    )

    def overlap(a, b):
        (film, start, length), (second, begin, duration) = spans[a], spans[b]
        return film == second and start < begin + duration and begin < start + length

    rows = range(len(spans))
    assert overlapping(items, items.ids[:cut], items.ids[cut:]) == [
        f"i{a}" for a in rows[:cut] if any(overlap(a, b) for b in rows[cut:])
    ]
    result = first_overlap(items, items.ids)
    assert (result is None) == (not any(overlap(a, b) for a in rows for b in rows if a < b))
    assert result is None or overlap(int(result[0][1:]), int(result[1][1:]))


def test_the_command(manifest, obygaze):
    result = obygaze("manifests", "split", manifest, "--folds", 3, "--seed", 5)
    assert "6 clips in 3 folds of 2 ->" in result.output
    about = {"method": "stratified by level", "labels": "paper", "folds": 3, "seed": 5}
    assert of.Manifest.load(manifest).split("leak-free").about == about
    assert obygaze("manifests", "split", manifest, "--folds", 2).exit_code == 1  # it is there
    assert obygaze("manifests", "split", manifest, "--by-film").exit_code == 0
    films = of.Manifest.load(manifest).split("leave-film-out")
    assert films.folds == [0, 0, 0, 0, 0, 1]
    assert films.about["films"] == ["tt0108160", "tt0110912"]
    assert obygaze("manifests", "split", manifest, "--name", "../up").exit_code == 2
