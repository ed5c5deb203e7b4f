"""The authors' splits: their runs id by id, and what leaks between them."""

import csv
import json

import pytest

from obygaze_features.manifests import Manifest, Run, RunSet, Split
from obygaze_features.manifests.audit import audit
from obygaze_features.manifests.manifest import save_parts
from obygaze_features.manifests.splits import released_runs


def test_all_sixteen_runs_come_out_id_by_id(obygaze12, authors):
    golden = json.loads((authors / "obygaze12" / "released_runs.json").read_text())
    assert sum(map(len, golden["runs"].values())) == 16
    for name, runs in golden["runs"].items():
        result = {run.name: run for run in obygaze12.runs(name).runs}
        assert result.keys() == runs.keys()
        for run, ids in runs.items():
            assert result[run].train == sorted(ids["train"])
            assert result[run].validation == sorted(ids["val"])
    with_media = {item.id for item in obygaze12 if item.media}
    for name, ids in golden["tests"].items():
        assert sorted(with_media & set(obygaze12.split(name).fold(9))) == sorted(ids)


def test_no_fold_zero_and_few_positives_train(obygaze12):
    for name in ("02_EN_S", "02_HN_S"):
        split = obygaze12.split(name)
        for run in obygaze12.runs(name).runs:
            assert all(split.fold_of[identifier] not in (0, 9) for identifier in run.train)
            assert 151 <= sum(split.class_of[i] == "S" for i in run.train) <= 214


@pytest.mark.parametrize(
    ("train", "test", "tested", "leaked", "sure"),
    [
        ("02_HN_S", "02_ENHN_S", 105, 54, (26, 31)),
        ("02_EN_S", "02_ENHN_S", 105, 67, (29, 31)),
        ("02_HN_S", "02_EN_S", 75, 26, (26, 31)),
        ("02_EN_S", "02_EN_S", 75, 0, (0, 31)),
    ],
)
def test_pools_that_leak(obygaze12, train, test, tested, leaked, sure):
    pool = audit(obygaze12, train=[train], test=[test])[0]
    assert (len(pool.tested), len(pool.ids), pool.by_class["S"]) == (tested, leaked, sure)


@pytest.mark.parametrize(("train", "least", "most"), [("02_HN_S", 13, 17), ("02_EN_S", 17, 24)])
def test_runs_that_leak(obygaze12, train, least, most):
    _, *runs = audit(obygaze12, train=[train], test=["02_ENHN_S"])
    sure = [run.by_class["S"][0] for run in runs]
    assert (len(sure), min(sure), max(sure)) == (8, least, most)


def test_a_column_for_all_clips_never_leaks(obygaze12):
    from obygaze_features.manifests.splits import stratified

    manifest = obygaze12.with_parts(splits=[stratified(obygaze12, name="ours")])
    assert [leak.ids for leak in audit(manifest, train=["ours"], test=["ours"])] == [[]]


def test_split_sizes_and_leave_film_out_classes(obygaze12):
    sizes = {name: len(obygaze12.split(name)) for name in obygaze12.split_names}
    assert sizes == {
        "02_EN_S": 744, "02_HN_S": 612, "02_ENHN_S": 1048, "02_EN_HN_S": 1048,
        "movieset_ENHN_S": 997, "movieset_HN_S": 589,
    }  # fmt: skip
    films = obygaze12.split("movieset_ENHN_S")
    assert films.classes.count("S") == 302
    by_film = {films.fold_of[i]: i.split("-")[0] for i in films.ids}
    assert [by_film[fold] for fold in range(12)] == sorted(set(obygaze12.items.films))


def test_audit_counts_as_a_person_would(manifest):
    """Six clips, two splits and one run, counted by hand."""
    loaded = Manifest.load(manifest)
    a, b, c, d, e, f = loaded.ids
    left = Split("left", [a, b, c, d], [0, 0, 1, 1], ["EN", "EN", "S", "S"])
    right = Split("right", [c, d, e, f], [0, 1, 1, 1], ["S", "S", "EN", "S"])
    runs = RunSet("left", [Run("0", train=[b, d], validation=[a])])
    save_parts(manifest, [left, right, runs])
    pool, run = audit(Manifest.load(manifest), train=["left"], test=["right"], test_fold=0)
    assert (pool.where, pool.tested, pool.ids) == ("pool", [c], [])
    assert (run.where, run.ids) == ("run 0", [])
    pool, run = audit(Manifest.load(manifest), train=["left"], test=["right"])
    assert pool.ids == []  # d is in the test fold of left, too
    assert run.ids == [d]  # but the run trained on it all the same
    assert run.by_class == {"EN": (0, 1), "S": (1, 2)}


def test_a_run_is_rebuilt_on_a_small_split():
    """Equal classes of ten a fold: seven slots' worth of folds, by hand for run 0."""
    ids = [f"{name}{fold}{n}" for name in "ps" for fold in range(10) for n in range(10)]
    split = Split("x", ids, [int(i[1]) for i in ids], [i[0] for i in ids])
    first = released_runs(split, set(ids)).runs[0]
    # The wheel without fold 1 is 2 3 4 5 6 7 8 9; eight slots, of which the test fold is lost.
    assert {int(i[1]) for i in first.train} == {2, 3, 4, 5, 6, 7, 8}
    assert {int(i[1]) for i in first.validation} == {0}
    without = released_runs(split, set(ids) - {"p20"}).runs[0]
    assert "p20" not in without.train


def test_commands_say_what_they_did(obygaze, authors, tmp_path):
    data, folder = authors / "obygaze12", tmp_path / "m"
    assert not obygaze(
        "manifests", "import", "obygaze12", data / "ObyGaze12_thresh_02.csv", "-o", folder
    ).exit_code
    result = obygaze("manifests", "import", "obygaze12-splits", data, "-o", folder)
    assert "runs 02_EN_S: 8 runs, trained on 342 to 459 clips" in result.output
    printed = obygaze("manifests", "audit", folder, "--train", "02_HN_S", "--test", "02_ENHN_S")
    assert "54 of 105" in printed.output
    assert "S 26/31" in printed.output
    assert "S 13-17/31" in printed.output
    again = obygaze("manifests", "import", "obygaze12-splits", data, "-o", folder)
    assert (again.exit_code, "--overwrite" in again.output) == (1, True)
    stats = obygaze("manifests", "stats", folder).output
    with (data / "ObyGaze12_thresh_02.csv").open(newline="") as file:
        films = {row["movie"] for row in csv.DictReader(file, delimiter=";")} - {""}
    assert f"1,914 clips of {len(films)} films" in stats
    assert "EN     Easy Negative   1003  52.4%" in stats
