"""A film's timelines as a picture: the paper's worked case, read back from its bars."""

import pytest
from matplotlib.text import Text

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.figure import film_bands, film_figure, films_with_clips
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.project import project
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import LabelScheme, LabelSet, Level
from tests.kit.files import refused
from tests.kit.timelines import CLIPS, FIRST, SECOND, grid, worked

LEVELS = ["EN", "HN", "NS", "S"]


@pytest.fixture
def merged():
    """The worked case's clips, both projections and the merge."""
    done = project(worked(), grid())
    labels = merge_labels(done.label_sets, done.grid).labels
    return done.grid.with_parts(labels=[*done.label_sets, labels])


def bands(timelines, manifest, **options):
    """The levels of each row of the figure."""
    rows = film_bands(timelines, manifest, "film", **options)
    return {row.name: [LEVELS[rank] for _, _, rank in row.bars] for row in rows}


def words(timelines, manifest):
    """The texts of the figure."""
    figure = film_figure(timelines, manifest, "film")
    return [text.get_text() for text in figure.findobj(Text)]


def test_the_worked_case(merged):
    expected = {
        "one": [level for _, _, level, *_ in FIRST],
        "one on clips": ["EN", "S", "NS", "EN", "EN"],
        "two": [level for _, _, level, *_ in SECOND],
        "two on clips": ["EN", "S", "NS", "EN", "HN"],
        "merged": ["EN", "S", "NS", "EN", "HN"],
    }
    assert bands(worked(), merged) == expected
    assert list(bands(worked(), merged, merged=None)) == list(expected)[:4]
    rule = "the levels of 5 clips; threshold 0.2, grid grid"
    assert any(rule in line for line in words(worked(), merged))
    late = of.Timelines.of("x", [*worked().segments, Segment("film", "two", 1500, 1510, "S")])
    assert bands(late, merged)["two"][-1] == "S"  # beyond the last clip
    # Of the merged row's five bars the last is a fifth as long.
    [axes] = film_figure(worked(), merged, "film").axes
    bars = [bar for bar in axes.patches if str(bar.get_gid()).startswith("tip:merged: ")]
    widths = [bar.get_width() / bars[0].get_width() for bar in bars]
    heights = [bar.get_height() / bars[0].get_height() for bar in bars]
    assert widths == pytest.approx([1, 1, 1, 1, 0.2], rel=1e-3)
    assert heights == pytest.approx([1, 4, 3, 1, 2], rel=1e-3)


def test_titles_and_names_are_drawn_as_written(tmp_path, merged):
    title = "<b>A & B</b> $1$"
    titled = of.Timelines.of("x", worked().segments, films={"film": Film(title, 420.0)})
    assert title in words(titled, merged)
    rows = [Segment("film", "Zoé B", 0.0, 9.0, "S"), Segment("film", "bob", 1.0, 300.0, "S")]
    build_timelines("t", [SourceRow("r", row) for row in rows]).save(tmp_path / "t")
    named = of.Timelines.load(tmp_path / "t")
    done = project(named, grid())
    assert {"Zoé B", "bob"} <= set(words(named, done.grid.with_parts(labels=done.label_sets)))


def test_what_cannot_be_drawn(tmp_path, merged, obygaze):
    timelines = of.Timelines.of("x", [*worked().segments, Segment("other", "one", 0, 9, "S")])
    assert films_with_clips(timelines, merged) == ["film"]
    with pytest.raises(AnnotationError, match="unknown film 'other'; known are film"):
        film_figure(timelines, merged, "other")
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    labels = LabelSet("one", merged.ids, ["calm"] * len(merged), [()] * len(merged))
    other = of.Manifest("other", merged.items, scheme=calm).with_parts(labels=[labels])
    other.save(tmp_path / "m")
    worked().save(tmp_path / "t")
    pair = (tmp_path / "t", tmp_path / "m")
    result = obygaze("annotations", "figure", *pair, "-o", tmp_path / "out")
    refused(result, "levels (calm, tense) are not those of the timelines")
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path, merged, obygaze):
    worked().save(tmp_path / "timelines")
    merged.save(tmp_path / "manifest")
    command = ("annotations", "figure", tmp_path / "timelines", tmp_path / "manifest")
    command, out = (*command, "-o"), tmp_path / "out"
    assert obygaze(*command, out).exit_code == 0
    svg = (out / "film.svg").read_text()
    assert svg.count("<g><title>") == len(FIRST) + len(SECOND) + 3 * len(CLIPS)
    assert obygaze(*command, tmp_path / "film.pdf").exit_code == 0
    assert (tmp_path / "film.pdf").read_bytes().startswith(b"%PDF")
    assert obygaze(*command, out).exit_code == 1
    assert obygaze(*command, out, "--overwrite").exit_code == 0
    wrong = obygaze(*command, out, "--film", "flim")
    assert (wrong.exit_code, "did you mean film?" in wrong.output) == (2, True)
    # A single annotator is not advised to merge.
    lone = of.Timelines.of("x", [Segment("film", "one", 0, 400, "S")])
    done = project(lone, grid())
    lone.save(tmp_path / "timelines", overwrite=True)
    only = done.grid.with_parts(labels=done.label_sets)
    only.save(tmp_path / "only")
    pair = (tmp_path / "timelines", tmp_path / "only")
    result = obygaze("annotations", "figure", *pair, "-o", tmp_path / "lone")
    assert (result.exit_code, "merge" in result.output) == (0, False)
