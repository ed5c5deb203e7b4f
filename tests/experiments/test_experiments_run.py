"""A run and its folder: which clips train and test, what is recorded, and reading it back."""

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
from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_features.manifests import (
    Concept,
    Item,
    Items,
    LabelScheme,
    LabelSet,
    Level,
    Manifest,
    Split,
    leave_film_out,
)  # fmt: skip
from obygaze_models.experiments.warnings import describe_plan, plan_notes, run_warnings
from obygaze_models.experiments.outcome import Outcome
from obygaze_models.experiments.plan import make_plan
from obygaze_models.experiments.summary import describe_balance, describe_run, headline
from obygaze_models.explain.attributions import explain_rows
from tests.conftest import run_obygaze
from tests.experiments.test_experiments_resume import bytes_of
from tests.kit.files import csv_rows, write
from tests.kit.floats import close
from tests.kit.predicted import clips_of, fits_of
from tests.kit.run import FILMS, RECIPE, labelled, make_world, write_experiment, write_store


def predictions(run):
    return csv_rows(run.folder / "predictions.csv")


def test_scores_follow_from_the_predictions(finished_run):
    run = om.load_run(finished_run.folder)
    assert run == finished_run
    stated = {(fit.model, fit.test, fit.fit): fit for fit in fits_of(run)}
    rows = {(row["model"], row["test"], row["metric"]): row for row in run.scores()}
    assert len(rows) == sum(len(scores.mean) for scores in run.model_scores)
    for scores in run.model_scores:
        assert scores.fits == list(range(9))
        expected = []
        for number in scores.fits:
            fit = stated[scores.model, scores.test, number]
            expected.append(f1_score(fit.labels, fit.probabilities > 0.5))
        assert [values["f1"] for values in scores.by_fit] == close(expected)
        row = rows[scores.model, scores.test, "f1"]
        over = scores.over_fits
        assert (over.mean["f1"], over.std["f1"]) == close((np.mean(expected), np.std(expected)))
        films = [group["f1"] for group in scores.groups.values()]
        assert row["mean"] == scores.mean["f1"] == close(np.mean(films))
        assert row["films"] == len(films)
        assert (row["low"], row["high"]) == (scores.interval["f1"] or (None, None))
        guess = run.tests[scores.test].guesses["all positive"]["f1"]
        assert scores.mean["f1"] > guess + 0.2
    assert run.warnings == []
    assert "<table" in run._repr_html_()


def test_the_same_experiment_writes_the_same_bytes(make_run, experiment, tmp_path):
    first = make_run("good")
    named = structs.replace(
        experiment, estimators=("logistic",), positives=("Sure",),
        train_negatives=("hard negative",),
        test_negatives=(("Easy Negative",), ("EN", "Hard Negative")),
    )  # fmt: skip
    again = om.run_experiment(named, tmp_path / "again")
    files = bytes_of(first.folder)
    assert len(files) == 5 + 2 * 9
    assert bytes_of(again.folder) == files
    pair = make_run("two-seeds", seeds=(0, 7))
    assert pair.fits["seed"].nunique() == 18
    assert pair.model_scores[0].by_fit[:9] == first.model_scores[0].by_fit
    trained = [om.load_model(row["folder"])[1]["seen"] for row in make_run("two-seeds").models()]
    assert trained[9:] != trained[:9]


def test_clips_are_joined_by_id_whatever_the_order(world, make_run, tmp_path):
    order = np.random.default_rng(5).permutation(len(world.ids))
    manifest = Manifest.load(world.manifest)
    shuffled = replace(manifest, items=manifest.items.take(order.tolist()))
    write_store(tmp_path / "other.zarr", shuffled, world.rows)
    labels, split = manifest.labels(), manifest.split("ten")
    manifest.with_parts(
        labels=[replace(labels, ids=labels.ids[::-1], levels=labels.levels[::-1])],
        splits=[replace(split, ids=split.ids[::-1], folds=split.folds[::-1])],
    ).save(tmp_path / "manifest")
    second = make_run("shuffled", manifest=tmp_path / "manifest", store=tmp_path / "other.zarr")
    assert predictions(second) == predictions(make_run("good"))


