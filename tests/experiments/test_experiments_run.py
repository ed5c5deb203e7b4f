"""A run and its tables: which clips train and test, what is recorded, and reading it back."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import LeaveOneGroupOut

import obygaze_models as om
from obygaze_features.manifests import Manifest
from obygaze_models.data.protocols import Clips, find_protocol
from obygaze_models.experiments.fit import rows_of
from obygaze_models.experiments.plan import make_plan
from obygaze_models.explain.attributions import explain_rows
from tests.experiments.test_experiments_resume import bytes_of
from tests.kit.files import csv_rows, write
from tests.kit.floats import close
from tests.kit.predicted import fits_of
from tests.kit.run import FILMS, labelled, write_store


def predictions(run):
    return csv_rows(run.folder / "predictions.csv")


def test_scores_follow_from_the_predictions(make_run):
    run = om.load_run(make_run("good").folder)
    stated = {(fit.model, fit.test, fit.fit): fit for fit in fits_of(run)}
    table = pd.read_csv(run.folder / "scores.csv", keep_default_na=False)
    whole = table[table["group"] == ""].set_index(["model", "test", "metric"])
    for scores in run.model_scores:
        assert [*scores.by_fit] == list(range(9))
        expected = []
        for number in scores.by_fit:
            fit = stated[scores.model, scores.test, number]
            expected.append(f1_score(fit.labels, fit.probabilities > 0.5))
        assert [values["f1"] for values in scores.by_fit.values()] == close(expected)
        assert scores.mean_of_fits["f1"] == close(np.mean(expected))
        assert scores.std_of_fits["f1"] == close(np.std(expected))
        films = [group["f1"] for group in scores.groups.values()]
        row = whole.loc[(scores.model, scores.test, "f1")]
        assert float(row["mean"]) == scores.mean["f1"] == close(np.mean(films))
        ends = scores.interval["f1"]
        assert (row["low"], row["high"]) == (tuple(map(repr, ends)) if ends else ("", ""))
        assert scores.mean["f1"] > run.tests[scores.test].guesses["all positive"]["f1"] + 0.2
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
        about = om.load_model(row["folder"])[1]
        assert about.seen == {}  # whole films, so clips need not be listed
        assert about.seen_groups == {"film": [f"tt{f}" for f in films if f"tt{f}" != left_out]}
        predicted = om.predict(row["folder"], world.store, ids=world.ids).table
        unseen = {clip[:3] for clip in predicted.loc[predicted["seen"] == "no", "id"]}
        assert unseen == {left_out}
    data = om.load_dataset(world.manifest, world.store, positives=["S"], negatives=["HN"])
    model, cv = LogisticRegression(solver="liblinear"), om.LeaveFilmOut()
    for fit, (train, test) in zip(
        [fit for fit in fits_of(run) if fit.model == "logistic"],
        cv.split(data.X, data.y, data.groups), strict=True,
    ):  # fmt: skip
        expected = model.fit(data.X[train], data.y[train]).predict_proba(data.X[test])[:, 1]
        np.testing.assert_allclose(fit.probabilities, expected, atol=1e-5)
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
        assert run.model_scores[0].films["auroc"] == 5
        seen = {row["fit"]: om.load_model(row["folder"])[1].seen_groups for row in run.saved}
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
    columns, cv = (data.X, data.y, data.groups), om.LeaveFilmOut(min_clips=1, balance="none")
    for own, expected in zip(cv.split(*columns), LeaveOneGroupOut().split(*columns), strict=True):
        assert [rows.tolist() for rows in own] == [rows.tolist() for rows in expected]


def test_a_gap_excludes_neighbours_of_test_clips(spans, experiment):
    changes = {"manifest": spans, "split": "clips", "protocol": None, "balance": "none"}
    changes["estimators"] = ("majority",)
    free, apart = (make_plan(structs.replace(experiment, **changes, gap=gap)) for gap in (0, 5))
    assert (bool(free.division.near), apart.division.near) == (True, "")
    items, films = apart.manifest.items, apart.data.groups
    starts = items.starts[[items.row(clip) for clip in apart.data.ids]]
    labels, folds = apart.labels_of[apart.problems[0].train], apart.data.folds
    for number, planned in enumerate(apart.fits()):
        fold = planned.fold
        tested = fold.test_rows
        assert (folds[tested] == number).all()
        near = (abs(starts[:, None] - starts[tested]) - 2 <= 5) & (films[:, None] == films[tested])
        near = near.any(axis=1)
        stops = folds == folds[fold.validation[0]]
        others = (labels >= 0) & (folds != number) & ~stops
        assert fold.train.tolist() == np.flatnonzero(others & ~near).tolist()
        assert fold.validation.tolist() == np.flatnonzero((labels >= 0) & stops & ~near).tolist()
        # Guesses and concepts, which learn from whole folds, do not learn from them either.
        seen = rows_of(apart, planned).seen
        assert len(seen) > 0
        assert not near[seen].any()


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


@pytest.mark.night
def test_the_same_experiment_writes_the_same_bytes(make_run, experiment, tmp_path):
    first = make_run("good")
    named = structs.replace(
        experiment, estimators=("logistic",), positives=("Sure",),
        train_negatives=("hard negative",),
        test_negatives=(("Easy Negative",), ("EN", "Hard Negative")),
    )  # fmt: skip
    again = om.run_experiment(named, tmp_path / "again")
    files, others = bytes_of(first.folder), bytes_of(again.folder)
    assert len(files) == 6 + 2 * 9
    for name in files.keys() - {"run.json", "identity.txt"}:
        assert others[name] == files[name]
    pair = make_run("two-seeds", seeds=(0, 7))
    assert pair.fits["seed"].nunique() == 18
    own = pair.model_scores[0].by_fit
    assert {fit: own[fit] for fit in range(9)} == first.model_scores[0].by_fit


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
    for fold in find_protocol("split").make_folds(clips, {"t": y}):
        assert {*folds[fold.validation]} == {(folds[fold.test_rows[0]] + 2) % 4}


@pytest.mark.night
def test_explanations_equal_those_of_the_saved_models(marked, make_run, tmp_path):
    silent = marked.clips("HN")[::9]
    vectors = marked.rows | dict.fromkeys(silent, np.zeros(8, np.float32))
    write_store(tmp_path / "some.zarr", Manifest.load(marked.manifest), vectors)
    names = ("mlp", "pcbm-tree", "pcbm-logistic", "film-prior", "majority")
    settings = [{"name": name, "bank__C": 0.1} if name[:4] == "pcbm" else name for name in names]
    run = make_run("explained", manifest=marked.manifest, store=tmp_path / "some.zarr",
                   split="three", estimators=(*settings,), test_negatives=())  # fmt: skip
    reasons = run.reasons
    assert dict(zip(reasons["model"], reasons["kind"], strict=True)) == {
        "pcbm-tree": "path", "pcbm-logistic": "sum",
    }  # fmt: skip
    assert len(reasons[["model", "fit"]].drop_duplicates()) == 2 * 2
    pd.testing.assert_frame_equal(om.load_run(run.folder).reasons, reasons, check_exact=True)
    saved = {(row["model"], row["fit"]): om.load_model(row["folder"])[0] for row in run.saved}
    probability_of = {(f.model, clip): p for f in fits_of(run) if f.fit == 1
               for clip, p in zip(f.ids, f.probabilities, strict=True)}  # fmt: skip
    own = reasons[reasons["fit"] == 1]
    for (name, kind, clip), rows in own.groupby(["model", "kind", "id"], observed=True):
        model, x, classes = saved[name, 1], vectors[clip], {*rows["class"]}
        if clip in silent:  # no concept is heard or seen in it
            assert classes == {""}
            continue
        asked = rows[rows["step"].notna()]
        parts = rows[rows["step"].isna()].set_index("concept")["part"].to_dict()
        explanation = explain_rows(model, x[None], classes=("negative", "positive"))[0]["why"]
        if kind == "path":
            steps = [(n, s.concept, s.above) for n, s in enumerate(explanation["steps"])]
            assert [*zip(asked["step"], asked["concept"], asked["above"], strict=True)] == steps
            continue
        pieces = explanation["contributions"]
        amounts = {piece["concept"]: piece["amount"] for piece in pieces}
        amounts["(intercept)"] = explanation["intercept"]
        assert parts == close(amounts, eps=1e-4)
        assert classes == {explanation["label"]}
        odds = logit(probability_of[name, clip])
        assert sum(parts.values()) == pytest.approx(odds, abs=1e-4)
    clip = run.clips.set_index("id").loc["tt2-007"]
    fold = marked.folds[marked.ids.index("tt2-007")] % 3
    assert (clip["film"], clip["title"], clip["fold"]) == ("tt2", "tt2", fold)
    concepts = Manifest.load(marked.manifest).labels("all").concepts_of
    assert tuple(filter(None, clip["concepts"].split("|"))) == concepts["tt2-007"]


LOGISTIC = "obygaze_models.estimators.logistic:LogisticProbe"
#: A search, whose best estimator (the plain one) is saved.
CUT = {"name": "sklearn.model_selection:GridSearchCV", "as": "cut", "threshold": "validation",
       "estimator": LOGISTIC, "param_grid": {"C": [1.0]}, "cv": 2}  # fmt: skip


def test_validation_clips_choose_the_threshold(world, make_run):
    run = make_run("cut", estimators=("logistic", CUT), protocol="leak-free", balance="none",
                   train_negatives=("EN", "HN", "NS"), test_negatives=())  # fmt: skip
    plain, cut = ([f for f in fits_of(run) if f.model == name] for name in ("logistic", "cut"))
    saved = [row for row in run.saved if row["model"] == "cut"]
    fits = run.fits.set_index("model")
    assert fits.loc["logistic", "cut"].isna().all()
    for column in ("name", "trained", "validated", "train_classes", "validation_classes"):
        assert fits.loc["cut", column].tolist() == fits.loc["logistic", column].tolist()
    for before, after, row in zip(plain, cut, saved, strict=True):
        p, t = before.probabilities, row["cut"]
        assert after.probabilities == close(p * (1 - t) / (p + t - 2 * p * t))
        areas = [roc_auc_score(f.labels, f.probabilities) for f in (before, after)]
        assert areas[0] == areas[1]
        ids = world.clips(*world.levels, folds=[int(row["name"].removeprefix("validation fold "))])
        truth = np.isin(ids, world.clips("S"))
        counts = row["validation_classes"]
        assert list(counts.values()) == [(~truth).sum(), truth.sum()], counts
        assert row["validated"] == len(ids)
        model, _ = om.load_model(row["folder"])
        raw = model.predict_proba(np.stack([world.rows[clip] for clip in ids]))[:, 1]
        best = max(f1_score(truth, raw > cut_at) for cut_at in [0, *raw])
        table = om.predict(row["folder"], world.store, ids=ids).table
        assert f1_score(truth, table["prediction"] == "S") == best
        assert {*table["seen"]} == {"clip"}
    assert sum(f.called.sum() for f in cut) > sum(f.called.sum() for f in plain)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    chance = np.random.default_rng(0)
    ids = [f"{number:03}" for number in range(60)]
    levels = ["S" if number % 2 else "EN" for number in range(60)]
    concepts = [("1",) if number % 4 == 1 else ("2",) * (number % 4 == 3) for number in range(60)]
    folds = [number // 4 % 3 for number in range(60)]
    manifest = labelled(ids, levels, concepts, scheme=("1", "2", "3"), folds=folds)
    manifest.save(tmp_path / "manifest")
    features = {clip: chance.normal(size=8).astype(np.float32) for clip in ids}
    write_store(tmp_path / "s.zarr", manifest, features)
    experiment = om.Experiment(
        name="numbers", manifest=tmp_path / "manifest", store=tmp_path / "s.zarr", split="ten",
        protocol="split", positives=["S"], train_negatives=["EN"],
        estimators=[{"name": "pcbm-logistic", "as": "1", "bank__C": 0.1}],
    )  # fmt: skip
    run = om.run_experiment(experiment, tmp_path / "run")
    again = om.load_run(tmp_path / "run")
    for table in ("predictions", "clips", "reasons", "fits"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(run, table), check_exact=True)
    assert {*again.predictions["id"]} == {*again.reasons["id"]} == {*ids}
    assert {*again.predictions["model"]} == {*again.reasons["model"]} == {"1"}
    assert {*again.reasons["concept"]} == {"1", "2", "(intercept)"}
    [warning] = run.warnings
    assert (warning.code, warning.text[:2]) == ("concepts", "1 ")
    assert {*run.header.manifest.senses.values()} == {""}  # nobody said how they are perceived
