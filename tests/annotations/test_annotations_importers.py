"""From MObyGaze's file and any table to timelines; what is wrong with a row is named."""

import csv
import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from obygaze_features.annotations import Film, Issue, Segment, Timelines
from obygaze_features.annotations.build import SourceRow, build_timelines, read_films
from obygaze_features.common.tables import escape_formula, unescape_formula
from obygaze_features.errors import AnnotationError, ManifestError, UsageError, VideoError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.labels import format_concepts, parse_concepts
from obygaze_features.manifests.media import MediaFolder

MOBYGAZE = "index;annotator;label;concepts;comment;start_frame;end_frame;imdb_key;framerate\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def table(tmp_path, *rows, header="film,annotator,start,end,level"):
    return write(tmp_path / "marks.csv", "\n".join([header, *rows, ""]))


def spans(timelines):
    return [(segment.start, segment.end) for segment in timelines.segments]


def what(timelines):
    return [(issue.location, issue.problem, issue.action) for issue in timelines.issues]


def test_the_sample_of_mobygaze(authors):
    path = authors / "mobygaze/sample_120_rows.csv"
    result = Timelines.from_mobygaze(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    codes = {"Easy Negative": "EN", "Hard Negative": "HN", "Not sure": "NS", "Sure": "S"}
    rate = Fraction("23.976")
    wanted = sorted(
        (
            row["annotator"],
            float(round(int(row["start_frame"]) / rate, 6)),
            float(round((int(row["end_frame"]) + 1) / rate, 6)),
            codes[row["label"]],
        )
        for row in rows
    )
    assert [
        (segment.annotator, segment.start, segment.end, segment.level)
        for segment in result.segments
    ] == wanted
    assert result.films == {"tt0097576": Film("Indiana Jones and the Last Crusade")}
    assert result.segments[0].comment == "credits"
    # Two annotators once began a segment on the last frame of the one before.
    assert {(issue.location, issue.action) for issue in result.issues} == {
        ("sample_120_rows.csv, line 64", "kept"),
        ("sample_120_rows.csv, line 101", "kept"),
    }


def test_bad_rows_are_named_and_the_others_read(tmp_path, obygaze):
    rows = [
        "0;a;Sure;['Body'];[];0;49;tt1;25",
        "1;a;Sure;[];[];60;49;tt1;25",
        "2;a;Maybe;[];[];60;70;tt1;25",
        "3;a;Sure;[];[];60;70;tt1;0",
        "4;a;Sure;[];[];60;70;tt1;",
        "5;a;Sure;Body;[];60;70;tt1;25",
        "6;a;Sure;['Body'];[];0;49;tt1;25",
        "7;a;Sure;['Body|Look'];[];80;90;tt1;25",
        "8;;Sure;[];[];80;90;tt1;25",
        "9;a;Sure;['Lighting'];not a list;100;149;tt1;25",
        "10;b;Sure;[];[];250;300;tt1;25",
        "11;b;Sure;[];[];200;300;tt1;25",
    ]
    source = write(tmp_path / "m.csv", MOBYGAZE + "\n".join(rows) + "\n")
    films = write(tmp_path / "films.csv", "film,title,end\ntt1,A Film,10\n")
    ask = ["annotations", "import", "mobygaze", source, "--films", films, "-o", tmp_path / "t"]
    result = obygaze(*ask)
    assert result.exit_code == 3
    outcome = Timelines.load(tmp_path / "t")
    assert [(segment.annotator, segment.start, segment.end) for segment in outcome.segments] == [
        ("a", 0, 2), ("a", 4, 6), ("b", 8, 10),
    ]  # fmt: skip
    assert outcome.segments[1].comment == "not a list"
    assert "Lighting" in outcome.scheme.concept_names
    assert "Lighting" not in outcome.scheme.visual_concepts
    named = {int(issue.location.removeprefix("m.csv, line ")): issue for issue in outcome.issues}
    for line, (words, done) in {
        3: ("ends (frame 49) before it starts (60)", "left out"),
        4: ("unknown label 'Maybe'", "left out"),
        5: ("framerate '0' is not above 0", "left out"),
        6: ("framerate '' is not a number", "left out"),
        7: ("'Body' is not a list", "left out"),
        8: ("repeats m.csv, line 2", "left out"),
        9: ("unknown concept 'Body|Look'", "left out"),
        10: ("names no annotator", "left out"),
        11: ("unknown concept 'Lighting'", "kept"),
        12: ("starts at 0:00:10, past the film's end 0:00:10", "left out"),
        13: ("ends at 0:00:12.04, past the film's end 0:00:10", "cut"),
    }.items():
        assert words in named[line].problem
        assert named[line].action == done
        assert f"m.csv, line {line}: " in result.stdout
    assert len(named) == len(outcome.issues) == 11
    assert "9 rows left out" in result.stdout

    arguments = obygaze(*ask, "--overwrite", "--json")
    assert arguments.exit_code == 3
    facts = json.loads(arguments.stdout)
    assert [Issue(*issue.values()) for issue in facts["remarks"]] == list(outcome.issues)
    assert (facts["segments"], facts["films"], facts["annotators"]) == (3, ["tt1"], ["a", "b"])


def test_issues_shown_are_limited_with_left_out_first(tmp_path, obygaze):
    rows = [f"f,a,{start},{start + 2},S" for start in range(30)]
    source = table(tmp_path, *rows, "f,a,9,3,S")
    result = obygaze("annotations", "import", "csv", source, "-o", tmp_path / "t")
    lines = result.stdout.splitlines()
    assert "marks.csv, line 32: f a: ends (0:00:03) before it starts" in lines[1]
    remarks = tmp_path / "t" / "remarks.csv"
    assert f"29 segments overlap others by up to 0:00:01 (kept): {remarks}" in lines
    assert len(Timelines.load(tmp_path / "t").issues) == 30


def test_seconds_clock_times_and_frames_say_the_same(tmp_path):
    seconds = Timelines.from_csv(table(tmp_path, "f,a,75.5,3600.04,Sure", "f,a,0,1,EN"))
    clock = Timelines.from_csv(
        table(tmp_path, "f,a,1:15.5,01:00:00.040,Sure", "f,a,0:00,0:00:01,EN")
    )
    header = "film,annotator,start_frame,end_frame,level"
    frames = Timelines.from_csv(
        table(tmp_path, "f,a,1887.5,90000,Sure", "f,a,0,24,EN", header=header), frame_rate=25
    )
    own = Timelines.from_csv(
        table(tmp_path, "f,a,3775,180001,S,50", "f,a,0,24,EN,", header=header + ",FrameRate"),
        frame_rate=25,
    )
    assert spans(seconds) == spans(clock) == spans(frames) == [(0, 1), (75.5, 3600.04)]
    assert spans(own) == [(0, 1), (75.5, 3600.04)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("f,a,x,2,S", "start 'x' is not a time; write seconds or h:mm:ss"),
        ("f,a,-1,2,S", "start '-1' is not a time"),
        ("f,a,nan,2,S", "start 'nan' is not a time"),
        ("f,a,1:75,2:00,S", "start '1:75' is not a time"),
        ("f,a,0:75:00,2:00:00,S", "start '0:75:00' is not a time"),
        ("f,a,1,2000000000,S", "end '2000000000' is not a time in a film"),
        ("f,a,2,2,S", "ends where it starts (0:00:02)"),
        ("f,a,1,2,", "has no level, at 0:00:01; choose one of Easy Negative"),
        (",a,1,2,S", "names no film"),
        (f"f,{'x' * 200},1,2,S", "is longer than 128 characters"),
    ],
)
def test_a_cell_that_cannot_be_read(tmp_path, row, message):
    result = Timelines.from_csv(table(tmp_path, "f,a,0,1,EN", row))
    assert spans(result) == [(0, 1)]
    [remark] = result.issues
    assert remark.location == "marks.csv, line 3"
    assert message in remark.problem
    assert remark.action == "left out"


