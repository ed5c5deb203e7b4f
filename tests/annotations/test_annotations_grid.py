"""Clips to project onto: cells of equal length, lists of shots, manifests with spans."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.annotations.grid import read_grid
from obygaze_features.annotations.project import project
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.manifests import Item, Items
from tests.kit.files import write
from tests.kit.timelines import FIRST, SECOND, segments, worked


def spans(grid):
    return [(item.id, item.start, item.end) for item in grid]


def ends_at(end, film="film"):
    """One segment to the film's very end, which is known."""
    only = Segment(film, "one", 0.0, end, "EN")
    return of.Timelines.of("short", [only], films={film: Film(end=end)})


def problems(remarks):
    return [(remark.film, remark.what, remark.done) for remark in remarks]


@pytest.mark.parametrize("length", ["60", "60s", "60 s", "60.0"])
def test_cells_of_so_many_seconds(length):
    grid, remarks = read_grid(length, ends_at(150.5))
    assert remarks == []
    cells = [("film-0001", 0, 60), ("film-0002", 60, 120), ("film-0003", 120, 150.5)]
    assert spans(grid) == cells
    assert {item.media for item in grid} == {item.film for item in grid} == {"film"}
    assert grid.name == "short-60s"


def test_last_cells(tmp_path):
    assert len(read_grid("60", ends_at(120))[0]) == 2
    assert len(read_grid("60", ends_at(120.000001))[0]) == 2  # no clip is a microsecond long
    assert len(read_grid("60", ends_at(120.000002))[0]) == 3
    assert spans(read_grid("60", ends_at(12.5))[0]) == [("film-0001", 0, 12.5)]
    assert len(read_grid("0:00:42", worked())[0]) == 10
    grid, [remark] = read_grid("100", worked())
    assert grid.items.ends[-1] == 420
    assert remark.what == "1 film without an end: film"
    assert remark.done == "the last clip ends with the last segment"


@given(st.integers(2, 10**8), st.integers(10**4, 10**8))
def test_clips_cover_the_film_from_0_to_the_end(end, step):
    """To the microsecond, and none is too short for a span."""
    grid, _ = read_grid(f"{step // 10**6}.{step % 10**6:06d}", ends_at(end / 1e6))
    starts, ends = (np.rint(times * 1e6) for times in (grid.items.starts, grid.items.ends))
    assert (starts[1:] == ends[:-1]).all()
    assert (ends - starts)[:-1].tolist() == [step] * (len(grid) - 1)
    assert starts[0] == 0
    assert 0 <= end - ends[-1] <= 1
    assert 2 <= ends[-1] - starts[-1] <= step


@pytest.mark.parametrize(
    ("length", "fact"),
    [
        ("0", "a grid needs clips longer than 0 s"),
        ("0.00001", "would have 15,050,000 clips; take longer ones"),
        ("sixty", "sixty is not a grid"),
        ("-60", "-60 is not a grid"),
    ],
)
def test_what_is_no_grid(length, fact):
    with pytest.raises(UsageError, match=re.escape(fact)):
        read_grid(length, ends_at(150.5))
    with pytest.raises(AnnotationError, match="hold no segments"):
        read_grid("60", of.Timelines.of("empty", []))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_shots_in_a_table(tmp_path, mark):
    """In any order, without ids; other columns are kept."""
    rows = ("scene,film,END,Start", "kitchen,film,200,100", "credits,film,420,200")
    rows = [row.replace(",", mark) for row in (*rows, "street,film,100,0")]
    grid, remarks = read_grid(write(tmp_path / "shots.csv", *rows), worked())
    assert remarks == []
    shots = [("film-0001", 0, 100), ("film-0002", 100, 200), ("film-0003", 200, 420)]
    assert spans(grid) == shots
    assert grid.items.extra == {"scene": ["street", "kitchen", "credits"]}
    assert grid.name == "shots"
    # As a spreadsheet saves them: clock times, and the names that importers make ids of.
    rows = ["film,start,end", "Juno (2007),0:00:00,0:01:40.5", "Juno (2007),0:01:40.5,150"]
    rows = [row.replace(",", mark) for row in rows]
    path = write(tmp_path / "shots.csv", *rows, encoding="utf-8-sig")
    grid, remarks = read_grid(path, ends_at(150, "Juno_2007"))
    assert remarks == []
    assert spans(grid) == [("Juno_2007-0001", 0, 100.5), ("Juno_2007-0002", 100.5, 150)]
    path = write(tmp_path / "shots.csv", "Film;Start;END;ID;Note", "film;0;1,5;one;x")
    grid, _ = read_grid(path, worked())
    assert (spans(grid), grid.items.extra) == ([("one", 0, 1.5)], {"Note": ["x"]})


