"""A run and its tables: which clips train and test, what is recorded, and reading it back."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import obygaze_models as om
from obygaze_features.manifests import Manifest
from obygaze_models.data.splitters import Clips
from obygaze_models.explain.attributions import attribute
from tests.kit.files import csv_rows, write
from tests.kit.floats import close
from tests.kit.predicted import fits_of
from tests.kit.run import FILMS, write_store


def predictions(run):
    return csv_rows(run.folder / "predictions.csv")


def test_scores_follow_from_the_predictions(make_run):
    run = om.load_run(make_run("good").folder)
    stated = {(fit.model, fit.test, fit.fit): fit for fit in fits_of(run)}
    table = pd.read_csv(run.folder / "scores.csv", keep_default_na=False)
    assert [*table.columns][-2:] == ["over", "effective"]
    whole = table.query("group == '' and over == 'across'").set_index(["model", "test", "metric"])
    for scores in run.model_scores:
        assert [*scores.by_fit] == list(range(9))
        expected = []
        for number in scores.by_fit:
            fit = stated[scores.model, scores.test, number]
            expected.append(f1_score(fit.labels, fit.probabilities > 0.5))
        assert [values["f1"] for values in scores.by_fit.values()] == close(expected)
        assert scores.mean_of_fits["f1"] == close(np.mean(expected))
        assert scores.std_of_fits["f1"] == close(np.std(expected))
        row = whole.loc[(scores.model, scores.test, "f1")]
        assert float(row["mean"]) == scores.across["f1"].value == close(np.mean(expected))
        ends = scores.across["f1"].interval
        assert (row["low"], row["high"]) == (tuple(map(repr, ends)) if ends else ("", ""))
        guess = run.tests[scores.test].guesses["across"]["all positive"]["f1"]
        assert scores.across["f1"].value > guess + 0.2
    assert run.warnings == []


def test_missing_labels_folds_and_features_are_named(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels, split = manifest.labels(), manifest.split("ten")
    no_label, no_fold, no_features, failed = world.clips("S")[:4]
    manifest.with_parts(
        labels.where(lambda clip: clip != no_label), split.where(lambda clip: clip != no_fold)
    ).save(tmp_path / "manifest")
    remaining = manifest.select(ids=[clip for clip in world.ids if clip != no_features])
    empty = {*world.clips("S")[-10:]}
    zeros = dict.fromkeys(empty, np.zeros(8, np.float32))
    rows = world.rows | zeros | {failed: np.full(8, np.nan, np.float32)}
    write_store(tmp_path / "part.zarr", remaining, rows)
    run = make_run("gaps", manifest=tmp_path / "manifest", store=tmp_path / "part.zarr")
    clips = run.clips.set_index("id")
    assert (clips["used"] == "").sum() == 146
    assert [*clips.index[clips["used"] == "no-fold"]] == [no_fold]
    assert {*clips.index} == set(world.ids) - {no_label}
    assert clips.loc[[no_features, failed], "used"].tolist() == ["no-features"] * 2
    [text] = [warning.text for warning in run.warnings if warning.code == "no-features"]
    assert text.startswith("2 labelled clips have no features")
    assert f"{no_features}, {failed}; part lacks 2 clips" in text
    assert {*clips.loc[world.clips("NS"), "used"]} == {"not-in-task"}
    assert clips.loc[no_fold, ["used", "fold"]].isna().tolist() == [False, True]
    assert {*clips.index[clips["blank"]]} == empty
    tested = {clip for fit in fits_of(run) for clip in fit.ids}
    [text] = [warning.text for warning in run.warnings if warning.code == "zeros"]
    assert f" {len(empty & tested)} of {len(tested)} tested clips" in text
    assert "zeros" not in {warning.code for warning in make_run("good").warnings}


def test_films_without_a_test_are_named_with_the_reason(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    split = manifest.split("ten")
    folds = [9 if clip.startswith("tt0") else fold % 9 for clip, fold in split.fold_of.items()]
    manifest.with_parts(replace(split, folds=folds)).save(tmp_path / "m")
    [text] = [own.text for own in make_run("tt0", manifest=tmp_path / "m").warnings]
    assert text == "Tested 1 of 5 films, but not tt1, tt2, tt3 and 1 more (in no tested fold)."
    few = manifest.select(ids=[clip for clip in world.ids if clip not in world.clips("S")[-1:]])
    few.save(tmp_path / "few")
    films = {"manifest": tmp_path / "few", "split": None, "protocol": "leave-film-out"}
    [text] = [own.text for own in make_run("few", **films).warnings if own.code == "films"]
    assert text == (
        "Tested 4 of 5 films, but not tt4 (fewer than min_clips = 10 clips of a class)."
    )


PROTOCOLS = [
    ({"protocol": "split", "balance": "none"}, False),
    ({"protocol": "leave-film-out", "split": None}, True),
    ({"protocol": None, "balance": "weights"}, False),
]


@pytest.mark.parametrize(("change", "balanced"), PROTOCOLS)
def test_an_experiment_balances_its_classes(make_run, change, balanced):
    more = {"train_negatives": ("EN", "HN"), "test_negatives": (), "estimators": ("majority",)}
    run = make_run("balance", **more, **change)
    assert run.header.protocol == (change["protocol"] or "split")
    assert run.header.balance == change.get("balance", "undersample")
    for fit in run.fits.to_dict("records"):
        assert sum(fit["train_classes"].values()) == fit["trained"]
        assert (len(set(fit["train_classes"].values())) == 1) == balanced
        assert fit["drawn_from"] > fit["trained"] if balanced else True


STOPPED = {"name": "svm", "as": "stopped", "C": 0.1}
CHOSEN = {"name": "logistic", "as": "chosen", "threshold": "validation"}
MIXED = {
    "protocol": {"name": "leave-film-out", "validation_films": 2}, "split": None,
    "test_negatives": (), "estimators": ("majority", STOPPED, "logistic", CHOSEN),
}  # fmt: skip


def test_films_are_left_out_once_without_validation(world, make_run):
    """Thresholds and the C of an SVM use other films; compare with scikit-learn."""
    run = make_run("mixed", **MIXED)
    numbers = {scores.model: [*scores.by_fit] for scores in run.model_scores}
    pairs, films = list(range(2 * FILMS)), list(range(FILMS))
    assert numbers == {"majority": films, "stopped": pairs, "logistic": films, "chosen": pairs}
    for row in run.saved:
        left_out = re.findall("tt.", row["name"])[0]
        about = om.load_model(row["folder"]).about
        assert about.seen == {}  # whole films, so clips need not be listed
        assert about.seen_groups == {"film": [f"tt{f}" for f in films if f"tt{f}" != left_out]}
        predicted = om.predict(row["folder"], world.store, ids=world.ids).table
        unseen = {clip[:3] for clip in predicted.loc[predicted["seen"] == "no", "id"]}
        assert unseen == {left_out}
    alone = make_run("alone", **MIXED | {"estimators": ("logistic",)})
    ours = [fit.probabilities for fit in fits_of(run) if fit.model == "logistic"]
    for first, second in zip(ours, fits_of(alone), strict=True):
        np.testing.assert_array_equal(first, second.probabilities)


@pytest.fixture(scope="module")
def spans(world):
    manifest, folder = Manifest.load(world.manifest), world.folder / "spans"
    rows = np.arange(len(manifest))
    times = {"starts": rows * 2.0, "ends": rows * 2.0 + 2}
    media, director = [f"{clip[:3]}.mp4" for clip in world.ids], [f"d{row % 5}" for row in rows]
    items = replace(manifest.items, media=media, **times, extra={"director": director})
    replace(manifest, items=items).with_parts(manifest.labels()).save(folder)
    return folder


def test_groups_of_a_column_work_like_films(world, spans, make_run, tmp_path):
    changes = {"manifest": spans, "groups": "director", "test_negatives": ()}
    drawn = make_run("drawn", **changes, split=None, protocol=None)
    by_director = {"name": "leave-film-out", "min_clips": 1}
    left = make_run("left", **changes, split=None, protocol=by_director)
    data = om.load_dataset(spans, world.store, positives=["S"], negatives=["HN"], groups="director")
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    for run in (drawn, left):
        assert (run.noun, len(run.tested_groups), run.header.also_trained) == ("director", 5, 0)
        assert run.model_scores[0].within["auroc"].groups == 5
        seen = {row["fit"]: om.load_model(row["folder"]).about.seen_groups for row in run.saved}
        for fit in fits_of(run):
            assert not {group_of[clip] for clip in fit.ids} & {*seen[fit.fit]["director"]}
    changes = {"groups": None, "split": "clips", "protocol": None, "test_negatives": ()}
    assert make_run("films-train", manifest=spans, **changes).header.also_trained == FILMS
    manifest = Manifest.load(spans)
    films = [film * (film != "tt0") for film in manifest.items.films]
    items = replace(manifest.items, films=films)
    replace(manifest, items=items).with_parts(manifest.labels()).save(tmp_path / "no-tt0")
    run = make_run("a-film-less", manifest=tmp_path / "no-tt0", **changes)
    assert run.header.also_trained == FILMS - 1


def test_a_gap_excludes_neighbours_of_test_clips(spans, make_run):
    """Guesses, which count the clips of whole folds, do not count them either."""
    changes = {"manifest": spans, "split": "clips", "protocol": None, "test_negatives": ()}
    changes |= {"estimators": ("majority", "logistic")}
    free, apart = (make_run(f"gap {gap}", **changes, gap=gap) for gap in (0, 5))
    noted = [{warning.code for warning in run.warnings} for run in (free, apart)]
    assert [("neighbours" in codes) for codes in noted] == [True, False]
    clips = apart.clips[apart.clips["used"] == ""].set_index("id")
    tested = {(fit.model, fit.fit): clips.loc[fit.ids] for fit in fits_of(apart)}
    for row in apart.saved:
        own = tested[row["model"], row["fit"]]
        gaps = abs(clips["start"].to_numpy()[:, None] - own["start"].to_numpy()) - 2
        same = clips["media"].to_numpy()[:, None] == own["media"].to_numpy()
        far = clips[~((gaps <= 5) & same).any(axis=1) & (clips["fold"] != row["fit"])]
        validating = far["fold"].value_counts()  # one of the folds
        assert row["drawn_from"] in {len(far) - count for count in validating}
        starts = {
            time for times in om.load_model(row["folder"]).about.seen.values() for time, _ in times
        }
        assert len(starts) == row["drawn_from" if row["model"] == "majority" else "trained"]
        assert starts <= {*far["start"]}


def test_leaked_clips_are_marked(world, make_run, tmp_path):
    """Two ids show the same seconds of a file, one in training and one in the test fold."""
    manifest = Manifest.load(world.manifest)
    split = manifest.split("ten")
    tested, trained = world.clips("S", folds=[9])[0], world.clips("S", folds=[1])[0]
    media = list(manifest.items.media)
    for clip in (tested, trained):
        media[manifest.items.row(clip)] = "same.mp4"
    starts = np.full(len(media), np.nan)
    ends = starts.copy()
    for clip in (tested, trained):
        starts[manifest.items.row(clip)], ends[manifest.items.row(clip)] = 1.0, 2.0
    items = replace(manifest.items, media=media, starts=starts, ends=ends)
    leaky = replace(manifest, items=items)
    leaky.with_parts(manifest.labels(), split).save(tmp_path / "m")
    write_store(tmp_path / "s.zarr", leaky, world.rows)
    run = make_run("leaky", manifest=tmp_path / "m", store=tmp_path / "s.zarr", balance="none")
    assert run.clips.loc[run.clips["leaked"], "id"].tolist() == [tested]
    assert (run.fits["leaked"] == 1).all()
    [warning, *_] = run.warnings
    assert warning.code == "leak"
    assert "1 of the" in warning.text


def test_clips_are_joined_by_id_whatever_the_order(world, make_run, tmp_path):
    order = np.random.default_rng(5).permutation(len(world.ids))
    manifest = Manifest.load(world.manifest)
    shuffled = replace(manifest, items=manifest.items.take(order.tolist()))
    write_store(tmp_path / "other.zarr", shuffled, world.rows)
    labels, split = manifest.labels(), manifest.split("ten")
    manifest.with_parts(
        replace(labels, ids=labels.ids[::-1], levels=labels.levels[::-1]),
        replace(split, ids=split.ids[::-1], folds=split.folds[::-1]),
    ).save(tmp_path / "manifest")
    second = make_run("shuffled", manifest=tmp_path / "manifest", store=tmp_path / "other.zarr")
    assert predictions(second) == predictions(make_run("good"))


@pytest.mark.night
def test_weights_balance_as_in_scikit_learn(make_run):
    """The models equal those of unbalanced clips with class weights."""
    tree = {"name": "sklearn.tree:DecisionTreeClassifier", "as": "tree", "max_depth": 2}
    settings = ({"name": "mlp", "max_iter": 2}, {"name": "logistic"}, tree)
    answer = tuple(entry | {"class_weight": "balanced"} for entry in settings)
    rest = ("knn", "majority")
    pair = {"train_negatives": ("EN", "HN"), "test_negatives": ()}
    weighted = make_run("w", balance="weights", estimators=(*settings, *rest), **pair)
    asked, plain = (
        fits_of(make_run(name, balance="none", estimators=(*entries, *rest), **pair))
        for name, entries in (("a", answer), ("n", settings))
    )
    changed = set()
    for ours, annotated, second in zip(fits_of(weighted), asked, plain, strict=True):
        assert (ours.model, ours.ids) == (annotated.model, annotated.ids)
        assert ours.probabilities.tolist() == annotated.probabilities.tolist()
        if ours.probabilities.tolist() != second.probabilities.tolist():
            changed.add(ours.model)
    assert changed == {"mlp", "logistic", "tree"}
    notes = [warning.subject for warning in weighted.warnings if warning.code == "balance"]
    assert notes == ["knn"]


def test_external_predictions_by_film_need_no_validation(world, make_run, tmp_path):
    """They may be of any fit, of one fit per film, or of pairs of films."""
    changes = {key: MIXED[key] for key in ("protocol", "split", "test_negatives")}
    source = make_run("mixed", **MIXED)
    for model, fits in (("logistic", FILMS), ("stopped", 2 * FILMS)):
        rows = [(row["id"], row["fit"], row["probability"])
                for row in predictions(source) if row["model"] == model]  # fmt: skip
        for columns, lines in {
            "id,fit,probability": [",".join(row) for row in rows],
            "id,probability": {row[0]: f"{row[0]},{row[2]}" for row in rows}.values(),
        }.items():
            table = write(tmp_path / f"{fits}-{columns[3]}.csv", columns, *lines)
            outside = make_run(table.stem, **changes, estimators=(), predictions=(table,))
            [scores] = outside.model_scores
            assert outside.header.skipped == []
            assert len(scores.by_fit) == (fits if "fit" in columns else FILMS)


def test_a_fold_outside_the_gap_validates():
    """Here all clips in the next fold are too close."""
    y, folds = np.tile([0, 1], 8), np.repeat(range(4), 4)
    clips = Clips(y=y, folds=folds, last=3, near=lambda rows: folds == (folds[rows[0]] + 1) % 4)
    for fold in om.EveryFold().folds(clips, {"t": y}):
        assert {*folds[fold.validation]} == {(folds[fold.test_rows[0]] + 2) % 4}


@pytest.mark.night
def test_explanations_equal_those_of_the_saved_models(marked, make_run, tmp_path):
    silent = marked.clips("HN")[::9]
    vectors = marked.rows | dict.fromkeys(silent, np.zeros(8, np.float32))
    write_store(tmp_path / "some.zarr", Manifest.load(marked.manifest), vectors)
    concepts = [{"name": name, "bank__C": 0.1} for name in ("pcbm-tree", "pcbm-logistic")]
    run = make_run(
        "explained",
        manifest=marked.manifest,
        store=tmp_path / "some.zarr",
        split="three",
        estimators=("mlp", *concepts),
        test_negatives=(),
    )
    kinds = run.reasons.groupby("model", observed=True)["kind"].first()
    assert kinds.to_dict() == {"pcbm-tree": "path", "pcbm-logistic": "sum"}
    for row in run.saved:
        model = om.load_model(row["folder"]).estimator
        of_fit = run.reasons.query("model == @row['model'] and fit == @row['fit']")
        for clip, own in of_fit.groupby("id", observed=True):
            if clip in silent:  # no concept is heard or seen in it
                assert {*own["class"]} == {""}
                continue
            reasons = attribute(model, vectors[clip][None]).of_clip(0)
            if "steps" in reasons:
                asked = own[own["step"].notna()]
                assert asked["concept"].tolist() == [step.concept for step in reasons["steps"]]
                assert asked["above"].tolist() == [step.above for step in reasons["steps"]]
                continue
            amounts = {part["concept"]: part["amount"] for part in reasons["contributions"]}
            amounts["(intercept)"] = reasons["intercept"]
            assert own.set_index("concept")["part"].to_dict() == close(amounts, eps=1e-4)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    rows = np.arange(60)
    ids = [f"{row:03}" for row in rows]
    X, y = np.random.default_rng(0).normal(size=(60, 8)), rows % 2
    shows = np.stack([rows % 4 == 1, rows % 4 == 3, rows < 0], axis=1)
    data = om.dataset(X, y, rows // 20, ids=ids, concepts=shows, concept_names="123")
    model = om.make_estimator("pcbm-logistic", {"bank__C": 0.1})
    run = om.cross_validate({"1": model}, data, output=tmp_path / "run")
    again = om.load_run(tmp_path / "run")
    for table in ("predictions", "clips", "reasons", "fits"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(run, table), check_exact=True)
    assert {*again.predictions["id"]} == {*again.reasons["id"]} == {*ids}
    assert {*again.clips["film"]} == {*"012"}
    assert {*again.predictions["model"]} == {*again.reasons["model"]} == {"1"}
    assert {*again.reasons["concept"]} == {"1", "2", "(intercept)"}
    warning = next(own for own in run.warnings if own.code == "concepts")
    assert warning.text.startswith("1 ")
    assert {*run.header.manifest.senses.values()} == {""}  # nobody said how they are perceived
