"""A film's timelines as a picture: the paper's worked case, read back from its bars."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.figure import film_figure, films_drawn
from obygaze_features.annotations.gathering import Row, gather
from obygaze_features.annotations.merge import merge
from obygaze_features.annotations.projection import project
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import LabelScheme, LabelSet, Level, Manifest
from tests.annotations.worked import CLIPS, FIRST, SECOND, grid, worked
from tests.figures.drawn import Drawn

LEVELS = ["EN", "HN", "NS", "S"]


@pytest.fixture
def merged() -> Manifest:
    """The worked case's clips, both projections and the merge."""
    done = project(worked(), grid())
    whole = merge(done.label_sets, done.grid).labels
    return done.grid.with_parts(labels=[*done.label_sets, whole])


def levels_of(drawn: Drawn, row: str) -> list[str]:
    """The levels of a row's bars, in the row's own order."""
    found = {}
    for key, value in drawn.values.items():
        name, number, *again = key.split("/")
        if name == row and not again:
            found[int(number)] = LEVELS[int(value)]
    return [found[number] for number in sorted(found)]


def test_the_worked_case(merged: Manifest) -> None:
    drawn = Drawn(film_figure(worked(), merged, "film"))
    assert levels_of(drawn, "one") == [level for _, _, level, *_ in FIRST]
    assert levels_of(drawn, "two") == [level for _, _, level, *_ in SECOND]
    assert levels_of(drawn, "one on clips") == ["EN", "S", "NS", "EN", "EN"]
    assert levels_of(drawn, "two on clips") == ["EN", "S", "NS", "EN", "HN"]
    assert levels_of(drawn, "merged") == ["EN", "S", "NS", "EN", "HN"]


def test_the_figure_says_by_which_rule(merged: Manifest) -> None:
    said = "the levels of 5 clips; threshold 0.2, grid grid"
    assert any(said in words for words in Drawn(film_figure(worked(), merged, "film")).words)


def test_a_tip_says_when_and_which_concepts(merged: Manifest) -> None:
    drawn = Drawn(film_figure(worked(), merged, "film"))
    tips = {key: one[0].text for key, one in drawn.by_key().items()}
    assert tips["merged/1"] == "film-1, 1:40 to 3:20, Sure: Look, Body"


def test_segments_beyond_the_last_clip_are_drawn(merged: Manifest) -> None:
    late = Timelines.of("x", [*worked().segments, Segment("film", "two", 1500, 1510, "S")])
    assert levels_of(Drawn(film_figure(late, merged, "film")), "two")[-1] == "S"


def test_without_a_merge_the_rest_is_drawn(merged: Manifest) -> None:
    drawn = Drawn(film_figure(worked(), merged, "film", merged=None))
    assert "merged" not in drawn.words
    assert levels_of(drawn, "one on clips")


def test_titles_are_words_and_not_markup(merged: Manifest) -> None:
    timelines = Timelines.of("x", worked().segments, films={"film": Film("<b>A & B</b>", 420.0)})
    assert "<b>A & B</b>" in Drawn(film_figure(timelines, merged, "film")).words


def test_a_film_that_only_one_side_has_cannot_be_drawn(merged: Manifest) -> None:
    timelines = Timelines.of("x", [*worked().segments, Segment("other", "one", 0, 9, "S")])
    assert films_drawn(timelines, merged) == ["film"]
    with pytest.raises(AnnotationError, match="unknown film 'other'; known are film"):
        film_figure(timelines, merged, "other")


def test_clips_of_other_levels_cannot_be_drawn(
    tmp_path: Path, merged: Manifest, obygaze: Callable[..., Result]
) -> None:
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    labels = LabelSet("one", merged.ids, ["calm"] * len(merged), [()] * len(merged))
    Manifest("other", merged.items, scheme=calm).with_parts(labels=[labels]).save(tmp_path / "m")
    worked().save(tmp_path / "t")
    told = obygaze("annotations", "figure", tmp_path / "t", tmp_path / "m", "-o", tmp_path / "out")
    assert (told.exit_code, told.stderr.count("\n")) == (1, 1)
    assert "the clips' levels (calm, tense) are not those of the timelines" in told.stderr
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path: Path, merged: Manifest, obygaze: Callable[..., Result]) -> None:
    worked().save(tmp_path / "timelines")
    merged.save(tmp_path / "manifest")
    asked = ["annotations", "figure", tmp_path / "timelines", tmp_path / "manifest"]
    told = obygaze(*asked, "-o", tmp_path / "out")
    assert told.exit_code == 0, told.output
    svg = (tmp_path / "out/film.svg").read_text()
    bars = set(re.findall(r'data-key="([^/]*/[0-9]+)', svg))
    assert len(bars) == len(FIRST) + len(SECOND) + 3 * len(CLIPS)
    assert obygaze(*asked, "-o", tmp_path / "out").exit_code == 1
    assert obygaze(*asked, "-o", tmp_path / "out", "--overwrite").exit_code == 0
    wrong = obygaze(*asked, "--film", "flim", "-o", tmp_path / "out")
    assert wrong.exit_code == 2
    assert "did you mean film?" in wrong.output


def test_annotators_are_called_as_their_source_calls_them(tmp_path: Path) -> None:
    rows = [Row("r", "film", "Zoé B", 0.0, 9.0, "S"), Row("r", "film", "bob", 1.0, 300.0, "S")]
    gather("t", rows).save(tmp_path / "t")
    timelines = Timelines.load(tmp_path / "t")
    done = project(timelines, grid())
    whole = done.grid.with_parts(labels=done.label_sets)
    words = Drawn(film_figure(timelines, whole, "film")).words
    assert {"Zoé B", "bob"} <= set(words)


def test_one_annotator_is_not_told_to_merge(tmp_path: Path, obygaze: Callable[..., Result]) -> None:
    lone = Timelines.of("x", [Segment("film", "one", 0, 400, "S")])
    done = project(lone, grid())
    lone.save(tmp_path / "t")
    done.grid.with_parts(labels=done.label_sets).save(tmp_path / "m")
    told = obygaze("annotations", "figure", tmp_path / "t", tmp_path / "m", "-o", tmp_path / "out")
    assert (told.exit_code, "merge" in told.output) == (0, False)
