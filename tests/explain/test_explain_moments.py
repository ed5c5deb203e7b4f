"""From frame probabilities to moments and their scores, against walks over milliseconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_1samp
from sklearn.metrics import average_precision_score, roc_auc_score

import obygaze_models as om
from obygaze_features import Timelines
from obygaze_features.annotations import Segment
from obygaze_features.errors import ExperimentError, ManifestError, UsageError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.elan_documents import moment_files
from obygaze_models.explain.frame_scores import Axis, FrameScores, average_frames
from obygaze_models.explain.moment_scores import (
    TIOUS,
    AnnotatedFilm,
    Guess,
    guess_random,
    read_guess,
)
from obygaze_models.explain.moments import Moment, moment_figure
from obygaze_models.saved.about import SEEN_BY_OTHERS
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
    about = {"estimator": "frame-mil", "task": "EN vs S"}
    seen = seen or ["no"] * len(clips)
    return om.FramePredictions(about, list(clips), *table, threshold, seen, [])


def find(clips, items, *, threshold=None, min_length=0, close_gaps=0, manifest=None, **about):
    options = {"min_length": min_length, "close_gaps": close_gaps, "manifest": manifest}
    return om.find_moments(predict(clips, **about), items, threshold=threshold, **options)


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
    [moment] = find(clips, items, threshold=0.55, seen=["no", "yes"]).moments
    assert (moment.start, moment.end, moment.clips, moment.seen) == (0, 4, ("a", "b"), "yes")


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
    about = frames.about | {"classes": ["EN", "HN", "S"]}
    frames = replace(frames, about=about, probabilities=np.array([[[0.1, 0.2, 0.7]]]))
    moments = om.find_moments(frames, FILM)
    assert moments.title.endswith("probability of S")
    # A row of a store of sound stands for a window.
    heard = about | {"features": {"preprocessing": {"sampling": "sound, in windows of 1 s"}}}
    moments = om.find_moments(replace(frames, about=heard), FILM)
    artists = moment_figure(moments).findobj(lambda artist: hasattr(artist, "get_text"))
    texts = [artist.get_text() for artist in artists]
    assert any("in 1 window;" in text for text in texts)
    assert "probability of\neach window" in texts
    assert [moment.score for moment in moments.moments] == [0.7]


def test_a_film_is_found_by_its_title_and_a_figure_says_what_is_not_real():
    items = Items.of(list(FILM), {"movie_title": ["Dr. No"]})
    warning = RunWarning("synthetic", "", "the backbone is synthetic (random).")
    predictions = replace(predict({"a": ([12], [0.9])}), warnings=[warning])
    moments = om.find_moments(predictions, items)
    artists = moment_figure(moments, "dr. no").findobj(lambda artist: hasattr(artist, "get_text"))
    texts = [artist.get_text() for artist in artists]
    assert "Dr. No" in texts
    assert "Not a real result: clips or features are synthetic." in " ".join(
        " ".join(texts).split()
    )
    early = replace(predictions, times=predictions.times - 10)
    placed = om.find_moments(early, OWN_FILES, manifest=Manifest("m", items))
    assert list(moment_files(moments)) == list(moment_files(placed)) == ["Dr. No.eaf"]


def test_a_manifest_places_files_in_their_film():
    clips, manifest = {"a": ([1, 3], [0.2, 0.9])}, Manifest("m", FILM)
    moments = find(clips, OWN_FILES, manifest=manifest)
    assert [(m.axis, m.start, m.end) for m in moments.moments] == [(Axis("film"), 12, 20)]
    [text] = moment_files(moments).values()
    assert "film.mkv" in text
    assert "a.mp4" not in text
    assert moment_figure(moments, manifest=manifest), "it needs no labels"


def test_a_file_of_a_whole_film_starts_at_zero():
    clips, item = {"a": ([1, 3], [0.9, 0.1])}, Item("b", film="f", media="b.mp4")
    lone, one_of_two = (Item("a", film=film, media="a.mp4") for film in ("", "f"))
    for items, manifest, axis in (
        (Items.of([lone, item]), None, Axis("a")),
        (Items.of([one_of_two]), None, Axis("f")),
        (OWN_FILES, Manifest("m", Items.of([one_of_two])), Axis("f")),
        (OWN_FILES, Manifest("m", Items.of([one_of_two, item])), Axis("f", "a")),
    ):
        [moment] = (result := find(clips, items, manifest=manifest)).moments
        assert (moment.axis, moment.start, moment.end) == (axis, 0, 2)
    timelines = Timelines.of("mine", [Segment("f", "ann", 0, 2, "S")])
    with pytest.raises(ExperimentError, match="count from the start of each clip"):
        om.evaluate_moments(result, timelines)
    [scored] = om.evaluate_moments(find(clips, Items.of([one_of_two])), timelines).annotators
    assert scored.scores["map_0.7"].value == 1


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
            predict({"g": ([1, 3], [0.3, 0.7])}, threshold=0.6),
            predict({"g": ([1, 3], [0.3, 0.7])}, threshold=0.5),
        ]
    )
    assert averaged.threshold == close([0.2, 0.55])
    assert averaged.seen == [SEEN_BY_OTHERS] * 2
    assert average_frames([predict({"f": ([1], [0.1])})]).seen == ["no"]
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
    moments = find(clips, items, seen=["yes", "no"])
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
MINE = Timelines.of("mine", [Segment("other", "ann", 0, 1, "S")])
OTHER = Manifest("m", in_film(("b", 0.0, 1.0), film="film"))
TWO_FILES = Items.of([Item(n, film="f", media=f"{n}.mkv", start=0.0, end=4.0) for n in "ab"])
SLIPS = [
    (lambda: moment_figure(find(ONE, FILM), timelines=MINE), UsageError,
     r"mine have no film 'film' \(they have other\)"),
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


def make_moments(frames, moments=(), seen="no"):
    films, starts, ends, values = zip(*frames, strict=True)
    times = [np.array(edges) * 1_000_000 for edges in (starts, ends)]
    names, seen = [f"{film}-clip" for film in films], [seen] * len(films)
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
    frames = [("f", row, row + 1, value / 5) for row, value in enumerate(values)]
    segments = [("f", start / 1000, (start + length) / 1000) for start, length in spans]
    moments, rest = make_moments(frames), mark([("f", 0, 20)], level="EN")
    [film] = score(moments, [*mark(segments), *rest]).films
    labels = np.zeros(20_000, int)
    for start, length in spans:
        labels[start : start + length] = 1
    labels = labels[: 1000 * len(values)]
    probabilities = np.repeat(values, 1000) / 5
    assert film.positive_seconds == close(labels.sum() / 1000)
    if labels.any():
        expected = average_precision_score(labels, probabilities)
        assert film.scores["frame_average_precision"] == close(expected)
    if 0 < labels.sum() < len(labels):
        assert film.scores["frame_auroc"] == close(roc_auc_score(labels, probabilities))


def average_precision_by_definition(moments, segments, tiou):
    """Compute ActivityNet's measure one moment at a time: greedy, then interpolated."""

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
    entry = score(make_moments(frames, moments), mark(segments))
    films = {film for film, _, _ in segments}
    moments = [moment for moment in moments if moment[0] in films]
    for tiou in TIOUS:
        expected = average_precision_by_definition(moments, segments, tiou)
        assert entry.scores[f"map_{tiou}"].value == close(expected), tiou