@pytest.mark.parametrize("rate", ["0", "", "x", "-25"])
def test_a_frame_rate_of_nothing(tmp_path, rate):
    header = "film,annotator,start_frame,end_frame,level,framerate"
    result = Timelines.from_csv(
        table(tmp_path, "f,a,0,24,EN,25", f"f,a,25,49,S,{rate}", header=header)
    )
    assert spans(result) == [(0, 1)]
    assert "framerate" in result.issues[0].problem


def test_columns_of_a_spreadsheet_are_mapped(tmp_path):
    source = tmp_path / "marks.csv"
    text = (
        'Movie;film;who;Start;END;Level;Concepts;comment\r\nJuno;7;Ann;1;2;sure;"Body|Look";é\r\n'
    )
    source.write_bytes(b"\xef\xbb\xbf" + text.encode())
    result = Timelines.from_csv(source, {"film": "Movie", "annotator": "who"})
    assert result.segments == (Segment("Juno", "Ann", 1, 2, "S", ("Look", "Body"), "é"),)


def test_names_become_ids_and_the_film_keeps_its_title(tmp_path):
    rows = ["Été à Paris,Anna B,0,1,S", "кино,Anna B,0,1,S"]
    result = Timelines.from_csv(table(tmp_path, *rows))
    assert {film.title for film in result.films.values()} == {"Été à Paris", "кино"}
    assert result.annotators == ["Anna_B"]
    result.save(tmp_path / "t")
    assert Timelines.load(tmp_path / "t") == result
    with pytest.raises(AnnotationError, match="'A B' and 'a_b' would both be called 'a_b'"):
        Timelines.from_csv(table(tmp_path, "f,A B,0,1,S", "f,a_b,0,1,S"))


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        ("movie,annotator,start,end,level", ManifestError, "--column film=NAME"),
        ("film,annotator,start_frame,end_frame,level", AnnotationError, "--frame-rate"),
        ("film,annotator,start_frame,level", ManifestError, "no column 'end_frame'"),
        ("film,annotator,begin,end,level", ManifestError, "no column 'start'"),
    ],
)
def test_a_table_without_what_it_takes(tmp_path, header, error, message):
    with pytest.raises(error, match=message):
        Timelines.from_csv(table(tmp_path, ",".join("x" * len(header.split(","))), header=header))


