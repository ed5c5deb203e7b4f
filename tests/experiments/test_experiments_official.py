"""Splits and measures of benchmarks: MediaEval's, and those that the authors released."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from sklearn.metrics import accuracy_score

import obygaze_models as om
from obygaze_features.manifests import Manifest

# The authors' lists are compared with the rows of each fold, which a run does not list.
from obygaze_models.experiments.run import make_plan
from tests.conftest import run_obygaze
from tests.kit.authors import make_authors, make_dataset
from tests.kit.files import refused, write
from tests.kit.floats import close
from tests.kit.run import RECIPE, write_experiment, write_store

COUNT = 150
VIOLENCE = {"positives": ("1",), "train_negatives": ("0",)}
VALENCE = {"levels": ("-1", "0", "1"), "labels": "valence", "estimators": ("logistic",)}


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """A manifest with three label sets and three sets, and informative features."""
    folder = tmp_path_factory.mktemp("mediaeval")
    chance = np.random.default_rng(8)
    sets = [1, 2, 0] * (COUNT // 3)
    violent = (chance.random(COUNT) < 0.3).astype(int).tolist()
    valence = chance.integers(-1, 2, COUNT).tolist()
    affect = {"valenceClass": valence, "arousalClass": valence[::-1]}
    columns = {"sets": {"set": sets}, "violence": {"violenceClass": violent}, "affect": affect}
    names = [f"ACCEDE{row:05}.mp4" for row in range(COUNT)]
    for kind, values in columns.items():
        table = pd.DataFrame({"id": range(COUNT), "name": names, **values})
        table.to_csv(folder / f"MEDIAEVAL{kind}.txt", sep="\t", index=False)
    manifest = Manifest.from_accede(folder)
    places = {"manifest": folder / "manifest", "store": folder / "toy.zarr"}
    manifest.save(places["manifest"])
    features = chance.normal(size=(COUNT, 8)).astype(np.float32)
    features[:, :2] += 1.5 * np.transpose([violent, valence])
    write_store(places["store"], manifest, dict(zip(manifest.ids, features, strict=True)))

    def write_toml(path, **keys):
        base = {"name": "mediaeval", "seed": 3, "protocol": "official", "split": "official"}
        return write_experiment(path, **(base | places | {"estimators": ["logistic"]} | keys))

    def run(output, **keys):
        return om.run_experiment(write_toml(folder / "e.toml", **keys), output)

    numbers = {"sets": sets, "violent": violent, "valence": valence}
    return SimpleNamespace(folder=folder, **places, **numbers, write=write_toml, run=run)


@pytest.fixture(scope="module")
def violence(benchmark):
    names = ["logistic", {"name": "mlp", "max_iter": 20}]
    return benchmark.run(benchmark.folder / "violence", estimators=names, **VIOLENCE)


@pytest.fixture(scope="module")
def mlp(violence):
    return violence.folder / "models/mlp/non-violent-vs-violent-0"


def write_run(model, benchmark, output, manifest=None):
    places = (benchmark.store, manifest or benchmark.manifest)
    return run_obygaze("mediaeval", "write-run", model, *places, "-o", output)


def score_run(path, manifest, *options):
    return run_obygaze("mediaeval", "score-run", path, manifest, *options)


def test_classes_are_scored_by_accuracy(benchmark, tmp_path):
    run = benchmark.run(tmp_path / "run", **VALENCE)
    assert run.header.measure == "accuracy"
    table = run.predictions.set_index("id")
    predicted = table.filter(like="probability").to_numpy().argmax(axis=1)
    accuracy = accuracy_score(table["label"], predicted)
    assert run.model_scores[0].estimate("accuracy").value == accuracy
    [model] = run.saved
    own = tmp_path / "s.csv"
    run_obygaze("models", "predict", model["folder"], benchmark.store, "-o", own, code=0)
    scored = score_run(own, benchmark.manifest, "--labels", "valence", "--json")
    scored = json.loads(scored.output)
    assert (scored["value"], scored["measure"]) == (accuracy, "accuracy")
    assert (scored["clips"], len(scored["outside"])) == (50, 100)
    refused(write_run(model["folder"], benchmark, tmp_path / "r"), "a run file needs labels scored")


def test_a_model_for_use_has_not_seen_the_test_set(benchmark, violence, tmp_path):
    names = [{"name": "mlp", "max_iter": 20}, "logistic"]
    toml = benchmark.write(tmp_path / "violence.toml", estimators=names, **VIOLENCE)
    for name, sets in (("mlp", {1, 2}), ("logistic", {1})):  # the latter is not stopped
        om.train_model(toml, tmp_path / name, estimator=name)
        table = om.predict(tmp_path / name, benchmark.store).table
        seen = table.loc[table["seen"] == "clip", "id"]
        assert {benchmark.sets[int(clip[-5:])] for clip in seen} == sets
    written = write_run(tmp_path / "mlp", benchmark, tmp_path / "run")
    assert "mlp-external-data" in written.output
    scored = json.loads(score_run(tmp_path / "run", benchmark.manifest, "--json").output)
    expected = violence.model_scores[1].estimate("trec_average_precision").value
    assert scored["value"] == pytest.approx(expected, abs=1e-12)
    assert (scored["clips"], scored["missing"], scored["outside"]) == (50, [], [])


def test_unofficial_tests_are_flagged(benchmark, mlp, tmp_path):
    manifest = Manifest.load(benchmark.manifest)
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random"}})
    part = manifest.select(ids=manifest.ids[:149])
    store = tmp_path / "few.zarr"
    write_store(store, part, dict.fromkeys(part.ids, np.ones(8)), recipe)
    [model] = benchmark.run(tmp_path / "few", store=store, **VIOLENCE).saved
    words = ("mediaeval", "write-run", model["folder"], store, benchmark.manifest)
    written = run_obygaze(*words, "-o", tmp_path / "run", code=0).output
    assert "ACCEDE00149" in written
    assert "logistic-own-data" in written
    majority = {"estimators": ["majority"]}
    # Development is learning and validation together.
    run = benchmark.run(tmp_path / "dev", split="development", **majority, **VIOLENCE)
    [fit] = run.fits.to_dict("records")
    assert fit["trained"] + fit["validated"] == 100
    assert not run.clips["leaked"].any()
    # Ranking training clips is not a test.
    sets = manifest.split("official")
    turned = replace(sets, folds=[2 - fold for fold in sets.folds])
    manifest.with_parts(turned).save(tmp_path / "manifest")
    result = write_run(mlp, benchmark, tmp_path / "no", manifest=tmp_path / "manifest")
    assert "so this ranking is not a fair test" in result.stderr
    assert re.search(r"trained on +50\n", result.stdout)


def test_clips_that_a_run_omits_count_against_it(benchmark, tmp_path):
    positives = [row for row in range(2, COUNT, 3) if benchmark.violent[row]]
    lines = [f"1 Q0 ACCEDE{positives[0]:05}.mp4 1 0.5 ours", "1 Q0 ACCEDE00000.mp4 1 0.9 ours"]
    write(tmp_path / "run", *lines)
    scored = json.loads(score_run(tmp_path / "run", benchmark.manifest, "--json").output)
    assert scored["value"] == close(1 / 2 / len(positives))
    assert scored["outside"] == ["ACCEDE00000"]
    assert (len(scored["missing"]), scored["positives"]) == (49, len(positives))
    assert scored["tag"] == "ours"


CLASSES = ("--labels", "arousal")
BROKEN = [
    ("1 Q0 ACCEDE00002 1 0.5 t\n1 Q0 ACCEDE00002.mp4 2 0.4 t\n", (), "line 2: duplicate clip"),
    ("1 Q0 ACCEDE99999 1 0.5 t\n", (), "line 1: unknown clip 'ACCEDE99999'"),
    ("1 Q0 a 1 0.5 t\n2 Q0 b 1 0.5 t\n", (), "run.csv: a run file needs lines"),
    ("id,prediction\nACCEDE00002,unsure\n", CLASSES, "line 2: unknown level 'unsure'; choose"),
    ("1 Q0 ACCEDE00002 1 0.5 t\n", CLASSES, "no column 'id'"),
]


@pytest.mark.parametrize(("text", "options", "message"), BROKEN)
def test_a_damaged_run_file_is_one_line(text, options, message, benchmark, tmp_path):
    (tmp_path / "run.csv").write_text(text)
    refused(score_run(tmp_path / "run.csv", benchmark.manifest, *options), message)


TESTS = (("EN",), ("EN", "HN"))


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """The authors' files in miniature, with features that identify each clip."""
    folder = tmp_path_factory.mktemp("coded")
    return make_dataset(folder, make_authors(folder, scale=4), widths=(16, 8, 8), signal=0.0)


