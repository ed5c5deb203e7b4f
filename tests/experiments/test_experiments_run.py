"""A run and its tables: which clips train and test, what is recorded, and reading it back."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.metrics import f1_score

import obygaze_models as om
from obygaze_features.manifests import Manifest
from tests.kit.floats import close
from tests.kit.run import FILMS, labelled, write_store


def test_scores_follow_from_the_predictions(make_run):
    run = om.load_run(make_run("good").folder)
    table = pd.read_csv(run.folder / "scores.csv", keep_default_na=False)
    whole = table.query("group == '' and over == 'across' and metric == 'f1'").set_index("test")
    for scores in run.model_scores:
        own = run.predictions[run.predictions["test"] == scores.test]
        expected = []
        for _, fit in own.groupby("fit"):
            expected.append(f1_score(fit["label"], fit["probability"] > 0.5))
        mean = np.mean(expected)
        assert [values["f1"] for values in scores.by_fit.values()] == close(expected)
        assert scores.mean_of_fits["f1"] == close(mean)
        assert scores.std_of_fits["f1"] == close(np.std(expected))
        assert float(whole.loc[scores.test, "mean"]) == close(mean)
        guess = run.tests[scores.test].guesses["across"]["all positive"]["f1"]
        assert scores.across["f1"].value > guess + 0.2
    assert run.warnings == []


def test_missing_labels_folds_and_features_are_named(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    no_label, no_fold, no_features, failed = world.clips("S")[:4]
    labels = manifest.labels().where(lambda clip: clip != no_label)
    split = manifest.split("ten").where(lambda clip: clip != no_fold)
    manifest.with_parts(labels, split).save(tmp_path / "manifest")
    remaining = manifest.select(ids=[clip for clip in world.ids if clip != no_features])
    empty = {*world.clips("S", folds=[9])[:3]}
    rows = world.rows | dict.fromkeys(empty, np.zeros(8))
    rows[failed] = np.full(8, np.nan)
    write_store(tmp_path / "part.zarr", remaining, rows)
    run = make_run("gaps", manifest=tmp_path / "manifest", store=tmp_path / "part.zarr")
    clips = run.clips.set_index("id")
    assert {*clips.index} == {*world.ids} - {no_label}
    used = clips["used"]
    assert (used == "").sum() == 146
    assert used[no_fold] == "no-fold"
    assert used[no_features] == used[failed] == "no-features"
    assert {*used[world.clips("NS")]} == {"not-in-task"}
    assert {*clips.index[clips["blank"]]} == empty
    texts = {warning.code: warning.text for warning in run.warnings}
    assert f"{no_features}, {failed}; part lacks 2 clips" in texts["no-features"]
    tested = run.predictions["id"].nunique()
    assert f" {len(empty)} of {tested} tested clips" in texts["zeros"]


def test_films_without_a_test_are_named_with_the_reason(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    manifest.select(ids=world.ids[:-1]).save(tmp_path / "few")
    films = {"manifest": tmp_path / "few", "split": None, "protocol": "leave-film-out"}
    [warning] = [own for own in make_run("few", **films).warnings if own.code == "films"]
    assert "not tt4 (fewer than min_clips = 10 clips of a class)" in warning.text


@pytest.mark.parametrize("balance", ["undersample", "none", "weights"])
def test_an_experiment_balances_its_classes(make_run, balance):
    more = {"train_negatives": ("EN", "HN"), "test_negatives": (), "estimators": ("majority",)}
    run = make_run("balance", balance=balance, protocol=None, **more)
    assert (run.header.protocol, run.header.balance) == ("split", balance)
    assert "balance" not in {own.code for own in run.warnings}  # a guess needs no weights
    for fit in run.fits.to_dict("records"):
        first, second = fit["train_classes"].values()
        assert first + second == fit["trained"]
        assert (first == second) == (balance == "undersample")
        assert (fit["drawn_from"] > fit["trained"]) == (balance == "undersample")


STOPPED = {"name": "svm", "as": "stopped", "C": 0.1}
CHOSEN = {"name": "logistic", "as": "chosen", "threshold": "validation"}
MIXED = {
    "protocol": {"name": "leave-film-out", "validation_films": 2},
    "split": None,
    "test_negatives": (),
    "estimators": ("majority", STOPPED, "logistic", CHOSEN),
}


def test_films_are_left_out_once_without_validation(make_run):
    """Thresholds and the C of an SVM use other films; compare with scikit-learn."""
    run = make_run("mixed", **MIXED)
    numbers = {scores.model: [*scores.by_fit] for scores in run.model_scores}
    pairs = list(range(2 * FILMS))
    films = list(range(FILMS))
    assert numbers == {"majority": films, "stopped": pairs, "logistic": films, "chosen": pairs}
    for row in run.saved:
        left_out = re.findall("tt.", row["name"])[0]
        about = om.load_model(row["folder"]).about
        assert about.seen == {}  # whole films, so clips need not be listed
        others = [f"tt{film}" for film in films]
        others.remove(left_out)
        assert about.seen_groups == {"film": others}
    alone = make_run("alone", **MIXED | {"estimators": ("logistic",)})
    ours = run.predictions[run.predictions["model"] == "logistic"]
    assert ours["probability"].tolist() == alone.predictions["probability"].tolist()


@pytest.fixture(scope="module")
def spans(world):
    manifest = labelled(world.ids, world.levels, seconds=2)
    folder = world.folder / "spans"
    director = [f"d{row % 5}" for row in range(len(manifest))]
    items = replace(manifest.items, extra={"director": director})
    replace(manifest, items=items).save(folder)
    return folder


def test_groups_of_a_column_work_like_films(spans, make_run):
    changes = {"manifest": spans, "test_negatives": (), "protocol": None}
    by_director = {"name": "leave-film-out", "min_clips": 1}
    for protocol in (None, by_director):
        own = {"groups": "director", "split": None, "protocol": protocol}
        run = make_run("directors", **changes | own)
        assert (run.noun, len(run.tested_groups), run.header.also_trained) == ("director", 5, 0)
        assert run.model_scores[0].within["auroc"].groups == 5
        for row in run.saved:
            tested = run.predictions.loc[run.predictions["fit"] == row["fit"], "id"]
            seen = om.load_model(row["folder"]).about.seen_groups["director"]
            assert not {*tested.map(run.group_of)} & {*seen}
    assert make_run("films-train", split="clips", **changes).header.also_trained == FILMS


def test_a_gap_excludes_neighbours_of_test_clips(spans, make_run):
    """Guesses, which count the clips of whole folds, do not count them either."""
    changes = {"manifest": spans, "split": "clips", "protocol": None, "test_negatives": ()}
    changes |= {"estimators": ("majority", "logistic")}
    free = make_run("gap 0", **changes, gap=0)
    apart = make_run("gap 5", **changes, gap=5)
    assert "neighbours" in {own.code for own in free.warnings}
    assert "neighbours" not in {own.code for own in apart.warnings}
    clips = apart.clips[apart.clips["used"] == ""].set_index("id")
    for row in apart.saved:
        own = clips[clips["fold"] == row["fit"]]
        starts = clips["start"].to_numpy()[:, None]
        gaps = abs(starts - own["start"].to_numpy()) - 2
        media = clips["media"].to_numpy()[:, None]
        same = media == own["media"].to_numpy()
        near = ((gaps <= 5) & same).any(axis=1)
        far = clips[~near & (clips["fold"] != row["fit"])]
        validating = far["fold"].value_counts()  # one of the folds
        assert row["drawn_from"] in {len(far) - count for count in validating}
        seen = om.load_model(row["folder"]).about.seen
        used = {(film, start) for film, spans in seen.items() for start, _ in spans}
        assert len(used) == row["drawn_from" if row["model"] == "majority" else "trained"]
        assert used <= {*zip(far["film"], far["start"], strict=True)}


def test_weights_balance_as_in_scikit_learn(make_run):
    """The models equal those of unbalanced clips with class weights."""
    tree = {"name": "sklearn.tree:DecisionTreeClassifier", "as": "tree", "max_depth": 2}
    models = ({"name": "mlp", "max_iter": 2}, {"name": "logistic"}, tree)
    weights = tuple(entry | {"class_weight": "balanced"} for entry in models)
    pair = {"train_negatives": ("EN", "HN"), "test_negatives": ()}
    weighted = make_run("w", balance="weights", estimators=(*models, "knn"), **pair)
    asked = make_run("a", balance="none", estimators=(*weights, "knn"), **pair)
    plain = make_run("n", balance="none", estimators=(*models, "knn"), **pair)
    pd.testing.assert_frame_equal(weighted.predictions, asked.predictions)
    changed = weighted.predictions["probability"] != plain.predictions["probability"]
    assert {*weighted.predictions["model"][changed]} == {"mlp", "logistic", "tree"}
    assert [own.subject for own in weighted.warnings if own.code == "balance"] == ["knn"]


def test_reasons_add_up_to_the_predictions(marked, make_run, tmp_path):
    silent = marked.clips("HN")[::9]
    # All clips lack one feature, some lack all.
    vectors = {clip: row * (np.arange(8) > 0) for clip, row in marked.rows.items()}
    vectors |= dict.fromkeys(silent, np.zeros(8, np.float32))
    write_store(tmp_path / "some.zarr", Manifest.load(marked.manifest), vectors)
    places = {"manifest": marked.manifest, "store": tmp_path / "some.zarr", "split": "three"}
    models = tuple({"name": name, "bank__C": 0.1} for name in ("pcbm-tree", "pcbm-logistic"))
    run = make_run("explained", estimators=models, test_negatives=(), **places)
    reasons = run.reasons
    steps = reasons[reasons["step"].notna()]
    assert {*steps["model"]} == {"pcbm-tree"}
    assert ((steps["value"] > steps["threshold"]) == steps["above"]).all()
    # No concept is heard or seen in a clip without features.
    without = reasons.loc[reasons["class"] == "", "id"]
    assert {*without} == {*silent} & {*run.predictions["id"]}
    keys = ["fit", "id"]
    linear = reasons.query("model == 'pcbm-logistic'")
    sums = linear.groupby(keys, observed=True)["part"].sum()
    p = run.predictions.query("model == 'pcbm-logistic'").set_index(keys)["probability"]
    assert sums.to_dict() == close(logit(p).to_dict(), eps=1e-4)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    rows = np.arange(60)
    ids = [f"{row:03}" for row in rows]
    X = np.random.default_rng(0).normal(size=(60, 8))
    shows = np.equal.outer(rows % 4, [1, 3, 4])
    data = om.dataset(X, rows % 2, rows // 20, ids=ids, concepts=shows, concept_names="123")
    model = om.make_estimator("pcbm-logistic", {"bank__C": 0.1})
    run = om.load_run(om.cross_validate({"1": model}, data, output=tmp_path / "run").folder)
    assert {*run.predictions["id"]} == {*ids}
    assert {*run.reasons["id"]} == {*ids}
    assert {*run.clips["film"]} == {*"012"}
    assert {*run.reasons["model"]} == {"1"}
    assert {*run.reasons["concept"]} == {"1", "2", "(intercept)"}  # 3 is never shown
