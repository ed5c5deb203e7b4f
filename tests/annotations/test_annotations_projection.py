"""Grids of clips, projection onto them, and merging, by the paper's example and exact fractions."""

import unicodedata
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.annotations.grid import read_grid
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.project import project
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.items.items import safe_id
from obygaze_features.manifests import Concept, Item, Items, LabelScheme, LabelSet, Level
from tests.kit.files import write
from tests.kit.timelines import FIRST, SECOND, grid, pairs, segments, worked

LEVELS = ("EN", "HN", "NS", "S")
CONCEPTS = ("Look", "Body", "Posture")


def clips(*texts):
    """Return level and concepts of each clip, from texts such as "S Body Look"."""
    return [(level, set(concepts)) for level, *concepts in map(str.split, texts)]


def test_the_papers_example_projects_as_published():
    result = project(worked(), grid())
    ann, bea = result.label_sets
    assert pairs(ann) == clips("EN", "S Body", "NS Look Posture", "EN", "EN")
    assert pairs(bea) == clips("EN", "S Look", "NS Clothing Look", "EN", "HN Posture")
    assert ann.ratio == ["", "0.5", "0.38", "", ""]
    assert bea.ratio == ["", "0.2", "1", "", "1"]
    merged = merge_labels([ann, bea], result.grid)
    expected = clips("EN", "S Body Look", "NS Clothing Look Posture", "EN", "HN Posture")
    assert pairs(merged) == expected
    assert merged.ratio == ["", "0.5", "1", "", "1"]
    assert result.remarks == []
    assert ann.about["grid"] == {"name": "grid", "digest": grid().digest}
    assert (ann.about["annotator"], ann.about["timelines"]["sha256"]) == ("one", worked().sha256)
    assert merged.about["of"] == {labels.name: labels.about for labels in (ann, bea)}


def seconds(frame, rate):
    return round(float(frame / rate), 6)


def test_the_threshold_is_exact_to_a_frame():
    rate = Fraction(24000, 1001)
    clips = [(start, start + 5 * count) for start in range(7, 5000, 997) for count in (1, 7, 60)]
    for short, level in ((0, "S"), (1, "EN")):
        for begin, end in clips:
            last = begin + (end - begin) // 5 - short
            marks = [((begin, last), "S", {"Look"})] if last > begin else []
            timelines = timelines_of({"one": [*marks, ((end, end + 1), "EN", set())]}, rate)
            projected = grid([(seconds(begin, rate), seconds(end, rate))])
            [labels] = project(timelines, projected).label_sets
            assert labels.levels == [level], (begin, end, rate)


RATES = st.sampled_from([Fraction(24000, 1001), Fraction(24), Fraction(25), Fraction(30000, 1001)])
FRAMES = st.integers(0, 400)
SPANS = st.tuples(FRAMES, st.integers(1, 120)).map(lambda span: (span[0], span[0] + span[1]))
MARK = st.tuples(SPANS, st.sampled_from(LEVELS), st.sets(st.sampled_from(CONCEPTS)))
MARKS = st.lists(MARK, max_size=8)
THRESHOLDS = st.sampled_from([Fraction(n, 20) for n in (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)])


def timelines_of(marks, rate):
    scheme = of.obygaze_scheme()
    return of.Timelines(
        "drawn",
        [
            Segment("film", annotator, *times, level, scheme.in_order(names))
            for annotator, of_one in marks.items()
            for span, level, names in of_one
            for times in [[seconds(frame, rate) for frame in span]]
        ],
    )


def by_hand(clip, marks, threshold):
    """Apply the rule in frames and exact fractions, one clip and segment at a time."""
    remaining = []
    for (start, end), level, names in marks:
        shared = max(0, min(end, clip[1]) - max(start, clip[0]))
        ratio = Fraction(shared, clip[1] - clip[0])
        if shared and ratio >= threshold:
            remaining.append((LEVELS.index(level), names, ratio))
    best = max((level for level, _, _ in remaining), default=0)
    won = [entry for entry in remaining if entry[0] == best]
    names = set().union(*(entry[1] for entry in won))
    return LEVELS[best], names, max((entry[2] for entry in won), default=Fraction(0))


@given(MARKS, st.lists(SPANS, min_size=1, max_size=6), THRESHOLDS, RATES)
def test_projection_equals_exact_fractions(marks, clips, threshold, rate):
    """Clips may overlap or leave gaps. Frames and seconds must agree."""
    marks = [*marks, ((0, 1), "EN", set())]
    spans = [tuple(seconds(frame, rate) for frame in clip) for clip in clips]
    timelines = grid([(start, end) for start, end in spans])
    drawn = timelines_of({"one": marks}, rate)
    [labels] = project(drawn, timelines, threshold=float(threshold)).label_sets
    expected = [by_hand(clip, marks, threshold) for clip in clips]
    assert pairs(labels) == [(level, names) for level, names, _ in expected]
    for text, (_, _, ratio) in zip(labels.ratio, expected, strict=True):
        assert (float(text) if text else 0) == pytest.approx(float(ratio), abs=1e-4)
        assert bool(text) == bool(ratio)