@pytest.fixture(scope="module")
def task(coded):
    """Return a task of the authors' labels: ``task(("EN",), protocol="released")``."""

    def task(negatives=("HN",), **more):
        values = {"positives": ("S",), "train_negatives": negatives, "labels": "released"}
        values |= {"estimators": ("majority",)} | more
        return om.Experiment(
            name="codes", manifest=coded.manifest, store=coded.stores["xclip"], **values
        )

    return task


@pytest.fixture(scope="module")
def golden(coded):
    return json.loads((coded.authors / "obygaze12/released_runs.json").read_text())


def folds_of(task):
    """Return the ids for training, early stopping and testing in each fold."""
    plan = make_plan(task)
    data = plan.data

    def ids(rows):
        return sorted(data.ids[row] for row in rows.tolist())

    for fold in plan.folds(next(iter(plan.tasks)), validate=True):
        tests = {name: ids(rows) for name, rows in fold.tests.items()}
        yield ids(fold.train), ids(fold.validation), tests


@pytest.mark.parametrize("negative", ["EN", "HN"])
def test_the_released_runs_give_the_golden_scores(golden, task, negative):
    runs = golden["runs"][f"02_{negative}_S"]
    tests = {"EN vs S": golden["tests"]["02_EN_S"], "EN+HN vs S": golden["tests"]["02_ENHN_S"]}
    for labels in ("released", "paper"):
        released = task((negative,), protocol="released", test_negatives=TESTS, labels=labels)
        folds = list(folds_of(released))
        lists = [runs[str(run)] for run in range(8)]
        assert folds == [(run["train"], run["val"], tests) for run in lists]


