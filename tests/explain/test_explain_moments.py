"""From frame probabilities to moments and their scores, against walks over milliseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_models as om
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Item, Items

# The means of models, shares and files behind the command, of frames drawn here.
from obygaze_models.explain.moments import average_frames, moment_shares
from tests.kit.floats import close

NAN = float("nan")


def predict(clips, threshold=0.5, seen=None):
    """Frame predictions of clips: id -> (times, probabilities), of any number of frames each."""
    size = max(len(times) for times, _ in clips.values())
    table = np.full((2, len(clips), size), np.nan)
    for row, columns in enumerate(clips.values()):
        for part, values in zip(table, columns, strict=True):
            part[row, : len(values)] = values
    return om.FramePredictions(
        about=om.About(),
        ids=list(clips),
        times=table[0],
        probabilities=table[1],
        threshold=np.full(len(clips), threshold),
        seen=seen or ["no"] * len(clips),
        warnings=[],
        loudness=np.full_like(table[0], np.nan),
    )


def find(clips, items, *, seen=None, **options):
    frames = om.frame_table(predict(clips, seen=seen), items)
    return om.find_moments(frames, **{"min_length": 0, "close_gaps": 0} | options)


def spans(moments):
    return list(zip(moments["start"], moments["end"], strict=True))


def in_film(*rows, film="f"):
    return Items.of([Item(name, film=film, start=start, end=end) for name, start, end in rows])


FILM = Items.of([Item("a", film="film", media="film.mkv", start=10.0, end=20.0)])


def test_frames_of_one_time_are_averaged_and_overlapping_clips_join():
    moments = find({"a": ([12, 12, 12], [0.9, 0.8, 0.1])}, FILM)
    assert spans(moments) == [(10, 20)]
    assert moments["score"].tolist() == [close(0.6)]
    clips = {"a": ([2], [0.8]), "b": ([4], [0.4])}
    items = in_film(("a", 0.0, 4.0), ("b", 2.0, 6.0))
    [moment] = find(clips, items, threshold=0.55, seen=["no", "clip"]).to_dict("records")
    assert (moment["start"], moment["end"], moment["clips"]) == (0, 4, "a|b")
    assert moment["seen_in_training"] == "clip"
    assert moment["score"] == close((4 * 0.8 + 2 * 0.4) / 6)
    frames = om.frame_table(predict(clips), items)
    moments = om.find_moments(frames, threshold=0.55)
    [covered] = moment_shares(frames, moments, 0.55)["covered"]
    assert covered == close(4 / 6)


def test_a_clip_without_a_position_has_its_own_axis():
    """Its ends are unknown, so the outer frames extend equally far in both directions, from 0."""
    items = Items.of([Item("a", film="film"), Item("b", film="film")])
    lone = ([0.25], [0.9])
    moments = find({"a": ([1, 3, 5], [0.2, 0.9, 0.9]), "b": lone}, items)
    assert spans(moments) == [(2, 6), (0, 0.75)]
    assert moments["clips"].tolist() == ["a", "b"]
    assert moments["time_in"].tolist() == ["clip", "clip"]
    # With more than two classes, the last class is used.
    three = np.array([[[0.1, 0.2, 0.7]]])
    frames = replace(predict({"a": ([12], [0.9])}), probabilities=three)
    assert om.frame_table(frames, FILM)["probability"].tolist() == [0.7]


def test_a_file_of_a_whole_film_starts_at_zero():
    lone = Item("a", media="a.mp4")
    one_of_two = Item("a", film="f", media="a.mp4")
    other = Item("b", film="f", media="b.mp4")
    clip = {"a": ([1, 3], [0.9, 0.1])}
    for items, film, time_in in (
        ([lone, other], "a", "film"),
        ([one_of_two], "f", "film"),
        ([one_of_two, other], "f", "clip"),
    ):
        [moment] = find(clip, Items.of(items)).to_dict("records")
        assert (moment["film"], moment["time_in"]) == (film, time_in)
        assert (moment["start"], moment["end"]) == (0, 2)


def test_shares_count_moments_and_the_frames_that_reach_the_threshold():
    """The film's median is 0.1, so frames of 0.4 close a gap: half of the way is 0.3."""
    values = [0.1] * 30
    values[8:13] = [0.9, 0.4, 0.4, 0.4, 0.9]
    clips = {"a": (np.arange(30) + 0.5, values)}
    items = in_film(("a", 0.0, 30.0))
    moments = find(clips, items, close_gaps=5)
    [shares] = moment_shares(om.frame_table(predict(clips), items), moments).to_dict("records")
    assert shares.pop("film") == "f"
    expected = [1, 5 / 30, 2 / 30, 0.5]
    assert list(shares.values()) == close(expected)


