"""Label sets compared, against scikit-learn's kappa and F1."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score

from obygaze_features.errors import UsageError
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level, Manifest
from obygaze_features.manifests.label_agreement import (
    annotator_label_sets,
    compare_label_sets,
    sure_task,
)

CODES = ["EN", "HN", "NS", "S"]
CONCEPTS = ["Look", "Body", "Speech"]
LABEL = st.tuples(st.sampled_from(CODES), st.sets(st.sampled_from(CONCEPTS)))
CLIPS = st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=30)
TASKS = [(["S"], ["EN", "HN"]), (["NS", "S"], ["EN"]), (["S"], ["EN", "HN", "NS"])]


def two_label_sets(pairs):
    """Clips that both annotators have, and two that only one of them has."""
    ids = [f"c{number}" for number in range(len(pairs))]
    items = Items.of([Item(name, film="f") for name in ["z", *ids, "y"]])
    ann, bea = map(list, zip(*pairs, strict=True))
    sets = [
        LabelSet(name, order, [level for level, _ in labels], [tuple(c) for _, c in labels])
        for name, order, labels in (
            ("ann", ["z", *ids], [("S", {"Voice"}), *ann]),
            # In another order than ann's.
            ("bea", ["y", *ids[::-1]], [("S", {"Voice"}), *bea[::-1]]),
        )
    ]
    return Manifest("made", items).with_parts(labels=sets)


@given(CLIPS, st.sampled_from(TASKS))
def test_levels_and_f1_are_scikit_learns(pairs, task):
    positives, negatives = task
    result = compare_label_sets(two_label_sets(pairs), "ann", "bea")
    a, b = ([level for level, _ in side] for side in zip(*pairs, strict=True))
    assert (result.first, result.second, result.clips) == ("ann", "bea", len(pairs))
    assert result.equal_levels == pytest.approx(accuracy_score(a, b))
    counts = {(x, y): [*zip(a, b, strict=True)].count((x, y)) for x in CODES for y in CODES}
    assert {key: result.confusion.get(key, 0) for key in counts} == counts
    assert result.counts("S") == (a.count("S"), b.count("S"), counts["S", "S"])
    levels = {*positives, *negatives}
    of_task = [
        (x in positives, y in positives) for x, y in zip(a, b, strict=True) if {x, y} <= levels
    ]
    if any(x or y for x, y in of_task):
        truth, predicted = [y for _, y in of_task], [x for x, _ in of_task]
        assert result.f1(positives, negatives) == pytest.approx(f1_score(truth, predicted))
    else:
        assert math.isnan(result.f1(positives, negatives))


@given(CLIPS)
def test_concept_kappas_are_scikit_learns(pairs):
    result = compare_label_sets(two_label_sets(pairs), "ann", "bea")
    either = {name for (_, x), (_, y) in pairs for name in x | y}
    assert [c.concept for c in result.concepts] == [name for name in CONCEPTS if name in either]
    for concept in result.concepts:
        a, b = ([concept.concept in names for _, names in s] for s in zip(*pairs, strict=True))
        assert concept.share_first == pytest.approx(sum(a) / len(a))
        assert concept.share_second == pytest.approx(sum(b) / len(b))
        if all(a) and all(b):
            assert concept.kappa is None
        else:
            assert concept.kappa == pytest.approx(cohen_kappa_score(a, b))


def test_label_sets_without_clips_in_common_and_unknown_ones():
    items = Items.of([Item("a"), Item("b")])
    sets = [LabelSet("x", ["a"], ["S"], [()]), LabelSet("y", ["b"], ["S"], [()])]
    manifest = Manifest("m", items).with_parts(labels=sets)
    result = compare_label_sets(manifest, "x", "y")
    assert (result.clips, result.concepts, result.to_json()["equal_levels"]) == (0, (), None)
    assert math.isnan(result.f1(["S"], ["EN"]))
    with pytest.raises(UsageError, match="cy"):
        compare_label_sets(manifest, "x", "cy")
    scheme = LabelScheme("mood", (Level("calm", "Calm"), Level("NS", "Not sure"), Level("x", "X")))
    assert sure_task(scheme) == (("x",), ("calm",))
    # Annotators are the projected label sets, where there are any.
    assert annotator_label_sets(manifest) == ["x", "y"]
    projected = [replace(sets[0], name=n, about={"annotator": n}) for n in ("p", "q")]
    merged = replace(sets[0], name="m", about={"of": {"p": {}}})
    assert annotator_label_sets(manifest.with_parts(labels=[*projected, merged])) == ["p", "q"]
