"""Issues of timelines as lines and as a table; a table that somebody edited."""

from itertools import pairwise

import pytest

import obygaze_features as of
from obygaze_features.annotations import Issue, Segment
from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.issues import describe_issues
from tests.kit.authors import MOBYGAZE_HEADER
from tests.kit.files import refused, write
from tests.kit.timelines import worked


def described(issues, rest="r"):
    return list(describe_issues(issues, rest))


def overlap(line, by):
    problem = f"overlaps a.csv, line {line - 1} by {by}"
    return Issue(f"a.csv, line {line}", "juno", "ann", problem, "kept")


def test_issues_of_a_kind_are_one_line():
    lost = Issue("a.csv, line 9", "ju\x1b[31m\nno", "", "ends before it starts", "left out")
    assert described([Issue("a.csv, line 2", "juno", "ann", "overlaps", "kept"), lost]) == [
        r"a.csv, line 9: 'ju\x1b[31m\nno': ends before it starts (left out)",  # lost rows first
        "a.csv, line 2: juno ann: overlaps (kept)",
    ]
    kinds = [Issue(f"{c}.csv", "", "", f"kind {c}", "kept") for c in "abcdefghijklmn"]
    assert described(kinds, "--json has all")[12:] == ["and 2 more; --json has all"]
    frames = [overlap(line, "0:00:00.042") for line in range(2, 41)]
    by_a_frame = "39 segments overlap others by one frame (kept): r"
    assert described(frames) == [by_a_frame]
    assert len(described(frames[:3])) == 3
    longer = "40 segments overlap others by up to 0:01:00.5 (kept): r"
    assert described([*frames, overlap(50, "0:01:00.5")]) == [longer]
    gaps = [
        Issue(f"a.csv, line {n}", film, "x", f"a gap of {n} s before {film}-{n:04}", "left out")
        for n, film in enumerate(("juno", "tt12", "juno", "brazil"), start=3)
    ]
    first = "a.csv, line 3: juno x: a gap of 3 s before juno-0003 (left out); and 3 more like this"
    assert described([*frames, *gaps]) == [f"{first}: r", by_a_frame]


def long_stretches(longest, second=240.0, *, others=0):
    """Ten short segments of each level, and two long ones of Easy Negative.

    `others` films more have 20 segments of up to 20 minutes.
    """
    segments, start = [], 0.0
    for number, length in enumerate([30.0, 60.0] * 10 + [second, longest]):
        level = "EN" if length > 100 or number % 2 else "S"
        # The longest is cut in two, one frame apart.
        middle = [start + length / 2] if length == longest else []
        for begin, end in pairwise([start, *middle, start + length]):
            segments.append(Segment("juno", "ben", begin, end, level))
        start += length + 5
    for number in range(20 * others):
        film, place = divmod(number, 20)
        begin, level = place * 1200.0, "EN" if place % 2 else "S"
        segments.append(Segment(f"film{film}", "ben", begin, begin + 60 * (place + 1), level))
    rows = [SourceRow(f"line {line}", row) for line, row in enumerate(segments, start=2)]
    return build_timelines("made", rows)


@pytest.mark.parametrize("others", [0, 3])
def test_a_stretch_far_longer_than_its_films_others_is_named(others):
    [issue] = long_stretches(2861, others=others).issues
    assert (issue.film, issue.annotator, issue.action) == ("juno", "ben", "kept")
    assert "Easy Negative for 47.7 minutes without a break" in issue.problem
    assert "the next longest of the film is 4.0" in issue.problem
    assert "0:20:45 to 1:08:26" in issue.problem
    assert long_stretches(700).issues == ()  # not three times as long
    assert long_stretches(599, 100).issues == ()  # under ten minutes
    assert len(long_stretches(2000, 1900).issues) == 2


def test_mobygazes_long_stretch_is_named(tmp_path):
    spans = [(0, 719), (720, 1440), *((1440 + 48 * n, 1440 + 48 * (n + 1)) for n in range(20))]
    spans.append((spans[-1][1], spans[-1][1] + 48000))
    rows = [
        f"{n};id_{n};1;a;{('Sure', 'Easy Negative')[n % 2 or end > 9000]};[];[];{start};{end - 1};"
        "juno;Juno;24;;0;0"
        for n, (start, end) in enumerate(spans)
    ]
    source = write(tmp_path / "m.csv", MOBYGAZE_HEADER, *rows)
    [issue] = [i for i in of.Timelines.from_mobygaze(source).issues if "minutes" in i.problem]
    assert "Easy Negative for 33.4 minutes" in issue.problem


def test_edited_table_of_issues(tmp_path, obygaze):
    folder = tmp_path / "t"
    worked().save(folder)
    table = write(folder / "remarks.csv", "where,film", "a,b")
    refused(obygaze("annotations", "show", folder), "remarks.csv, line 1: ")
    write(table, "mine,where,film,annotator,what,done", "x,a,b,c,d,kept")
    assert of.Timelines.load(folder).issues == (Issue("a", "b", "c", "d", "kept"),)
    table.unlink()
    assert of.Timelines.load(folder).issues == ()
