"""The released splits: their runs id by id, and what leaks between them."""

import json

import pytest

import obygaze_features as of
from obygaze_features.manifests import Run, RunSet, Split
from obygaze_features.manifests.audit import audit
from obygaze_features.manifests.manifest import save_parts
from obygaze_features.manifests.splits import released_runs
from tests.kit.files import refused


def test_all_sixteen_runs_come_out_id_by_id(released, small_authors):
    golden = json.loads((small_authors / "obygaze12/released_runs.json").read_text())
    for name, runs in golden["runs"].items():
        split = released.split(name)
        result = {run.name: run for run in released.runs(name).runs}
        assert result.keys() == runs.keys() == set("01234567")
        for run, ids in runs.items():
            assert result[run].train == ids["train"]
            assert result[run].validation == ids["val"]
            assert {split.fold_of[i] for i in ids["train"]}.isdisjoint((0, 9, int(run)))
    with_media = {item.id for item in released if item.media}
    for name, ids in golden["tests"].items():
        assert sorted(with_media & set(released.split(name).fold(9))) == ids


@pytest.mark.parametrize("train", ["02_HN_S", "02_EN_S"])
def test_leaks_are_those_of_a_plain_count(released, train):
    pool, *runs = audit(released, train=[train], test=["02_ENHN_S"])
    fold_of, tested = released.split(train).fold_of, released.split("02_ENHN_S").fold(9)
    assert pool.tested == tested
    assert pool.ids == [i for i in tested if fold_of.get(i, 9) != 9]
    for run, actual in zip(released.runs(train).runs, runs, strict=True):
        assert actual.ids == [i for i in tested if i in run.train]
    [own] = [leak for leak in audit(released, train=[train], test=[train]) if leak.where == "pool"]
    assert own.ids == []


def test_a_column_for_all_clips_never_leaks(released):
    manifest = released.with_parts(splits=[of.stratified(released, name="ours")])
    assert [leak.ids for leak in audit(manifest, train=["ours"], test=["ours"])] == [[]]


def test_splits_by_film_have_a_fold_a_film(released):
    films = released.split("movieset_ENHN_S")
    assert len(films) == sum(bool(released[i].media) for i in released.split("02_ENHN_S").ids)
    by_film = {films.fold_of[i]: i.split("-")[0] for i in films.ids}
    assert [by_film[fold] for fold in range(12)] == sorted(set(released.items.films))
    classes = released.labels("released").level_of
    assert all((name == "S") == (classes[i] == "S") for i, name in films.class_of.items())


def test_audit_counts_as_a_person_would(manifest):
    """Six clips, two splits and one run, counted by hand."""
    a, b, c, d, e, f = of.Manifest.load(manifest).ids
    left = Split("left", [a, b, c, d], [0, 0, 1, 1], ["EN", "EN", "S", "S"])
    right = Split("right", [c, d, e, f], [0, 1, 1, 1], ["S", "S", "EN", "S"])
    save_parts(manifest, [left, right, RunSet("left", [Run("0", [b, d], [a])])])
    pool, run = audit(of.Manifest.load(manifest), train=["left"], test=["right"], test_fold=0)
    assert (pool.where, pool.tested, pool.ids) == ("pool", [c], [])
    assert (run.where, run.ids) == ("run 0", [])
    pool, run = audit(of.Manifest.load(manifest), train=["left"], test=["right"])
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


def test_commands_import_splits_and_name_leaks(obygaze, released, small_authors, tmp_path):
    data, folder = small_authors / "obygaze12", tmp_path / "m"
    table = data / "ObyGaze12_thresh_02.csv"
    assert obygaze("manifests", "import", "obygaze12", table, "-o", folder).exit_code == 0
    splits = ("manifests", "import", "obygaze12-splits", data, "-o", folder)
    sizes = [len(run.train) for run in released.runs("02_EN_S").runs]
    trained = f"runs 02_EN_S: 8 runs, trained on {min(sizes)} to {max(sizes)} clips"
    assert trained in obygaze(*splits).output
    pool, *_ = audit(released, train=["02_HN_S"], test=["02_ENHN_S"])
    names = ("--train", "02_HN_S", "--test", "02_ENHN_S")
    output = obygaze("manifests", "audit", folder, *names).output
    assert f"{len(pool.ids)} of {len(pool.tested)}" in output
    assert "S {}/{}".format(*pool.by_class["S"]) in output
    refused(obygaze(*splits), "--overwrite")