def three_films():
    """Return ten-second frames, some moments, and segments of three films."""
    chance = np.random.default_rng(3)
    for segments in (2, 4, 7):
        frames = [(10 * row, 10 * row + 10, float(chance.random())) for row in range(9)]
        moments = [(start, end - 1, value) for start, end, value in frames if value > 0.3]
        starts = chance.integers(0, 60, segments).tolist()
        yield frames, moments, [(start, start + 10) for start in starts]


def test_intervals_are_over_films():
    """Frames have scipy's t interval over films, moments a jackknife."""
    films = list(three_films())

    def measure(chosen, seen="no"):
        frames, moments, spans = (
            [(f"film{number}", *row) for number in chosen for row in films[number % 3][table]]
            for table in range(3)
        )
        return score(make_moments(frames, moments, seen), mark(spans))

    full = measure(range(5))
    for key in ("frame_average_precision", "frame_auroc"):
        values = [film.scores[key] for film in full.films]
        expected = ttest_1samp(values, 0).confidence_interval(0.95)
        assert full.scores[key].interval == close(tuple(expected)), key
    without = [measure([n for n in range(5) if n != left]).scores for left in range(5)]
    for key in ("map_0.3", "map_mean"):
        value, others = full.scores[key].value, [scores[key].value for scores in without]
        error = (4 / 5 * ((np.array(others) - np.mean(others)) ** 2).sum()) ** 0.5
        half = t.ppf(0.975, 4) * error
        ends = max(0, value - half), min(1, value + half)
        assert full.scores[key].interval == close(ends), key
    assert {estimate.interval for estimate in measure(range(4)).scores.values()} == {None}
    # In cross-validation, the variance of a mean over 5 films is 2 * 4 / 3 times as large.
    for key, crossed in measure(range(5), SEEN_BY_OTHERS).scores.items():
        value, ends = crossed.value, zip(full.scores[key].interval, crossed.interval, strict=True)
        wider = [(far - value) / (end - value) for end, far in ends if 0 < far < 1]
        assert value == full.scores[key].value
        assert wider, key
        assert wider == close([(8 / 3) ** 0.5] * len(wider)), key


