"""Moments judged by segments, against scikit-learn, a grid of milliseconds, and the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

import obygaze_models as om
from obygaze_features import Timelines
from obygaze_features.annotations import Segment
from obygaze_features.errors import ExperimentError
from obygaze_models.explain.frame_scores import Axis, FrameScores
from obygaze_models.explain.moment_scores import (
    TIOUS,
    AnnotatedFilm,
    Guess,
    guess_random,
    read_guess,
)
from obygaze_models.explain.moments import Moment, moment_figure
from obygaze_models.scoring.intervals import draw_films, percentile_interval


def make_moments(frames, moments=()):
    films, starts, ends, values = zip(*frames, strict=True)
    times = [np.array(edges) * 1_000_000 for edges in (starts, ends)]
    names, seen = [f"{film}-clip" for film in films], ["no"] * len(films)
    scores = FrameScores([Axis(film) for film in films], names, *times, np.array(values), seen)
    return om.Moments([Moment(Axis(film), *rest) for film, *rest in moments], scores)


def mark(spans, annotator="ann", level="S"):
    return [Segment(film, annotator, start, end, level) for film, start, end in spans]


def evaluate(moments, segments, **options):
    return om.evaluate_moments(moments, Timelines.of("mine", segments), **options)


def score(moments, segments, **options):
    [entry] = evaluate(moments, segments, **options).annotators
    return entry


SPANS = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), min_size=1, max_size=5)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=9), SPANS)
def test_frame_measures_equal_a_grid_of_milliseconds(values, spans):
    """Frames of a second, segments that start and end at any millisecond."""
    frames = [("f", row, row + 1, value / 5) for row, value in enumerate(values)]
    segments = [("f", start / 1000, (start + length) / 1000) for start, length in spans]
    moments, rest = make_moments(frames), mark([("f", 0, 20)], level="EN")
    [film] = score(moments, [*mark(segments), *rest], replicates=5).films
    labels = np.zeros(20_000, int)
    for start, length in spans:
        labels[start : start + length] = 1
    labels = labels[: 1000 * len(values)]
    probabilities = np.repeat(values, 1000) / 5
    assert film.positive_seconds == pytest.approx(labels.sum() / 1000)
    if labels.any():
        expected = average_precision_score(labels, probabilities)
        assert film.scores["frame_average_precision"] == pytest.approx(expected)
    if 0 < labels.sum() < len(labels):
        assert film.scores["frame_auroc"] == pytest.approx(roc_auc_score(labels, probabilities))


def average_precision_by_definition(moments, segments, tiou):
    """As ActivityNet's evaluation reads, a moment at a time: greedy, then interpolated."""

    def overlap(moment, segment):
        inside = min(moment[2], segment[2]) - max(moment[1], segment[1])
        outside = max(moment[2], segment[2]) - min(moment[1], segment[1])
        return max(0, inside) / (outside if inside > 0 else 1)

    free, right, points = set(range(len(segments))), 0, []
    for rank, moment in enumerate(sorted(moments, key=lambda moment: -moment[3]), start=1):
        near = sorted(
            (overlap(moment, segments[number]), number)
            for number in free
            if segments[number][0] == moment[0]
        )
        if near and near[-1][0] >= tiou:
            free.remove(near[-1][1])
            right += 1
        points.append((right / len(segments), right / rank))
    total, last = 0.0, 0.0
    for recall in sorted({recall for recall, _ in points if recall > 0}):
        total += (recall - last) * max(p for reached, p in points if reached >= recall)
        last = recall
    return total


WHERE = st.tuples(st.sampled_from("fg"), st.integers(0, 40), st.integers(1, 12))


@given(st.lists(WHERE, max_size=12), st.lists(WHERE, min_size=1, max_size=8), st.randoms())
def test_map_equals_the_definition(drawn, spans, chance):
    values = chance.sample(range(1000), len(drawn))
    moments = [
        (film, start, start + length, value / 1000)
        for (film, start, length), value in zip(drawn, values, strict=True)
    ]
    segments = sorted((film, start, start + length) for film, start, length in spans)
    frames = [(film, 0, 60, 0.5) for film in "fg"]
    entry = score(make_moments(frames, moments), mark(segments), replicates=5)
    films = {film for film, _, _ in segments}
    moments = [moment for moment in moments if moment[0] in films]
    for tiou in TIOUS:
        expected = average_precision_by_definition(moments, segments, tiou)
        assert entry.scores[f"map_{tiou}"].value == pytest.approx(expected), tiou


def three_films():
    """For each of three films ten-second frames, moments at some of them, and segments."""
    chance = np.random.default_rng(3)
    for segments in (2, 4, 7):
        frames = [(10 * row, 10 * row + 10, float(chance.random())) for row in range(9)]
        moments = [(start, end - 1, value) for start, end, value in frames if value > 0.3]
        starts = chance.integers(0, 60, segments).tolist()
        yield frames, moments, [(start, start + 10) for start in starts]


def test_intervals_are_those_of_copies_of_the_drawn_films():
    """A film that is drawn twice is there twice, under two names; four films are too few."""
    films = list(three_films())

    def measure(counts, replicates):
        copies = [films[number % 3] for number in np.repeat(range(5), counts)]
        frames, moments, spans = (
            [(f"film{copy}", *row) for copy, parts in enumerate(copies) for row in parts[table]]
            for table in range(3)
        )
        return score(make_moments(frames, moments), mark(spans), replicates=replicates).scores

    drawn = draw_films(5, seed=0, replicates=8)
    copied = [measure(counts, 1) for counts in drawn]
    for key, found in measure([1] * 5, 8).items():
        expected = percentile_interval(np.array([scores[key].value for scores in copied]))
        assert found.interval == pytest.approx(expected), key
    assert {found.interval for found in measure([1, 1, 1, 1, 0], 8).values()} == {None}