def test_options_that_do_not_fit(tmp_path, obygaze):
    source = table(tmp_path, "f,a,0,1,S")
    with pytest.raises(UsageError, match="has start and end"):
        Timelines.from_csv(source, frame_rate=25)
    with pytest.raises(UsageError, match="unknown meaning 'id'"):
        Timelines.from_csv(source, {"id": "film"})
    with pytest.raises(ManifestError, match="no column 'who'; there are film, annotator"):
        Timelines.from_csv(source, {"annotator": "who"})
    for option in (["--column", "film"], ["--delimiter", "ab"], ["--frame-rate", "0"]):
        result = obygaze("annotations", "import", "csv", source, "-o", tmp_path / "t", *option)
        assert result.exit_code == 2
    assert not (tmp_path / "t").exists()


def test_what_holds_nothing_is_not_saved(tmp_path, obygaze):
    for rows, reason in [
        ((), "marks holds no segment"),
        (("f,a,2,1,S",), "marks.csv, line 2: f a: ends"),
    ]:
        source = table(tmp_path, *rows)
        result = obygaze("annotations", "import", "csv", source, "-o", tmp_path / "t")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert reason in result.stderr
        assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("f,T,x", "line 3: end 'x' is not a time"),
        ("f,T,0", "line 3: film 'f' ends where it starts"),
        ("e,T,1:00", "line 3: film 'e' is there already"),
        (" é,T,1:00", "line 3: film 'é' is there already"),
    ],
)
def test_a_table_of_films_that_is_not_right(tmp_path, obygaze, row, message):
    films = write(tmp_path / "films.csv", f"film,title,end\ne,E,1:30:00\n{row}\n")
    source = table(tmp_path, "f,a,0,1,S")
    result = obygaze("annotations", "import", "csv", source, "--films", films, "-o", tmp_path / "t")
    assert result.exit_code == 1
    assert message in result.stderr


def test_nested_segment_does_not_hide_the_next_overlap(tmp_path):
    result = Timelines.from_csv(
        table(tmp_path, "f,a,0,50,EN", "f,a,5,10,S", "f,a,20,60,HN", "f,a,60,61,S")
    )
    assert [(issue.location.rpartition(" ")[2], issue.problem) for issue in result.issues] == [
        ("3", "overlaps marks.csv, line 2 by 0:00:05"),
        ("4", "overlaps marks.csv, line 2 by 0:00:30"),
    ]


