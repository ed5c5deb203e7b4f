"""`obygaze annotations project` and `merge`."""

import json
import re
import shlex
from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.annotations import Film
from obygaze_features.items.films import film_titles
from obygaze_features.manifests import Item, Items, LabelSet
from obygaze_features.manifests.manifest import check, read_header
from tests.kit.files import contents, refused, write
from tests.kit.timelines import grid, pairs, segments, worked


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


def saved(folder, *drawn, **options):
    of.Timelines.of(folder.name, [s for part in drawn for s in part], **options).save(folder)
    return folder


def names(*label_sets):
    return [word for name in label_sets for word in ("--labels", name)]


def test_project_writes_into_the_grid_itself(annotations, timelines, spans):
    before = read_header(spans)["digest"]
    text = annotations("project", timelines, "--grid", spans)
    assert ["two", "5", "2", "1", "1", "1"] in [line.split() for line in text.splitlines()]
    assert of.Manifest.load(spans).default_labels is None
    merged = json.loads(annotations("merge", spans, "--json"))
    assert (merged["default_labels"], merged["the_same_from_all"]["S"]) == ("merged", 1)
    manifest = of.Manifest.load(spans)
    assert (manifest.default_labels, manifest.digest) == ("merged", before)
    assert manifest.labels().about["of"]["two"]["timelines"]["name"] == "worked"
    assert check(spans) == []
    # Means are over annotators, without their merge.

    def means(*label_sets):
        return json.loads(annotations("agreement", spans, *names(*label_sets), "--json"))["means"]

    assert means("one", "two", "merged") == means() != means("two", "merged")
    result = annotations("merge", spans, *names("merged", "two"), "--name", "more", code=2)
    assert "would count twice" in result


def test_a_table_of_shots_becomes_a_grid(annotations, obygaze, tmp_path):
    marks = write(tmp_path / "marks.csv", "film,annotator,start,end,label",
                  "Mr. A,one,0,20,S", "Mr. B,one,10,20,EN")  # fmt: skip
    annotations("import", "csv", marks, "-o", tmp_path / "t")
    table = write(tmp_path / "shots.csv", "id,film,start,end", "a,Mr. A,0,0:00:10", "b,Mr. B,10,20")
    text = obygaze("annotations", "project", tmp_path / "t", "--grid", table, code=2).stderr
    columns = re.findall("--column [a-z]+=film", text)
    obygaze("manifests", "import", "csv", table, *shlex.split(" ".join(columns)),
            "-o", tmp_path / "shots", code=0)  # fmt: skip
    annotations("project", tmp_path / "t", "--grid", tmp_path / "shots")
    assert of.Manifest.load(tmp_path / "shots").labels("one").levels == ["S", "EN"]


def test_existing_labels_stay_the_default(annotations, timelines, spans, tmp_path):
    levels = ["EN", "S", "EN", "EN", "EN"]
    own, copy = LabelSet("own", grid().ids, levels, [()] * 5), tmp_path / "copy"
    grid().with_parts(labels=[own]).save(tmp_path / "mine")
    annotations("project", timelines, "--grid", tmp_path / "mine", "-o", copy)
    assert of.Manifest.load(tmp_path / "mine").label_names == ["own"]
    assert json.loads(annotations("merge", copy, "--json"))["default_labels"] == "own"
    manifest = of.Manifest.load(copy)
    assert manifest.label_names == ["merged", "one", "own", "two"]
    assert manifest.labels().levels == levels
    # A single label set was the default only because there was no other.
    write(spans / "labels/own.csv", "id,level", "film-0,S")
    assert read_header(spans)["default_labels"] is None
    annotations("project", timelines, "--grid", spans)
    assert of.Manifest.load(spans).default_labels == "own"


def test_merges_are_removed_with_their_sources(annotations, timelines, tmp_path):
    folder = tmp_path / "new folder"
    project = ("project", timelines, "--grid", "100", "-o", folder)
    annotations(*project, "--threshold", ".4")
    for called in ("ours", "theirs"):
        annotations("merge", folder, *names("one", "two"), "--name", called)
    text = annotations(*project, "--overwrite")
    for called in ("ours", "theirs"):
        assert f"{called}: was merged from one, two before labels changed (removed" in text
    assert of.Manifest.load(folder).label_names == ["one", "two"]
    for called in ("ours", "theirs"):
        annotations("merge", folder, *names("one", "two"), "--name", called)
    manifest = of.Manifest.load(folder)
    assert manifest.label_names == ["one", "ours", "theirs", "two"]
    assert manifest.default_labels == "ours"
    assert manifest.labels("theirs").about["of"]["one"]["threshold"] == 0.2
    assert check(folder) == []
    # A default that is not a merge stays.
    header = read_header(folder)
    write(folder / "manifest.json", json.dumps({**header, "default_labels": "two"}))
    annotations(*project, "--overwrite")
    assert read_header(folder)["default_labels"] == "two"


def test_new_concepts_join_the_manifests_scheme(annotations, timelines, spans):
    loaded = of.Manifest.load(spans)
    three = replace(loaded.scheme, concepts=loaded.scheme.concepts[:3])
    replace(loaded, scheme=three).save(spans, overwrite=True)
    annotations(*(project := ("project", timelines, "--grid", spans)))
    # Nothing is replaced unless asked.
    before = contents(spans)
    assert "one.csv already exists" in annotations(*project, "--threshold", "0.4", code=1)
    assert contents(spans) == before
    annotations(*project, "--threshold", "0.38", "--overwrite")
    assert of.Manifest.load(spans).labels("one").about["threshold"] == 0.38
    annotations("merge", spans)
    assert check(spans) == []
    merged = of.Manifest.load(spans).labels()
    assert pairs(merged)[2] == ("NS", {"Clothing", "Look", "Posture"})