@pytest.mark.parametrize(
    ("row", "fact"),
    [
        ("film,100,100,b", "a span from 100 to 100 seconds does not go forward"),
        ("film,100,2h,d", "end '2h' is not a time; write seconds or h:mm:ss"),
        ("film,100,200,A", "id 'A' differs from 'a' by case only"),
        (",100,200,f", "names no film"),
    ],
)
def test_a_bad_row_of_a_grid_is_named(tmp_path, row, fact):
    path = write(tmp_path / "scenes.csv", "film,start,end,id", "film,0,100,a", row)
    with pytest.raises(ManifestError, match=f"{path}, line 3: .*{re.escape(fact)}"):
        read_grid(path, worked())


def test_gaps_and_overlaps_are_named(tmp_path):
    spans = ("0,100", "100.000002,200", "212.5,300", "290,310", "220,230")
    rows = ("film,start,end", *(f"film,{span}" for span in spans))
    _, remarks = read_grid(write(tmp_path / "shots.csv", *rows), worked())
    assert [remark.what for remark in remarks] == [
        "a gap of 12.5 s before film-0003",
        "film-0004 overlaps what is before it by 80 s",
        "film-0005 overlaps what is before it by 10 s",
    ]
    assert all(remark.done.startswith("kept") for remark in remarks)


def test_manifests_with_spans(tmp_path):
    """Where the film is not named it is the media's name; items without a span are named."""
    items = [
        Item("a", film="film", start=0.0, end=100.0),
        Item("b", media="film.mkv", start=100.0, end=200.0),
        Item("c", film="film"),
    ]
    of.Manifest("mine", Items.of(items)).save(tmp_path / "mine")
    grid, remarks = read_grid(tmp_path / "mine", worked())
    assert (grid.folder, grid.ids) == (tmp_path / "mine", ["a", "b", "c"])
    assert problems(remarks) == [("film", "c has no span", "left out")]
    assert [labels.ids for labels in project(worked(), grid).label_sets] == [["a", "b"]] * 2
    of.Manifest("mine", Items.of([Item("a", film="film")])).save(tmp_path / "no spans")
    with pytest.raises(AnnotationError, match="the items have no spans"):
        read_grid(tmp_path / "no spans", worked())


def test_films_that_only_one_side_has(tmp_path):
    pair = segments("one", FIRST) + segments("one", SECOND, "other")
    timelines = of.Timelines.of("two films", pair, films={"unseen": Film(end=10.0)})
    shots = ("film,start,end", "film,0,100", "third,0,100")
    grid, remarks = read_grid(write(tmp_path / "shots.csv", *shots), timelines)
    assert problems(remarks) == [
        ("other", "the grid has no clips of it", "left out"),
        ("unseen", "nobody annotated it", "no labels"),
        ("third", "nobody annotated it", "no labels"),
    ]
    assert project(timelines, grid).label_sets[0].ids == ["film-0001"]


@pytest.mark.parametrize(
    ("rows", "error", "fact"),
    [
        ("film,start\nfilm,0\n", ManifestError, "no column 'end'"),
        ("film,start,end\n", AnnotationError, "holds no clips"),
        ("film,start,end\nthird,0,100\n", AnnotationError, "no clips of any film .*it has third"),
        ("film,start,end\nFILM,0,100\n", AnnotationError, r"no clips of any .*did you mean FILM\?"),
    ],
)
def test_tables_that_are_no_grid_are_one_line(tmp_path, rows, error, fact):
    with pytest.raises(error, match=fact):
        read_grid(write(tmp_path / "shots.csv", rows), worked())
