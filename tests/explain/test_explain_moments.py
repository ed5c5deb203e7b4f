"""From frame probabilities to intervals, against a plain walk over milliseconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features import Timelines
from obygaze_features.annotations import Segment
from obygaze_features.errors import ExperimentError, ManifestError, UsageError
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level, Manifest
from obygaze_models.explain.frame_scores import Axis
from obygaze_models.explain.moment_figure import moment_figure
from obygaze_models.explain.moments import Moments, find_moments
from obygaze_models.exports import moment_files
from obygaze_models.inference import FramePredictions, average_frames


def predicted(clips, threshold=0.5, seen=None):
    """Frame predictions of clips: id -> (times, probabilities), of any number of frames each."""
    size = max(len(times) for times, _ in clips.values())
    table = np.full((2, len(clips), size), np.nan)
    for row, columns in enumerate(clips.values()):
        for part, values in zip(table, columns, strict=True):
            part[row, : len(values)] = values
    about = {"estimator": "frame-mil", "task": "EN vs S"}
    seen = seen or ["no"] * len(clips)
    return FramePredictions(about, list(clips), *table, threshold, seen, [])


def spans_of(moments):
    return [(moment.start, moment.end) for moment in moments.moments]


FILM = Items.of([Item("a", film="film", media="film.mkv", start=10.0, end=20.0)])


def test_a_frame_stands_for_the_stretch_halfway_to_its_neighbours():
    frames = predicted({"a": ([12, 14, 18], [0.9, 0.1, 0.7])})
    moments = find_moments(frames, FILM, min_length=0, close_gaps=0)
    assert spans_of(moments) == [(10, 13), (16, 20)]
    assert [moment.score for moment in moments.moments] == [0.9, 0.7]
    assert [moment.clips for moment in moments.moments] == [("a",), ("a",)]


def test_a_clip_without_a_position_has_an_axis_of_its_own():
    """Its ends are unknown: the outer frames reach as far out as in."""
    items = Items.of([Item("a", film="film"), Item("b", film="film")])
    frames = predicted({"a": ([1, 3, 5], [0.2, 0.9, 0.9]), "b": ([1], [0.9])})
    moments = find_moments(frames, items, min_length=0)
    assert [(m.axis, m.start, m.end) for m in moments.moments] == [
        (Axis("film", "a"), 2, 6),
        (Axis("film", "b"), 0.5, 1.5),
    ]


def test_a_manifest_says_where_files_are_in_their_film():
    items = Items.of([Item("a", media="a.mp4")])
    frames = predicted({"a": ([1, 3], [0.2, 0.9])})
    moments = find_moments(frames, items, manifest=Manifest("m", FILM), min_length=0)
    assert [(m.axis, m.start, m.end) for m in moments.moments] == [(Axis("film"), 12, 20)]


def test_where_clips_overlap_their_mean_counts():
    items = Items.of(
        [Item(name, film="f", start=start, end=start + 4.0) for name, start in (("a", 0), ("b", 2))]
    )
    frames = predicted({"a": ([2], [0.8]), "b": ([4], [0.4])}, seen=["no", "yes"])
    moments = find_moments(frames, items, threshold=0.55, min_length=0)
    [moment] = moments.moments
    assert (moment.start, moment.end, moment.clips, moment.seen) == (0, 4, ("a", "b"), "yes")
    assert moment.score == pytest.approx((0.8 + 0.6) / 2)


def test_gaps_that_no_clip_shows_stay_open():
    items = Items.of(
        [Item(name, film="f", start=start, end=start + 4.0) for name, start in (("a", 0), ("b", 5))]
    )
    frames = predicted({"a": ([2], [0.8]), "b": ([7], [0.8])})
    assert spans_of(find_moments(frames, items, close_gaps=60)) == [(0, 4), (5, 9)]


@pytest.mark.parametrize(("length", "joined"), [(20, False), (30, False), (31, True), (600, True)])
def test_gaps_that_are_closed_depend_on_the_length(length, joined):
    """Two frames of a second, three seconds apart: a tenth of a clip of 31 s is more."""
    items = Items.of([Item("a", film="f", start=0.0, end=float(length))])
    times = np.arange(length) + 0.5
    values = [0.9 if second in (8, 12) else 0.1 for second in range(length)]
    frames = predicted({"a": (times, values)})
    spans = [(8, 13)] if joined else [(8, 9), (12, 13)]
    assert spans_of(find_moments(frames, items, min_length=0)) == spans
    assert spans_of(find_moments(frames, items, min_length=0, close_gaps=5)) == [(8, 13)]


def test_each_clip_has_the_threshold_of_its_own_models():
    """Models that were stopped by film f chose their thresholds on its labels."""
    items = Items.of([Item(film, film=film, start=0.0, end=4.0) for film in "fg"])
    averaged = average_frames(
        [
            predicted({"f": ([1, 3], [0.1, 0.3])}, threshold=0.2),
            predicted({"g": ([1, 3], [0.3, 0.7])}, threshold=0.6),
            predicted({"g": ([1, 3], [0.3, 0.7])}, threshold=0.5),
        ]
    )
    np.testing.assert_allclose(averaged.threshold, [0.2, 0.55])
    moments = find_moments(averaged, items, min_length=0)
    spans = [(m.axis.film, m.start, m.end) for m in moments.moments]
    assert spans == [("f", 2, 4), ("g", 2, 4)]
    assert moments.threshold == pytest.approx(0.375)
    assert len(find_moments(averaged, items, threshold=0.3, min_length=0).moments) == 2


def test_frames_at_the_same_time_count_as_their_mean():
    same = predicted({"a": ([12, 12, 12], [0.9, 0.8, 0.1])})
    [moment] = find_moments(same, FILM).moments
    assert (moment.start, moment.end, moment.score) == (10, 20, pytest.approx(0.6))
    twice = predicted({"a": ([12, 12, 16], [0.2, 0.4, 0.9])})
    assert spans_of(find_moments(twice, FILM)) == [(14, 20)]


def test_elan_files_link_the_media_of_the_film():
    items = Items.of([Item("a", media="a.mp4")])
    frames = predicted({"a": ([1, 3], [0.9, 0.9])})
    [text] = moment_files(find_moments(frames, items, manifest=Manifest("m", FILM))).values()
    assert "film.mkv" in text
    assert "a.mp4" not in text


def test_a_film_without_a_name_has_its_labels(tmp_path):
    items = Items.of([Item("a", media="film.mkv", start=10.0, end=20.0)])
    scheme = LabelScheme("levels", (Level("EN", "Easy Negative"), Level("S", "Sure")))
    labels = LabelSet("all", ["a"], ["S"], [()])
    manifest = Manifest(name="m", items=items, scheme=scheme).with_parts(labels=[labels])
    moments = find_moments(predicted({"a": ([12, 14], [0.9, 0.9])}), items, manifest=manifest)
    figure = moment_figure(moments, manifest=manifest)
    assert "Sure" in [text.get_text() for text in figure.legends[0].texts]


def test_other_films_and_clips_are_refused():
    moments = find_moments(predicted({"a": ([12, 14], [0.9, 0.9])}), FILM)
    timelines = Timelines.of("mine", [Segment("other", "ann", 0, 1, "S")])
    with pytest.raises(UsageError, match=r"mine have no film 'film' \(they have other\)"):
        moment_figure(moments, timelines=timelines)
    other = Manifest("m", Items.of([Item("b", film="film", start=0.0, end=1.0)]))
    with pytest.raises(ExperimentError, match=r"m has none of these 1 clip.* such as b, .* a\)"):
        find_moments(predicted({"a": ([12], [0.9])}), FILM, manifest=other)


def test_two_files_of_a_film_are_refused():
    items = Items.of(
        [Item(name, film="f", media=f"{name}.mkv", start=0.0, end=4.0) for name in "ab"]
    )
    frames = predicted({"a": ([2], [0.8]), "b": ([2], [0.4])})
    with pytest.raises(ExperimentError, match=r"film f: .* two files \(a.mkv, b.mkv\)"):
        find_moments(frames, items)


def test_of_more_than_two_classes_the_last_counts():
    frames = predicted({"a": ([12], [0.9])})
    about = frames.about | {"classes": ["EN", "HN", "S"]}
    frames = replace(frames, about=about, probabilities=np.array([[[0.1, 0.2, 0.7]]]))
    moments = find_moments(frames, FILM)
    assert moments.title.endswith("probability of S")
    assert [moment.score for moment in moments.moments] == [0.7]


CLIPS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 12),
        st.lists(st.tuples(st.integers(0, 99), st.sampled_from([0.1, 0.4, 0.6, 0.9])), min_size=1),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=40)
@given(CLIPS, st.integers(0, 40), st.integers(0, 40))
def test_intervals_are_those_of_a_walk_in_steps_of_5_ms(clips, shortest, gap):
    items, given_frames, heard = [], {}, {}
    for number, (start, length, frames) in enumerate(clips):
        name = f"clip{number}"
        frames = sorted({time % (10 * length): value for time, value in frames}.items())
        times = [10 * start + time for time, _ in frames]  # in tenths
        items.append(Item(name, film="f", start=float(start), end=float(start + length)))
        given_frames[name] = ([time / 10 for time in times], [value for _, value in frames])
        for step in range(200 * start, 200 * (start + length)):
            middle = step / 20 + 0.025  # in tenths, too
            near = min(range(len(times)), key=lambda row: (abs(times[row] - middle), row))
            heard.setdefault(step, []).append(frames[near][1])
    means = {step: sum(values) / len(values) for step, values in heard.items()}
    reached = sorted(step for step, mean in means.items() if mean >= 0.5)
    expected = []
    for step in reached:
        if expected:
            between = range(expected[-1][1], step)
            if not between or (
                len(between) < 20 * gap and all(between_step in means for between_step in between)
            ):
                expected[-1][1] = step + 1
                continue
        expected.append([step, step + 1])
    expected = [(low / 200, high / 200) for low, high in expected if high - low >= 20 * shortest]
    moments = find_moments(
        predicted(given_frames), Items.of(items), min_length=shortest / 10, close_gaps=gap / 10
    )
    np.testing.assert_allclose(
        np.reshape(spans_of(moments), (-1, 2)), np.reshape(expected, (-1, 2))
    )
    for moment in moments.moments:
        steps = [s for s in means if moment.start <= s / 200 < moment.end]
        assert moment.score == pytest.approx(np.mean([means[step] for step in steps]))


def test_tables_are_read_as_they_were_written(tmp_path):
    items = Items.of([*FILM, Item("b", film="film")])
    clips = {"a": ([12, 14, 18], [0.9, 0.1, 0.7]), "b": ([1, 2], [0.2, 0.8])}
    moments = find_moments(predicted(clips, seen=["yes", "no"]), items, min_length=0, close_gaps=0)
    tables = tmp_path / "moments.csv", tmp_path / "frames.csv"
    for path, text in zip(tables, (moments.to_csv(), moments.frames.to_csv()), strict=True):
        path.write_text(text)
    again = Moments.from_csv(*tables)
    assert len(moments.moments) == 3
    assert again.moments == moments.moments
    assert (again.to_csv(), again.frames.to_csv()) == (moments.to_csv(), moments.frames.to_csv())


def test_numbers_are_written_exactly(tmp_path):
    """Saturated probabilities keep their order."""
    values = [1 - 1e-9, 1 - 2e-9, 1e-12]
    moments = find_moments(
        predicted({"a": ([11, 14, 18], values)}), FILM, min_length=0, close_gaps=0
    )
    tables = tmp_path / "moments.csv", tmp_path / "frames.csv"
    for path, text in zip(tables, (moments.to_csv(), moments.frames.to_csv()), strict=True):
        path.write_text(text)
    again = Moments.from_csv(*tables)
    assert again.frames.probabilities.tolist() == values
    assert again.moments == moments.moments


def test_tables_of_different_films_are_refused(tmp_path):
    frames, moments = tmp_path / "frames.csv", tmp_path / "moments.csv"
    moments.write_text("film,start,end,score\ng,0,1,0.5\n")
    frames.write_text("film,id,start,end,probability\nf,a,0,1,0.5\n")
    with pytest.raises(ManifestError, match=r"line 2: .*frames.csv has no frames of 'g'"):
        Moments.from_csv(moments, frames)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("f,a,0,1,2", r"line 3: probability is not a number from 0 to 1 \(got '2'\)"),
        ("f,a,0,1,nan", "line 3: probability"),
        ("f,a,x,1,0", r"line 3: start is not a number of seconds \(got 'x'\)"),
        ("f,a,2,1,0", "line 3: it ends before it starts"),
    ],
)
def test_a_wrong_cell_is_named(row, problem, tmp_path):
    frames, moments = tmp_path / "frames.csv", tmp_path / "moments.csv"
    moments.write_text("film,start,end,score\nf,0,1,0.5\n")
    frames.write_text(f"film,id,start,end,probability\nf,a,0,1,0.5\n{row}\n")
    with pytest.raises(ManifestError, match=problem):
        Moments.from_csv(moments, frames)


def test_frames_without_times_or_probabilities_are_refused():
    nothing = predicted({"a": ([12, 14], [np.nan, np.nan])})
    with pytest.raises(ExperimentError, match="none of the frames of 1 clip has a probability"):
        find_moments(nothing, FILM)
    with pytest.raises(ExperimentError, match="has a time"):
        find_moments(predicted({"a": ([np.nan], [0.5])}), FILM)
    with pytest.raises(ExperimentError, match=r"clip a: its frames \(at 1 to 2 s\) are outside"):
        find_moments(predicted({"a": ([1, 2], [0.5, 0.5])}), FILM)


@pytest.mark.parametrize(
    "options", [{"threshold": 1.1}, {"min_length": -1}, {"close_gaps": float("nan")}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(UsageError, match="got"):
        find_moments(predicted({"a": ([12], [0.9])}), FILM, **options)
