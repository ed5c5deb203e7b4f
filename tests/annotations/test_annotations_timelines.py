"""Timelines from Python, with paths as texts or as `Path`; and docs/how-to/timelines.md is run."""

import re
import shlex
from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.annotations.export import elan_files
from tests.kit.files import write
from tests.kit.timelines import grid, worked
from tests.test_docs import BLOCK, ROOT, Page

SEGMENTS = [
    f"f,{who},{start},{start + 30},{level},Body"
    for who in ("ann", "bea")
    for start, level in ((0, "EN"), (60, "HN"), (120, "S" if who == "ann" else "NS"))
]


@pytest.mark.parametrize("kind", [str, Path])
def test_from_segments_to_agreement(tmp_path, kind):
    header = "film,annotator,start,end,level,concepts"
    source = write(tmp_path / "segments.csv", header, *SEGMENTS)
    timelines = of.Timelines.from_csv(kind(source))
    assert repr(timelines) == "Timelines('segments', 6 segments of 1 film by 2 annotators)"
    timelines.save(kind(tmp_path / "t"))
    labels = of.Timelines.load(kind(tmp_path / "t")).project(grid=60, threshold=0.2)
    assert repr(labels) == "ProjectedLabels(ann, bea: 3 clips)"
    assert labels.manifest.labels("ann").levels == ["EN", "HN", "S"]
    assert labels.merge_labels().labels.levels == ["EN", "HN", "S"]
    report = labels.agreement()
    assert report.pairs[0].gamma.distance == pytest.approx(0.1)
    assert "1 pair: gamma 0." in repr(report)
    labels.save(kind(tmp_path / "m"))
    assert of.Manifest.load(tmp_path / "m").label_names == ["ann", "bea"]


def test_elan_files_and_grids_from_any_path(tmp_path):
    write(tmp_path / "film.eaf", elan_files(worked())["film.eaf"])
    assert of.Timelines.from_elan(str(tmp_path)).segments == worked().segments
    assert of.Timelines.from_elan(tmp_path / "film.eaf", film="x").annotators == ["one", "two"]
    grid().save(tmp_path / "grid")
    loaded = of.Manifest.load(tmp_path / "grid")
    for clips in (loaded, str(tmp_path / "grid"), tmp_path / "grid"):
        labels = worked().project(clips)
        assert labels.manifest.labels("one").levels == ["EN", "S", "NS", "EN", "EN"]
    assert labels.save().removed == {}
    assert of.Manifest.load(tmp_path / "grid").label_names == ["one", "two"]


def test_from_tables_to_timelines_and_back(tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    page, output = Page(obygaze), ""
    text = (ROOT / "docs/how-to/timelines.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "csv":  # a file's block is named above it
            Path(re.findall(r"`(\w+[.]csv)`", text[: match.start()])[-1]).write_text(block)
        elif language == "sh":  # has a row that is left out
            result = obygaze(*shlex.split(block)[1:])
            assert result.exit_code == 3
            output = result.output
        elif language == "text" and output:
            assert output.startswith(block)
            output = ""
        elif language == "console":
            page.console(block)
        elif language == "python":
            page.python(block, {})
    assert "Juno ann [(0.0, 100.0, 'EN'), (100.0, 135.5, 'S')]" in page.printed
    names = ("mine", "again", "third")
    first, *others = (of.Timelines.load(Path("timelines", name)) for name in names)
    assert all((other.segments, other.films) == (first.segments, first.films) for other in others)