def test_missing_labels_folds_and_features_are_named(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels, split = manifest.labels(), manifest.split("ten")
    no_label, no_fold, no_features, failed = world.clips("S")[:4]
    manifest.with_parts(
        labels=[labels.where(lambda clip: clip != no_label)],
        splits=[split.where(lambda clip: clip != no_fold)],
    ).save(tmp_path / "manifest")
    remaining = manifest.select(ids=[clip for clip in world.ids if clip != no_features])
    empty = {*world.clips("S")[-10:]}
    zeros = dict.fromkeys(empty, np.zeros(8, np.float32))
    rows = world.rows | zeros | {failed: np.full(8, np.nan, np.float32)}
    write_store(tmp_path / "part.zarr", remaining, rows)
    run = make_run("gaps", manifest=tmp_path / "manifest", store=tmp_path / "part.zarr")
    joined = run.header.join
    assert (joined.labelled, joined.used) == (149, 146)
    assert "; uses 146 of 149 labelled clips" in repr(run)
    missing = {part.key: part for part in joined.missing}
    assert missing["without_fold"].first == [no_fold]
    assert sorted(missing["without_features"].first) == [no_features, failed]
    unlabelled = missing["without_label"]
    assert unlabelled.clips == len({*world.clips("NS"), no_label})
    assert {*unlabelled.first} < {*world.clips("NS"), no_label}
    clips = run.clips.set_index("id")
    assert {*clips.index} == set(world.ids) - {no_label}
    assert clips.loc[[no_features, failed], "used"].tolist() == ["no-features"] * 2
    assert {*clips.loc[world.clips("NS"), "used"]} == {"not-in-task"}
    assert clips.loc[no_fold, ["used", "fold"]].isna().tolist() == [False, True]
    rows = {row["id"]: row for row in csv_rows(run.folder / "clips.csv")}
    for name in ("film", "title", "level", "group", "used"):
        assert clips[name].tolist() == [rows[clip][name] for clip in clips.index]
    assert ["|".join(names) for names in clips["concepts"]] == [
        rows[clip]["concepts"] for clip in clips.index
    ]
    tested = {clip for fit in fits_of(run) for clip in fit.ids}
    [text] = [warning.text for warning in run.warnings if warning.code == "zeros"]
    assert 0 < len(empty & tested) < len(empty)
    assert text.startswith(f"{len(empty & tested)} of {len(tested)} tested clips")
    assert "zeros" not in {warning.code for warning in make_run("good").warnings}


def test_selected_clips_keep_their_own_split(world, make_run, tmp_path):
    manifest = Manifest.load(world.manifest)
    manifest = manifest.with_parts(splits=[leave_film_out(manifest), manifest.split("ten")])
    manifest.select(films=["tt1", "tt2", "tt3"]).save(tmp_path / "films")
    one_test = {"test_negatives": ()}
    by_film = {"split": "leave-film-out", "protocol": None}
    run = make_run("films", manifest=tmp_path / "films", **by_film, **one_test)
    tested = [{clip[:3] for clip in fit.ids} for fit in fits_of(run)]
    assert tested == [{"tt1"}, {"tt2"}, {"tt3"}]
    fold_of = manifest.split("ten").fold_of
    ids = [clip for clip in manifest.ids if fold_of[clip] not in (0, 4)]
    manifest.select(ids=ids).save(tmp_path / "folds")
    run = make_run("folds", manifest=tmp_path / "folds", **one_test)
    assert run.fits["fit"].nunique() == 7
    assert {fold_of[clip] for fit in fits_of(run) for clip in fit.ids} == {9}


PROTOCOLS = [
    ({"protocol": "leak-free"}, True),
    ({"protocol": "split", "balance": "none"}, False),
    ({"protocol": "leave-film-out", "split": None}, True),
    ({"protocol": "leave-film-out", "split": None, "balance": "none"}, False),
    ({"protocol": None, "balance": "weights"}, False),
]


@pytest.mark.parametrize(("change", "balanced"), PROTOCOLS)
def test_an_experiment_balances_its_classes(make_run, change, balanced):
    name = "-".join(map(str, change.values()))
    more = {"train_negatives": ("EN", "HN"), "test_negatives": (), "estimators": ("majority",)}
    run = make_run(f"balance-{name}", **more, **change)
    record, fits = run.record, run.fits
    protocol = change["protocol"] or "split"
    assert (record.protocol, record.balance) == (protocol, change.get("balance", "undersample"))
    for fit in fits.to_dict("records"):
        assert sum(fit["train_classes"].values()) == fit["trained"]
        assert (len(set(fit["train_classes"].values())) == 1) == balanced
        if protocol != "leave-film-out":  # 50 Sure, 100 others, in folds of the same shares
            assert fit["drawn_from"] == fit["trained"] * 3 // 2 if balanced else fit["trained"]
    if protocol == "leak-free":
        text = "80 of 120 training clips per fit" if balanced else "120 training"
        assert describe_balance(record, fits).startswith(text)


@pytest.mark.gate
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


def test_every_film_is_tested_in_a_run(world, make_run, tmp_path):
    [scores, _] = make_run("films", protocol="leave-film-out", split=None).model_scores
    assert len(scores.groups) == FILMS
    means = [group["auroc"] for group in scores.groups.values()]
    assert np.mean(means) == close(scores.mean["auroc"])
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    sparse = [clip for clip in world.clips("S") if clip.startswith("tt1")][4:]
    levels = ["NS" if clip in sparse else level for clip, level in labels.level_of.items()]
    manifest.with_parts(labels=[replace(labels, levels=levels)]).save(tmp_path / "m")
    run = make_run("few", manifest=tmp_path / "m", split=None, protocol="leave-film-out",
                   estimators=("majority",))  # fmt: skip
    films = run.record.films
    assert films.untested == {"tt1": "4 clips of S, below min_clips = 10"}
    assert films.note == f"tests {FILMS - 1} of {FILMS} films, not tt1 ({films.untested['tt1']})"
    assert f"; {films.note}" in repr(run)


STOPPED = {"name": "svm", "as": "stopped", "C": 0.1}
CHOSEN = {"name": "logistic", "as": "chosen", "threshold": "validation"}


def test_films_are_left_out_once_without_validation(world, experiment, make_run, tmp_path):
    """Networks and thresholds use each other film; compare with scikit-learn."""
    asked = {
        "protocol": "leave-film-out", "split": None, "test_negatives": (),
        "estimators": ("majority", STOPPED, "logistic", CHOSEN), "validation_films": 2,
    }  # fmt: skip
    run = make_run("mixed", **asked)
    numbers = {scores.model: scores.fits for scores in run.model_scores}
    stopped, full = list(range(2 * FILMS)), list(range(2 * FILMS, 3 * FILMS))
    assert numbers == {
        "majority": full, "stopped": stopped, "logistic": full, "chosen": stopped,
    }  # fmt: skip
    names = dict(zip(run.fits["fit"], run.fits["name"], strict=True))
    assert [names[fit] for fit in full] == [f"test tt{film}" for film in range(FILMS)]
    assert all(names[fit].startswith(f"test tt{fit // 2}, early stopping on tt") for fit in stopped)
    assert run.record.fit_count == 2 * FILMS
    films = {clip: clip.partition("-")[0] for clip in world.ids}
    folders = {path.name for path in (run.folder / "models/logistic").iterdir()}
    assert folders == {f"HN-vs-S-{fit}" for fit in full}
    for row in run.saved:
        words = re.findall("tt.", names[row["fit"]])
        seen = {films[clip] for clip in om.load_model(row["folder"])[1]["seen"]}
        assert seen == {*films.values()} - {words[0]}  # the validation film counts as seen
    data = om.load_dataset(world.manifest, world.store, positives=["S"], negatives=["HN"])
    model, cv = LogisticRegression(solver="liblinear"), om.LeaveFilmOut()
    for fit, (train, test) in zip(
        [fit for fit in fits_of(run) if fit.model == "logistic"],
        cv.split(data.X, data.y, data.groups), strict=True,
    ):  # fmt: skip
        expected = model.fit(data.X[train], data.y[train]).predict_proba(data.X[test])[:, 1]
        np.testing.assert_allclose(fit.probabilities, expected, atol=1e-5)
    alone = make_run("alone", **asked | {"estimators": ("logistic",)})
    others = make_run("others", **asked | {"estimators": (STOPPED,)})
    for name, own in (("logistic", alone), ("stopped", others)):
        ours = [fit.probabilities for fit in fits_of(run) if fit.model == name]
        for first, second in zip(ours, fits_of(own), strict=True):
            np.testing.assert_array_equal(first, second.probabilities)
    assert alone.model_scores[0].fits == list(range(FILMS))
    paired = make_plan(structs.replace(experiment, **asked | {"validation_films": None}))
    assert len(paired.fits()) == 2 * FILMS * (FILMS - 1) + 2 * FILMS
    assert f"stopped, chosen in {FILMS * (FILMS - 1)} folds" in " ".join(
        describe_plan(paired).split()
    )


def test_validation_films_do_not_train(experiment):
    """They choose thresholds and the C of an SVM."""
    for changes in ({"groups": "film", "split": ""}, {"protocol": "leave-film-out"}):
        plan = make_plan(
            structs.replace(experiment, **{"split": None, "protocol": "split"} | changes)
        )
        films = plan.data.groups
        for fold in plan.all_folds:
            assert len(fold.validation) > 0
            assert not {*films[fold.validation]} & {*films[fold.train]}


def test_a_hundred_films_take_a_hundred_fits(tmp_path):
    ids = [f"film{film:03}-{clip}" for film in range(100) for clip in range(4)]
    manifest = labelled(ids, ["EN", "S"] * 200)
    manifest.save(tmp_path / "manifest")
    rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    write_store(tmp_path / "s.zarr", manifest, dict(zip(ids, rows, strict=True)))
    toml = write_experiment(
        tmp_path / "e.toml", name="Hundred", manifest="manifest", store="s.zarr", min_clips=2,
        positives=["S"], train_negatives=["EN"], protocol="leave-film-out",
        estimators=["majority", "logistic"],
    )  # fmt: skip
    printed = run_obygaze("models", "run", toml, "--dry-run", code=0).stdout
    assert "200 fits: majority, logistic in 100 folds, each trained on 396 clips" in printed


def test_external_predictions_by_film_need_no_validation(world, make_run, tmp_path):
    """They may be of any fit, of one fit per film, or of a pair of films each."""
    changes = {"protocol": "leave-film-out", "split": None, "test_negatives": ()}
    run = make_run("source", **changes, estimators=("logistic",))
    pairs = make_run("pairs", **changes, estimators=(STOPPED,))
    for source, fits in ((run, FILMS), (pairs, FILMS * (FILMS - 1))):
        rows = [(row["id"], row["fit"], row["probability"]) for row in predictions(source)]
        for columns, lines in {
            "id,fit,probability": [",".join(row) for row in rows],
            "id,probability": {row[0]: f"{row[0]},{row[2]}" for row in rows}.values(),
        }.items():
            table = write(tmp_path / f"{fits}-{columns[3]}.csv", columns, *lines)
            outside = make_run(table.stem, **changes, estimators=(), predictions=(table,))
            [scores] = outside.model_scores
            assert outside.header.skipped == []
            assert len(scores.fits) == (fits if "fit" in columns else FILMS)


def test_each_fold_tests_by_default(world, experiment, make_run):
    folds = [(2, 0, 1, 2, 0)[int(clip[2])] for clip in world.ids]
    manifest = Manifest.load(world.manifest).with_parts(splits=[Split("mine", world.ids, folds)])
    manifest.save(world.folder / "mine")
    changes = {"manifest": world.folder / "mine", "split": "mine", "estimators": ("majority",)}
    run = make_run("auto", **changes, protocol=None)
    assert (run.header.protocol, run.experiment.protocol) == ("split", "split")
    tested = [row["id"] for row in predictions(run) if row["test"] == "EN+HN vs S"]
    assert sorted(tested) == sorted(world.clips("EN", "HN", "S"))
    assert run.record.films.note == ""
    single = make_run("named", **changes, protocol="leak-free")
    asked = {row["id"] for row in predictions(single)}
    assert {clip[:3] for clip in asked} == {"tt0", "tt3"}
    first = f"Tests {len(asked)} of 150 clips, and 2 of {FILMS} films: tt0, tt3"
    assert headline(single.record)[0] == first
    described = describe_plan(make_plan(structs.replace(experiment, **changes)))
    assert first[1:] in " ".join(described.split()).partition("1 fit")[0]


@pytest.fixture(scope="module")
def spans(world):
    manifest, folder = Manifest.load(world.manifest), world.folder / "spans"
    rows = np.arange(len(manifest))
    times = {"starts": rows * 2.0, "ends": rows * 2.0 + 2}
    media, director = [f"{clip[:3]}.mp4" for clip in world.ids], [f"d{row % 5}" for row in rows]
    items = replace(manifest.items, media=media, **times, extra={"director": director})
    replace(manifest, items=items).with_parts(labels=[manifest.labels()]).save(folder)
    return folder


def test_groups_of_a_column_work_like_films(world, spans, experiment, make_run):
    changes = {"manifest": spans, "groups": "director", "test_negatives": ()}
    drawn = make_run("drawn", **changes, split=None, protocol=None)
    left = make_run("left", **changes, split=None, protocol="leave-film-out", min_clips=1)
    data = om.load_dataset(spans, world.store, positives=["S"], negatives=["HN"], groups="director")
    assert "5 directors" in repr(data)
    group_of = dict(zip(data.ids, data.groups.tolist(), strict=True))
    for run in (drawn, left):
        films = run.record.films
        assert (films.by, films.tested, films.also_trained) == ("director", 5, 0)
        assert run.model_scores[0].films == 5
        assert "Scores are means over 5 directors" in describe_run(run)
        seen = {row["fit"]: om.load_model(row["folder"])[1]["seen"] for row in run.saved}
        for fit in fits_of(run):
            tested = {group_of[clip] for clip in fit.ids}
            assert not tested & {group_of[clip] for clip in seen[fit.fit]}
        assert fits_of(om.load_run(run.folder))
    assert left.model_scores[0].groups.keys() == {*group_of.values()}
    of_films = make_run("films-train", **changes | {"groups": None}, split="", protocol=None)
    assert of_films.record.films.also_trained == FILMS
    columns, cv = (data.X, data.y, data.groups), om.LeaveFilmOut(min_clips=1, balance="none")
    assert cv.get_n_splits(*columns) == 5
    for own, expected in zip(cv.split(*columns), LeaveOneGroupOut().split(*columns), strict=True):
        assert [rows.tolist() for rows in own] == [rows.tolist() for rows in expected]
    changed = structs.replace(experiment, **changes, split=None, protocol=None)
    notes = plan_notes(make_plan(changed))
    assert "new folds are drawn: the split ten divides directors" in notes  # it is the only split


def test_left_out_files_are_named(spans, experiment):
    media = {item.media for item in Manifest.load(spans).items if item.film}
    changes = {"manifest": spans, "groups": "media", "split": None, "protocol": "leave-film-out"}
    changes |= {"balance": "none", "gap": 5.0, "test_negatives": ()}
    plan = make_plan(structs.replace(experiment, **changes, min_clips=1))
    text = "\n".join(plan_notes(plan))
    assert "Leave file out: each file is tested" in text
    assert "within 5 s" not in text
    assert {*plan.films.titles.values()} <= media
    with pytest.raises(ExperimentError) as caught:
        make_plan(structs.replace(experiment, **changes, min_clips=1000))
    named = {line.split()[0] for line in str(caught.value).splitlines()[3:]}
    assert named <= media


def test_a_gap_excludes_neighbours_of_test_clips(spans, experiment, tmp_path):
    changes = {"manifest": spans, "split": "", "protocol": None, "balance": "none"}
    changes["estimators"] = ("majority",)
    free, apart = (make_plan(structs.replace(experiment, **changes, gap=gap)) for gap in (0, 5))
    near, none = (
        [w.text for w in run_warnings(Outcome(plan, [])) if w.code == "neighbours"]
        for plan in (free, apart)
    )
    assert 'groups = "media" or gap = 5 keeps' in near[0]  # the page says it too
    assert none == []
    fact = f'{FILMS} of {FILMS}; to avoid this, set groups = "film"'
    assert f"films with clips in training and in test: {fact}" in plan_notes(free)
    assert any("within 5 s of a test clip" in note for note in plan_notes(apart))
    items, films, [problem] = apart.manifest.items, apart.data.groups, apart.problems
    starts = items.starts[[items.row(clip) for clip in apart.data.ids]]
    labels, folds = problem.train.labels(apart.data), apart.data.folds
    assert (len(apart.folds["HN vs S"]), apart.skipped) == (10, [])
    for number, fold in enumerate(apart.folds["HN vs S"]):
        tested = fold.test_rows
        assert (folds[tested] == number).all()
        near = (abs(starts[:, None] - starts[tested]) - 2 <= 5) & (films[:, None] == films[tested])
        near = near.any(axis=1)
        stops = folds == folds[fold.validation[0]]
        others = (labels >= 0) & (folds != number) & ~stops
        assert fold.train.tolist() == np.flatnonzero(others & ~near).tolist()
        assert fold.validation.tolist() == np.flatnonzero((labels >= 0) & stops & ~near).tolist()
        assert 0.7 * others.sum() < len(fold.train) < others.sum()
        # Guesses and concepts, which learn from whole folds, do not learn from them either.
        for planned in apart.fits():
            if planned.fold is fold:
                seen = planned.fit(apart.data).seen
                assert len(seen) > 0
                assert not near[seen].any()
    halves = [f"{row // 100}.mp4" for row in range(200)]  # too few to be kept whole
    starts = np.arange(200) * 3.0
    items = replace(items, films=halves, media=halves, starts=starts, ends=starts + 2)
    replace(apart.manifest, items=items).save(tmp_path / "two")
    near = make_plan(
        structs.replace(experiment, **changes | {"manifest": tmp_path / "two"})
    ).division.near
    assert ("; gap = 5 keeps" in near, "media" in near) == (True, False)


def test_a_fold_outside_the_gap_validates():
    """Here all clips in the next fold are too close."""
    y, folds = np.tile([0, 1], 8), np.repeat(range(4), 4)
    splitter = om.ManifestSplit(folds)
    for fold in splitter.make_folds(
        y, {"t": y}, near=lambda rows: folds == (folds[rows[0]] + 1) % 4
    ):
        assert {*folds[fold.validation]} == {(folds[fold.test_rows[0]] + 2) % 4}


def test_an_earlier_run_is_replaced_only_when_asked(experiment, tmp_path):
    changed = structs.replace(experiment, estimators=("majority",))
    run = om.run_experiment(changed, tmp_path / "run")
    with pytest.raises(OutputExists, match="--overwrite"):
        om.run_experiment(changed, run.folder)
    renamed = structs.replace(changed, estimators=({"name": "majority", "as": "other"},))
    (run.folder / "history.jsonl").touch()  # as earlier formats had it
    again = om.run_experiment(renamed, run.folder, overwrite=True)
    assert again.models["other"].estimator == "majority"
    assert not (run.folder / "history.jsonl").exists()
    assert [path.name for path in (run.folder / "models").iterdir()] == ["other"]
    (run.folder / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "films").mkdir()
    for folder, fact in ((run.folder, "notes.txt, which is not part of a run"),
                         (tmp_path / "films", "was not made by obygaze")):  # fmt: skip
        with pytest.raises(OutputExists, match=re.escape(fact)):
            om.run_experiment(changed, folder, overwrite=True)


def test_unknown_origins_are_warned_of(make_run, tmp_path):
    def texts(name, backbone, mode="standard", **changes):
        recipe = replace(RECIPE, backbone=RECIPE.backbone | backbone, preprocessing={"mode": mode})
        world = make_world(tmp_path / name, recipe=recipe, marked=True)
        manifest = Manifest.load(world.manifest)
        concepts = (*manifest.scheme.concepts, Concept("Never"))
        parts = {"labels": [manifest.labels()], "splits": [manifest.split("ten")]}
        never = replace(manifest, scheme=replace(manifest.scheme, concepts=concepts))
        never.with_parts(**parts).save(tmp_path / f"{name}/never")
        run = make_run(name, manifest=tmp_path / f"{name}/never", store=world.store, **changes)
        return [str(warning) for warning in run.warnings]

    majority = {"estimators": ("majority",)}
    unknown = {"weights_sha256": "unknown:tiny"}
    [text] = texts("unknown", unknown, "unknown", **majority)
    assert all(fact in text for fact in ("UNKNOWN ORIGIN", "tiny", "weights, preprocessing"))
    bad = {"name": "pcbm-logistic", "as": "sum", "negatives": "b", "bank__C": 1e-9}
    assert texts("bad", {}, estimators=("majority", bad)) == [
        "CONCEPTS: sum: 3 concepts are unreliable and 1 concept is left out in some of 9 fits. "
        "See the report for the reasons."
    ]


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
    clip = clips_of(run)["tt2-007"]
    fold = marked.folds[marked.ids.index(clip.id)] % 3
    assert (clip.film, clip.title, clip.number, clip.fold) == ("tt2", "tt2", 7, fold)
    concepts = Manifest.load(marked.manifest).labels("all").concepts_of
    assert clip.concepts == concepts["tt2-007"]


def test_a_model_that_rarely_predicts_positive_is_warned_of(experiment, tmp_path):
    prior = {"name": "sklearn.dummy:DummyClassifier", "as": "prior"}
    rare = structs.replace(experiment, estimators=[prior, "logistic", "majority"], balance="none",
                    train_negatives=["EN", "HN"], test_negatives=())  # fmt: skip
    run = om.run_experiment(rare, tmp_path / "run")
    texts = {w.subject: w for w in run.warnings if w.code == "rare-verdicts"}
    calls = {name: sum(int(fit.called.sum()) for fit in fits_of(run) if fit.model == name)
             for name in ("prior", "logistic")}  # fmt: skip
    fits = [fit for fit in fits_of(run) if fit.model == "prior"]
    clips, positives = sum(len(fit.ids) for fit in fits), sum(fit.labels.sum() for fit in fits)
    assert set(texts) == {name for name, called in calls.items() if called < 0.1 * positives}
    text = texts["prior"].text
    assert f"predicts S for 0 of {clips:,} test clips, but {positives:,} have this" in text
    assert all(f"{key} = " in text for key in ("balance", "threshold"))


LOGISTIC = "obygaze_models.estimators.logistic:LogisticProbe"
#: A search, whose best estimator (the plain one) is saved.
CUT = {"name": "sklearn.model_selection:GridSearchCV", "as": "cut", "threshold": "validation",
       "estimator": LOGISTIC, "param_grid": {"C": [1.0]}, "cv": 2}  # fmt: skip


def test_validation_clips_choose_the_threshold(world, make_run):
    run = make_run("cut", estimators=("logistic", CUT), protocol="leak-free", balance="none",
                   train_negatives=("EN", "HN", "NS"), test_negatives=())  # fmt: skip
    plain, cut = ([f for f in fits_of(run) if f.model == name] for name in ("logistic", "cut"))
    saved = [row for row in run.saved if row["model"] == "cut"]
    assert run.record.cuts == {"cut": [row["cut"] for row in saved]}
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
        model, about = om.load_model(row["folder"])
        raw = model.predict_proba(np.stack([world.rows[clip] for clip in ids]))[:, 1]
        best = max(f1_score(truth, raw > cut_at) for cut_at in [0, *raw])
        called = np.array(om.predict(row["folder"], world.store, ids=ids).predicted) == "S"
        assert f1_score(truth, called) == best
        assert {*ids} <= {*about["seen"]}
    assert sum(f.called.sum() for f in cut) > sum(f.called.sum() for f in plain)


def test_names_that_look_like_numbers_stay_text(tmp_path):
    chance = np.random.default_rng(0)
    ids = [f"{number:03}" for number in range(60)]
    levels = ["S" if number % 2 else "EN" for number in range(60)]
    concepts = [("1",) if number % 4 == 1 else ("2",) * (number % 4 == 3) for number in range(60)]
    manifest = labelled(ids, levels, concepts, scheme=("1", "2"))
    manifest.save(tmp_path / "manifest")
    features = {clip: chance.normal(size=8).astype(np.float32) for clip in ids}
    write_store(tmp_path / "s.zarr", manifest, features)
    experiment = om.Experiment(
        "numbers", tmp_path / "manifest", tmp_path / "s.zarr", split="", positives=["S"],
        train_negatives=["EN"],
        estimators=[{"name": "pcbm-logistic", "as": "1", "bank__C": 0.1}],
    )  # fmt: skip
    run = om.run_experiment(experiment, tmp_path / "run")
    again = om.load_run(tmp_path / "run")
    for table in ("predictions", "clips", "reasons", "fits"):
        pd.testing.assert_frame_equal(
            getattr(again, table)(), getattr(run, table)(), check_exact=True
        )
    assert {*again.predictions["id"]} == {*again.reasons["id"]} == {*ids}
    assert {*again.predictions["model"]} == {*again.reasons["model"]} == {"1"}
    assert {*again.reasons["concept"]} == {"1", "2", "(intercept)"}


def test_classes_of_the_same_title_keep_their_probabilities(tmp_path):
    """The level A+B has the title of levels A and B together."""
    ids = [f"f{number % 6}-{number:03}" for number in range(60)]
    levels = [("A", "B", "A+B")[number % 3] for number in range(60)]
    scheme = LabelScheme("lab", tuple(Level(code, code.lower()) for code in ("A", "B", "A+B")))
    items = Items.of([Item(clip, film=clip[:2], media=f"{clip}.mp4") for clip in ids])
    manifest = Manifest("lab", items, scheme, source="a test", licence="CC0")
    manifest = manifest.with_parts(labels=[LabelSet("all", ids, levels, [()] * 60)])
    manifest.save(tmp_path / "manifest")
    chance = np.random.default_rng(0)
    features = {clip: chance.normal(size=8).astype(np.float32) for clip in ids}
    write_store(tmp_path / "s.zarr", manifest, features)
    asked = {"manifest": tmp_path / "manifest", "store": tmp_path / "s.zarr", "split": ""}
    run, second = (
        om.run_experiment(
            om.Experiment("lab", **asked, positives=["A+B"], train_negatives=negatives,
                          estimators=["logistic"]),
            tmp_path / name,
        )
        for name, negatives in (("all", ["A", "B"]), ("one", ["A"]))
    )  # fmt: skip
    line = run.saved[0]
    table = om.predict(line["folder"], tmp_path / "s.zarr")
    head = table.to_csv().splitlines()[0]
    rows = csv_rows(run.folder / "predictions.csv")
    assert {row["label"] for row in rows} == {"negative", "positive"}
    assert head.count("probability_") == 2
    assert "probability_A+B," in head
    assert "probability_A+B ~2" in head
    assert {test.classes["positive"] for test in run.tests.values()} == {20}
    assert {test.classes["negative"] for test in second.tests.values()} == {20}
