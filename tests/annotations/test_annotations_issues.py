"""Remarks as lines and as a table; a table that somebody edited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from obygaze_features.annotations import Issue, Timelines
from obygaze_features.annotations.issues import describe_issues
from tests.annotations.worked import worked


def test_left_out_comes_first_and_odd_names_are_quoted() -> None:
    remaining = Issue("a.csv, line 2", "juno", "ann", "overlaps", "kept")
    lost = Issue("a.csv, line 9", "ju\x1b[31m\nno", "", "ends before it starts", "left out")
    assert list(describe_issues([remaining, lost], "--json has all")) == [
        r"a.csv, line 9: 'ju\x1b[31m\nno': ends before it starts (left out)",
        "a.csv, line 2: juno ann: overlaps (kept)",
    ]
    assert list(describe_issues([remaining] * 14, "--json has all"))[12:] == [
        "and 2 more; --json has all"
    ]


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
