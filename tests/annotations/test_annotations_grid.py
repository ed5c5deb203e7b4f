"""Clips to project onto: cells of so many seconds, lists of shots, manifests with spans."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.grid import read_grid
from obygaze_features.annotations.project import project
from obygaze_features.errors import AnnotationError, ManifestError, UsageError
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.timelines import FIRST, SECOND, segments, worked


def spans(grid):
    return [(item.id, item.start, item.end) for item in grid]


def ends_at(end, film="film"):
    """One segment to the film's very end, which is known."""
    only = Segment(film, "one", 0.0, end, "EN")
    return Timelines.of("short", [only], films={film: Film(end=end)})


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("what", ["60", "60s", "60 s", "60.0"])
def test_cells_of_so_many_seconds(what):
    grid, remarks = read_grid(what, ends_at(150.5))
    assert remarks == []
    assert spans(grid) == [("film-0001", 0, 60), ("film-0002", 60, 120), ("film-0003", 120, 150.5)]
    assert {item.media for item in grid} == {item.film for item in grid} == {"film"}
    assert grid.name == "short-60s"


def test_a_film_of_whole_cells_and_one_shorter_than_a_cell():
    assert len(read_grid("60", ends_at(120))[0]) == 2
    assert len(read_grid("60", ends_at(120.000001))[0]) == 2  # no clip is a microsecond long
    assert len(read_grid("60", ends_at(120.000002))[0]) == 3
    assert spans(read_grid("60", ends_at(12.5))[0]) == [("film-0001", 0, 12.5)]


@settings(deadline=None, max_examples=80)
@given(st.integers(2, 10**8), st.integers(10**4, 10**8))
def test_clips_cover_the_film_from_0_to_the_end(end, step):
    """To the microsecond, and none is too short for a span."""
    length = f"{step // 10**6}.{step % 10**6:06d}"
    grid, _ = read_grid(length, ends_at(end / 1e6))
    starts, ends = (np.rint(times * 1e6) for times in (grid.items.starts, grid.items.ends))
    assert (starts[1:] == ends[:-1]).all()
    assert (ends - starts)[:-1].tolist() == [step] * (len(grid) - 1)
    assert starts[0] == 0
    assert 0 <= end - ends[-1] <= 1
    assert 2 <= ends[-1] - starts[-1] <= step