def test_what_scorers_get_that_know_nothing():
    """A constant: the share of positive time, and a moment that is all of a film."""
    frames = [("f", row, row + 1, row / 100) for row in range(100)]
    moments = make_moments(frames, [("f", 0, 40, 0.5)])
    scores = score(moments, mark([("f", 0, 40), ("f", 90, 100)])).scores
    for name in ("frame_average_precision", "frame_auroc"):
        assert scores[name].constant == pytest.approx(0.5)
        assert scores[name].random == pytest.approx(0.5, abs=0.1)
    assert (scores["map_0.3"].value, scores["map_0.3"].constant) == (0.5, 0.5)
    assert scores["map_0.5"].constant == 0
    assert 0 < scores["map_0.5"].random < 0.5


def test_segments_end_where_clips_end():
    """Only what clips show of a segment can be found; a moment of just that is a full hit."""
    frames = [("f", 0, 10, 0.9), ("f", 20, 30, 0.1), ("f", 30, 40, 0.9)]
    moments = make_moments(frames, [("f", 0, 10, 0.9), ("f", 30, 40, 0.8)])
    entry = score(moments, mark([("f", 0, 18), ("f", 30, 95)]))
    assert entry.scores["map_0.7"].value == 1
    [film] = entry.films
    assert (film.segments, film.outside, film.positive_seconds) == (2, 0, 20)
    assert score(moments, mark([("f", 5, 25)])).films[0].segments == 2


def test_random_moments_are_where_clips_are():
    """A film of two stretches, 10 and 30 s: a moment of 5 s starts in each by its room."""
    frames = [("f", 0, 10, 0.9), ("f", 1000, 1030, 0.1)]
    moments = make_moments(frames, [("f", 0, 5, 0.9)] * 2000)
    film = AnnotatedFilm("f", moments.frames.by_axis[Axis("f")], [(0, 5)])
    guess = guess_random(film, read_guess(film, moments), np.random.default_rng(0))
    starts, ends = np.array(guess.moments).T / 1e6
    np.testing.assert_allclose(ends - starts, 5)
    first = (starts >= 0) & (ends <= 10)
    assert (first | ((starts >= 1000) & (ends <= 1030))).all()
    assert first.mean() == pytest.approx(5 / 30, abs=0.03)
    assert (starts[first].max(), starts.max()) == pytest.approx((5, 1025), abs=0.1)
    long = guess_random(film, Guess(film, [(0, 90_000_000)], np.ones(1)), np.random.default_rng(0))
    assert long.moments == [(1_000_000_000, 1_030_000_000)]


def test_annotators_count_one_by_one_and_notes_say_the_rest():
    moments = make_moments([("f", 0, 5, 0.9), ("f", 5, 10, 0.1)])
    segments = mark([("f", 0, 5)], "ann") + mark([("f", 5, 10)], "ben")
    segments += mark([("f", 0, 10)], "eve", level="EN")
    result = evaluate(moments, segments)
    aurocs = {a.annotator: a.scores["frame_auroc"].value for a in result.annotators}
    assert aurocs == {"ann": 1, "ben": 0}
    assert result.notes[1:] == ["eve marked no Sure in these films: no scores"]
    for fact in ("only segments of Sure", "of EN, HN, NS, S", "--positives"):
        assert fact in result.notes[0]
    levels = evaluate(moments, segments, positives=["Easy Negative"])
    assert [entry.annotator for entry in levels.annotators] == ["eve"]
    assert "only" not in levels.notes[0]
    kite = make_moments([("Kite & Wind", 0, 5, 0.9), ("Kite & Wind", 5, 10, 0.1)])
    assert score(kite, mark([("Kite_Wind", 0, 5)])).scores["frame_auroc"].value == 1
    drawn = moment_figure(kite, timelines=Timelines.of("two", mark([("Kite_Wind", 0, 5)])))
    assert "ann" in [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    moments = make_moments([("f", 0, 5, 0.9), ("f", 20, 25, 0.1), ("other", 0, 5, 0.5)])
    moments.frames.seen[::2] = "yes", ""  # unknown
    result = evaluate(moments, mark([("f", 1, 4), ("f", 10, 15), ("third", 0, 1)]))
    facts = ("left out: third", "left out: other", "1 of 2 clips were used", "of Sure", "1 segment")
    for note, fact in zip(result.notes, facts, strict=True):
        assert fact in note
    [film] = result.annotators[0].films
    assert (film.seconds, film.positive_seconds, film.segments, film.outside) == (10, 3, 1, 1)


def test_bad_input_is_one_line():
    moments = make_moments([("tt0000001", 0, 5, 0.9)])
    elsewhere, none = mark([("tt0000002", 0, 1)]), mark([("tt0000001", 0, 1)], level="EN")
    within = FrameScores([Axis("f", "a")], ["a"], np.array([0]), np.array([9]), np.ones(1), [""])
    for found, segments, message in (
        (moments, elsewhere, r"mine are of other films \(tt0000002\) than"),
        (moments, none, "no segment of Sure in these films; choose among"),
        (om.Moments([], within), none, "times within their clips"),
    ):
        with pytest.raises(ExperimentError, match=message):
            evaluate(found, segments)
