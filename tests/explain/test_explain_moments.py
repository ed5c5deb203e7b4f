"""From frame probabilities to moments and their scores, against walks over milliseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_models as om
from obygaze_features.errors import ExperimentError, ManifestError, UsageError
from obygaze_features.manifests import Item, Items, Manifest, obygaze_scheme
from obygaze_models.data.tasks import make_task
from obygaze_models.experiments.export import moment_files
from obygaze_models.explain.frame_scores import Axis, average_frames
from tests.kit.files import write
from tests.kit.floats import close

NAN = float("nan")


def predict(clips, threshold=0.5, seen=None):
    """Frame predictions of clips: id -> (times, probabilities), of any number of frames each."""
    size = max(len(times) for times, _ in clips.values())
    table = np.full((2, len(clips), size), np.nan)
    for row, columns in enumerate(clips.values()):
        for part, values in zip(table, columns, strict=True):
            part[row, : len(values)] = values
    task = make_task(obygaze_scheme(), positives=["S"], negatives=["EN"])
    about = om.About(estimator="frame-mil", task=task)
    seen = seen or ["no"] * len(clips)
    return om.FramePredictions(about, list(clips), *table, threshold, seen, [])


def find(clips, items, *, threshold=None, min_length=0, close_gaps=0, manifest=None, seen=None):
    options = {"min_length": min_length, "close_gaps": close_gaps, "manifest": manifest}
    predictions = predict(clips, seen=seen)
    return om.find_moments(predictions, items, threshold=threshold, **options)


def spans(moments):
    return [(moment.start, moment.end) for moment in moments.moments]


def in_film(*rows, film="f"):
    return Items.of([Item(name, film=film, start=start, end=end) for name, start, end in rows])


FILM = Items.of([Item("a", film="film", media="film.mkv", start=10.0, end=20.0)])
OWN_FILES = Items.of([Item("a", media="a.mp4")])


def test_overlapping_frames_and_clips_are_averaged():
    [moment] = find({"a": ([12, 12, 12], [0.9, 0.8, 0.1])}, FILM).moments
    assert (moment.start, moment.end, moment.score) == (10, 20, close(0.6))
    clips = {"a": ([2], [0.8]), "b": ([4], [0.4])}
    items = in_film(("a", 0.0, 4.0), ("b", 2.0, 6.0))
    [moment] = find(clips, items, threshold=0.55, seen=["no", "clip"]).moments
    assert (moment.start, moment.end, moment.clips, moment.seen) == (0, 4, ("a", "b"), "clip")


def test_a_clip_without_a_position_has_its_own_axis():
    """Its ends are unknown, so the outer frames extend equally far in both directions."""
    items = Items.of([Item("a", film="film"), Item("b", film="film")])
    moments = find({"a": ([1, 3, 5], [0.2, 0.9, 0.9]), "b": ([1], [0.9])}, items)
    assert [(m.axis, m.start, m.end) for m in moments.moments] == [
        (Axis("film", "a"), 2, 6),
        (Axis("film", "b"), 0.5, 1.5),
    ]
    # With more than two classes, the last class is used.
    frames = predict({"a": ([12], [0.9])})
    about = om.About(task=make_task(obygaze_scheme(), levels=["EN", "HN", "S"]))
    frames = replace(frames, about=about, probabilities=np.array([[[0.1, 0.2, 0.7]]]))
    moments = om.find_moments(frames, FILM)
    assert moments.title.endswith("probability of S")
    assert [moment.score for moment in moments.moments] == [0.7]


def test_a_document_is_named_after_the_media_file():
    predictions = predict({"a": ([12], [0.9])})
    moments = om.find_moments(predictions, FILM)
    early = replace(predictions, times=predictions.times - 10)
    placed = om.find_moments(early, OWN_FILES, manifest=Manifest("m", FILM))
    assert list(moment_files(moments)) == list(moment_files(placed)) == ["film.eaf"]


def test_a_manifest_places_files_in_their_film():
    clips, manifest = {"a": ([1, 3], [0.2, 0.9])}, Manifest("m", FILM)
    moments = find(clips, OWN_FILES, manifest=manifest)
    assert [(m.axis, m.start, m.end) for m in moments.moments] == [(Axis("film"), 12, 20)]
    [text] = moment_files(moments).values()
    assert "film.mkv" in text
    assert "a.mp4" not in text


def test_a_file_of_a_whole_film_starts_at_zero():
    clips, item = {"a": ([1, 3], [0.9, 0.1])}, Item("b", film="f", media="b.mp4")
    lone, one_of_two = (Item("a", film=film, media="a.mp4") for film in ("", "f"))
    for items, manifest, axis in (
        (Items.of([lone, item]), None, Axis("a")),
        (Items.of([one_of_two]), None, Axis("f")),
        (OWN_FILES, Manifest("m", Items.of([one_of_two])), Axis("f")),
        (OWN_FILES, Manifest("m", Items.of([one_of_two, item])), Axis("f", "a")),
    ):
        [moment] = find(clips, items, manifest=manifest).moments
        assert (moment.axis, moment.start, moment.end) == (axis, 0, 2)


@pytest.mark.parametrize(("length", "joined"), [(30, False), (31, True)])
def test_closed_gaps_depend_on_the_length(length, joined):
    values = [0.9 if second in (8, 12) else 0.1 for second in range(length)]
    clips, items = {"a": (np.arange(length) + 0.5, values)}, in_film(("a", 0.0, float(length)))
    expected = [(8, 13)] if joined else [(8, 9), (12, 13)]
    assert spans(find(clips, items, close_gaps=None)) == expected
    assert spans(find(clips, items, close_gaps=5)) == [(8, 13)]


def test_each_clip_has_the_threshold_of_its_own_models():
    """Models that used film f for validation chose their thresholds on its labels."""
    items = Items.of([Item(film, film=film, start=0.0, end=4.0) for film in "fg"])
    averaged = average_frames(
        [
            predict({"f": ([1, 3], [0.1, 0.3])}, threshold=0.2),
            predict({"g": ([1, 3], [0.3, 0.7])}, threshold=0.6, seen=["film"]),
            predict({"g": ([1, 3], [0.3, 0.7])}, threshold=0.5),
        ]
    )
    assert averaged.threshold == close([0.2, 0.55])
    assert averaged.seen == ["no", "film"]
    moments = om.find_moments(averaged, items, min_length=0)
    spans = [(m.axis.film, m.start, m.end) for m in moments.moments]
    assert spans == [("f", 2, 4), ("g", 2, 4)]
    assert moments.threshold == close(0.375)
    assert len(om.find_moments(averaged, items, threshold=0.3, min_length=0).moments) == 2


VALUE = st.sampled_from([0.1, 0.4, 0.6, 0.9])
FRAMES = st.lists(st.tuples(st.integers(0, 99), VALUE), min_size=1)
CLIPS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), FRAMES), min_size=1, max_size=4)


@given(CLIPS, st.integers(0, 40), st.integers(0, 40))
def test_moments_equal_a_walk_in_steps_of_5_ms(clips, shortest, gap):
    rows, frames, truth = [], {}, {}
    for number, (start, length, drawn) in enumerate(clips):
        name = f"clip{number}"
        drawn = sorted({time % (10 * length): value for time, value in drawn}.items())
        times = [10 * start + time for time, _ in drawn]  # in tenths
        rows.append((name, float(start), float(start + length)))
        frames[name] = ([time / 10 for time in times], [value for _, value in drawn])
        for step in range(200 * start, 200 * (start + length)):
            middle = step / 20 + 0.025  # in tenths, too
            near = min(range(len(times)), key=lambda row: (abs(times[row] - middle), row))
            truth.setdefault(step, []).append(drawn[near][1])
    means = {step: sum(values) / len(values) for step, values in truth.items()}
    expected = []
    for step in sorted(step for step, mean in means.items() if mean >= 0.5):
        between = range(expected[-1][1], step) if expected else None
        short = between is not None and len(between) < 20 * gap
        if between is not None and (not between or (short and all(s in means for s in between))):
            expected[-1][1] = step + 1
        else:
            expected.append([step, step + 1])
    expected = [(low / 200, high / 200) for low, high in expected if high - low >= 20 * shortest]
    moments = find(frames, in_film(*rows), min_length=shortest / 10, close_gaps=gap / 10)
    assert np.reshape(spans(moments), (-1, 2)) == close(np.reshape(expected, (-1, 2)))
    for moment in moments.moments:
        steps = [s for s in means if moment.start <= s / 200 < moment.end]
        assert moment.score == close(np.mean([means[step] for step in steps]))


def test_tables_survive_a_round_trip(tmp_path):
    items = Items.of([Item("a", film="=film", start=10.0, end=20.0), Item("b", film="=film")])
    values = [1 - 1e-9, 1e-12, 1 - 2e-9]
    clips = {"a": ([12, 14, 18], values), "b": ([1, 2], [0.2, 0.8])}
    moments = find(clips, items, seen=["clip", "no"])
    texts = moments.to_csv(), moments.frames.to_csv()
    tables = [write(tmp_path / f"{row}.csv", text, end="") for row, text in enumerate(texts)]
    again = om.Moments.from_csv(*tables)
    assert len(moments.moments) == 3
    assert again.moments == moments.moments
    assert "'=film" in texts[0]
    assert "3 moments at a threshold of 0.500 in 1 film and 1 clip" in moments.describe()
    assert "3 moments in 1 film and 1 clip" in again.describe()
    assert again.frames.probabilities.tolist()[:3] == values
    assert (again.to_csv(), again.frames.to_csv()) == texts


@pytest.mark.parametrize(("row", "problem"), [
    ("f,a,0,1,2", r"line 3: probability is not a number from 0 to 1 \(got '2'\)"),
    ("f,a,x,1,0", r"line 3: start is not a number of seconds \(got 'x'\)"),
    ("f,a,2,1,0", "line 3: end must be after start"),
    ("f,a,1,2,0", r"line 3: .*frames.csv has no frames of 'g'"),
])  # fmt: skip
def test_a_wrong_cell_is_named(row, problem, tmp_path):
    rows = ("f,0,1,0.5", "g,0,1,0.5")
    moments = write(tmp_path / "moments.csv", "film,start,end,score", *rows)
    head = ("film,id,start,end,probability", "f,a,0,1,0.5")
    with pytest.raises(ManifestError, match=problem):
        om.Moments.from_csv(moments, write(tmp_path / "frames.csv", *head, row))


ONE = {"a": ([12], [0.9])}
OTHER = Manifest("m", in_film(("b", 0.0, 1.0), film="film"))
TWO_FILES = Items.of([Item(n, film="f", media=f"{n}.mkv", start=0.0, end=4.0) for n in "ab"])
SLIPS = [
    (lambda: find(ONE, FILM, manifest=OTHER), ExperimentError,
     r"m has none of the 1 clip.* such as b, .* a\)"),
    (lambda: find({"a": ([2], [0.8]), "b": ([2], [0.4])}, TWO_FILES), ExperimentError,
     r"film f: .* two files, .*\(a.mkv, b.mkv\)"),
    (lambda: find({"a": ([12, 14], [NAN, NAN])}, FILM), ExperimentError,
     "no frame of 1 clip has a probability"),
    (lambda: find({"a": ([1, 2], [0.5, 0.5])}, FILM), ExperimentError,
     r"clip a: the frames \(at 1 to 2 s\) are outside"),
    (lambda: find(ONE, FILM, threshold=1.1), UsageError, "got 1.1"),
]  # fmt: skip


@pytest.mark.parametrize(("slip", "error", "message"), SLIPS)
def test_user_errors_are_one_line(slip, error, message):
    with pytest.raises(error, match=message):
        slip()
