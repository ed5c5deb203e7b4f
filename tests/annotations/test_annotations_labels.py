"""`obygaze annotations project` and `merge`."""

import json
from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.manifests import LabelSet
from obygaze_features.manifests.manifest import check, read_header
from tests.kit.files import contents, refused, write
from tests.kit.timelines import grid, worked


@pytest.fixture
def annotations(obygaze, tmp_path):
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


def names(*label_sets):
    return [word for name in label_sets for word in ("--labels", name)]


def test_project_writes_into_the_grid_itself(annotations, timelines, spans):
    before = read_header(spans)["digest"]
    text = annotations("project", timelines, "--grid", spans)
    assert ["two", "5", "2", "1", "1", "1"] in [line.split() for line in text.splitlines()]
    assert of.Manifest.load(spans).default_labels is None
    merged = json.loads(annotations("merge", spans, "--json"))
    assert merged["default_labels"] == "merged"
    manifest = of.Manifest.load(spans)
    assert (manifest.default_labels, manifest.digest) == ("merged", before)
    assert manifest.labels().about["of"]["two"]["timelines"]["name"] == "worked"
    assert check(spans) == []
    result = annotations("merge", spans, *names("merged", "two"), "--name", "more", code=2)
    assert "none merged from another" in result


def test_existing_labels_stay_the_default(annotations, timelines, tmp_path):
    own = LabelSet("own", grid().ids, ["EN", "S", "EN", "EN", "EN"], [()] * 5)
    mine = tmp_path / "mine"
    copy = tmp_path / "copy"
    grid().with_parts(own).save(mine)
    annotations("project", timelines, "--grid", mine, "-o", copy)
    assert of.Manifest.load(mine).label_names == ["own"]
    assert json.loads(annotations("merge", copy, "--json"))["default_labels"] == "own"
    manifest = of.Manifest.load(copy)
    assert manifest.label_names == ["merged", "one", "own", "two"]
    assert manifest.labels().levels == own.levels


def test_merges_are_named_when_their_sources_change(annotations, timelines, tmp_path):
    folder = tmp_path / "new folder"
    project = ("project", timelines, "--grid", "100", "-o", folder)
    annotations(*project, "--threshold", ".4")
    for called in ("ours", "theirs"):
        annotations("merge", folder, *names("one", "two"), "--name", called)
    text = annotations(*project, "--overwrite")
    [row] = [line.split() for line in text.splitlines() if "merge again" in line]
    assert row[:3] == ["2", "kept", "ours"]
    for called in ("ours", "theirs"):
        annotations("merge", folder, *names("one", "two"), "--name", called, "--overwrite")
    manifest = of.Manifest.load(folder)
    assert manifest.label_names == ["one", "ours", "theirs", "two"]
    assert manifest.default_labels == "ours"
    assert manifest.labels("theirs").about["of"]["one"]["threshold"] == 0.2


def test_new_concepts_join_the_manifests_scheme(annotations, timelines, spans):
    loaded = of.Manifest.load(spans)
    three = replace(loaded.scheme, concepts=loaded.scheme.concepts[:3])
    replace(loaded, scheme=three).save(spans, overwrite=True)
    project = ("project", timelines, "--grid", spans)
    annotations(*project)
    # Nothing is replaced unless asked.
    before = contents(spans)
    assert "one.csv already exists" in annotations(*project, "--threshold", "0.4", code=1)
    assert contents(spans) == before
    annotations(*project, "--threshold", "0.38", "--overwrite")
    manifest = of.Manifest.load(spans)
    assert manifest.labels("one").about["threshold"] == 0.38
    assert "Clothing" in manifest.scheme.concept_names


def test_user_errors_are_one_line(obygaze, timelines, spans, tmp_path):
    project = ("annotations", "project", timelines, "--grid")
    new = ("-o", tmp_path / "new")
    for options, fact in (
        (["60"], "is not a manifest on disk; pass a folder (-o MANIFEST)"),
        (["60", *new, "--threshold", "1.5"], "a share above 0 and at most 1 (got 1.5)"),
        (["60", *new, "--threshold", "nan"], "a share above 0 and at most 1 (got nan)"),
    ):
        refused(obygaze(*project, *options), fact, code=2)
    obygaze(*project, spans, code=0)
    write(spans / "labels/two.csv", "id,level,ratio", "film-0,S,half")
    result = obygaze("annotations", "merge", spans, *names("one", "two"))
    refused(result, "label set 'two' has an invalid ratio")


def test_projection_keeps_titles(annotations, tmp_path):
    films = {"a": Film("Flight of A"), "b": Film(""), "tt0467406": Film("Juno")}
    drawn = [Segment(film, "ann", 0, 90, "S") for film in films]
    of.Timelines("t", drawn, films=films).save(tmp_path / "t")
    annotations("project", tmp_path / "t", "--grid", "30", "-o", tmp_path / "m")
    for name, title in (("flight of a", "Flight of A"), ("Juno (2007)", "Juno"), ("b", ">b<")):
        path = tmp_path / f"{name}.svg"
        annotations("figure", tmp_path / "t", tmp_path / "m", name, "-o", path)
        assert title in path.read_text()
