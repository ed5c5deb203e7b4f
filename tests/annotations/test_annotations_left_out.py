"""What an import left out, or asks to check, stays known to labels and pages."""

import pytest

import obygaze_features as of
from tests.kit.files import write

LONG = 47 * 60


@pytest.fixture
def lab(tmp_path, obygaze):
    """One annotator has an unknown level, the other a single level for most of the film."""
    rows = ["Juno,ann,0,60,S", "Juno,ann,60,120,Shure", "Juno,ben,0,60,S"]
    rows += [
        f"Juno,ben,{60 * minute},{60 * minute + 60},{'NS'[minute % 2]}" for minute in range(1, 20)
    ]
    rows.append(f"Juno,ben,1200,{1200 + LONG},N")
    table = write(tmp_path / "marks.csv", "film,annotator,start,end,level", *rows)
    timelines = tmp_path / "timelines"
    options = ("--levels", "N,S", "-o", timelines)
    obygaze("annotations", "import", "csv", table, *options, code=3)
    return tmp_path


def test_projection_says_what_the_import_left_out(lab, obygaze):
    result = obygaze("annotations", "project", lab / "timelines", "--grid", 60, "-o", lab / "m")
    assert result.exit_code == 0
    left_out = "1 segment was left out at import (time without a segment counts as N)"
    assert result.stdout.count(left_out) == 1
    assert result.stdout.count("47.0 minutes without a break") == 1

    # The line is in the labels, so a page of the manifest has it, as has a page of the timelines.
    obygaze("annotations", "merge", lab / "m", code=0)
    for source in ("m", "timelines"):
        obygaze("report", lab / source, "-o", lab / f"{source}.html", code=0)
        page = (lab / f"{source}.html").read_text(encoding="utf-8")
        for fact in (left_out, "47.0 minutes without a break", "Please check"):
            assert fact in page


def test_timelines_without_remarks_have_none(tmp_path):
    segments = [of.annotations.Segment("f", "ann", 0, 60, "S")]
    projected = of.Timelines.of("t", segments).project(30)
    assert "remarks" not in projected.manifest.labels("ann").about["timelines"]
