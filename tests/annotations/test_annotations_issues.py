"""Remarks as lines and as a table; a table that somebody edited."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from click.testing import Result

from obygaze_features.annotations import Issue, Segment, Timelines
from obygaze_features.annotations.build import SourceRow, build_timelines
from obygaze_features.annotations.issues import describe_issues
from tests.annotations.worked import worked


def test_left_out_comes_first_and_odd_names_are_quoted() -> None:
    remaining = Issue("a.csv, line 2", "juno", "ann", "overlaps", "kept")
    lost = Issue("a.csv, line 9", "ju\x1b[31m\nno", "", "ends before it starts", "left out")
    assert list(describe_issues([remaining, lost], "--json has all")) == [
        r"a.csv, line 9: 'ju\x1b[31m\nno': ends before it starts (left out)",
        "a.csv, line 2: juno ann: overlaps (kept)",
    ]
    kinds = [Issue(f"{c}.csv", "", "", f"kind {c}", "kept") for c in "abcdefghijklmn"]
    assert list(describe_issues(kinds, "--json has all"))[12:] == ["and 2 more; --json has all"]


def test_issues_of_one_kind_are_one_line() -> None:
    def overlap(line: int, by: str) -> Issue:
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


def made_timelines(longest: float, second: float = 240.0) -> Timelines:
    """Ten short segments of each level, and two long ones of Easy Negative."""
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
    return build_timelines("made", rows)


def test_a_stretch_far_longer_than_all_others_is_named() -> None:
    [issue] = made_timelines(2861).issues
    assert (issue.film, issue.annotator, issue.action) == ("juno", "ben", "kept")
    assert "Easy Negative for 47.7 minutes without a break" in issue.problem
    assert "the next longest is 4.0" in issue.problem
    assert "0:20:45 to 1:08:26" in issue.problem
    assert made_timelines(700).issues == ()  # not three times as long
    assert made_timelines(599, 100).issues == ()  # under ten minutes
    assert len(made_timelines(2000, 1900).issues) == 2


def test_edited_table_of_issues(tmp_path: Path, obygaze: Callable[..., Result]) -> None:
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
