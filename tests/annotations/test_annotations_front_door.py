"""Timelines from Python: the calls of the front door, with paths as texts or as `Path`."""

from pathlib import Path

import pytest

import obygaze_features as of
from tests.kit.timelines import grid, worked

SEGMENTS = "film,annotator,start,end,level,concepts\n" + "".join(
    f"f,{who},{start},{start + 30},{level},Body\n"
    for who in ("ann", "bea")
    for start, level in ((0, "EN"), (60, "HN"), (120, "S" if who == "ann" else "NS"))
)


@pytest.mark.parametrize("kind", [str, Path])
def test_from_segments_to_agreement(tmp_path, kind):
    (tmp_path / "segments.csv").write_text(SEGMENTS)
    timelines = of.Timelines.from_csv(kind(tmp_path / "segments.csv"))
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


def test_elan_files_are_read_from_any_path(tmp_path):
    from obygaze_features.annotations.export import elan_files

    for name, text in elan_files(worked()).items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert of.Timelines.from_elan(str(tmp_path)).segments == worked().segments
    assert of.Timelines.from_elan(tmp_path / "film.eaf", film="x").annotators == ["one", "two"]


@pytest.mark.parametrize("form", ["manifest", "str", "Path"])
def test_a_grid_is_a_manifest_or_its_folder(tmp_path, form):
    grid().save(tmp_path / "grid")
    loaded = of.Manifest.load(tmp_path / "grid")
    where = {"manifest": loaded, "str": str(tmp_path / "grid"), "Path": tmp_path / "grid"}[form]
    labels = worked().project(where)
    assert labels.manifest.labels("one").levels == ["EN", "S", "NS", "EN", "EN"]
    saved = labels.save()
    assert saved.removed == {}
    assert of.Manifest.load(tmp_path / "grid").label_names == ["one", "two"]
