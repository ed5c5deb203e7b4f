"""`obygaze annotations project` and `merge`."""

import json
from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from tests.kit.files import contents, refused, write
from tests.kit.timelines import grid, worked


@pytest.fixture
def annotations(obygaze):
    def annotations(*words, code=0):
        result = obygaze("annotations", *words, code=code)
        return result.stdout if "--json" in words else result.output

    return annotations


@pytest.fixture
def timelines(tmp_path):
    worked().save(tmp_path / "timelines")
    return tmp_path / "timelines"


@pytest.fixture
def spans(tmp_path):
    grid().save(tmp_path / "spans")
    return tmp_path / "spans"


BOTH = ("--labels", "one", "--labels", "two")


def test_project_writes_into_the_grid_itself(annotations, timelines, spans, obygaze):
    loaded = of.Manifest.load(spans)
    three = replace(loaded.scheme, concepts=loaded.scheme.concepts[:3])
    replace(loaded, scheme=three).save(spans, overwrite=True)
    project = ("project", timelines, "--grid", spans)
    annotations(*project)
    manifest = of.Manifest.load(spans)
    assert (manifest.default_labels, manifest.digest) == (None, loaded.digest)
    assert "Clothing" in manifest.scheme.concept_names  # new concepts join the scheme
    # Nothing is replaced unless asked.
    before = contents(spans)
    assert "one.csv already exists" in annotations(*project, "--threshold", "0.4", code=1)
    assert contents(spans) == before
    annotations(*project, "--threshold", "0.38", "--overwrite")
    assert of.Manifest.load(spans).labels("one").about["threshold"] == 0.38

    merged = json.loads(annotations("merge", spans, "--json"))
    assert merged["default_labels"] == of.Manifest.load(spans).default_labels == "merged"
    annotations("merge", spans, *BOTH, "--name", "other")
    assert of.Manifest.load(spans).default_labels == "merged"
    obygaze("manifests", "check", spans, code=0)
    again = ("merge", spans, "--labels", "merged", "--labels", "two", "--name", "more")
    assert "none merged from another" in annotations(*again, code=2)


def test_merges_are_named_when_their_sources_change(annotations, timelines, tmp_path):
    folder = tmp_path / "new folder"
    project = ("project", timelines, "--grid", "100", "-o", folder)
    annotations(*project, "--threshold", ".4")
    annotations("merge", folder, *BOTH)
    text = annotations(*project, "--overwrite")
    [row] = [line.split() for line in text.splitlines() if "merge again" in line]
    assert row[:3] == ["1", "kept", "merged"]
    annotations("merge", folder, *BOTH, "--overwrite")
    manifest = of.Manifest.load(folder)
    assert manifest.default_labels == "merged"
    assert manifest.labels().about["of"]["one"]["threshold"] == 0.2


def test_user_errors_are_one_line(obygaze, timelines, spans, tmp_path):
    project = ("annotations", "project", timelines, "--grid")
    refused(obygaze(*project, "60"), "is not a manifest on disk; pass a folder", code=2)
    for threshold in ("1.5", "nan"):
        words = ("60", "-o", tmp_path / "new", "--threshold", threshold)
        refused(obygaze(*project, *words), "a share above 0 and at most 1", code=2)
    obygaze(*project, spans, code=0)
    write(spans / "labels/two.csv", "id,level,ratio", "film-0,S,half")
    refused(obygaze("annotations", "merge", spans, *BOTH), "'two' has an invalid ratio")


def test_a_projection_keeps_titles_names_and_the_origin():
    films = {"a": Film("Flight of A", name="The A"), "b": Film(name="B/C")}
    drawn = [Segment(film, "ann", 0, 60, "S") for film in films]
    timelines = of.Timelines("t", drawn, films=films, citation="C. (2025)")
    manifest = of.project(timelines, 60).manifest
    assert manifest.citation == "C. (2025)"
    assert manifest.items.extra == {"movie_title": ["Flight of A", ""]}
    assert manifest.items.media == ["The A", "b"]  # as far as videos can have these names
