"""`obygaze annotations project`, `merge` and `sweep`, and a model trained on what they made."""

import csv
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.manifests import Item, Items, LabelSet, Manifest
from obygaze_features.manifests.check import check
from obygaze_features.manifests.format import read_header
from obygaze_features.manifests.statistics import film_titles
from tests.kit.timelines import grid, said, segments, worked
from tests.world import write_store


@pytest.fixture
def timelines(tmp_path):
    worked().save(tmp_path / "timelines")
    return tmp_path / "timelines"


@pytest.fixture
def spans(tmp_path):
    """The worked case's clips, as a manifest without labels."""
    grid().save(tmp_path / "spans")
    return tmp_path / "spans"


def test_into_the_grid_itself(obygaze, timelines, spans):
    before = read_header(spans)["digest"]
    result = obygaze("annotations", "project", timelines, "--grid", spans)
    assert result.exit_code == 0, result.output
    assert f"5 clips, threshold 0.2 -> {spans}" in result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["labels", "clips", "EN", "HN", "NS", "S"] in lines
    assert ["one", "5", "3", "0", "1", "1"] in lines
    assert ["two", "5", "2", "1", "1", "1"] in lines
    assert f"next: obygaze annotations merge {spans}" in result.output
    assert Manifest.load(spans).default_labels is None

    result = obygaze("annotations", "merge", spans)
    assert result.exit_code == 0, result.output
    assert "merged.csv (the default)" in result.output
    assert "Sure to both 1, to either 1 (100% of the merged Sure)" in result.output
    manifest = Manifest.load(spans)
    assert (manifest.default_labels, manifest.digest) == ("merged", before)
    assert said(manifest.labels())[1:3] == [
        ("S", {"Body", "Look"}),
        ("NS", {"Clothing", "Look", "Posture"}),
    ]
    assert manifest.labels().ratio == ["", "0.5", "1", "", "1"]
    about = manifest.labels().about
    assert about["of"]["one"]["threshold"] == 0.2
    assert about["of"]["two"]["timelines"]["name"] == "worked"
    assert about["grid"]["digest"] == before
    assert check(spans) == []


def test_into_a_new_manifest(obygaze, timelines, tmp_path):
    new = tmp_path / "new"
    result = obygaze("annotations", "project", timelines, "--grid", "100", "-o", new, "--json")
    assert result.exit_code == 0, result.output
    outcome = json.loads(result.stdout)
    assert outcome["label_sets"]["one"] == {"clips": 5, "levels": {"EN": 3, "S": 1, "NS": 1}}
    assert [issue["done"] for issue in outcome["remarks"]] == [
        "the last clip ends with the last segment"
    ]
    manifest = Manifest.load(new)
    assert manifest.label_names == ["one", "two"]
    assert manifest.labels("two").levels == ["EN", "S", "NS", "EN", "HN"]
    outcome = json.loads(obygaze("annotations", "merge", new, "--json", "--name", "ours").stdout)
    assert (outcome["labels"], outcome["default_labels"], outcome["clips"]) == ("ours", "ours", 5)
    assert sorted(outcome["of"]) == ["one", "two"]
    # By hand: EN EN, S S, NS NS, EN EN, EN HN.
    assert outcome["of_all"] == {"EN": 2, "HN": 0, "NS": 1, "S": 1}


def test_a_copy_of_a_manifest_keeps_what_it_has(obygaze, timelines, tmp_path):
    """A grid with labels of its own, which stay what is meant where no others are named."""
    levels = ["EN", "S", "EN", "EN", "EN"]
    own = LabelSet("own", grid().ids, levels, [()] * 5)
    grid().with_parts(labels=[own]).save(tmp_path / "spans")
    copy = tmp_path / "copy"
    result = obygaze("annotations", "project", timelines, "--grid", tmp_path / "spans", "-o", copy)
    assert result.exit_code == 0, result.output
    assert Manifest.load(tmp_path / "spans").label_names == ["own"]
    result = obygaze("annotations", "merge", copy)
    assert "merged.csv (own stays the default)" in result.output
    manifest = Manifest.load(copy)
    assert manifest.label_names == ["merged", "one", "own", "two"]
    assert manifest.labels().levels == levels


