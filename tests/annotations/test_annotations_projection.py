"""Grids of clips, projection onto them, and merging, by the paper's example and exact fractions."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.errors import AnnotationError, UsageError
from obygaze_features.manifests import Concept, Item, Items, LabelScheme, LabelSet, Level
from tests.kit.timelines import FIRST, SECOND, grid, segments, worked

LEVELS = ("EN", "HN", "NS", "S")
CONCEPTS = ("Look", "Body", "Posture")


def pairs(labels):
    """Return the level and concepts of each clip, in the order of the clips."""
    return list(zip(labels.levels, map(set, labels.concepts), strict=True))


def test_the_papers_example_projects_as_published():
    result = of.project(worked(), grid())
    ann, bea = result.label_sets
    assert ann.levels == ["EN", "S", "NS", "EN", "EN"]
    assert ann.concepts[1:3] == [("Body",), ("Look", "Posture")]
    assert ann.ratio == ["", "0.5", "0.38", "", ""]
    assert bea.ratio == ["", "0.2", "1", "", "1"]
    assert ann.about["grid"] == {"name": "grid", "digest": grid().digest}
    assert ann.about["annotator"] == "one"
    assert ann.about["timelines"]["sha256"] == worked().sha256
    merged = result.merge_labels()
    assert merged.levels == ["EN", "S", "NS", "EN", "HN"]
    assert merged.concepts[1:3] == [("Look", "Body"), ("Look", "Posture", "Clothing")]
    assert merged.ratio == ["", "0.5", "1", "", "1"]
    assert merged.about["of"] == {labels.name: labels.about for labels in (ann, bea)}


def span_of(start, length):
    return start, start + length


#: Frames in 1001 seconds.
RATES = st.sampled_from([24_000, 24_024, 25_025, 30_000])
SPANS = st.builds(span_of, st.integers(0, 400), st.integers(1, 120))
LEVEL = st.sampled_from(LEVELS)
NAMES = st.sets(st.sampled_from(CONCEPTS))
MARKS = st.lists(st.tuples(SPANS, LEVEL, NAMES), max_size=8)
THRESHOLDS = st.integers(1, 20).map(lambda n: Fraction(n, 20))


def by_hand(clip, marks, threshold):
    """Apply the rule in frames and exact fractions, one clip and segment at a time."""
    remaining = []
    first, last = clip
    for (start, end), level, names in marks:
        shared = max(0, min(end, last) - max(start, first))
        ratio = Fraction(shared, last - first)
        if shared and ratio >= threshold:
            remaining.append((LEVELS.index(level), names, ratio))
    best = max((level for level, _, _ in remaining), default=0)
    won = [entry for entry in remaining if entry[0] == best]
    names = set().union(*(entry[1] for entry in won))
    ratio = max((entry[2] for entry in won), default=0)
    return LEVELS[best], names, ratio


@given(MARKS, st.lists(SPANS, min_size=1, max_size=6), THRESHOLDS, RATES)
def test_projection_equals_exact_fractions(marks, clips, threshold, rate):
    """Clips may overlap or leave gaps. Frames and seconds must agree."""

    def seconds(span):
        return [round(frame * 1001 / rate, 6) for frame in span]

    marks = [*marks, ((0, 1), "EN", set())]
    spans = [seconds(clip) for clip in clips]
    drawn = [(*seconds(span), level, *names) for span, level, names in marks]
    timelines = of.Timelines("drawn", segments("one", drawn))
    [labels] = of.project(timelines, grid(spans), threshold=float(threshold)).label_sets
    expected = [by_hand(clip, marks, threshold) for clip in clips]
    assert pairs(labels) == [(level, names) for level, names, _ in expected]
    for text, (_, _, ratio) in zip(labels.ratio, expected, strict=True):
        assert (float(text) if text else 0) == pytest.approx(float(ratio), abs=1e-4)
        assert bool(text) == bool(ratio)


VOTE = st.none() | st.tuples(LEVEL, NAMES)


def rank_by_hand(rule, ranks, k):
    """Return the rank that a rule gives a clip, or None if it does not decide."""
    if rule == "majority":
        most = max(map(ranks.count, ranks), default=0)
        best = {rank for rank in ranks if ranks.count(rank) == most}
        return best.pop() if len(best) == 1 else None
    places = {"highest": 1, "median": len(ranks) // 2 + 1}
    place = places.get(rule, k)
    return ranks[-place] if 0 < place <= len(ranks) else None


@pytest.mark.parametrize("rule", ["highest", "majority", "median", "at-least"])
@given(st.lists(VOTE, min_size=2, max_size=9), st.integers(1, 9))
def test_each_rule_merges_a_clip_as_by_hand(rule, votes, k):
    k = min(k, len(votes))
    sets = []
    for number, vote in enumerate(votes):
        labels = LabelSet(f"p{number}", [], [], [])
        if vote:
            level, names = vote
            labels = replace(labels, ids=["a"], levels=[level], concepts=[tuple(names)])
        sets.append(labels)
    clip = of.Manifest("m", Items.of([Item("a", film="f")]))
    projected = replace(of.project(worked(), grid()), label_sets=sets, grid=clip)
    full = f"at-least-{k}" if rule == "at-least" else rule
    merged = projected.merge_labels(rule=full)
    backward = replace(projected, label_sets=sets[::-1])
    assert vars(backward.merge_labels(rule=full)) == vars(merged)

    ranks = sorted(LEVELS.index(vote[0]) for vote in votes if vote)
    rank = rank_by_hand(rule, ranks, k)
    assert merged.levels == ([] if rank is None else [LEVELS[rank]])
    assert merged.about["merged_by"] == full
    assert merged.about["undecided"] == (bool(ranks) and rank is None)
    if rank is None:
        return
    allowed = LEVELS[rank:]
    if rule in ("highest", "majority"):
        allowed = allowed[:1]
    voters = [names for level, names in filter(None, votes) if level in allowed]
    needs = {"highest": 1, "at-least": k}
    needed = needs.get(rule, len(voters) // 2 + 1)
    kept = {name for name in CONCEPTS if sum(name in names for names in voters) >= needed}
    assert {*merged.concepts[0]} == kept


@pytest.mark.parametrize(
    ("rule", "fact"), [("at-least-0", "at-least-K"), ("at-least-3", "only 2 annotators")]
)
def test_impossible_rules_are_refused(rule, fact):
    with pytest.raises(UsageError, match=fact):
        of.project(worked(), grid()).merge_labels(rule=rule)


def test_the_grids_scheme_must_have_the_same_levels():
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    foreign = of.Manifest("other", grid().items, scheme=calm)
    labels = LabelSet("mine", ["film-0"], ["tense"], [()])
    own = replace(labels, about={"label_scheme": calm.to_json()})
    assert of.project(worked(), foreign.with_parts(own)).grid.scheme.codes == LEVELS
    with pytest.raises(AnnotationError, match=r"levels \(calm, tense\) differ"):
        of.project(worked(), foreign.with_parts(labels))
    # The grid calls a concept by another name, and lacks another.
    scheme = LabelScheme("ours", of.obygaze_scheme().levels, (Concept("Gaze", aliases=("Look",)),))
    result = of.project(worked(), replace(grid(), scheme=scheme))
    assert pairs(result.label_sets[0])[2] == ("NS", {"Gaze", "Posture"})


def ends_at(end):
    only = Segment("film", "one", 0.0, end, "EN")
    return of.Timelines("short", [only], films={"film": Film(end=end)})


@example(20_001, 10_000)
@given(st.integers(2, 10**8), st.integers(10**4, 10**8))
def test_clips_cover_the_film_from_0_to_the_end(end, step):
    whole, part = divmod(step, 10**6)
    cells = of.project(ends_at(end / 1e6), f"{whole}.{part:06d}").grid.items
    starts = np.rint(cells.starts * 1e6)
    ends = np.rint(cells.ends * 1e6)
    lengths = ends - starts
    assert (starts[1:] == ends[:-1]).all()
    assert (lengths[:-1] == step).all()
    assert starts[0] == 0
    assert 0 <= end - ends[-1] <= 1
    assert 2 <= lengths[-1] <= step


def test_a_manifest_with_spans_is_a_grid(tmp_path):
    items = [
        Item("a", film="Kite & Wind", media="k.mkv", start=0.0, end=100.0),
        Item("b", media="Kite & Wind.mkv", start=100.0, end=200.0),
        Item("c", film="film"),
    ]
    of.Manifest("mine", Items.of(items)).save(tmp_path / "mine")
    marks = segments("one", [*SECOND, (420, 430, "S")], "Kite_Wind")
    timelines = of.Timelines("t", [*marks, *segments("one", FIRST, "other")])
    assert repr(timelines) == "Timelines('t', 10 segments of 2 films by 1 annotator)"
    result = of.project(timelines, tmp_path / "mine")
    assert result.grid.folder == tmp_path / "mine"
    assert result.grid.ids == ["a", "b", "c"]
    assert [labels.ids for labels in result.label_sets] == [["a", "b"]]
    remarks = {(remark.film, remark.what) for remark in result.remarks}
    assert remarks == {
        ("film", "has no span"),
        ("other", "has no spans in the grid"),
        ("Kite_Wind", "is in no clip"),
    }
    assert result.remarks[-1].where == "t (0:07:00 to 0:07:10)"


IMPOSSIBLE = [
    (worked(), "0", "the clips of a grid of 0 s are too short"),
    (worked(), "0.00001", "the clips of a grid of 1e-05 s are too short"),
    (worked(), "-60", "-60 is not a grid"),
    (worked(), grid(film="FILM"), "no clips with spans .*It has FILM; the timelines have film"),
    (of.Timelines("empty", []), "60", "have no segments"),
]


@pytest.mark.parametrize(("timelines", "cells", "fact"), IMPOSSIBLE)
def test_invalid_grids_are_refused(timelines, cells, fact):
    with pytest.raises((AnnotationError, UsageError), match=fact):
        of.project(timelines, cells)