def test_concepts_are_learned_from_the_authors_second_file(coded, task):
    manifest = Manifest.load(coded.manifest)
    rows = pd.read_csv(coded.authors / "obygaze12/balanced_level/02_EN_HN_S.csv", sep=";")
    rows = rows[[bool(manifest[clip].media) for clip in rows["id"]]].sort_values("id")
    levels = {"positives": (), "train_negatives": ()}
    concepts = structs.replace(task(), **levels, concepts=("Look",), negatives="b")
    folds = list(folds_of(structs.replace(concepts, protocol="released")))
    assert len(folds) == 9
    for number, (train, validation, tests) in enumerate(folds):
        others = {*range(9)} - {number}
        assert train == rows["id"][rows["fold"].isin(others)].tolist()
        assert validation == rows["id"][rows["fold"] == number].tolist()
        assert tests["Look vs all without"] == rows["id"][rows["fold"] == 9].tolist()


def test_leaks_are_counted_run_by_run(golden, task, tmp_path):
    released = task(("EN",), protocol="released", test_negatives=TESTS)
    run = om.run_experiment(released, tmp_path / "run")
    assert any("EN+HN vs S" in w.text for w in run.warnings if w.code == "leak")
    sound = task(("EN",), protocol="leak-free", split="", test_negatives=TESTS)
    sound = om.run_experiment(sound, tmp_path / "sound")
    assert not sound.clips["leaked"].any()
    assert not sound.fits["leaked"].any()
    tested = set(golden["tests"]["02_ENHN_S"])
    leaked = set()
    counts = dict(zip(run.fits["fit"], run.fits["leaked"], strict=True))
    for number, lists in golden["runs"]["02_EN_S"].items():
        used = tested & {*lists["train"], *lists["val"]}
        assert counts[int(number)] == len(used)
        leaked |= used
    assert {*run.clips.loc[run.clips["leaked"], "id"]} == leaked