VOTE = st.none() | st.tuples(st.sampled_from(LEVELS), st.sets(st.sampled_from(CONCEPTS)))


@given(st.lists(VOTE, min_size=2, max_size=9), st.integers(1, 9))
def test_each_rule_merges_a_clip_as_by_hand(votes, k):
    clip = of.Manifest("m", Items.of([Item("a", film="f")]))
    sets = []
    for number, vote in enumerate(votes):
        given_votes = [vote] if vote else []
        levels = [level for level, _ in given_votes]
        marks = [tuple(names) for _, names in given_votes]
        sets.append(LabelSet(f"p{number}", ["a"] * len(levels), levels, marks))

    ranks = sorted(LEVELS.index(vote[0]) for vote in votes if vote)
    half = len(ranks) // 2 + 1
    counts = sorted((ranks.count(rank), rank) for rank in {*ranks})
    is_tied = len(counts) > 1 and counts[-1][0] == counts[-2][0]
    expected = {
        "highest": ranks[-1] if ranks else None,
        "majority": counts[-1][1] if ranks and not is_tied else None,
        "median": ranks[-half] if ranks else None,
    }
    if k <= len(votes):
        expected[f"at-least {k}"] = ranks[-k] if len(ranks) >= k else None
    for rule, rank in expected.items():
        merged = merge_labels(sets, clip, rule=rule)
        assert vars(merge_labels(sets[::-1], clip, rule=rule)) == vars(merged)
        assert merged.levels == ([] if rank is None else [LEVELS[rank]])
        assert merged.about["merged_by"] == rule.replace(" ", "-")
        assert merged.about["undecided"] == (bool(ranks) and rank is None)
        if rank is None:
            continue
        present = [vote for vote in votes if vote]
        voters = [names for level, names in present if LEVELS.index(level) == rank]
        if rule not in ("highest", "majority"):
            voters = [names for level, names in present if LEVELS.index(level) >= rank]
        needed = {"highest": 1, f"at-least {k}": k}.get(rule, len(voters) // 2 + 1)
        kept = {name for name in CONCEPTS if sum(name in names for names in voters) >= needed}
        assert {*merged.concepts[0]} == kept
    with pytest.raises(UsageError, match="at-least-K"):
        merge_labels(sets, clip, rule="at-least-0")
    with pytest.raises(UsageError, match=f"only {len(sets)} annotators"):
        merge_labels(sets, clip, rule=f"at-least-{len(sets) + 1}")


def test_names_in_any_script_stay_beside_their_ids(tmp_path):
    names = ["ליאור", "Łukasz", "Søren", "Иван", "Zoë"]
    rows = [f"film,{name},0,60,S" for name in names]
    rows.append(f"film,{unicodedata.normalize('NFD', 'Zoë')},60,90,S")  # as a Mac writes it
    table = write(tmp_path / "marks.csv", "film,annotator,start,end,level", *rows)
    of.Timelines.from_csv(table).save(tmp_path / "t")
    projected = project(of.Timelines.load(tmp_path / "t"), 60)
    projected.save(tmp_path / "m")
    manifest = of.Manifest.load(tmp_path / "m")
    shown = {own: manifest.labels(own).display_name for own in manifest.annotators}
    assert shown == {safe_id(name): name for name in names}


def test_segments_outside_all_clips_are_left_out():
    late = worked().segments + tuple(segments("one", [(420, 430, "S", "Look")]))
    [remark] = project(of.Timelines("worked", late), grid()).remarks
    assert (remark.annotator, remark.done) == ("one", "left out")
    assert (remark.where, remark.what) == ("worked (0:07:00 to 0:07:10)", "is in no clip")
    # A fifth of a tiny clip is less than the slack; a long clip over it does not help.
    tiny = grid([(0, 100), (10, 10.000005)])
    for start, levels in ((10.000006, ["S", "EN"]), (10, ["S", "S"])):
        beside = of.Timelines("tiny", segments("one", [(start, 60, "S", "Look")]))
        assert project(beside, tiny).label_sets[0].levels == levels


def test_the_grids_scheme_must_have_the_same_levels():
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    foreign = of.Manifest("other", grid().items, scheme=calm)
    assert project(worked(), foreign).grid.scheme.codes == LEVELS  # nothing is labelled yet
    labels = LabelSet("mine", ["film-0"], ["tense"], [()])
    with pytest.raises(AnnotationError, match=r"levels \(calm, tense\) differ"):
        project(worked(), foreign.with_parts(labels))
    # The grid calls a concept by another name, and lacks another.
    names = (Concept("Gaze", aliases=("Look",)), Concept("Body"))
    scheme = LabelScheme("ours", of.obygaze_scheme().levels, names)
    result = project(worked(), of.Manifest("other", grid().items, scheme=scheme))
    assert pairs(result.label_sets[0])[2] == ("NS", {"Gaze", "Posture"})
    assert result.grid.scheme.concept_names[:2] == ("Gaze", "Body")


def test_films_that_would_share_an_id_are_refused():
    marked = of.Timelines("worked", segments("one", FIRST, "A_B"))
    two = [*grid(film="A_B"), *(replace(item, film="A B", id=f"x{item.id}") for item in grid())]
    with pytest.raises(ManifestError, match="'A_B' and 'A B'"):
        project(marked, of.Manifest("grid", Items.of(two)))


def ends_at(end, film="film"):
    only = Segment(film, "one", 0.0, end, "EN")
    return of.Timelines("short", [only], films={film: Film(end=end)})


def problems(remarks):
    return [(remark.film, remark.what, remark.done) for remark in remarks]


def test_cells_have_the_length_asked_for():
    cells, remarks = read_grid("0:01:00", ends_at(150.5))
    assert remarks == []
    expected = [("film-0001", 0, 60), ("film-0002", 60, 120), ("film-0003", 120, 150.5)]
    assert [(item.id, item.start, item.end) for item in cells] == expected
    assert cells.name == "short-60s"
    assert len(read_grid("60", ends_at(120.000001))[0]) == 2  # no clip of a microsecond
    cells, [remark] = read_grid("100", worked())
    assert cells.items.ends[-1] == 420
    assert (remark.film, remark.what) == ("film", "has no end (import again with --film-table)")


@given(st.integers(2, 10**8), st.integers(10**4, 10**8))
def test_clips_cover_the_film_from_0_to_the_end(end, step):
    cells, _ = read_grid(f"{step // 10**6}.{step % 10**6:06d}", ends_at(end / 1e6))
    starts, ends = (np.rint(times * 1e6) for times in (cells.items.starts, cells.items.ends))
    assert (starts[1:] == ends[:-1]).all()
    assert (ends - starts)[:-1].tolist() == [step] * (len(cells) - 1)
    assert starts[0] == 0
    assert 0 <= end - ends[-1] <= 1
    assert 2 <= ends[-1] - starts[-1] <= step


def test_a_manifest_with_spans_is_a_grid(tmp_path):
    items = [
        Item("a", film="film", start=0.0, end=100.0),
        Item("b", media="film.mkv", start=100.0, end=200.0),
        Item("c", film="film"),
    ]
    of.Manifest("mine", Items.of(items)).save(tmp_path / "mine")
    cells, remarks = read_grid(tmp_path / "mine", worked())
    assert (cells.folder, cells.ids) == (tmp_path / "mine", ["a", "b", "c"])
    assert problems(remarks) == [("film", "has no span", "left out")]
    assert [labels.ids for labels in project(worked(), cells).label_sets] == [["a", "b"]] * 2
    # A film of a manifest has the id that importers give it.
    named = of.Timelines("t", [Segment("Kite_Wind", "one", 0, 60, "S")])
    kite = Item("k", film="Kite & Wind", media="Kite & Wind.mp4", start=0.0, end=60.0)
    [labels] = project(named, of.Manifest("kite", Items.of([kite]))).label_sets
    assert labels.level_of == {"k": "S"}


def test_films_missing_in_the_grid_are_named():
    pair = segments("one", FIRST) + segments("one", SECOND, "other")
    timelines = of.Timelines("two films", pair)
    cells, remarks = read_grid(grid([(0, 100)]), timelines)
    assert problems(remarks) == [("other", "has no spans in the grid", "left out")]
    assert project(timelines, cells).label_sets[0].ids == ["film-0"]


@pytest.mark.parametrize(("cells", "fact"), [
    ("0", "the clips of a grid of 0 s are too short"),
    ("0.00001", "the clips of a grid of 1e-05 s are too short"),
    ("-60", "-60 is not a grid"),
    (grid(film="FILM"), "no clips with spans of any film .*It has FILM; the timelines have film"),
])  # fmt: skip
def test_invalid_grids_are_refused_in_one_line(cells, fact):
    with pytest.raises((AnnotationError, UsageError), match=fact):
        read_grid(cells, worked())


def test_timelines_without_segments_have_no_grid():
    with pytest.raises(AnnotationError, match="have no segments"):
        read_grid("60", of.Timelines("empty", []))
