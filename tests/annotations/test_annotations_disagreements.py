"""Where two annotators differ: runs of clips, against a slow search over all stretches."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.annotations.agreement import Disagreement, find_disagreements, find_pairs
from obygaze_features.annotations.measures import distances_of
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme

PAPER = distances_of(obygaze_scheme())
given_levels = st.lists(
    st.tuples(*(st.sampled_from([*PAPER.codes, "."]) for _ in range(2))), min_size=1, max_size=12
)


def made(labels, spans):
    when = spans or [(None, None)] * len(labels)
    items = [
        Item(f"c{row:02}", film="f", start=start, end=end) for row, (start, end) in enumerate(when)
    ]
    sets = []
    for name, levels in zip(("ann", "bea"), zip(*labels, strict=True), strict=True):
        have = {f"c{row:02}": level for row, level in enumerate(levels) if level != "."}
        sets.append(LabelSet(name, list(have), list(have.values()), [()] * len(have)))
    return Manifest("made", Items.of(items)).with_parts(labels=sets)


def found(manifest):
    return find_disagreements(find_pairs(manifest)[0], manifest.items, PAPER)


def test_a_stretch_has_its_levels_times_and_distance():
    labels = [("EN", "EN"), ("EN", "S"), ("HN", "S"), ("S", "S"), ("EN", "HN"), ("NS", "HN")]
    spans = [(0, 10), (10, 20), (20, 25), (25, 40), (40, 41), (41, 50)]
    first, second = found(made(labels, spans))
    assert first == Disagreement(
        film="f",
        a="ann",
        b="bea",
        first="c01",
        last="c02",
        clips=2,
        seconds=15,
        start=10,
        end=25,
        levels_a=("EN", "HN"),
        levels_b=("S",),
        distance=pytest.approx(0.85),
    )
    assert (second.first, second.last, second.seconds) == ("c04", "c05", 10)
    assert second.distance == pytest.approx(0.35)


def test_the_longest_in_time_is_first_whatever_its_clips():
    labels = [("EN", "HN"), ("EN", "HN"), ("S", "S"), ("EN", "HN"), ("S", "S"), ("EN", "S")]
    spans = [(0, 1), (1, 2), (2, 3), (3, 50), (50, 51), (51, 53)]
    # c00 and c01 last as long together as c05, and are more clips.
    assert [span.first for span in found(made(labels, spans))] == ["c03", "c00", "c05"]
    untimed = found(made(labels, None))
    assert [(entry.first, entry.clips, entry.start) for entry in untimed] == [
        ("c00", 2, None),
        ("c05", 1, None),
        ("c03", 1, None),
    ]


def test_clips_are_taken_in_time():
    labels = [("EN", "S"), ("EN", "EN"), ("EN", "S")]
    [one] = found(made(labels, [(10, 20), (20, 30), (0, 10)]))
    assert (one.first, one.last, one.clips) == ("c02", "c00", 2)


@given(given_levels)
@settings(deadline=None)
def test_against_a_search_over_all_stretches(labels):
    if not any("." not in pair for pair in labels):
        return

    def differs(row):
        return 0 <= row < len(labels) and "." not in labels[row] and len(set(labels[row])) == 2

    every = combinations(range(len(labels) + 1), 2)
    runs = {
        (start, end - 1)
        for start, end in every
        if all(map(differs, range(start, end))) and not differs(start - 1) and not differs(end)
    }
    result = found(made(labels, None))
    assert {(int(entry.first[1:]), int(entry.last[1:])) for entry in result} == runs
    assert [entry.clips for entry in result] == sorted(
        (entry.clips for entry in result), reverse=True
    )


def test_as_many_are_shown_as_asked_for(tmp_path, obygaze):
    manifest = made([("EN", "S"), ("S", "S")] * 5, None)
    manifest.save(tmp_path / "m")

    def shown(number):
        command = obygaze("annotations", "agreement", tmp_path / "m", "--differences", number)
        assert command.exit_code == 0
        return command.output

    assert "and 3 more; -o and --json name all" in shown(2)
    assert "more" not in shown(5).partition("where they differ")[2]
    assert "where they differ" not in shown(0)
