"""Timelines in Python, as a figure, and their remarks; docs/how-to/timelines.md is run."""

from pathlib import Path

import pytest
from matplotlib import rc_context
from matplotlib.image import imread

import obygaze_features as of
from obygaze_features.annotations import Remark, Segment
from obygaze_features.annotations.figures import film_bands, film_figure
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.annotations.remarks import remark_rows
from obygaze_features.common.figures import level_colours, save_figure
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import LabelScheme, Level
from tests.kit.files import refused, write
from tests.kit.floats import close
from tests.kit.timelines import FIRST, SECOND, grid, segments, worked
from tests.test_docs import ROOT, Page


def test_the_how_to_converts_tables_and_back(tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    Page(obygaze).run((ROOT / "docs/how-to/timelines.md").read_text())
    names = ("mine", "again", "third")
    first, *others = (of.Timelines.load(Path("timelines", name)) for name in names)
    assert [timelines.segments for timelines in others] == [first.segments] * 2
    assert others[0].films == first.films


LEVELS = ["EN", "HN", "NS", "S"]


def test_the_worked_example_is_exact():
    done = of.project(worked(), grid())
    labels = merge_labels(done.label_sets, done.grid)
    merged = done.grid.with_parts(*done.label_sets, labels)
    late = of.Timelines("x", [*worked().segments, Segment("film", "two", 1500, 1510, "S")])
    rows = film_bands(late, merged, "film")
    assert {row.name: [LEVELS[rank] for _, _, rank in row.bars] for row in rows} == {
        "one": [level for _, _, level, *_ in FIRST],
        "one on clips": ["EN", "S", "NS", "EN", "EN"],
        "two": [*(level for _, _, level, *_ in SECOND), "S"],  # beyond the last clip
        "two on clips": ["EN", "S", "NS", "EN", "HN"],
        "merged": ["EN", "S", "NS", "EN", "HN"],
    }
    [axes] = film_figure(worked(), merged, "film").axes
    bars = axes.patches[-5:]
    heights = [bar.get_height() / bars[0].get_height() for bar in bars]
    assert heights == close([1, 4, 3, 1, 2], eps=1e-3)


def test_a_figure_needs_the_levels_of_the_timelines():
    calm = LabelScheme("mood", (Level("calm", "calm"), Level("tense", "tense")))
    with pytest.raises(AnnotationError, match="differ from the timelines' levels"):
        film_figure(worked(), of.Manifest("other", grid().items, scheme=calm), "film")


@pytest.mark.night
def test_short_segments_of_a_long_film_are_visible(tmp_path):
    cut = [(0, 3000, "EN"), (3000, 3003, "S"), (3003, 7200, "EN")]
    long = of.Timelines("long", segments("one", cut))
    with rc_context({"figure.figsize": (6.5, 4)}):
        figure = film_figure(long, of.project(long, 600).manifest, "film")
    figure.set_facecolor("none")
    save_figure(figure, tmp_path / "film.png")
    image = (255 * imread(tmp_path / "film.png")).round().astype(int)
    figure.draw_without_rendering()
    x, y = (2 * figure.axes[0].transData.transform((3001.5, 0.35))).astype(int)
    sure = [*bytes.fromhex(level_colours(LEVELS)[3][1:]), 255]
    assert sure in image[-y, x - 4 : x + 5].tolist()
    assert not (image == 255).all(axis=2).any()  # and nothing is white


def test_remarks_of_one_kind_share_a_row():
    lost = Remark("a.csv, line 9", "ju\x1b[31m\nno", "", "ends before it starts", "left out")
    others = [Remark(f"a.csv, line {n}", "juno", "ann", "overlaps", "kept") for n in range(2, 6)]
    assert [[*row.values()] for row in remark_rows([*others, lost])] == [
        # Lost rows come first.
        [1, "left out", "a.csv, line 9", r"'ju\x1b[31m\nno'", "", "ends before it starts"],
        [4, "kept", "a.csv, line 2", "juno", "ann", "overlaps"],
    ]


def test_edited_remarks_are_read_or_refused(tmp_path, obygaze):
    folder = tmp_path / "t"
    worked().save(folder)
    table = write(folder / "remarks.csv", "where,film", "a,b")
    refused(obygaze("annotations", "show", folder), "remarks.csv, line 1: ")
    write(table, "mine,where,film,annotator,what,done", "x,a,b,c,d,kept")
    assert of.Timelines.load(folder).remarks == (Remark("a", "b", "c", "d", "kept"),)
    table.unlink()
    assert of.Timelines.load(folder).remarks == ()
    cells = (folder / "segments.csv").read_text()
    (folder / "segments.csv").write_text(cells.replace("\nfilm,", "\na/b,"))
    refused(obygaze("annotations", "show", folder), "segments.csv, line 2: ", "'a/b'")
