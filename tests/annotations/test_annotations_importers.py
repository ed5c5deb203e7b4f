"""Importers from MObyGaze and from any table to timelines; bad rows are named."""

import csv
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.annotations.build import SourceRow, build_timelines, read_films
from obygaze_features.annotations.export_elan import elan_files
from obygaze_features.common.tables import escape_formula, unescape_formula
from obygaze_features.errors import AnnotationError
from obygaze_features.items.media import MediaFolder
from obygaze_features.manifests.labels import parse_concepts
from tests.kit.authors import make_authors
from tests.kit.files import refused, touch, write

MOBYGAZE = "index;annotator;label;concepts;comment;start_frame;end_frame;imdb_key;framerate"
HEADER = "film,annotator,start,end,level"


def table(tmp_path, *rows, header=HEADER):
    return write(tmp_path / "marks.csv", header, *rows)


def read(tmp_path, *rows, header=HEADER, **options):
    return of.Timelines.from_csv(table(tmp_path, *rows, header=header), **options)


def test_every_row_of_mobygaze_is_imported(tmp_path):
    path = make_authors(tmp_path) / "mobygaze/mobygaze_dataframe.csv"
    result = of.Timelines.from_mobygaze(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    codes = {"Easy Negative": "EN", "Hard Negative": "HN", "Not Sure": "NS", "Sure": "S"}

    def time(row, column, frames):
        return float(round((int(row[column]) + frames) / Fraction(row["framerate"]), 6))

    expected = [
        (
            row["imdb_key"],
            row["annotator"],
            time(row, "start_frame", 0),
            time(row, "end_frame", 1),
            codes[row["label"]],
            "why" if "why" in row["comment"] else "",
        )
        for row in rows
    ]
    actual = [(s.film, s.annotator, s.start, s.end, s.level, s.comment) for s in result.segments]
    assert actual == sorted(expected)
    assert result.films["tt0467406"] == Film("Juno (2007)")  # as everywhere


def test_bad_rows_are_named_and_the_rest_imported(tmp_path, obygaze):
    bad = {
        "1;a;Sure;[];[];60;49;tt1;25": ("does not end after it starts", "left out"),
        "2;a;Sure;[];[];60;70;tt1;0": ("framerate must be above 0 (got '0')", "left out"),
        "3;a;Sure;[];[];60;70;tt1;": ("framerate '' is not a number", "left out"),
        "4;a;Sure;Body;[];60;70;tt1;25": ("'Body' is not a list", "left out"),
        "5;a;Sure;['Body'];[];0;49;tt1;25": ("repeats another row", "left out"),
        "6;a;Sure;['Lighting|Body'];no list;100;149;tt1;25": ("unknown concept 'Light", "kept"),
        "9;a;Sure;[];[];60;9999999;tt1;0.001": ("ends too late for a film", "left out"),
        "7;b;Sure;[];[];250;300;tt1;25": ("starts after the end of its film", "left out"),
        "8;b;Sure;[];[];200;300;tt1;25": ("ends after the end of its film", "cut"),
    }
    saved_again = "0;a;Sure;['Body'];[]; 0;49;tt1;25,0"  # by a spreadsheet
    source = write(tmp_path / "m.csv", MOBYGAZE, saved_again, *bad)
    films = write(tmp_path / "films.csv", "film,title,end", "tt1,A Film,10")
    command = ("annotations", "import", "mobygaze", source, "--film-table", films)
    result = obygaze(*command, "-o", tmp_path / "t", code=3)
    assert "left out: 7" in result.stdout
    outcome = of.Timelines.load(tmp_path / "t")
    assert outcome.name == "mobygaze"
    expected = [("a", 0, 2), ("a", 4, 6), ("b", 8, 10)]
    assert [(s.annotator, s.start, s.end) for s in outcome.segments] == expected
    assert outcome.segments[1].comment == "no list"
    assert outcome.segments[1].concepts == ("Body", "Lighting")
    assert "Lighting" not in outcome.scheme.visual_concepts
    found = {remark.where.partition(" (")[0]: remark for remark in outcome.remarks}
    for line, (fact, action) in enumerate(bad.values(), start=3):
        remark = found[f"m.csv, line {line}"]
        assert fact in remark.what
        assert remark.done == action
        assert remark.where in result.stdout


def test_columns_and_names_are_mapped(tmp_path):
    header = "Movie;film;who;Start;END;Level;Concepts;comment"
    row = 'Juno;7;Ann;1;2;HARD-NEGATIVE;"Body|Look|low_key|Low-key";é'
    result = of.Timelines.from_csv(
        write(tmp_path / "marks.csv", header, row), {"film": "Movie", "annotator": "who"}
    )
    concepts = ("Look", "Body", "Low-key")
    assert result.segments == (Segment("Juno", "Ann", 1, 2, "HN", concepts, "é"),)
    # Names become ids, and the film keeps its title.
    result = read(tmp_path, "Été à Paris,Anna B,0,1,S", "кино,Anna B,0,1,S")
    assert {film.title for film in result.films.values()} == {"Été à Paris", "кино"}
    assert result.annotators == ["Anna_B"]
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


@pytest.mark.parametrize(("row", "fact"), [
    ("f,T,0", "an end above 0"), (" é,T,1:00", "film 'e' must be listed once"),
])  # fmt: skip
def test_an_impossible_table_of_films_is_refused(tmp_path, row, fact):
    films = write(tmp_path / "films.csv", "film,title,end", "e,E,1:30:00", row)
    with pytest.raises(of.ObygazeError, match=f"line 3: .*{fact}"):
        read(tmp_path, "f,a,0,1,S", films=films)


def test_an_impossible_table_is_refused(tmp_path, obygaze):
    source = table(tmp_path, "f,a,2,1,S", "f,a,3,1,S")
    command = ("annotations", "import", "csv", source, "-o", tmp_path / "t")
    assert obygaze(*command, "--column", "film").exit_code == 2
    refused(obygaze(*command), "line 3 (0:00:03 to 0:00:01): does not end")
    write(source, "film,annotator,start,level", "f,a,0,1")
    refused(obygaze(*command), "no column 'end'")


NAMES = st.sampled_from(["Body", "look", "Clothes", "Fog", "fog", "A, b"])
SEGMENTS = st.builds(
    Segment,
    film=st.sampled_from(["f", "Gé", ""]),
    annotator=st.sampled_from(["a", "b"]),
    start=st.integers(0, 40).map(float),
    end=st.integers(0, 40).map(float),
    level=st.sampled_from(["EN", "sure", "Not Sure", "maybe"]),
    concepts=st.lists(NAMES, max_size=3).map(tuple),
    comment=st.sampled_from(["", "why"]),
)
ROWS = st.builds(SourceRow, where=st.uuids().map(str), segment=SEGMENTS)


@given(st.lists(ROWS, max_size=12), st.randoms())
def test_the_order_of_rows_does_not_matter(rows, chance):
    films = {"f": Film("F", 30.0)}
    rows = [*rows, SourceRow("known", Segment("Gé", "c", 0, 1, "EN"))]
    first = build_timelines("t", rows, films)
    second = build_timelines("t", chance.sample(rows, len(rows)), films)
    assert (first.segments, first.scheme) == (second.segments, second.scheme)
    assert first.films == second.films
    # Every row is either a segment, or named as left out.
    left_out = [remark.where for remark in first.remarks if remark.done == "left out"]
    assert len(set(left_out)) == len(rows) - len(first.segments)


@given(
    st.lists(st.sampled_from(["Body", "A, b", "c; d", "Type of shot"]), unique=True),
    st.text(alphabet="'=+-@\t\rab"),
)
def test_cells_survive_a_round_trip(names, text):
    assert list(parse_concepts("|".join([*names, ""]))) == names
    assert unescape_formula(escape_formula(text)) == text
    assert not escape_formula(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_films_are_found_by_their_original_names(tmp_path):
    first = read(tmp_path, "Dr. No,a,0,60,S", "Dr. No,b,0,50,S", "A/C,a,0,9,S")
    for name, text in elan_files(first).items():
        write(tmp_path / "out" / name, text)
    back = of.Timelines.from_elan(tmp_path / "out")
    assert back.films == first.films
    videos = touch(tmp_path / "videos", "Dr. No.mp4", "A_C.mp4")
    files = {item.film: MediaFolder(videos).find(item).name for item in of.project(back, 60).grid}
    assert sorted(files.values()) == ["A_C.mp4", "Dr. No.mp4"]


def test_times_and_tables_of_spreadsheets_are_read(tmp_path):
    rows = ("film;annotator;start;end;level;concepts", "Été;ann;1,5;0:02:03,25;S;Body, Look")
    lines = (line.replace(";", "\t") + "\r" for line in rows)
    source = write(tmp_path / "marks.csv", *lines, encoding="utf-8-sig")
    films = read_films(write(tmp_path / "films.csv", "Film;Title;End", "Été;Summer;122,5"))
    result = of.Timelines.from_csv(source, films=films)
    assert result.segments == (Segment("Ete", "ann", 1.5, 122.5, "S", ("Look", "Body")),)
    assert [remark.done for remark in result.remarks] == ["cut"]
    # A misspelt film in the table of films, which explains why nothing is cut at its end.
    films = read_films(write(tmp_path / "films.csv", "film,title,end", "leon,Léon,0:01"))
    result = read(tmp_path, "Léon,a,0,61,S", films=films)
    assert result.films == {"Leon": Film("Léon", name="Léon")}
    [remark] = result.remarks
    assert remark.what == "no rows for leon; did you mean Leon?"
