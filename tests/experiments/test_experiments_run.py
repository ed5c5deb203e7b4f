import csv
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import to_builtins

import obygaze_features as of
from obygaze_features.errors import ExperimentError, OutputExists, UsageError
from obygaze_features.manifests import Item, Items, Manifest, Split
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import load_run, read_results
from obygaze_models.persistence import load_model
from obygaze_models.report.page import render_report
from obygaze_models.stores import open_stores
from obygaze_models.warnings import origin_warnings
from tests.world import RECIPE, make_world, write_store


def predictions(run):
    with (run.folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_test_sets_are_the_last_folds_clips(world, finished_run):
    level_of = dict(zip(world.ids, world.levels, strict=True))
    last = {one for one, fold in zip(world.ids, world.folds, strict=True) if fold == 9}
    rows = predictions(finished_run)
    for test, levels in [("EN vs S", {"EN", "S"}), ("EN+HN vs S", {"EN", "HN", "S"})]:
        expected = {one for one in last if level_of[one] in levels}
        for run in range(9):
            asked = [row["id"] for row in rows if (row["test"], row["fit"]) == (test, str(run))]
            assert Counter(asked) == dict.fromkeys(expected, 1)
    assert all((level_of[row["id"]] == "S") == (row["label"] == "1") for row in rows)


def test_learns_the_difference(finished_run):
    record = finished_run.record
    for scores in record.scores:
        guess = record.tests[scores.test].baselines["all positive"]["f1"]
        assert scores.mean["f1"] > guess + 0.2
        assert scores.mean["auroc"] > 0.9


def test_mean_and_deviation_are_over_the_nine_runs(finished_run):
    for scores in finished_run.record.scores:
        values = [run["f1"] for run in scores.by_fit]
        assert len(values) == 9
        assert scores.mean["f1"] == pytest.approx(np.mean(values))
        assert scores.std["f1"] == pytest.approx(np.std(values))


def test_history_has_every_epoch_of_every_model(finished_run):
    lines = (finished_run.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for run in range(9):
        epochs = [row["epoch"] for row in rows if (row["model"], row["fit"]) == ("mlp", run)]
        assert epochs == list(range(1, len(epochs) + 1))
        assert len(epochs) > 5


def test_a_run_can_be_read_again(finished_run):
    assert load_run(finished_run.folder) == finished_run


def files_of(run):
    """All files but run.json, and what is in them."""
    files = [path for path in run.folder.rglob("*") if path.is_file() and path.name != "run.json"]
    return {path.relative_to(run.folder): path.read_bytes() for path in files}


def test_a_saved_model_says_what_the_predictions_say(world, finished_run):
    row = json.loads(
        (finished_run.folder / "models.jsonl").read_text(encoding="utf-8").split("\n")[0]
    )
    model, about = load_model(finished_run.folder / row["folder"])
    assert about["features"] == to_builtins(finished_run.record.features)
    said = [r for r in predictions(finished_run) if (r["fit"], r["test"]) == ("0", "EN+HN vs S")]
    features = world.features[[world.ids.index(r["id"]) for r in said]]
    expected = [float(r["probability"]) for r in said]
    np.testing.assert_allclose(model.predict_proba(features)[:, 1], expected, rtol=1e-6)


def test_the_same_experiment_writes_the_same_bytes(experiment, finished_run, tmp_path):
    again = run_experiment(experiment, tmp_path / "again")
    held = [files_of(run) for run in (finished_run, again)]
    assert len(held[0]) == 5 + 2 * 9
    assert held[0] == held[1]
    times = {"started": "", "seconds": 0}
    first, second = (
        json.dumps(json.loads((run.folder / "run.json").read_text(encoding="utf-8")) | times)
        for run in (finished_run, again)
    )
    assert first == second


def test_another_seed_gives_other_draws(experiment, finished_run, tmp_path):
    other = run_experiment(replace(experiment, seed=1), tmp_path / "other")
    assert predictions(other) != predictions(finished_run)


def test_joins_by_id_whatever_the_order_of_rows(world, experiment, finished_run, tmp_path):
    order = np.random.default_rng(5).permutation(len(world.ids))
    manifest = Manifest.load(world.manifest)
    shuffled = manifest.select(ids=world.ids)
    shuffled = replace(shuffled, items=shuffled.items.take(order.tolist()))
    write_store(
        tmp_path / "other.zarr", shuffled, dict(zip(world.ids, world.features, strict=True))
    )
    labels, split = manifest.labels(), manifest.split("ten")
    manifest.with_parts(
        labels=[replace(labels, ids=labels.ids[::-1], levels=labels.levels[::-1])],
        splits=[replace(split, ids=split.ids[::-1], folds=split.folds[::-1])],
    ).save(tmp_path / "manifest")
    other = run_experiment(
        replace(experiment, manifest=tmp_path / "manifest", store=tmp_path / "other.zarr"),
        tmp_path / "run",
    )
    assert predictions(other) == predictions(finished_run)


def test_counts_and_names_what_is_missing_on_either_side(world, experiment, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels, split = manifest.labels(), manifest.split("ten")
    of_s = [one for one, level in zip(world.ids, world.levels, strict=True) if level == "S"]
    no_label, no_fold, no_features = of_s[0], of_s[1], of_s[2]
    manifest.with_parts(
        labels=[labels.where(lambda one: one != no_label)],
        splits=[split.where(lambda one: one != no_fold)],
    ).save(tmp_path / "manifest")
    features = dict(zip(world.ids, world.features, strict=True))
    kept = manifest.select(ids=[one for one in world.ids if one != no_features])
    write_store(tmp_path / "part.zarr", kept, features)
    joined = run_experiment(
        replace(experiment, manifest=tmp_path / "manifest", store=tmp_path / "part.zarr"),
        tmp_path / "run",
    ).record.join
    unused = {one for one, level in zip(world.ids, world.levels, strict=True) if level == "NS"}
    assert joined.labelled == 149
    assert joined.used == 147
    assert joined.without_fold == [no_fold]
    assert joined.without_features == [no_features]
    assert set(joined.without_label) == unused | {no_label}


def test_rows_that_failed_are_missing_rows(world, experiment, tmp_path):
    features = dict(zip(world.ids, world.features, strict=True))
    broken = world.ids[3]
    features[broken] = np.full(8, np.nan, np.float32)
    write_store(tmp_path / "gap.zarr", Manifest.load(world.manifest), features)
    run = run_experiment(replace(experiment, store=tmp_path / "gap.zarr"), tmp_path / "run")
    assert run.record.join.without_features == [broken]


NO_LEVELS = {"positives": (), "train_negatives": (), "test_negatives": ()}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"positives": ("surely",)},
            ExperimentError,
            "Hard Negatives': unknown label 'surely'; did you mean Sure",
        ),
        ({"split": "nine"}, UsageError, "has no splits called 'nine'"),
        ({"array": "cls"}, ExperimentError, "unknown array 'cls'; known are native, frames"),
        ({"array": "frames"}, ExperimentError, "'frames' has 2 axes a clip; .* or a pooling"),
        ({"pooling": "max"}, ExperimentError, "'native' has one vector a clip: there is nothing"),
        (
            {"protocol": "released", "split": None},
            ExperimentError,
            "no split '02_HN_S', .* for ObyGaze12 alone, so take leak-free .* obygaze12-splits",
        ),
        ({"concepts": ("all",), **NO_LEVELS}, ExperimentError, "'levels' has no concepts"),
    ],
)
def test_mistakes_leave_no_folder(experiment, tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        run_experiment(replace(experiment, **change), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_does_not_overwrite_unasked(experiment, finished_run):
    with pytest.raises(OutputExists, match="--overwrite"):
        run_experiment(experiment, finished_run.folder)


def test_overwrite_leaves_what_is_no_run_alone(experiment, tmp_path):
    (tmp_path / "films").mkdir()
    with pytest.raises(OutputExists, match=r"no run\.json"):
        run_experiment(experiment, tmp_path / "films", overwrite=True)


def test_a_level_that_no_clip_has(experiment, tmp_path):
    world = make_world(tmp_path)
    file = world.manifest / "manifest.json"
    header = json.loads(file.read_text())
    header["label_scheme"]["levels"].append({"code": "X", "name": "Extreme", "aliases": []})
    file.write_text(json.dumps(header))
    more = replace(experiment, manifest=world.manifest, store=world.store, positives=("extreme",))
    with pytest.raises(ExperimentError, match="no clip of toy has level X; there are EN, HN"):
        run_experiment(more, tmp_path / "x")


def test_levels_may_be_given_by_their_names(experiment, finished_run, tmp_path):
    named = replace(
        experiment,
        positives=("Sure",),
        train_negatives=("hard negative",),
        test_negatives=(("Easy Negative",), ("EN", "Hard Negative")),
    )
    run = run_experiment(named, tmp_path / "named")
    for key in ("experiment", "goal", "tests", "scores"):
        assert getattr(run.record, key) == getattr(finished_run.record, key)


def test_what_is_not_real_is_said(experiment, tmp_path):
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random weights"}})
    world = make_world(tmp_path, recipe=recipe, synthetic="drawn by a test")
    run = run_experiment(
        replace(experiment, manifest=world.manifest, store=world.store), tmp_path / "run"
    )
    assert [str(one) for one in run.record.warnings] == [
        "Not a real result: the clips are synthetic (drawn by a test).",
        "Not a real result: the backbone is synthetic (random weights).",
    ]


@pytest.mark.parametrize(
    ("weights", "mode", "said"),
    [("unknown:tiny", "unknown", 1), ("unknown:tiny", "standard", 0), ("0" * 64, "unknown", 0)],
)
def test_features_of_unknown_origin_are_said(experiment, tmp_path, obygaze, weights, mode, said):
    recipe = replace(
        RECIPE,
        backbone=RECIPE.backbone | {"weights_sha256": weights},
        preprocessing={"mode": mode},
    )
    world = make_world(tmp_path, recipe=recipe)
    file = tmp_path / "sure.toml"
    file.write_text(
        f'manifest = "{world.manifest}"\nstore = "{world.store}"\nsplit = "ten"\n'
        'name = "Sure"\npositives = ["S"]\ntrain_negatives = ["HN"]\nestimators = ["logistic"]\n'
    )
    result = obygaze("models", "run", file, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stderr.splitlines() if "UNKNOWN ORIGIN: " in line]
    assert [("tiny" in line, "weights, preprocessing" in line) for line in lines] == [
        (True, True)
    ] * said
    assert not said or result.output.index("UNKNOWN ORIGIN") < result.output.index("F1 positive")
    both = open_stores([world.store, world.store])
    codes = [note.code for note in origin_warnings(both.items, both.attributes)]
    assert codes == ["unknown-origin"] * said


def test_what_is_wrong_with_concepts_is_a_line_a_model(experiment, tmp_path):
    """At a tiny C every direction is degenerate; a fourth concept is never ticked."""
    world = make_world(tmp_path, marked=True)
    scheme = world.manifest / "manifest.json"
    header = json.loads(scheme.read_text())
    header["label_scheme"]["concepts"].append({"name": "Never", "visual": True, "aliases": []})
    scheme.write_text(json.dumps(header))
    names = {"tree": "pcbm-tree", "sum": "pcbm-logistic"}
    bad = tuple(
        {"name": name, "as": listed, "negatives": "b", "bank__C": 1e-9}
        for listed, name in names.items()
    )
    more = replace(
        experiment, manifest=world.manifest, store=world.store, estimators=("majority", *bad)
    )
    more_run = run_experiment(more, tmp_path / "run")
    assert [str(one) for one in more_run.record.warnings] == [
        f"CONCEPTS: {name}: 3 concepts are unreliable and 1 is left out in some of 9 fits; "
        "the report names them, and why."
        for name in names
    ]


def test_nothing_is_said_of_what_is_real(finished_run):
    assert finished_run.record.warnings == []


def test_a_run_folder_is_checked(tmp_path):
    with pytest.raises(ExperimentError, match=r"is not a run: it has no run\.json"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ExperimentError, match='is not a run: its "format" is not'):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text(
        '{"format": "obygaze-run", "format_version": 9}', encoding="utf-8"
    )
    with pytest.raises(ExperimentError, match="format version 9, this obygaze reads up to 4"):
        load_run(tmp_path)


def test_a_store_of_other_clips_is_one_clear_line(experiment, tmp_path):
    other = Manifest("other", Items.of([Item("clip-1"), Item("clip-2"), Item("clip-3")]))
    write_store(tmp_path / "other.zarr", other, dict.fromkeys(other.ids, np.ones(8, np.float32)))
    with pytest.raises(
        ExperimentError,
        match=r"none of the 150 clips of toy .* such as tt0-000, tt0-001 and 148 more, has "
        r"features in .*other\.zarr, which is of clips such as clip-1, clip-2 and 1 more",
    ) as caught:
        run_experiment(replace(experiment, store=tmp_path / "other.zarr"), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_fold_column_with_gaps_is_one_clear_line(world, experiment, tmp_path):
    manifest = Manifest.load(world.manifest)
    split = Split("gaps", world.ids, [fold + (fold > 3) for fold in world.folds])
    manifest.with_parts(splits=[split]).save(tmp_path / "manifest")
    changed = replace(experiment, manifest=tmp_path / "manifest", split="gaps")
    with pytest.raises(ExperimentError, match="goes up to fold 10, and no clip is in fold 4"):
        run_experiment(changed, tmp_path / "run")


def test_a_class_that_no_test_clip_has_is_one_clear_line(world, experiment, tmp_path):
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels()
    fold_of, level_of = manifest.split("ten").fold_of, labels.level_of
    kept = labels.where(lambda one: fold_of[one] != 9 or level_of[one] != "S")
    manifest.with_parts(labels=[kept]).save(tmp_path / "manifest")
    with pytest.raises(
        ExperimentError, match=r"nothing can be learnt: .* has no clip of S; label more"
    ):
        run_experiment(replace(experiment, manifest=tmp_path / "manifest"), tmp_path / "run")


def test_what_is_not_of_a_run_is_not_replaced(experiment, tmp_path):
    changed = replace(experiment, estimators=("mlp",))
    run_experiment(changed, tmp_path / "run")
    renamed = replace(changed, estimators=({"name": "mlp", "as": "other"},))
    assert run_experiment(renamed, tmp_path / "run", overwrite=True).record.models == ["other"]
    assert [path.name for path in (tmp_path / "run/models").iterdir()] == ["other"]
    (tmp_path / "run/notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputExists, match=r"notes\.txt, which is not of a run"):
        run_experiment(changed, tmp_path / "run", overwrite=True)


def test_models_are_listed_with_what_they_fit(finished_run):
    lines = (finished_run.folder / "models.jsonl").read_text(encoding="utf-8").splitlines()
    models = [json.loads(line) for line in lines]
    assert [(one["model"], one["task"], one["fit"]) for one in models] == [
        ("mlp", "HN vs S", run) for run in range(9)
    ]
    for one in models:
        assert (finished_run.folder / one["folder"]).is_dir()
    features = finished_run.record.features
    assert features.backbone["weights_sha256"] == "0" * 64
    assert (features.array, features.pooling) == ("native", None)


def test_intervals_hold_the_mean_and_are_repeated(experiment, finished_run):
    for scores in finished_run.record.scores:
        low, high = scores.interval["f1"]
        assert low <= scores.mean["f1"] <= high
        assert scores.films == 4


def test_each_level_can_be_a_class(world, experiment, tmp_path):
    change = {**NO_LEVELS, "levels": ("EN", "HN", "S"), "split": None}
    run = run_experiment(replace(experiment, **change), tmp_path / "run")
    assert run.record.tests["EN / HN / S"].classes == {"EN": 5, "HN": 5, "S": 5}
    rows = predictions(run)
    level_of = dict(zip(world.ids, world.levels, strict=True))
    assert all(row["label"] == level_of[row["id"]] for row in rows)
    names = [f"probability_{level}" for level in ("EN", "HN", "S")]
    for row in rows:
        assert sum(float(row[name]) for name in names) == pytest.approx(1)
    said = [
        names[np.argmax([float(row[name]) for name in names])] for row in rows if row["fit"] == "0"
    ]
    right = np.mean(
        [f"probability_{row['label']}" == s for row, s in zip(rows, said, strict=False)]
    )
    assert run.record.scores[0].by_fit[0]["accuracy"] == pytest.approx(right)
    page = render_report([read_results(run.folder)])
    assert "5 EN, 5 HN, 5 S" in re.sub("<[^>]+>", "", page)


def test_every_film_is_left_out(world, experiment, tmp_path):
    run = run_experiment(replace(experiment, protocol="leave-film-out", split=None), tmp_path / "r")
    film_of = {one: one.split("-")[0] for one in world.ids}
    assert len(run.record.fits) == 4 * 3
    assert (run.record.films.tested, run.record.films.also_trained) == (4, 0)
    assert run.record.leaked == []
    for scores in run.record.scores:
        assert scores.groups.keys() == set(film_of.values())
        means = [group.mean["auroc"] for group in scores.groups.values()]
        assert np.mean(means) == pytest.approx(scores.mean["auroc"])
    rows = [row for row in predictions(run) if row["fit"] == "0"]
    assert {film_of[row["id"]] for row in rows} == {"tt0"}
    assert 'id="films"' in render_report([read_results(run.folder)])


def test_any_split_scores_every_clip_once(world, experiment, tmp_path):
    run = run_experiment(replace(experiment, protocol="split"), tmp_path / "run")
    asked = [row["id"] for row in predictions(run) if row["test"] == "EN+HN vs S"]
    assert sorted(asked) == [
        one for one, level in sorted(zip(world.ids, world.levels, strict=True)) if level != "NS"
    ]


def test_with_several_seeds_all_runs_are_done_once_with_each(experiment, tmp_path):
    from dataclasses import replace

    one = run_experiment(replace(experiment, estimators=("logistic",)), tmp_path / "one")
    two = run_experiment(
        replace(experiment, estimators=("logistic",), seeds=(0, 7)), tmp_path / "two"
    )
    first = [draw.seed for draw in one.record.fits]
    both = [draw.seed for draw in two.record.fits]
    assert both[: len(first)] == first
    assert len(both) == 2 * len(first) == len(set(both))
    assert [draw.fit for draw in two.record.fits] == list(range(len(both)))
    ours, theirs = (run.record.scores[0].by_fit for run in (one, two))
    assert theirs[: len(ours)] == ours


def make_own_levels(folder: Path) -> tuple[Path, Path]:
    """40 clips of four films, of levels and concepts of somebody's own; features that show them."""
    rng = np.random.default_rng(0)
    rows, features = ["id,film,level,concepts"], []
    for clip in range(40):
        level = ("quiet", "maybe", "chase", "chase")[clip % 4]
        chance = {"Red": 0.9 if level == "chase" else 0.1, "Spin": 0.5}
        shown = [name for name in chance if rng.random() < chance[name]]
        rows.append(f"c{clip},f{clip % 5},{level},{'|'.join(shown)}")
        features.append(rng.normal(size=2) + [3.0 * (name in shown) for name in chance])
    (folder / "clips.csv").write_text("\n".join(rows))
    manifest = of.Manifest.from_csv(folder / "clips.csv", levels=["quiet", "maybe", "chase"])
    manifest.add_split(of.leave_film_out(manifest))
    manifest.save(folder / "manifest")
    np.save(folder / "X.npy", np.array(features, dtype=np.float32))
    store = folder / "mine.zarr"
    of.import_features(folder / "X.npy", manifest, store, ids=manifest.ids)
    return folder / "manifest", store


def test_concepts_of_ones_own_levels_are_learned(tmp_path):
    manifest, store = make_own_levels(tmp_path)
    experiment = Experiment(
        "Chases",
        manifest,
        store,
        split="leave-film-out",
        positives=["chase"],
        train_negatives=["quiet"],
        estimators=[{"name": "pcbm-logistic", "negatives": "b"}],
    )
    run = run_experiment(experiment, tmp_path / "run")
    assert [str(warning) for warning in run.warnings if warning.code == "skipped"] == []
    [scores] = run.record.scores
    assert scores.mean["auroc"] > 0.7
    concepts = replace(
        experiment, positives=(), train_negatives=(), concepts=["Red"], estimators=["logistic"]
    )
    with pytest.raises(ExperimentError, match='write negatives = "b"'):
        run_experiment(concepts, tmp_path / "a")
    detected = run_experiment(replace(concepts, negatives="b"), tmp_path / "b")
    [scores] = detected.record.scores
    assert scores.mean["auroc"] > 0.9


def test_levels_as_negatives_are_refused_with_the_key_that_is_meant():
    with pytest.raises(ExperimentError, match="levels go into train_negatives"):
        Experiment("x", "m", "s", positives=["chase"], negatives=["quiet"])