def test_a_misspelt_film_of_the_table_of_films_is_named(tmp_path, obygaze):
    """Its end would else be known, and nothing be cut there; nobody would see why."""
    films = write(tmp_path / "films.csv", "film,title,end\nJuno,Juno,1:00\nleon,Léon,0:01\n")
    source = table(tmp_path, "Léon,a,0,61,S", "Juno,a,0,59,S")
    result = obygaze("annotations", "import", "csv", source, "--films", films, "-o", tmp_path / "t")
    assert result.exit_code == 0
    assert "films: no rows of 1 film: leon; did you mean Leon? (not used)" in result.output
    assert Timelines.load(tmp_path / "t").films == {
        "Juno": Film("Juno", 60),
        "Leon": Film("Léon", name="Léon"),
    }


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
ROWS = st.builds(SourceRow, location=st.uuids().map(str), segment=SEGMENTS)


@given(st.lists(ROWS, max_size=12), st.randoms())
def test_the_order_of_rows_does_not_matter(rows, chance):
    films = {"f": Film("F", 30.0)}
    one = build_timelines("t", rows, films)
    second = build_timelines("t", chance.sample(rows, len(rows)), films)
    assert (one.segments, one.scheme, one.films) == (second.segments, second.scheme, second.films)
    # Every row is either a segment, or named as left out.
    left_out = [remark.location for remark in one.issues if remark.action == "left out"]
    assert len(left_out) == len(set(left_out)) == len(rows) - len(one.segments)
    # And every overlap within an annotator is named, by brute force.
    spans_of = [(s.film, s.annotator, s.start, s.end) for s in one.segments]
    overlapping = any(
        a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3]
        for place, a in enumerate(spans_of)
        for b in spans_of[:place]
    )
    assert overlapping == any("overlaps" in remark.problem for remark in one.issues)


@given(st.lists(st.sampled_from(["Body", "A, b", "c; d", "Type of shot"]), unique=True))
def test_cells_of_concepts_come_back(names):
    assert list(parse_concepts(format_concepts(names))) == names


@given(st.text(alphabet="'=+-@\t\rab"))
def test_formulas_are_escaped_and_restored(text):
    assert unescape_formula(escape_formula(text)) == text
    assert not escape_formula(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("name", ["Rear Window", "Dr. No"])
def test_films_are_found_by_their_original_names(tmp_path, obygaze, name):
    """From a table, and by way of ELAN and of spreadsheets, to the film's file."""
    source = table(tmp_path, f"{name},a,0,60,S", f"{name},b,0,50,S", "A/C,a,0,9,S")
    first = tmp_path / "t"
    assert obygaze("annotations", "import", "csv", source, "-o", first).exit_code == 0
    out = ("annotations", "export", first, "--elan", "--csv", "-o", tmp_path / "out")
    assert obygaze(*out).exit_code == 0
    ways = {
        "elan": ("elan", tmp_path / "out"),
        "csv": ("csv", tmp_path / "out/segments.csv", "--films", tmp_path / "out/films.csv"),
    }
    for way, words in ways.items():
        result = obygaze("annotations", "import", *words, "-o", tmp_path / way)
        assert result.exit_code == 0, result.output
        assert Timelines.load(tmp_path / way).films == Timelines.load(first).films
    timelines = ("annotations", "project", tmp_path / "elan", "--grid", "60", "-o", tmp_path / "m")
    assert obygaze(*timelines).exit_code == 0
    (tmp_path / "videos").mkdir()
    for file in (f"{name}.mp4", "A_C.mp4"):
        (tmp_path / "videos" / file).write_bytes(b"x")
    items = list(Manifest.load(tmp_path / "m"))
    outcome = {item.film: MediaFolder(tmp_path / "videos").find(item).name for item in items}
    assert sorted(outcome.values()) == sorted([f"{name}.mp4", "A_C.mp4"])
    (tmp_path / "videos" / f"{name}.mp4").unlink()
    [one] = [item for item in items if item.film != "A_C"]
    with pytest.raises(VideoError) as error:
        MediaFolder(tmp_path / "videos").find(one)
    assert f"{name}.*" in str(error.value)
    assert f"{one.film}.*" in str(error.value)


SAVED = "film;annotator;start;end;level;concepts\nÉté;ann;1,5;0:02:03,25;S;Body, Look\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_what_spreadsheets_save_in_other_countries(tmp_path, encoding, delimiter):
    text = SAVED.replace(";", delimiter).replace("\n", "\r\n")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "marks.csv").write_bytes((mark + text).encode(encoding))
    films = f"Film{delimiter}Title{delimiter}End\nÉté{delimiter}Summer{delimiter}122,5\n"
    write(tmp_path / "films.csv", films)
    result = Timelines.from_csv(tmp_path / "marks.csv", films=read_films(tmp_path / "films.csv"))
    assert result.segments == (Segment("Ete", "ann", 1.5, 122.5, "S", ("Look", "Body")),)
    assert what(result) == [
        ("marks.csv, line 2", "ends at 0:02:03.25, past the film's end 0:02:02.5", "cut")
    ]