def test_user_errors_are_one_line(obygaze, timelines, spans, tmp_path):
    project, new = ("annotations", "project", timelines, "--grid"), ("-o", tmp_path / "new")
    for options, fact in (
        (["60"], "is not a manifest on disk; pass a folder (-o MANIFEST)"),
        (["60", *new, "--threshold", "1.5"], "a share above 0 and at most 1 (got 1.5)"),
        (["60", *new, "--threshold", "nan"], "a share above 0 and at most 1 (got nan)"),
        (["nowhere"], "nowhere is not a grid"),
    ):
        refused(obygaze(*project, *options), fact, code=2)
    assert not (tmp_path / "new").exists()
    result = obygaze("annotations", "merge", timelines)
    refused(result, "is a folder of timelines, not a manifest")
    lone = saved(tmp_path / "lone", segments("one", [(0, 100, "S", "Look")]))
    assert obygaze("annotations", "project", lone, "--grid", spans).exit_code == 0
    refused(obygaze("annotations", "merge", spans), "at least two annotators (got one", code=2)
    write(spans / "labels/two.csv", "id,level,ratio", "film-0,S,half")
    result = obygaze("annotations", "merge", spans, *names("one", "two"))
    refused(result, "label set 'two' has an invalid ratio")


def test_two_thresholds_do_not_merge(obygaze, annotations, timelines, spans, tmp_path):
    annotations("project", timelines, "--grid", spans)
    more = saved(tmp_path / "more", segments("three", [(0, 100, "S", "Look")]))
    annotations("project", more, "--grid", spans, "--threshold", 0.5)
    refused(obygaze("annotations", "merge", spans), "different thresholds", code=2)
    pair = names("one", "three")
    text = annotations("merge", spans, *pair)
    assert "projected from 2 different timelines: one; three (taken together)" in text
    assert of.Manifest.load(spans).labels().levels == ["S", "S", "NS", "EN", "EN"]
    result = obygaze("annotations", "merge", spans, *pair, "--name", "one", "--overwrite")
    refused(result, "one of the label sets to merge", code=2)
    assert "different timelines" not in annotations("agreement", spans, *names("one", "two"))


def test_left_out_segments_are_named_with_exit_code_3(annotations, tmp_path, spans):
    late = [(500 + 10 * step, 505 + 10 * step, "S", "Look") for step in range(12)]
    drawn = (worked().segments, segments("one", late), segments("two", late, "other"))
    project = ("project", saved(tmp_path / "late", *drawn), "--grid", spans)
    text = annotations(*project, code=3)
    assert "other: the grid has no clips of this film (left out)" in text
    assert "from 500 to 505 s (S) is in no clip (left out)" in text
    assert "(left out); and 11 more like this: --json lists all" in text
    # Who stopped early; in a film of 420 s who marked something in its second half did not.
    early = segments("early", [(0, 90, "S", "Look"), (150, 205, "HN")])
    late = segments("late", [(0, 90, "S", "Look"), (211, 260, "HN")])
    text = annotations("project", saved(tmp_path / "t", early, late), "--grid", spans)
    stopped = "film early: nothing is marked after 0:03:25 of 0:07:00"
    assert f"{stopped}; please check whether the annotator stopped there (the rest counts" in text
    assert "film late: nothing" not in text


def test_media_names_serve_as_films(annotations, tmp_path):
    second = segments("one", [(0, 90, "S", "Look")], "other")
    two, spans = saved(tmp_path / "two", worked().segments, second), tmp_path / "spans"
    items = [
        Item(f"{film}-{number}", media=f"{film}.mkv", start=100.0 * number, end=100.0 * number + 90)
        for film in ("film", "other")
        for number in range(5)
    ]
    of.Manifest("spans", Items.of(items)).save(spans)
    annotations("project", two, "--grid", spans)
    text = annotations("merge", spans)
    assert "other one: no second annotator for 5 clips (taken from one)" in text
    assert of.Manifest.load(spans).labels().extra["annotators"] == ["2"] * 5 + ["1"] * 5
    text = " ".join(annotations("agreement", spans, code=3).split())
    assert "At least one of them marks 1, and both mark 1." in text


def test_projection_keeps_titles(obygaze, annotations, tmp_path):
    films = {"a": Film("Flight of A"), "b": Film(""), "tt0467406": Film("Juno")}
    drawn = [segments("ann", [(0, 60, "S"), (60, 90, "EN")], film) for film in films]
    pair = (saved(tmp_path / "t", *drawn, films=films), tmp_path / "m")
    annotations("project", pair[0], "--grid", "30", "-o", pair[1])
    titles = film_titles(of.Manifest.load(tmp_path / "m").items)
    assert [titles.get(film) for film in films] == ["Flight of A", None, "Juno (2007)"]
    for name, title in (("flight of a", "Flight of A"), ("Juno (2007)", "Juno"), ("b", ">b<")):
        path = tmp_path / "figures" / f"{name}.svg"
        annotations("figure", *pair, name, "-o", path)
        assert title in path.read_text()
    wrong = obygaze("annotations", "figure", *pair, "Jun", "-o", tmp_path / "x.svg")
    assert (wrong.exit_code, "did you mean Juno" in wrong.output) == (2, True)
