"""Remarks as lines and as a table; a table that somebody edited."""

from itertools import pairwise

import pytest

from obygaze_features.annotations import Issue, Segment, Timelines
from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.issues import describe_issues
from tests.kit.timelines import worked


def test_left_out_comes_first_and_odd_names_are_quoted():
    remaining = Issue("a.csv, line 2", "juno", "ann", "overlaps", "kept")
    lost = Issue("a.csv, line 9", "ju\x1b[31m\nno", "", "ends before it starts", "left out")
    assert list(describe_issues([remaining, lost], "--json has all")) == [
        r"a.csv, line 9: 'ju\x1b[31m\nno': ends before it starts (left out)",
        "a.csv, line 2: juno ann: overlaps (kept)",
    ]
    kinds = [Issue(f"{c}.csv", "", "", f"kind {c}", "kept") for c in "abcdefghijklmn"]
    assert list(describe_issues(kinds, "--json has all"))[12:] == ["and 2 more; --json has all"]


def test_issues_of_one_kind_are_one_line():
    def overlap(line, by):
        problem = f"overlaps a.csv, line {line - 1} by {by}"
        return Issue(f"a.csv, line {line}", "juno", "ann", problem, "kept")

    frames = [overlap(line, "0:00:00.042") for line in range(2, 41)]
    assert list(describe_issues(frames, "t/remarks.csv")) == [
        "39 segments overlap others by one frame (kept): t/remarks.csv"
    ]
    [line] = describe_issues([*frames, overlap(50, "0:01:00.5")], "r")
    assert line == "40 segments overlap others by up to 0:01:00.5 (kept): r"
    lost = [
        Issue(f"a.csv, line {n}", film, "x", f"a gap of {n} s before {film}-{n:04}", "left out")
        for n, film in enumerate(("juno", "tt12", "juno", "brazil"), start=3)
    ]
    assert list(describe_issues([*frames, *lost], "r")) == [
        "a.csv, line 3: juno x: a gap of 3 s before juno-0003 (left out); and 3 more like this: r",
        "39 segments overlap others by one frame (kept): r",
    ]
    assert len(list(describe_issues(frames[:3], "r"))) == 3


def made_timelines(longest, second=240.0, *, others=0):
    """Ten short segments of each level, and two long ones of Easy Negative.

    `others` films more have 20 segments of up to 20 minutes.
    """
    rows, start = [], 0.0
    lengths = [30.0, 60.0] * 10 + [second, longest]
    for number, length in enumerate(lengths):
        level = "EN" if length > 100 or number % 2 else "S"
        # The longest is cut in two, one frame apart.
        cuts = (
            [start, start + length / 2, start + length]
            if length == longest
            else [start, start + length]
        )
        for begin, end in pairwise(cuts):
            segment = Segment("juno", "ben", begin, end, level)
            rows.append(SourceRow(f"line {len(rows) + 2}", segment))
        start += length + 5
    for number in range(20 * others):
        film, place = divmod(number, 20)
        begin, level = place * 1200.0, "EN" if place % 2 else "S"
        segment = Segment(f"film{film}", "ben", begin, begin + 60 * (place + 1), level)
        rows.append(SourceRow(f"line {len(rows) + 2}", segment))
    return build_timelines("made", rows)


@pytest.mark.parametrize("others", [0, 3])
def test_a_stretch_far_longer_than_its_films_others_is_named(others):
    [issue] = made_timelines(2861, others=others).issues
    assert (issue.film, issue.annotator, issue.action) == ("juno", "ben", "kept")
    assert "Easy Negative for 47.7 minutes without a break" in issue.problem
    assert "the next longest of the film is 4.0" in issue.problem
    assert "0:20:45 to 1:08:26" in issue.problem
    assert made_timelines(700).issues == ()  # not three times as long
    assert made_timelines(599, 100).issues == ()  # under ten minutes
    assert len(made_timelines(2000, 1900).issues) == 2


def test_mobygazes_long_stretch_is_named_alone_and_among_all(authors, tmp_path):
    table = authors / "mobygaze/mobygaze_dataframe.csv"
    head, *rows = table.read_text("utf-8").splitlines(keepends=True)
    alone = tmp_path / "juno.csv"
    alone.write_text("".join([head, *(row for row in rows if ";tt0467406;" in row)]), "utf-8")
    for source in (alone, table):
        [issue] = [i for i in Timelines.from_mobygaze(source).issues if "minutes" in i.problem]
        assert (issue.film, issue.annotator) == ("tt0467406", "annotator2")
        assert "Easy Negative for 47.7 minutes" in issue.problem


def test_edited_table_of_issues(tmp_path, obygaze):
    folder = tmp_path / "t"
    worked().save(folder)
    (folder / "remarks.csv").write_text("where,film\na,b\n")
    result = obygaze("annotations", "show", folder)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "remarks.csv, line 1: " in result.stderr
    (folder / "remarks.csv").write_text("mine,where,film,annotator,what,done\nx,a,b,c,d,kept\n")
    assert Timelines.load(folder).issues == (Issue("a", "b", "c", "d", "kept"),)
    (folder / "remarks.csv").unlink()
    assert Timelines.load(folder).issues == ()