def test_guesses_score_at_chance():
    """A constant scores the share of positive time, and its moment is the whole film."""
    frames = [("f", row, row + 1, row / 100) for row in range(100)]
    moments = make_moments(frames, [("f", 0, 40, 0.5)])
    scores = score(moments, mark([("f", 0, 40), ("f", 90, 100)])).scores
    for name in ("frame_average_precision", "frame_auroc"):
        assert scores[name].constant == close(0.5)
        assert scores[name].random == pytest.approx(0.5, abs=0.1)
    assert (scores["map_0.3"].value, scores["map_0.3"].constant) == (0.5, 0.5)
    assert scores["map_0.5"].constant == 0
    assert 0 < scores["map_0.5"].random < 0.5


def test_segments_end_where_clips_end():
    frames = [("f", 0, 10, 0.9), ("f", 20, 30, 0.1), ("f", 30, 40, 0.9)]
    moments = make_moments(frames, [("f", 0, 10, 0.9), ("f", 30, 40, 0.8)])
    entry = score(moments, mark([("f", 0, 18), ("f", 30, 95)]))
    assert entry.scores["map_0.7"].value == 1
    [film] = entry.films
    assert (film.segments, film.outside, film.positive_seconds) == (2, 0, 20)
    assert score(moments, mark([("f", 5, 25)])).films[0].segments == 2


def test_random_moments_are_where_clips_are():
    frames = [("f", 0, 10, 0.9), ("f", 1000, 1030, 0.1)]
    moments = make_moments(frames, [("f", 0, 5, 0.9)] * 2000)
    film = AnnotatedFilm("f", moments.frames.by_axis[Axis("f")], [(0, 5)])
    guess = guess_random(film, read_guess(film, moments), np.random.default_rng(0))
    starts, ends = np.array(guess.moments).T / 1e6
    assert ends - starts == close(5)
    first = (starts >= 0) & (ends <= 10)
    assert (first | ((starts >= 1000) & (ends <= 1030))).all()
    assert first.mean() == pytest.approx(5 / 30, abs=0.03)
    assert (starts[first].max(), starts.max()) == pytest.approx((5, 1025), abs=0.1)
    long = guess_random(film, Guess(film, [(0, 90_000_000)], np.ones(1)), np.random.default_rng(0))
    assert long.moments == [(1_000_000_000, 1_030_000_000)]


def test_annotators_are_measured_one_by_one():
    moments = make_moments([("f", 0, 5, 0.9), ("f", 5, 10, 0.1)])
    segments = mark([("f", 0, 5)], "ann") + mark([("f", 5, 10)], "ben")
    segments += mark([("f", 0, 10)], "eve", level="EN")
    result = evaluate(moments, segments)
    aurocs = {a.annotator: a.scores["frame_auroc"].value for a in result.annotators}
    assert aurocs == {"ann": 1, "ben": 0}
    assert result.notes[1:] == ["eve has no scores: no Sure in these films"]
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
    facts = ("left out: third", "left out: other", "on 1 of 2 clips", "of Sure", "1 segment")
    for note, fact in zip(result.notes, facts, strict=True):
        assert fact in note
    [film] = result.annotators[0].films
    assert (film.seconds, film.positive_seconds, film.segments, film.outside) == (10, 3, 1, 1)


def test_bad_input_is_one_line():
    moments = make_moments([("tt0000001", 0, 5, 0.9)])
    elsewhere, none = mark([("tt0000002", 0, 1)]), mark([("tt0000001", 0, 1)], level="EN")
    within = FrameScores([Axis("f", "a")], ["a"], np.array([0]), np.array([9]), np.ones(1), [""])
    for bad_moments, segments, message in (
        (moments, elsewhere, r"mine have other films \(tt0000002\) than"),
        (moments, none, r"no segments labelled Sure in these films.*--positives: Easy Negative"),
        (om.Moments([], within), none, "count from the start of each clip"),
    ):
        with pytest.raises(ExperimentError, match=message):
            evaluate(bad_moments, segments)