def test_a_single_label_set_stays_the_default_when_others_come(obygaze, timelines, spans):
    """It was meant because there was no other; nobody wrote that down."""
    (spans / "labels").mkdir()
    (spans / "labels" / "own.csv").write_text("id,level\nfilm-0,S\n")
    assert read_header(spans)["default_labels"] is None
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    assert Manifest.load(spans).default_labels == "own"


def test_nothing_is_replaced_unless_asked(obygaze, timelines, spans):
    project = ("annotations", "project", timelines, "--grid", spans)
    assert obygaze(*project).exit_code == 0
    before = {path: path.read_bytes() for path in spans.rglob("*.*")}
    result = obygaze(*project, "--threshold", "0.4")
    assert result.exit_code == 1
    assert "one.csv exists already" in result.stderr
    assert {path: path.read_bytes() for path in spans.rglob("*.*")} == before
    assert obygaze(*project, "--threshold", "0.4", "--overwrite").exit_code == 0
    assert Manifest.load(spans).labels("one").about["threshold"] == 0.4
    assert obygaze("annotations", "merge", spans).exit_code == 0
    assert obygaze("annotations", "merge", spans).exit_code == 1


@pytest.mark.parametrize("into", ["itself", "another"])
def test_merges_are_removed_with_their_sources(obygaze, timelines, spans, tmp_path, into):
    """By either way of projecting anew; what the output says next makes them again."""
    new = tmp_path / "new folder"
    ways = {"itself": ("--grid", spans), "another": ("--grid", "100", "-o", new)}
    project = ("annotations", "project", timelines, *ways[into])
    folder = spans if into == "itself" else new
    assert obygaze(*project, "--threshold", ".4").exit_code == 0
    names = ("--labels", "one", "--labels", "two")
    for called in ("ours", "theirs"):
        assert obygaze("annotations", "merge", folder, *names, "--name", called).exit_code == 0
    (folder / "labels" / "own.csv").write_text(f"id,level\n{Manifest.load(folder).ids[0]},S\n")
    result = obygaze(*project, "--overwrite")
    assert result.exit_code == 0, result.output
    for called in ("ours", "theirs"):
        assert f"{called}: was merged from one, two, which are replaced (removed" in result.output
    assert Manifest.load(folder).label_names == ["one", "own", "two"]
    assert check(folder) == []
    for line in result.output.splitlines():
        if line.startswith("next: obygaze "):
            assert obygaze(*shlex.split(line.removeprefix("next: obygaze "))).exit_code == 0
    manifest = Manifest.load(folder)
    assert manifest.label_names == ["one", "ours", "own", "theirs", "two"]
    assert manifest.default_labels == "ours"
    assert manifest.labels("theirs").about["of"]["one"]["threshold"] == 0.2
    assert check(folder) == []


def test_default_that_is_not_a_merge_stays(obygaze, timelines, tmp_path):
    new = tmp_path / "new"
    project = ("annotations", "project", timelines, "--grid", "100", "-o", new)
    assert obygaze(*project).exit_code == 0
    header = read_header(new)
    (new / "manifest.json").write_text(json.dumps({**header, "default_labels": "two"}))
    assert obygaze(*project, "--overwrite").exit_code == 0
    assert read_header(new)["default_labels"] == "two"


def test_check_names_a_stale_merge(obygaze, timelines, spans):
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    assert obygaze("annotations", "merge", spans).exit_code == 0
    about = spans / "labels" / "one.json"
    about.write_text(about.read_text().replace('"threshold": 0.2', '"threshold": 0.3'))
    [problem] = check(spans)
    assert "merged.json: one has changed since the merge" in problem


