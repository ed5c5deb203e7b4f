"""Splits: every clip in one fold, levels spread evenly, the same again from the same seed."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.errors import UsageError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest
from obygaze_features.manifests.splits import first_overlap, leave_film_out, overlapping, stratified

ITEMS = Items.of([Item(f"i{row}") for row in range(200)])


def labelled(levels, items=ITEMS):
    labels = LabelSet("l", items.ids[: len(levels)], levels, [()] * len(levels))
    return Manifest("m", items).with_parts(labels=[labels])


@given(
    st.lists(st.sampled_from(["EN", "HN", "NS", "S"]), min_size=10, max_size=200),
    st.integers(2, 10),
    st.integers(0, 99),
)
def test_stratified(levels, folds, seed):
    manifest = labelled(levels)
    result = manifest.labels()
    split = stratified(manifest, folds=folds, seed=seed)
    assert split.ids == result.ids
    sizes = Counter(split.folds)
    assert set(sizes) <= set(range(folds))
    assert max(sizes.values()) - min(sizes[fold] for fold in range(folds)) <= 1
    for level in set(levels):
        counts = Counter(
            split.fold_of[i] for i, second in result.level_of.items() if second == level
        )
        assert max(counts.values()) - min(counts[fold] for fold in range(folds)) <= 1
    assert stratified(manifest, folds=folds, seed=seed).folds == split.folds


def test_another_seed_gives_another_split():
    manifest = labelled(["S"] * 50 + ["EN"] * 50)
    assert stratified(manifest, seed=1).folds != stratified(manifest, seed=2).folds


def test_split_of_a_seed_never_changes():
    """A split is named in papers by its seed; a new release of anything must not redeal it."""
    split = stratified(labelled(["S"] * 6 + ["EN"] * 6), folds=4, seed=0)
    assert split.folds == [2, 3, 0, 2, 1, 3, 0, 2, 0, 1, 1, 3]
    # The first of the first level (EN) by the hash that manifests/README.md gives.
    first = min(split.ids[6:], key=lambda i: hashlib.sha256(f"0:{i}".encode()).digest())
    assert split.fold_of[first] == 0


@pytest.mark.parametrize("folds", [1, 13])
def test_folds_that_cannot_be(folds):
    with pytest.raises(UsageError, match="fold"):
        stratified(labelled(["S"] * 12), folds=folds)


def test_leave_film_out(manifest):
    loaded = Manifest.load(manifest)
    split = leave_film_out(loaded)
    assert split.folds == [0, 0, 0, 0, 0, 1]
    assert split.about["films"] == ["tt0108160", "tt0110912"]


def test_overlapping_spans_are_not_split():
    """Two annotators of one film: their spans show the same seconds."""
    spans = [Item("a1", media="f", start=0, end=10), Item("a2", media="f", start=10, end=20)]
    apart = Items.of([*spans, Item("b1", media="g", start=5, end=15)])
    assert stratified(labelled(["S"] * 3, apart), folds=3)
    pair = Items.of([*spans, Item("b1", media="f", start=5, end=15)])
    with pytest.raises(UsageError, match=r"a1 and b1 show the same seconds.*--by-film"):
        stratified(labelled(["S"] * 3, pair), folds=3)


SPAN = st.tuples(st.sampled_from("fg"), st.integers(0, 30), st.integers(1, 8))


@given(st.lists(SPAN, min_size=2, max_size=12), st.integers(1, 11))
def test_overlaps_in_time_against_brute_force(spans, cut):
    items = Items.of(
        [
            Item(f"i{row}", media=film, start=start, end=start + length)
            for row, (film, start, length) in enumerate(spans)
        ]
    )
    tested, trained = items.ids[:cut], items.ids[cut:]

    def overlap(a, b):
        (film, start, length), (second, begin, duration) = spans[a], spans[b]
        return film == second and start < begin + duration and begin < start + length

    rows = range(len(spans))
    assert overlapping(items, tested, trained) == [
        f"i{a}" for a in rows[:cut] if any(overlap(a, b) for b in rows[cut:])
    ]
    result = first_overlap(items, items.ids)
    assert (result is None) == (not any(overlap(a, b) for a in rows for b in rows if a < b))
    assert result is None or overlap(int(result[0][1:]), int(result[1][1:]))


def test_command(manifest, obygaze):
    result = obygaze("manifests", "split", manifest, "--folds", 3, "--seed", 5)
    assert "6 clips in 3 folds of 2 ->" in result.output
    split = Manifest.load(manifest).split("leak-free")
    assert split.about == {
        "method": "stratified by level", "labels": "paper", "folds": 3, "seed": 5,
    }  # fmt: skip
    assert (
        obygaze("manifests", "split", manifest, "--folds", 2).exit_code == 1
    )  # it is there already
    assert obygaze("manifests", "split", manifest, "--by-film").exit_code == 0
    assert Manifest.load(manifest).split_names == ["leak-free", "leave-film-out"]
    assert obygaze("manifests", "split", manifest, "--name", "../up").exit_code == 2
