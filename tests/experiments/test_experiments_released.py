"""The authors' splits: the same clips id by id, and what their leakage does to scores."""

import csv
import json
from dataclasses import replace

import pytest

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_models.experiments.plan import plan_clips

TESTS = (("EN",), ("EN", "HN"))


@pytest.fixture(scope="module")
def task(coded):
    """Of the authors' labels; ``task(("EN",), protocol="released")``."""

    def task(negatives=("HN",), **more):
        values = {"positives": ("S",), "train_negatives": negatives, "labels": "released"}
        values |= {"estimators": ("majority",)} | more
        return om.Experiment("codes", coded.manifest, coded.stores["xclip"], **values)

    return task


@pytest.fixture(scope="module")
def golden(coded):
    """The lists of the authors' code, as they are."""
    return json.loads((coded.authors / "obygaze12/released_runs.json").read_text())


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=";"))


def folds_of(task):
    """By fold: the ids that train, stop and test."""
    plan = plan_clips(task)
    data = plan.data

    def ids(rows):
        return sorted(data.ids[row] for row in rows.tolist())

    for fold in plan.division.folds(data, plan.problems[0], seed=0):
        tests = {name: ids(rows) for name, rows in fold.tests.items()}
        yield ids(fold.train), ids(fold.validation), tests


@pytest.mark.parametrize("negative", ["EN", "HN"])
def test_the_released_runs_are_the_golden_ones(golden, task, negative):
    runs = golden["runs"][f"02_{negative}_S"]
    tests = {"EN vs S": golden["tests"]["02_EN_S"], "EN+HN vs S": golden["tests"]["02_ENHN_S"]}
    for labels in ("released", "paper"):
        released = task((negative,), protocol="released", test_negatives=TESTS, labels=labels)
        folds = list(folds_of(released))
        assert folds == [
            (runs[str(run)]["train"], runs[str(run)]["val"], tests) for run in range(8)
        ]


def test_concepts_are_learnt_from_the_authors_other_file(coded, task):
    manifest = Manifest.load(coded.manifest)
    rows = rows_of(coded.authors / "obygaze12/balanced_level/02_EN_HN_S.csv")
    fold_of = {row["id"]: int(row["fold"]) for row in rows if manifest[row["id"]].media}
    levels = {"positives": (), "train_negatives": ()}
    concepts = replace(task(), **levels, concepts=("Look",), negatives="b")
    folds = list(folds_of(replace(concepts, protocol="released")))
    assert len(folds) == 9
    for number, (train, validation, tests) in enumerate(folds):
        parts = ([f for f in range(9) if f != number], [number], [9])
        expected = [sorted(i for i, fold in fold_of.items() if fold in part) for part in parts]
        assert [train, validation, tests["Look vs all without"]] == expected


def test_leaks_are_counted_run_by_run(golden, task, tmp_path):
    """By one fold column for all there are none."""
    released = task(("EN",), protocol="released", test_negatives=TESTS)
    record = om.run_experiment(released, tmp_path / "run").record
    assert any("EN+HN vs S" in w.text for w in record.warnings if w.code == "leak")
    sound = task(("EN",), protocol="leak-free", split="", test_negatives=TESTS)
    sound = om.run_experiment(sound, tmp_path / "sound").record
    assert (sound.leaked, sound.leaks, [w.code for w in sound.warnings]) == ([], [], ["synthetic"])
    tested = set(golden["tests"]["02_ENHN_S"])
    counts = {(leak.fit, leak.test): (leak.train, leak.validation) for leak in record.leaks}
    for run, lists in golden["runs"]["02_EN_S"].items():
        expected = len(tested & {*lists["train"]}), len(tested & {*lists["val"]})
        assert counts.get((int(run), "EN+HN vs S"), (0, 0)) == expected
        assert (int(run), "EN vs S") not in counts
    assert any(train for train, _ in counts.values())


def test_concepts_are_detected_and_reported(coded, task, tmp_path):
    """Of three, one is in no clip of three test folds, and one in none at all."""
    manifest = Manifest.load(coded.manifest)
    labels, fold_of = manifest.labels("paper"), manifest.split("02_EN_HN_S").fold_of
    concepts = [
        tuple({*names} - ({"Body"} if fold_of.get(clip, 0) > 2 else {"Body", "Posture"}))
        for clip, names in labels.concepts_of.items()
    ]
    few = manifest.with_parts(labels=[replace(labels, name="few", concepts=concepts)])
    few.save(tmp_path / "m")
    changed = replace(
        task(), manifest=tmp_path / "m", positives=(), train_negatives=(), labels="few",
        concepts=("Look", "Posture", "Body"), split="02_EN_HN_S",
    )  # fmt: skip
    run = om.run_experiment(changed, tmp_path / "run")
    rows = zip(labels.ids, concepts, labels.levels, strict=True)
    assert run.record.tests["Look vs EN"].positives == sum(
        "Look" in names and level in ("HN", "S") and fold_of.get(clip) == 9
        for clip, names, level in rows
    )
    assert {scores.test: scores.fits for scores in run.record.scores} == {
        "Look vs EN": list(range(9)),
        "Posture vs EN": list(range(3, 9)),
    }
    assert [(skip.task, skip.fit, skip.why) for skip in run.record.skipped] == [
        *(("Posture vs EN", fit, "the validation set has no clip of Posture") for fit in range(3)),
        *(("Body vs EN", fit, "the training set has no clip of Body") for fit in range(9)),
    ]


def test_what_the_released_lists_lack_is_named(task, tmp_path):
    """No list, or, of Hard Negatives against Sure, no clip to learn concepts against."""
    tree = {"protocol": "released", "estimators": ("pcbm-tree",)}
    for changed, fact in (
        (task(("NS",), protocol="released"), "released no split for NS vs S; they did for EN"),
        (task(**tree), "nothing could be learnt: pcbm-tree"),
    ):
        with pytest.raises(ExperimentError, match=fact) as caught:
            om.run_experiment(changed, tmp_path / "none")
        assert "\n" not in str(caught.value)
    pair = task(**tree | {"estimators": ("pcbm-tree", "majority")})
    record = om.run_experiment(pair, tmp_path / "run").record
    assert {scores.model for scores in record.scores} == {"majority"}
    assert {skip.what.split(",")[0] for skip in record.skipped} == {"pcbm-tree"}