def test_a_merge_is_not_merged_with_what_it_holds(obygaze, timelines, spans):
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    assert obygaze("annotations", "merge", spans).exit_code == 0
    names = ("--labels", "merged", "--labels", "two", "--name", "more")
    result = obygaze("annotations", "merge", spans, *names)
    assert (result.exit_code, "would count twice" in result.stderr) == (2, True)


def test_concepts_that_the_manifest_lacked_are_in_its_scheme(obygaze, timelines, spans):
    loaded = Manifest.load(spans)
    few = replace(loaded.scheme, concepts=loaded.scheme.concepts[:3])
    replace(loaded, scheme=few).save(spans, overwrite=True)
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    assert obygaze("annotations", "merge", spans).exit_code == 0
    assert check(spans) == []
    assert said(Manifest.load(spans).labels())[2] == ("NS", {"Clothing", "Look", "Posture"})


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--grid", "60"], 2, "the grid 60 is not a manifest to save labels in"),
        (["--grid", "60", "-o", "new", "--threshold", "1.5"], 2, "a share of a clip"),
        (["--grid", "nowhere"], 2, "nowhere is not a grid"),
    ],
)
def test_misuse_is_one_line(obygaze, timelines, arguments, code, words):
    result = obygaze("annotations", "project", timelines, *arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)
    assert words in result.stderr
    assert not Path("new").exists()


def test_a_manifest_with_one_annotator_is_not_merged(obygaze, spans, tmp_path):
    lone = Timelines.of("lone", segments("one", [(0, 100, "S", "Look")]))
    lone.save(tmp_path / "lone")
    assert obygaze("annotations", "project", tmp_path / "lone", "--grid", spans).exit_code == 0
    result = obygaze("annotations", "merge", spans)
    assert result.exit_code == 2
    assert "two annotators or more (got one" in result.stderr
    assert obygaze("annotations", "merge", spans, "--labels", "nobody").exit_code == 2


def test_label_sets_of_two_thresholds_are_merged_only_by_name(obygaze, timelines, spans, tmp_path):
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    Timelines.of("more", segments("three", [(0, 100, "S", "Look")])).save(tmp_path / "more")
    more = ("annotations", "project", tmp_path / "more", "--grid", spans, "--threshold", ".5")
    assert obygaze(*more).exit_code == 0
    result = obygaze("annotations", "merge", spans)
    assert (result.exit_code, "different thresholds" in result.stderr) == (2, True)
    named = [word for name in ("one", "three") for word in ("--labels", name)]
    assert obygaze("annotations", "merge", spans, *named).exit_code == 0
    assert Manifest.load(spans).labels().levels == ["S", "S", "NS", "EN", "EN"]
    result = obygaze("annotations", "merge", spans, *named, "--name", "one", "--overwrite")
    assert (result.exit_code, "one of the label sets to merge" in result.stderr) == (2, True)


def test_bad_ratio_is_one_line(obygaze, spans):
    (spans / "labels").mkdir()
    for name, ratio in (("one", "0.5"), ("two", "half")):
        (spans / "labels" / f"{name}.csv").write_text(f"id,level,ratio\nfilm-0,S,{ratio}\n")
    result = obygaze("annotations", "merge", spans, "--labels", "one", "--labels", "two")
    assert result.exit_code == 1
    assert "the label set 'two' has a bad ratio" in result.stderr
    assert Manifest.load(spans).label_names == ["one", "two"]


def test_what_is_left_out_ends_with_3_and_is_named(obygaze, tmp_path, spans):
    late = [(500 + 10 * step, 505 + 10 * step, "S", "Look") for step in range(12)]
    pair = [*worked().segments, *segments("one", late), *segments("two", late, "other")]
    Timelines.of("late", pair).save(tmp_path / "late")
    project = ("annotations", "project", tmp_path / "late", "--grid", spans)
    result = obygaze(*project)
    assert result.exit_code == 3
    assert "other: the grid has no clips of it (left out)" in result.output
    assert "from 500 to 505 s (S) is in no clip (left out)" in result.output
    assert "(left out); and 11 more like this: --json has all" in result.output
    outcome = json.loads(obygaze(*project, "--overwrite", "--json").stdout)
    assert len(outcome["remarks"]) == 13
    swept = obygaze("annotations", "sweep", *project[2:])
    assert (swept.exit_code, "and 11 more like this" in swept.output) == (3, True)
    assert obygaze("annotations", "merge", spans).exit_code == 0


