"""Moments judged by segments, against scikit-learn, a grid of milliseconds, and the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from obygaze_features import Timelines
from obygaze_features.annotations import Segment
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_models.explain.frame_scores import Axis, FrameScores
from obygaze_models.explain.moment_measures import (
    TIOUS,
    AnnotatedFilm,
    Guess,
    guess_random,
    read_guess,
)
from obygaze_models.explain.moment_scores import MEASURES, evaluate_moments
from obygaze_models.explain.moments import Moment, Moments
from obygaze_models.intervals import draw_films, percentile_interval


def made(frames, moments=()):
    """Moments of rows: film, start, end, and probability or score."""
    films, starts, ends, values = zip(*frames, strict=True)
    scores = FrameScores(
        [Axis(film) for film in films],
        [f"{film}-clip" for film in films],
        np.array(starts) * 1_000_000,
        np.array(ends) * 1_000_000,
        np.array(values),
        ["no"] * len(films),
    )
    return Moments([Moment(Axis(film), *rest) for film, *rest in moments], scores)


def marked(spans, annotator="ann", level="S"):
    return [Segment(film, annotator, start, end, level) for film, start, end in spans]


def scored(moments, segments, **options):
    [entry] = evaluate_moments(moments, Timelines.of("t", segments), **options).annotators
    return entry


SPANS = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=9), SPANS)
def test_frame_measures_equal_a_grid_of_milliseconds(values, spans):
    """Frames of a second, segments that start and end at any millisecond."""
    frames = [("f", row, row + 1, value / 5) for row, value in enumerate(values)]
    segments = [("f", start / 1000, (start + length) / 1000) for start, length in spans]
    entry = scored(made(frames), [*marked(segments), *marked([("f", 0, 20)], level="EN")])
    labels = np.zeros(20_000, int)
    for start, length in spans:
        labels[start : start + length] = 1
    labels = labels[: 1000 * len(values)]
    probabilities = np.repeat(values, 1000) / 5
    [film] = entry.films
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
    recalls = sorted({recall for recall, _ in points if recall > 0})
    total, last = 0.0, 0.0
    for recall in recalls:
        total += (recall - last) * max(p for reached, p in points if reached >= recall)
        last = recall
    return total


WHERE = st.tuples(st.sampled_from("fg"), st.integers(0, 40), st.integers(1, 12))


@pytest.mark.gate
@settings(deadline=None, max_examples=80)
@given(st.lists(WHERE, max_size=12), st.lists(WHERE, min_size=1, max_size=8), st.randoms())
def test_map_equals_the_definition(drawn_moments, spans, chance):
    scores = chance.sample(range(1000), len(drawn_moments))
    moments = [
        (film, start, start + length, score / 1000)
        for (film, start, length), score in zip(drawn_moments, scores, strict=True)
    ]
    segments = sorted((film, start, start + length) for film, start, length in spans)
    frames = [(film, 0, 60, 0.5) for film in "fg"]
    entry = scored(made(frames, moments), marked(segments), replicates=5)
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
    """A film that is drawn twice is there twice, under two names."""
    films = list(three_films())

    def measures(counts, **options):
        copies = [films[number] for number in np.repeat(range(3), counts)]
        tables = [
            [(f"film{copy}", *row) for copy, parts in enumerate(copies) for row in parts[table]]
            for table in range(3)
        ]
        return scored(made(*tables[:2]), marked(tables[2]), **options).scores

    drawn = draw_films(3, seed=0, replicates=15)
    copied = [measures(counts, replicates=1) for counts in drawn]
    for key, score in measures([1, 1, 1], replicates=15).items():
        expected = percentile_interval(np.array([scores[key].value for scores in copied]))
        assert score.interval == pytest.approx(expected), key


def test_two_films_are_too_few_for_an_interval():
    frames = [(film, 0, 10, 0.5) for film in "fg"]
    entry = scored(made(frames), marked([("f", 1, 2), ("g", 1, 2)]))
    assert [score.interval for score in entry.scores.values()] == [None] * len(MEASURES)


def test_what_scorers_get_that_know_nothing():
    """A constant: the share of positive time, and a moment that is all of a film."""
    frames = [("f", row, row + 1, row / 100) for row in range(100)]
    spans = [("f", 0, 40), ("f", 90, 100)]
    scores = scored(made(frames, [("f", 0, 40, 0.5)]), marked(spans)).scores
    assert scores["frame_average_precision"].constant == pytest.approx(0.5)
    assert scores["frame_auroc"].constant == pytest.approx(0.5)
    assert scores["frame_average_precision"].random == pytest.approx(0.5, abs=0.1)
    assert scores["frame_auroc"].random == pytest.approx(0.5, abs=0.1)
    assert (scores["map_0.3"].value, scores["map_0.3"].constant) == (0.5, 0.5)
    assert scores["map_0.5"].constant == 0
    assert 0 < scores["map_0.5"].random < 0.5


def test_segments_end_where_clips_end():
    """Only what clips show of a segment can be found; a moment of just that is a full hit."""
    frames = [("f", 0, 10, 0.9), ("f", 20, 30, 0.1), ("f", 30, 40, 0.9)]
    moments = made(frames, [("f", 0, 10, 0.9), ("f", 30, 40, 0.8)])
    entry = scored(moments, marked([("f", 0, 18), ("f", 30, 95)]))
    assert entry.scores["map_0.7"].value == 1
    [film] = entry.films
    assert (film.segments, film.outside, film.positive_seconds) == (2, 0, 20)
    assert scored(moments, marked([("f", 5, 25)])).films[0].segments == 2


def test_random_moments_are_where_clips_are():
    """A film of two stretches, 10 and 30 s: a moment of 5 s starts in each by its room."""
    frames = [("f", 0, 10, 0.9), ("f", 1000, 1030, 0.1)]
    moments = made(frames, [("f", 0, 5, 0.9)] * 2000)
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


def test_annotators_count_one_by_one():
    frames = [("f", 0, 5, 0.9), ("f", 5, 10, 0.1)]
    segments = marked([("f", 0, 5)], "ann") + marked([("f", 5, 10)], "ben")
    segments += marked([("f", 0, 10)], "eve", level="EN")
    result = evaluate_moments(made(frames), Timelines.of("t", segments))
    aurocs = {a.annotator: a.scores["frame_auroc"].value for a in result.annotators}
    assert aurocs == {"ann": 1, "ben": 0}
    assert result.notes == ["eve marked no Sure in these films: no scores"]
    levels = evaluate_moments(
        made(frames), Timelines.of("t", segments), positives=["Easy Negative"]
    )
    assert [entry.annotator for entry in levels.annotators] == ["eve"]


def test_what_is_left_out_is_said():
    frames = [("f", 0, 5, 0.9), ("f", 20, 25, 0.1), ("other", 0, 5, 0.5)]
    moments = made(frames)
    moments.frames.seen[0] = "yes"
    segments = marked([("f", 1, 4), ("f", 10, 15), ("third", 0, 1)])
    result = evaluate_moments(moments, Timelines.of("t", segments))
    assert result.notes == [
        "annotated films without frames left out: third",
        "films that nobody annotated left out: other",
        "1 of 2 clips were used to train the model: scores on these test nothing",
        "1 segment outside of the clips with frame probabilities left out",
    ]
    [film] = result.annotators[0].films
    assert (film.seconds, film.positive_seconds, film.segments, film.outside) == (10, 3, 1, 1)


def test_bad_input_is_one_line():
    moments = made([("tt0000001", 0, 5, 0.9)])
    elsewhere = Timelines.of("mine", marked([("tt0000002", 0, 1)]))
    with pytest.raises(
        ExperimentError, match=r"mine are of other films \(tt0000002\) than the frames"
    ):
        evaluate_moments(moments, elsewhere)
    none = Timelines.of("mine", marked([("tt0000001", 0, 1)], level="EN"))
    with pytest.raises(ExperimentError, match="no segment of Sure in these films; choose among"):
        evaluate_moments(moments, none)
    with pytest.raises(ManifestError, match="unknown label 'Suer'"):
        evaluate_moments(moments, none, positives=["Suer"])
    within = FrameScores([Axis("f", "a")], ["a"], np.array([0]), np.array([9]), np.ones(1), [""])
    with pytest.raises(ExperimentError, match="times within their clips"):
        evaluate_moments(Moments([], within), none)