def test_a_decimal_comma_in_a_frame_rate(tmp_path):
    header = "film;annotator;start_frame;end_frame;framerate;level"
    assert spans(Timelines.from_csv(table(tmp_path, "f;a;0;11;12,5;S", header=header))) == [
        (0, 0.96)
    ]


def test_another_encoding_is_named_with_how_to_save_it(tmp_path):
    (tmp_path / "marks.csv").write_bytes(SAVED.encode("cp1252"))
    with pytest.raises(ManifestError, match=r"line 2: not UTF-8 .*in Excel: 'CSV UTF-8'"):
        Timelines.from_csv(tmp_path / "marks.csv")


def test_table_of_segments_is_not_a_table_of_films(tmp_path):
    with pytest.raises(AnnotationError, match="is not a table of films, which has the columns"):
        read_films(table(tmp_path, "f,a,0,1,S"))


def test_rows_that_are_cut_short_are_left_out_by_their_lines(tmp_path):
    rows = ("f,a,0,1,S", "", "f,a,1", "f,a,1,2,HN", ",,,,", "f,a,2,3,S,", "f,a,9,8,S")
    result = Timelines.from_csv(table(tmp_path, *rows))
    assert spans(result) == [(0, 1), (1, 2)]
    assert what(result) == [
        ("marks.csv, line 4", "3 cells where the header has 5", "left out"),
        ("marks.csv, line 7", "6 cells where the header has 5", "left out"),
        ("marks.csv, line 8", "ends (0:00:08) before it starts (0:00:09)", "left out"),
    ]


def test_names_that_differ_by_case_are_one(tmp_path):
    result = Timelines.from_csv(table(tmp_path, "f,ann,0,1,S", "F,Ann,1,2,S", "F,Ann,2,3,S"))
    assert (result.annotators, list(result.films)) == (["Ann"], ["F"])
    assert [(issue.problem, issue.action) for issue in result.issues] == [
        ("'ann' and 'Ann' differ by case only", "read as one, Ann"),
        ("'f' and 'F' differ by case only", "read as one, F"),
    ]


def test_another_table_is_not_mobygazes(tmp_path):
    source = table(tmp_path, "f,a,0,1,S")
    missing = "label, concepts, start_frame, end_frame, imdb_key, framerate"
    with pytest.raises(ManifestError, match=f"is not MObyGaze's table: it has no {missing}; "):
        Timelines.from_mobygaze(source)


def test_film_in_another_case_is_suggested(tmp_path):
    result = Timelines.from_csv(table(tmp_path, "Juno,a,0,1,S"), films={"juno": Film(end=10)})
    assert [issue.problem for issue in result.issues] == [
        "no rows of 1 film: juno; did you mean Juno?"
    ]


def test_issues_are_sorted_by_line(tmp_path):
    odd = ["f,a,0,x,S", "f,a,5,4,S", "f,a,0,1,maybe", "f,a,0"] * 3
    result = Timelines.from_csv(table(tmp_path, *odd, "f,a,0,1,S"))
    assert [issue.location for issue in result.issues] == [
        f"marks.csv, line {n}" for n in range(2, 14)
    ]


def test_names_with_underscores_and_hyphens(tmp_path):
    header = "film,annotator,start,end,level,concepts"
    rows = ("f,a,0,1,easy_negative,", "f,a,1,2,HARD-NEGATIVE,low_key|Low-key")
    result = Timelines.from_csv(table(tmp_path, *rows, header=header))
    assert [(segment.level, segment.concepts) for segment in result.segments] == [
        ("EN", ()),
        ("HN", ("Low-key",)),
    ]