def test_films_with_one_annotator_are_named_when_merged(obygaze, tmp_path):
    more = [*worked().segments, *segments("two", [(0, 90, "S", "Look")], "other")]
    Timelines.of("more", more).save(tmp_path / "more")
    new = tmp_path / "new"
    assert (
        obygaze("annotations", "project", tmp_path / "more", "--grid", "60", "-o", new).exit_code
        == 0
    )
    result = obygaze("annotations", "merge", new)
    assert result.exit_code == 0
    assert "other two: no second annotator for 2 clips (taken from two)" in result.output
    assert Manifest.load(new).labels().extra["annotators"] == ["2"] * 7 + ["1"] * 2


def test_films_named_by_media_only_are_films(obygaze, tmp_path):
    """From projecting to the figure; two films are not taken for one without a name."""
    first = worked()
    more = [*first.segments, *segments("one", [(0, 90, "S", "Look")], "other")]
    Timelines.of("two", more).save(tmp_path / "two")
    items = [
        Item(f"{film}-{number}", media=f"{film}.mkv", start=100.0 * number, end=100.0 * number + 90)
        for film in ("film", "other")
        for number in range(5)
    ]
    spans = tmp_path / "spans"
    Manifest("spans", Items.of(items)).save(spans)
    assert obygaze("annotations", "project", tmp_path / "two", "--grid", spans).exit_code == 0
    merged = obygaze("annotations", "merge", spans)
    assert "other one: no second annotator for 5 clips (taken from one)" in merged.output
    result = json.loads(obygaze("annotations", "agreement", spans, "--json").stdout)
    assert [(pair["film"], pair["gamma"]["clips"]) for pair in result["pairs"]] == [("film", 5)]
    assert [issue["film"] for issue in result["remarks"]] == ["other"]
    pair = (tmp_path / "two", spans)
    assert obygaze("annotations", "figure", *pair, "-o", tmp_path / "figures").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "film.svg",
        "other.svg",
    ]
    export = ("annotations", "export", tmp_path / "two", "--csv", "--manifest", spans)
    assert obygaze(*export, "-o", tmp_path / "out").exit_code == 0
    with (tmp_path / "out" / "clips.csv").open(newline="", encoding="utf-8-sig") as file:
        rows = [(row["film"], row["clip"]) for row in csv.DictReader(file)]
    assert rows == [(item.id.partition("-")[0], item.id) for item in items]