def test_each_clip_has_the_threshold_of_its_own_models():
    """Models that used film f for validation chose their thresholds on its labels."""
    items = Items.of([Item(film, film=film, start=0.0, end=4.0) for film in "fg"])
    of_f = predict({"f": ([1, 3], [0.1, 0.3])}, threshold=0.2)
    clip = {"g": ([1, 3], [0.3, 0.7])}
    of_g = [predict(clip, threshold=0.6, seen=["film"]), predict(clip)]
    averaged = average_frames([of_f, *of_g])
    assert averaged.threshold == close([0.2, 0.55])
    assert averaged.seen == ["no", "film"]
    frames = om.frame_table(averaged, items)
    moments = om.find_moments(frames, min_length=0)
    assert moments["film"].tolist() == ["f", "g"]
    assert spans(moments) == [(2, 4), (2, 4)]


VALUE = st.sampled_from([0.1, 0.4, 0.6, 0.9])
FRAMES = st.lists(st.tuples(st.integers(0, 99), VALUE), min_size=1)
CLIP = st.tuples(st.integers(0, 3), st.integers(1, 12), FRAMES)
CLIPS = st.lists(CLIP, min_size=1, max_size=4)


@given(CLIPS, st.integers(0, 40), st.integers(0, 40))
def test_moments_equal_a_walk_in_steps_of_5_ms(clips, shortest, gap):
    """The walk knows each step's frame, and closes a gap by the frames of its steps."""
    rows = []
    frames = {}
    walk = {}
    heights = []
    lengths = []
    start = 0
    for number, (pause, length, drawn) in enumerate(clips):
        name = f"clip{number}"
        start += pause
        value_at = {time % (10 * length): value for time, value in drawn}
        times = [10 * start + time for time in sorted(value_at)]  # in tenths
        values = [value for _, value in sorted(value_at.items())]
        rows.append((name, float(start), float(start + length)))
        frames[name] = ([time / 10 for time in times], values)
        own = {}
        for step in range(200 * start, 200 * (start + length)):
            middle = step / 20 + 0.025  # in tenths, too
            away = [abs(time - middle) for time in times]
            near = away.index(min(away))
            walk[step] = values[near]
            own.setdefault(near, []).append(step)
        heights += [values[near] for near in own]
        lengths += map(len, own.values())
        start += length
    middle = (np.median(heights) + 0.5) / 2
    frame = np.median(lengths)
    expected = []
    for step in sorted(step for step, value in walk.items() if value >= 0.5):
        between = range(expected[-1][1], step) if expected else None
        joins = between is not None and not between
        if between and all(s in walk for s in between):
            near = all(walk[s] >= middle for s in between)
            size = len(between)
            joins = size < frame or (near and size < 20 * gap)
        if joins:
            expected[-1][1] = step + 1
        else:
            expected.append([step, step + 1])
    steps = np.reshape(expected, (-1, 2))
    kept = steps[np.ptp(steps, axis=1) >= 20 * shortest]
    moments = find(frames, in_film(*rows), min_length=shortest / 10, close_gaps=gap / 10)
    found = np.reshape(spans(moments), (-1, 2))
    assert found == close(kept / 200)
    for (low, high), score in zip(spans(moments), moments["score"], strict=True):
        inside = [value for step, value in walk.items() if low <= step / 200 < high]
        assert score == close(np.mean(inside))


AB = [Item(name, film="f", media=f"{name}.mkv", start=0.0, end=4.0) for name in "ab"]
TWO_FILES = Items.of(AB)
SLIPS = [
    (TWO_FILES, {"a": ([2], [0.8]), "b": ([2], [0.4])}, r"film f: .* files, .*\(a.mkv, b.mkv\)"),
    (FILM, {"a": ([12, 14], [NAN, NAN])}, "no frame of 1 clip has"),
    (FILM, {"a": ([1, 2], [0.5, 0.5])}, r"clip a: the frames \(at 1 to 2 s\) are outside"),
]


@pytest.mark.parametrize(("items", "clips", "message"), SLIPS)
def test_frames_without_a_place_are_refused(items, clips, message):
    with pytest.raises(ExperimentError, match=message):
        find(clips, items)


def test_a_threshold_is_a_probability():
    with pytest.raises(UsageError, match=r"got 1[.]1"):
        find({"a": ([12], [0.9])}, FILM, threshold=1.1)