def test_films_whose_end_nobody_says():
    grid, [remark] = read_grid("100", worked())
    assert grid.items.ends[-1] == 420
    assert (remark.problem, remark.action) == (
        "1 film without an end: film",
        "the last clip ends with the last segment",
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("0", "a grid needs clips longer than 0 s"),
        ("0.00001", "would have 15,050,000 clips; take longer ones"),
        ("sixty", "sixty is not a grid"),
        ("-60", "-60 is not a grid"),
    ],
)
def test_what_is_no_grid(what, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        read_grid(what, ends_at(150.5))


def test_shots_in_a_table(tmp_path):
    """In any order, without ids; what else the table says is kept."""
    path = write(
        tmp_path / "shots.csv",
        "scene,film,end,start",
        "kitchen,film,200,100",
        "credits,film,420,200",
        "street,film,100,0",
    )
    grid, remarks = read_grid(path, worked())
    assert remarks == []
    assert spans(grid) == [("film-0001", 0, 100), ("film-0002", 100, 200), ("film-0003", 200, 420)]
    assert grid.items.extra == {"scene": ["street", "kitchen", "credits"]}
    assert grid.name == "shots"


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_shots_as_a_spreadsheet_writes_them(tmp_path, mark):
    """With a byte order mark, clock times, and films by the names that importers make ids of."""
    rows = ["film,start,end", "Juno (2007),0:00:00,0:01:40.5", "Juno (2007),0:01:40.5,150"]
    path = tmp_path / "shots.csv"
    path.write_text("".join(f"{row}\n" for row in rows).replace(",", mark), encoding="utf-8-sig")
    grid, remarks = read_grid(path, ends_at(150, "Juno_2007"))
    assert remarks == []
    assert spans(grid) == [("Juno_2007-0001", 0, 100.5), ("Juno_2007-0002", 100.5, 150)]


def test_bad_rows_of_a_grid_are_named(tmp_path):
    path = write(
        tmp_path / "scenes.csv",
        "film,start,end,id",
        "film,0,100,a",
        "film,100,100,b",
        "film,150,120,c",
        "film,100,2h,d",
        "film,100,200,a",
        "film,100,200,A",
        "film,100,200,../e",
        ",100,200,f",
        "film,-1,200,g",
        "film,nan,200,g",
        "film,100,200,h",
    )
    grid, remarks = read_grid(path, worked())
    assert grid.ids == ["a", "h"]
    assert {issue.action for issue in remarks} == {"left out"}
    assert [(issue.location.rpartition(" ")[2], issue.problem) for issue in remarks] == [
        ("3", "the clip has no length (100 to 100)"),
        ("4", "the clip ends before it starts (150 to 120)"),
        ("5", "end '2h' is not a time; write seconds or h:mm:ss"),
        ("6", "another clip is called 'a' already"),
        ("7", "another clip is called 'A' already"),
        ("8", remarks[5].problem),
        ("9", "film: an empty id"),
        ("10", "start '-1' is not a time; write seconds or h:mm:ss"),
        ("11", "start 'nan' is not a time; write seconds or h:mm:ss"),
    ]
    assert "'../e' is not allowed" in remarks[5].problem


def test_gaps_and_overlaps_are_named(tmp_path):
    path = write(
        tmp_path / "shots.csv",
        "film,start,end",
        "film,0,100",
        "film,100.000002,200",
        "film,212.5,300",
        "film,290,310",
        "film,220,230",
    )
    _, remarks = read_grid(path, worked())
    assert [issue.problem for issue in remarks] == [
        "a gap of 12.5 s before film-0003",
        "film-0004 overlaps what is before it by 80 s",
        "film-0005 overlaps what is before it by 10 s",
    ]
    assert all(issue.action.startswith("kept") for issue in remarks)


def test_a_manifest_with_spans(tmp_path):
    """Where the film is not named it is the media's name; items without a span are named."""
    items = [
        Item("a", film="film", start=0.0, end=100.0),
        Item("b", media="film.mkv", start=100.0, end=200.0),
        Item("c", film="film"),
    ]
    Manifest("mine", Items.of(items)).save(tmp_path / "mine")
    grid, [remark] = read_grid(tmp_path / "mine", worked())
    assert (grid.folder, grid.ids) == (tmp_path / "mine", ["a", "b", "c"])
    assert (remark.film, remark.problem, remark.action) == ("film", "c has no span", "left out")
    assert [labels.ids for labels in project(worked(), grid).label_sets] == [["a", "b"]] * 2


def test_a_manifest_without_spans(tmp_path):
    Manifest("mine", Items.of([Item("a", film="film")])).save(tmp_path / "mine")
    with pytest.raises(AnnotationError, match="the items have no spans"):
        read_grid(tmp_path / "mine", worked())


def test_films_that_only_one_side_has(tmp_path):
    pair = segments("one", FIRST) + segments("one", SECOND, "other")
    timelines = Timelines.of("two films", pair, films={"unseen": Film(end=10.0)})
    shots = ("film,start,end", "film,0,100", "third,0,100")
    grid, remarks = read_grid(write(tmp_path / "shots.csv", *shots), timelines)
    assert [(issue.film, issue.problem, issue.action) for issue in remarks] == [
        ("other", "the grid has no clips of it", "left out"),
        ("unseen", "nobody annotated it", "no labels"),
        ("third", "nobody annotated it", "no labels"),
    ]
    assert project(timelines, grid).label_sets[0].ids == ["film-0001"]
    elsewhere = write(tmp_path / "third.csv", "film,start,end", "third,0,100")
    with pytest.raises(
        AnnotationError, match="no clips of any film of the timelines: it has third"
    ):
        read_grid(elsewhere, timelines)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", ManifestError),
        (b"film,start\nfilm,0\n", ManifestError),
        (b"film,start,end\n\xff,0,1\n", ManifestError),
        (b"film,start,end\n", AnnotationError),
        (b"film,start,end\nfilm,1,1\n", AnnotationError),
        (b"PK\x03\x04\x00\x00", ManifestError),
    ],
)
def test_tables_that_cannot_be_read_are_one_line(tmp_path, text, error):
    path = tmp_path / "shots.csv"
    path.write_bytes(text)
    with pytest.raises(error) as raised:
        read_grid(path, worked())
    assert "shots.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_timelines_without_segments():
    with pytest.raises(AnnotationError, match="hold no segments"):
        read_grid("60", Timelines.of("empty", []))


def test_a_list_with_its_header_in_capitals(tmp_path):
    path = write(tmp_path / "shots.csv", "Film;Start;END;ID;Note", "film;0;1,5;one;x")
    grid, _ = read_grid(path, worked())
    assert (grid.ids, grid.items.ends.tolist(), grid.items.extra) == (
        ["one"],
        [1.5],
        {"Note": ["x"]},
    )


def test_a_grid_in_another_case_and_one_that_is_too_fine(tmp_path):
    path = write(tmp_path / "shots.csv", "film,start,end", "FILM,0,100")
    with pytest.raises(AnnotationError, match=r"no clips of any film .*; did you mean FILM\?"):
        read_grid(path, worked())
    assert len(read_grid("0:00:42", worked())[0]) == 10
    with pytest.raises(UsageError, match="would have 1,050,000 clips"):
        read_grid("0.0004", worked())