def test_the_sweep(obygaze, timelines, spans, tmp_path):
    before = {path: path.read_bytes() for path in spans.rglob("*.*")}
    command = ("annotations", "sweep", timelines, "--grid", spans)
    result = obygaze(*command, "--thresholds", ".3, .2,.15", "-o", tmp_path / "sweep.csv")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "0.15 5 1 (20.0%) 1 (20.0%) 0 (0.0%) 3 (60.0%) 1.00" in lines
    assert "0.2 5 2 (40.0%) 1 (20.0%) 1 (20.0%) 1 (20.0%) 1.20" in lines
    with (tmp_path / "sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["threshold"] for row in rows] == ["0.15", "0.2", "0.3"]
    assert (rows[1]["EN"], rows[1]["EN_share"], rows[1]["concepts_per_clip"]) == (
        "2",
        "0.400000",
        "1.200000",
    )
    outcome = json.loads(obygaze(*command, "--json").stdout)
    assert [threshold["threshold"] for threshold in outcome["thresholds"]] == [0.1, 0.2, 0.3, 0.4]
    assert outcome["thresholds"][1]["levels"] == {"EN": 2, "HN": 1, "NS": 1, "S": 1}
    assert {path: path.read_bytes() for path in spans.rglob("*.*")} == before
    again = obygaze(*command, "-o", tmp_path / "sweep.csv")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    wrong = obygaze(*command, "--thresholds", "some")
    assert (wrong.exit_code, "takes numbers" in wrong.stderr) == (2, True)


def test_the_merged_labels_train_a_model(obygaze, tmp_path):
    """From timelines of four films to scores, through features that tell the levels apart."""
    chance = np.random.default_rng(3)
    films = {f"tt{number}": Film(end=900.0) for number in range(4)}
    drawn = []
    for film in films:
        for annotator, shift in (("one", 0.0), ("two", 2.5)):
            for start in range(0, 900, 30):
                level = "S" if start % 90 == 0 else ("HN", "EN")[int(chance.integers(2))]
                names = ("Look",) if level == "S" else ()
                end = min(start + 30 + shift, 900.0)
                drawn.append(Segment(film, annotator, start + shift, end, level, names))
    Timelines.of("made up", drawn, films=films).save(tmp_path / "timelines")
    folder = tmp_path / "manifest"
    project = ("project", tmp_path / "timelines", "--grid", "10", "-o", folder)
    for command in (project, ("merge", folder)):
        result = obygaze("annotations", *command)
        assert result.exit_code == 0, result.output
    assert obygaze("manifests", "split", folder, "--by-film").exit_code == 0
    manifest = Manifest.load(folder)
    labels = manifest.labels()
    assert len(labels) == len(manifest) == 360
    # Three clips each time by one annotator, and a quarter of the next one by the other, later.
    assert labels.levels.count("S") == 4 * 10 * (3 + 1)
    features = {
        one: chance.normal(size=8).astype(np.float32) + (2.0 if level == "S" else 0.0)
        for one, level in zip(labels.ids, labels.levels, strict=True)
    }
    write_store(tmp_path / "toy.zarr", manifest, features)
    (tmp_path / "experiment.toml").write_text(
        'name = "Sure against the rest"\nmanifest = "manifest"\nstore = "toy.zarr"\n'
        'split = "leave-film-out"\npositives = ["S"]\ntrain_negatives = ["EN", "HN"]\n'
        'estimators = ["svm"]\n'
    )
    run = ("models", "run", tmp_path / "experiment.toml", "-o", tmp_path / "run")
    result = obygaze(*run)
    assert result.exit_code == 0, result.output
    assert "svm" in result.output


def test_an_annotator_who_stopped_early_is_named(obygaze, tmp_path, spans):
    """In a film of 420 s; who marked something in its second half did not stop."""
    early = segments("early", [(0, 90, "S", "Look"), (150, 205, "HN")])
    late = segments("late", [(0, 90, "S", "Look"), (211, 260, "HN")])
    Timelines.of("t", [*early, *late]).save(tmp_path / "t")
    result = obygaze("annotations", "project", tmp_path / "t", "--grid", spans)
    assert result.exit_code == 0
    line = (
        "film early: nothing is marked after 0:03:25 of 0:07:00; did the annotator stop there? "
        "(the rest counts as Easy Negative)"
    )
    assert line in result.output
    assert "film late: nothing" not in result.output
    result = obygaze("annotations", "agreement", spans)
    assert "film early: nothing is marked after 0:03:20 of 0:07:00" in result.output
    assert "film late: nothing" not in result.output


def test_labels_of_several_timelines_are_not_mixed_silently(obygaze, timelines, tmp_path, spans):
    Timelines.of("more", segments("three", [(0, 300, "S", "Look")])).save(tmp_path / "more")
    for folder in (timelines, tmp_path / "more"):
        assert obygaze("annotations", "project", folder, "--grid", spans).exit_code == 0
    named = "projected from 2 different timelines: one, two; three (taken together)"
    for command in ("merge", "agreement"):
        result = obygaze("annotations", command, spans)
        assert (result.exit_code, named in result.output) == (0, True)
    two = ("--labels", "one", "--labels", "two")
    assert "different timelines" not in obygaze("annotations", "agreement", spans, *two).output


def test_a_threshold_in_per_cent_and_a_grid_as_a_time(obygaze, timelines, tmp_path):
    ask = ("annotations", "project", timelines, "--grid", "0:01:40", "--threshold")
    assert obygaze(*ask, "20%", "-o", tmp_path / "m").exit_code == 0
    labels = Manifest.load(tmp_path / "m").labels("one")
    assert (labels.about["threshold"], len(labels)) == (0.2, 5)
    wrong = obygaze(*ask, "some", "-o", tmp_path / "n")
    assert (wrong.exit_code, "takes numbers such as 0.2 or 20%" in wrong.stderr) == (2, True)
    swept = obygaze("annotations", "sweep", timelines, "--grid", "100", "--thresholds", "20%,.3")
    assert swept.exit_code == 0, swept.output


def test_timelines_where_a_manifest_is_meant(obygaze, timelines):
    for command in ("merge", "agreement"):
        result = obygaze("annotations", command, timelines)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert f"obygaze annotations project {timelines} --grid 60 -o FOLDER" in result.stderr


def test_means_are_of_annotators_and_not_of_their_merge(obygaze, timelines, spans):
    assert obygaze("annotations", "project", timelines, "--grid", spans).exit_code == 0
    assert obygaze("annotations", "merge", spans).exit_code == 0

    def means(*names):
        named = [word for name in names for word in ("--labels", name)]
        result = obygaze("annotations", "agreement", spans, *named, "--json")
        outcome = json.loads(result.stdout)["means"]
        return outcome

    assert means("one", "two", "merged") == means()
    assert means("two", "merged") != means()


def test_next_command_never_replaces_labels(obygaze, timelines, spans):
    (spans / "labels").mkdir()
    (spans / "labels" / "merged.csv").write_text("id,level\nfilm-0,S\n")
    result = obygaze("annotations", "project", timelines, "--grid", spans)
    assert f"next: obygaze annotations merge {spans} --name merged-2\n" in result.output
    assert obygaze("annotations", "merge", spans, "--name", "merged-2").exit_code == 0


def test_titles_stay_through_a_projection(obygaze, tmp_path):
    """In items.csv, and so in tables, figures and reports."""
    films = {"a": Film("Flight of A"), "b": Film(""), "tt0467406": Film("Juno")}
    made = [s for film in films for s in segments("ann", [(0, 60, "S"), (60, 90, "EN")], film)]
    Timelines.of("t", made, films=films).save(tmp_path / "t")
    obygaze("annotations", "project", tmp_path / "t", "--grid", "30", "-o", tmp_path / "m")
    manifest = Manifest.load(tmp_path / "m")
    assert film_titles(manifest)["a"] == "Flight of A"
    assert film_titles(manifest)["tt0467406"] == "Juno (2007)"
    assert "b" not in film_titles(manifest)
    output = obygaze("manifests", "stats", tmp_path / "m", "--labels", "ann", "--by-film").output
    assert "Flight of A" in output
    for name in ("flight of a", "JUNO", "Juno (2007)", "tt0467406", "b"):
        path = tmp_path / "figures" / f"{name}.svg"
        arguments = ["annotations", "figure", tmp_path / "t", tmp_path / "m", "--film", name]
        result = obygaze(*arguments, "-o", path)
        assert result.exit_code == 0, result.output
        title = {"b": ">b<", "flight of a": "Flight of A"}.get(name, "Juno")
        assert title in path.read_text()
    refused = obygaze(
        "annotations",
        "figure",
        tmp_path / "t",
        tmp_path / "m",
        "--film",
        "Jun",
        "-o",
        tmp_path / "x.svg",
    )
    assert (refused.exit_code, "did you mean Juno" in refused.output) == (2, True)
