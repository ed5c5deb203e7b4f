"""A film's timelines as a picture: the paper's worked case, read back from its bars."""

import pytest
from matplotlib.text import Text

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.figure import film_bands, film_figure, films_with_clips
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.project import project
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import LabelScheme, LabelSet, Level, Manifest
from tests.kit.timelines import CLIPS, FIRST, SECOND, grid, worked

LEVELS = ["EN", "HN", "NS", "S"]


@pytest.fixture
def merged():
    """The worked case's clips, both projections and the merge."""
    done = project(worked(), grid())
    manifest = merge_labels(done.label_sets, done.grid).labels
    return done.grid.with_parts(labels=[*done.label_sets, manifest])


def bands(timelines, manifest, **options):
    """The levels of each row of the figure."""
    rows = film_bands(timelines, manifest, "film", **options)
    return {row.name: [LEVELS[rank] for _, _, rank in row.bars] for row in rows}


def words(figure):
    """The texts of the figure."""
    return [text.get_text() for text in figure.findobj(Text)]


def test_the_worked_case(merged):
    assert bands(worked(), merged) == {
        "one": [level for _, _, level, *_ in FIRST],
        "one on clips": ["EN", "S", "NS", "EN", "EN"],
        "two": [level for _, _, level, *_ in SECOND],
        "two on clips": ["EN", "S", "NS", "EN", "HN"],
        "merged": ["EN", "S", "NS", "EN", "HN"],
    }


def test_the_figure_says_by_which_rule(merged):
    text = "the levels of 5 clips; threshold 0.2, grid grid"
    assert any(text in line for line in words(film_figure(worked(), merged, "film")))


def test_bars_are_as_long_and_tall_as_times_and_levels(merged):
    """The merged row: five bars, the last a fifth of the others."""
    [axes] = film_figure(worked(), merged, "film").axes
    bars = [bar for bar in axes.patches if str(bar.get_gid()).startswith("tip:merged: ")]
    widths = [bar.get_width() for bar in bars]
    heights = [bar.get_height() for bar in bars]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 1, 1, 1, 0.2], rel=1e-3)
    assert [height / heights[0] for height in heights] == pytest.approx([1, 4, 3, 1, 2], rel=1e-3)


def test_segments_beyond_the_last_clip_are_drawn(merged):
    late = Timelines.of("x", [*worked().segments, Segment("film", "two", 1500, 1510, "S")])
    assert bands(late, merged)["two"][-1] == "S"


def test_without_a_merge_the_rest_is_drawn(merged):
    rows = bands(worked(), merged, merged=None)
    assert list(rows) == ["one", "one on clips", "two", "two on clips"]


def test_titles_are_words_and_not_markup(merged):
    timelines = Timelines.of(
        "x", worked().segments, films={"film": Film("<b>A & B</b> $1$", 420.0)}
    )
    assert "<b>A & B</b> $1$" in words(film_figure(timelines, merged, "film"))


def test_a_film_that_only_one_side_has_cannot_be_drawn(merged):
    timelines = Timelines.of("x", [*worked().segments, Segment("other", "one", 0, 9, "S")])
    assert films_with_clips(timelines, merged) == ["film"]
    with pytest.raises(AnnotationError, match="unknown film 'other'; known are film"):
        film_figure(timelines, merged, "other")


def test_clips_of_other_levels_cannot_be_drawn(tmp_path, merged, obygaze):
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    labels = LabelSet("one", merged.ids, ["calm"] * len(merged), [()] * len(merged))
    Manifest("other", merged.items, scheme=calm).with_parts(labels=[labels]).save(tmp_path / "m")
    worked().save(tmp_path / "t")
    result = obygaze(
        "annotations", "figure", tmp_path / "t", tmp_path / "m", "-o", tmp_path / "out"
    )
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "the clips' levels (calm, tense) are not those of the timelines" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path, merged, obygaze):
    worked().save(tmp_path / "timelines")
    merged.save(tmp_path / "manifest")
    arguments = ["annotations", "figure", tmp_path / "timelines", tmp_path / "manifest"]
    result = obygaze(*arguments, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    svg = (tmp_path / "out/film.svg").read_text()
    assert svg.count("<g><title>") == len(FIRST) + len(SECOND) + 3 * len(CLIPS)
    assert obygaze(*arguments, "-o", tmp_path / "film.pdf").exit_code == 0
    assert (tmp_path / "film.pdf").read_bytes().startswith(b"%PDF")
    assert obygaze(*arguments, "-o", tmp_path / "out").exit_code == 1
    assert obygaze(*arguments, "-o", tmp_path / "out", "--overwrite").exit_code == 0
    wrong = obygaze(*arguments, "--film", "flim", "-o", tmp_path / "out")
    assert wrong.exit_code == 2
    assert "did you mean film?" in wrong.output


def test_annotators_keep_their_original_names(tmp_path):
    rows = [Segment("film", "Zoé B", 0.0, 9.0, "S"), Segment("film", "bob", 1.0, 300.0, "S")]
    build_timelines("t", [SourceRow("r", row) for row in rows]).save(tmp_path / "t")
    timelines = Timelines.load(tmp_path / "t")
    done = project(timelines, grid())
    manifest = done.grid.with_parts(labels=done.label_sets)
    assert {"Zoé B", "bob"} <= set(words(film_figure(timelines, manifest, "film")))


def test_single_annotator_is_not_advised_to_merge(tmp_path, obygaze):
    lone = Timelines.of("x", [Segment("film", "one", 0, 400, "S")])
    done = project(lone, grid())
    lone.save(tmp_path / "t")
    done.grid.with_parts(labels=done.label_sets).save(tmp_path / "m")
    result = obygaze(
        "annotations", "figure", tmp_path / "t", tmp_path / "m", "-o", tmp_path / "out"
    )
    assert (result.exit_code, "merge" in result.output) == (0, False)
