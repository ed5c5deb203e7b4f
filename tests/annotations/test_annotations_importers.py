"""Importers from MObyGaze and from any table to timelines; bad rows are named."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Remark, Segment
from obygaze_features.errors import AnnotationError
from tests.kit.files import csv_rows, refused, write
from tests.kit.timelines import worked
from tests.test_docs import ROOT, Page

MOBYGAZE = "index;annotator;label;concepts;comment;start_frame;end_frame;imdb_key;framerate"
HEADER = "film,annotator,start,end,level"


def read(tmp_path, *rows, header=HEADER, **options):
    return of.Timelines.from_csv(write(tmp_path / "marks.csv", header, *rows), **options)


def test_the_how_to_converts_tables_and_back(tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    Page(obygaze).run((ROOT / "docs/how-to/timelines.md").read_text())
    folders = ("timelines/mine", "timelines/again", "timelines/third")
    first, again, third = map(of.Timelines.load, folders)
    assert first.segments == again.segments == third.segments
    assert again.films == first.films


def test_bad_rows_are_named_and_the_rest_imported(tmp_path, obygaze):
    bad = {
        "1;a;Sure;[];[];60;49;tt1;25": ("does not end after it starts", "left out"),
        "2;a;Sure;[];[];60;70;tt1;0": ("framerate must be above 0 (got '0')", "left out"),
        "3;a;Sure;[];[];60;70;tt1;": ("framerate '' is not a number", "left out"),
        "4;a;Sure;[open('x')];[];60;70;tt1;25": ("is not a list", "left out"),
        "5;a;Sure;['Body'];[];0;49;tt1;25": ("repeats another row", "left out"),
        "6;a;Sure;['Lighting|Body'];no list;100;149;tt1;25": ("unknown concept 'Light", "kept"),
        "9;a;Sure;[];[];60;9999999;tt1;0.001": ("ends too late for a film", "left out"),
        "7;b;Sure;[];[];250;300;tt1;25": ("starts after the end of its film", "left out"),
        "8;b;Sure;[];[];200;300;tt1;25": ("ends after the end of its film", "cut"),
    }
    saved_again = "0;a;Sure;['Body'];[]; 0;49;tt1;25,0"  # by a spreadsheet
    source = write(tmp_path / "m.csv", MOBYGAZE, saved_again, *bad)
    films = write(tmp_path / "films.csv", "film,title,end", "tt1,A Film,10", "tt2,Unmarked,")
    command = ("annotations", "import", "mobygaze", source, "--film-table", films)
    result = obygaze(*command, "-o", tmp_path / "t", code=3)
    assert "left out: 7" in result.stdout
    outcome = of.Timelines.load(tmp_path / "t")
    expected = [("a", 0, 2), ("a", 4, 6), ("b", 8, 10)]
    assert [(s.annotator, s.start, s.end) for s in outcome.segments] == expected
    assert outcome.segments[1].comment == "no list"
    assert outcome.segments[1].concepts == ("Body", "Lighting")
    assert "Lighting" not in outcome.scheme.visual_concepts
    found = {remark.where.partition(" (")[0]: remark for remark in outcome.remarks}
    assert found.pop("films").what == "no rows for tt2"
    for line, (fact, action) in enumerate(bad.values(), start=3):
        remark = found[f"m.csv, line {line}"]
        assert fact in remark.what
        assert remark.done == action
        assert remark.where in result.stdout


def test_columns_and_names_are_mapped(tmp_path):
    header = "Movie;film;who;Start;END;Level;Concepts;comment;LEVEL"
    row = 'Juno;7;Ann;1;2;HARD-NEGATIVE;"Body|Look|low_key|Low-key";é;S'
    table = write(tmp_path / "marks.csv", header, row)
    result = of.Timelines.from_csv(table, {"film": "Movie", "annotator": "who"})
    concepts = ("Look", "Body", "Low-key")
    assert result.segments == (Segment("Juno", "Ann", 1, 2, "HN", concepts, "é"),)
    # Names become ids, and the film keeps its title.
    result = read(tmp_path, "Été à Paris,Anna B,0,1,S", "кино,Anna B,0,1,S")
    assert {film.title for film in result.films.values()} == {"Été à Paris", "кино"}
    result.save(tmp_path / "t")
    assert of.Timelines.load(tmp_path / "t") == result
    with pytest.raises(AnnotationError, match="'A B' and 'a_b' would both get the id 'a_b'"):
        read(tmp_path, "f,A B,0,1,S", "f,a_b,0,1,S")
    result = read(tmp_path, "f,ann,0,1,S", "F,Ann,1,2,S", "F,Ann,2,3,S")
    assert (result.annotators, list(result.films)) == (["Ann"], ["F"])


@pytest.mark.parametrize("column", ["file", "Media", "video", "film"])
def test_films_are_named_by_files(tmp_path, column):
    names = ["New Moon.mp4", "clips/Blow-up.MKV", "C:\\films\\M.avi", "Dr. No"]
    films = write(tmp_path / "films.csv", "film,title,end", "New Moon.mp4,The Moon,50")
    rows = [f"{name},ann,0,10,S" for name in names]
    result = read(tmp_path, *rows, header=f"{column},annotator,start,end,level", films=films)
    names_read = {film: details.name for film, details in result.films.items()}
    assert names_read == {"Dr._No": "Dr. No", "M": "", "New_Moon": "New Moon", "clips": ""}
    assert result.films["New_Moon"] == Film("The Moon", 50, "New Moon")


@pytest.mark.parametrize(
    ("row", "fact"), [("f,T,0", "an end above 0"), (" é,T,1:00", "film 'e' must be listed once")]
)
def test_an_impossible_table_of_films_is_refused(tmp_path, row, fact):
    films = write(tmp_path / "films.csv", "film,title,end", "e,E,1:30:00", row)
    with pytest.raises(of.ObygazeError, match=f"line 3: .*{fact}"):
        read(tmp_path, "f,a,0,1,S", films=films)


def test_a_table_without_a_good_row_is_refused(tmp_path, obygaze):
    source = write(tmp_path / "marks.csv", HEADER, "f,a,2,1,S", "f,a,3,1,S")
    command = ("annotations", "import", "csv", source, "-o", tmp_path / "t")
    refused(obygaze(*command), "line 3 (0:00:03 to 0:00:01): does not end")
    twice = ("--column", "film=x", "--column", "film=y")
    refused(obygaze(*command, *twice), "each name once", code=2)


def test_the_nine_annotators_are_copied(tmp_path, obygaze):
    obygaze("annotations", "example", tmp_path / "nine", code=0)
    assert len(csv_rows(tmp_path / "nine/segments.csv")) == 5152


SEGMENTS = st.builds(
    Segment,
    film=st.sampled_from(["f", "Gé", ""]),
    annotator=st.sampled_from(["a", "b"]),
    start=st.integers(0, 40),
    end=st.integers(0, 40),
    level=st.sampled_from(["EN", "sure", "Not Sure", "maybe"]),
    concepts=st.sets(st.sampled_from(["Body", "look", "Clothes", "Fog", "fog"])),
    comment=st.sampled_from(["", "'+1", "=why"]),
)


@given(st.lists(SEGMENTS, max_size=12), st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_rows_does_not_matter(tmp_path, drawn, chance):
    rows = ["Gé,c,0,1,EN,,"]
    for own in drawn:
        concepts = ";".join(sorted(own.concepts))
        who = f"{own.film},{own.annotator}"
        times = f"{own.start},{own.end}"
        marks = f"{own.level},{concepts},{own.comment}"
        rows.append(f"{who},{times},{marks}")
    options = {"header": f"{HEADER},concepts,comment", "films": {"f": Film("F", 30.0)}}
    first = read(tmp_path, *rows, **options)
    second = read(tmp_path, *chance.sample(rows, len(rows)), **options)
    assert (first.segments, first.films) == (second.segments, second.films)
    assert first.scheme == second.scheme
    # Every row is either a segment, or named as left out.
    left_out = [remark.where for remark in first.remarks if remark.done == "left out"]
    assert len(set(left_out)) == len(rows) - len(first.segments)


def test_times_and_tables_of_spreadsheets_are_read(tmp_path):
    rows = ("film;annotator;start;end;level;concepts", "Été;ann;1,5;0:02:03,25;S;Body, Look")
    lines = (line.replace(";", "\t") + "\r" for line in rows)
    source = write(tmp_path / "marks.csv", *lines, encoding="utf-8-sig")
    films = write(tmp_path / "films.csv", "Film;Title;End", "Été;Summer;122,5")
    result = of.Timelines.from_csv(source, films=films)
    assert result.segments == (Segment("Ete", "ann", 1.5, 122.5, "S", ("Look", "Body")),)
    assert [remark.done for remark in result.remarks] == ["cut"]


def test_edited_timelines_are_read_or_refused(tmp_path, obygaze):
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
