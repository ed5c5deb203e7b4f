"""A benchmark's own sets and measures: MediaEval's three tasks on made-up features."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import accuracy_score

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.splits import Split
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import read_results
from obygaze_models.protocols import OfficialSplit
from obygaze_models.report.page import render_report
from tests.world import RECIPE, write_store

COUNT = 150
VIOLENCE = {
    "positives": ("violent",),
    "train_negatives": ("non-violent",),
    "estimators": ("logistic", "mlp"),
}
VALENCE = {"levels": ("negative", "neutral", "positive"), "labels": "valence"}


@dataclass(frozen=True)
class Benchmark:
    """A manifest of three label sets and three sets, and features that tell something of them."""

    folder: Path
    sets: list[int]
    violent: list[int]
    valence: list[int]

    def experiment(self, **more: object) -> Experiment:
        values = {"protocol": "official", "split": "official", "seed": 3}
        return Experiment(
            "mediaeval", self.folder / "manifest", self.folder / "toy.zarr", **(values | more)
        )


def test_rows_of_the_official_sets():
    folds = np.array([0, 0, 0, 1, 1, 2, 2, -1])
    labels = np.array([0, 1, -1, 0, 1, 0, 1, 1])
    [draw] = OfficialSplit(folds, last=2, random_state=0).make_folds(labels, {"t": labels})
    assert draw.train.tolist() == [0, 1]
    assert draw.validation.tolist() == [3, 4]
    assert draw.tests["t"].tolist() == [5, 6]


def test_without_a_validation_set_a_tenth_of_each_class_validates():
    labels = np.array([0] * 95 + [1] * 20 + [0, 1])
    folds = np.array([0] * 115 + [1, 1])
    [draw] = OfficialSplit(folds, last=1, random_state=0).make_folds(labels, {"t": labels})
    assert np.bincount(labels[draw.validation]).tolist() == [10, 2]
    assert sorted([*draw.train, *draw.validation]) == list(range(115))
    assert draw.tests["t"].tolist() == [115, 116]
    [other] = OfficialSplit(folds, last=1, random_state=1).make_folds(labels, {"t": labels})
    assert other.validation.tolist() != draw.validation.tolist()


def test_one_fold_is_no_official_split():
    with pytest.raises(ExperimentError, match="official sets are two or more"):
        OfficialSplit(np.zeros(3), last=0).make_folds(np.zeros(3), {})


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mediaeval")
    chance = np.random.default_rng(8)
    sets = [1, 2, 0] * (COUNT // 3)
    violent = (chance.random(COUNT) < 0.3).astype(int).tolist()
    valence = chance.integers(-1, 2, COUNT).tolist()
    names = [f"ACCEDE{row:05}.mp4" for row in range(COUNT)]
    columns = {
        "sets": {"set": sets},
        "violence": {"violenceClass": violent},
        "affect": {"valenceClass": valence, "arousalClass": valence[::-1]},
    }
    for kind, of in columns.items():
        rows = zip(range(COUNT), names, *of.values(), strict=True)
        lines = ["\t".join(["id", "name", *of]), *("\t".join(map(str, row)) for row in rows)]
        (folder / f"MEDIAEVAL{kind}.txt").write_text("\n".join(lines) + "\n")
    manifest = Manifest.from_mediaeval(folder)
    manifest.save(folder / "manifest")
    features = chance.normal(size=(COUNT, 8)).astype(np.float32)
    features[:, 0] += 1.5 * np.array(violent)
    features[:, 1] += 1.5 * np.array(valence)
    of = dict(zip(manifest.ids, features, strict=True))
    write_store(folder / "toy.zarr", manifest, of)
    weights = {**RECIPE.backbone, "config": {"synthetic": "random weights"}}
    write_store(folder / "random.zarr", manifest, of, replace(RECIPE, backbone=weights))
    return Benchmark(folder, sets, violent, valence)


@pytest.fixture(scope="module")
def violence(benchmark):
    return run_experiment(benchmark.experiment(**VIOLENCE), benchmark.folder / "runs/violence")


def predictions(folder):
    with (folder / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_violence_is_scored_as_trec_eval_does(benchmark, violence):
    rows = [row for row in predictions(violence.folder) if row["model"] == "logistic"]
    probability_of = {row["id"]: float(row["probability"]) for row in rows}
    assert sorted(probability_of) == [f"ACCEDE{row:05}" for row in range(2, COUNT, 3)]
    truth = {clip: benchmark.violent[int(clip[-5:])] for clip in probability_of}
    evaluator = pytrec_eval.RelevanceEvaluator({"v": truth}, {"map"})
    of = violence.record.scores[0]
    expected = evaluator.evaluate({"v": probability_of})["v"]["map"]
    assert of.mean["trec_average_precision"] == pytest.approx(expected, abs=1e-12)
    assert of.mean["f1"] > violence.record.tests[of.test].baselines["random"]["f1"]


def test_classes_are_scored_by_accuracy(benchmark, tmp_path, obygaze):
    path = tmp_path / "valence.toml"
    path.write_text(
        f'name = "v"\nmanifest = "{benchmark.folder / "manifest"}"\n'
        f'store = "{benchmark.folder / "toy.zarr"}"\nprotocol = "official"\nsplit = "official"\n'
        'labels = "valence"\nlevels = ["-1", "0", "1"]\nestimators = ["logistic"]\n'
    )
    result = obygaze("models", "run", path, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["official"] == {"measure": "accuracy", "external_data": True}
    assert (
        "Official measure: Accuracy; such a run is marked as using external data" in result.output
    )
    rows = predictions(tmp_path / "run")
    levels = VALENCE["levels"]
    predicted = [max(levels, key=lambda name: float(row[f"probability_{name}"])) for row in rows]
    truth = [levels[1 + benchmark.valence[int(row["id"][-5:])]] for row in rows]
    [of] = record["scores"]
    assert of["mean"]["accuracy"] == accuracy_score(truth, predicted)
    assert f"{of['mean']['accuracy']:.2f}" in result.output
    assert "One fit; the interval is over draws of films." in result.output
    assert "the test clips are of one film, or no films are named" in result.output
    assert "(0.00)" not in result.output
    model = tmp_path / "run/models/logistic/negative-neutral-positive-0"
    asked = obygaze(
        "models", "predict", model, benchmark.folder / "toy.zarr", "-o", tmp_path / "said.csv"
    )
    assert asked.exit_code == 0, asked.output
    manifest = benchmark.folder / "manifest"
    scored = obygaze(
        "models", "score-run", tmp_path / "said.csv", manifest, "--labels", "valence", "--json"
    )
    scored = json.loads(scored.output)
    assert scored["value"] == accuracy_score(truth, predicted)
    assert (scored["measure"], scored["clips"], len(scored["outside"])) == ("accuracy", 50, 100)
    refused = obygaze(
        "models", "write-run", model, benchmark.folder / "toy.zarr", manifest, "-o", tmp_path / "r"
    )
    assert refused.exit_code == 1
    assert "a run file ranks clips by the highest level" in refused.output


def test_other_tasks_on_the_same_labels_have_no_official_measure(benchmark, tmp_path):
    given = {"positives": ("positive",), "train_negatives": ("negative",), "labels": "valence"}
    run = run_experiment(benchmark.experiment(**given), tmp_path / "run")
    assert run.record.official is None


def test_a_model_for_use_has_not_seen_the_test_set(benchmark, violence, tmp_path, obygaze):
    """Nor does it differ from the run's: its run file is scored as the run was."""
    path = tmp_path / "violence.toml"
    path.write_text(
        f'name = "v"\nmanifest = "{benchmark.folder / "manifest"}"\nseed = 3\n'
        f'store = "{benchmark.folder / "toy.zarr"}"\nprotocol = "official"\nsplit = "official"\n'
        'positives = ["1"]\ntrain_negatives = ["0"]\nestimators = ["mlp", "logistic"]\n'
    )
    for name, sets in (("mlp", {1, 2}), ("logistic", {1})):  # the latter is not stopped
        trained = obygaze("models", "train", path, "--estimator", name, "-o", tmp_path / name)
        assert trained.exit_code == 0, trained.output
        about = json.loads((tmp_path / name / "model.json").read_text())["about"]
        assert {benchmark.sets[int(clip[-5:])] for clip in about["seen"]} == sets
    model, manifest = tmp_path / "mlp", benchmark.folder / "manifest"
    written = obygaze(
        "models",
        "write-run",
        model,
        benchmark.folder / "toy.zarr",
        manifest,
        "-o",
        tmp_path / "run",
    )
    assert written.exit_code == 0, written.output
    assert "50 test clips ranked, tag mlp-external-data" in written.output
    assert "CAUTION" not in written.output
    scored = obygaze("models", "score-run", tmp_path / "run", manifest, "--json")
    scored = json.loads(scored.output)
    expected = violence.record.scores[1].mean["trec_average_precision"]
    assert scored["value"] == pytest.approx(expected, abs=1e-12)
    assert (scored["clips"], scored["missing"], scored["outside"]) == (50, [], [])
    assert (scored["tag"], scored["external_data"]) == ("mlp-external-data", True)
    result = obygaze("models", "score-run", tmp_path / "run", manifest)
    assert f"violence: AP (trec_eval) {expected:.4f}" in result.output
    assert "mlp-external-data: marked as using external data" in result.output
    evaluated = obygaze(
        "models", "evaluate", model, benchmark.folder / "toy.zarr", manifest, "--json"
    )
    unseen = json.loads(evaluated.stdout)["unseen"]["scores"]
    assert unseen["trec_average_precision"] == pytest.approx(expected, abs=1e-12)
    again = obygaze(
        "models",
        "write-run",
        model,
        benchmark.folder / "toy.zarr",
        manifest,
        "-o",
        tmp_path / "run",
    )
    assert again.exit_code == 1


def test_a_run_on_random_weights_uses_no_external_data(benchmark, tmp_path, obygaze):
    experiment = replace(benchmark.experiment(**VIOLENCE), store=benchmark.folder / "random.zarr")
    run = run_experiment(experiment, tmp_path / "runs")
    assert run.record.official.external_data is False
    model = run.folder / "models/logistic/non-violent-vs-violent-0"
    store, manifest = benchmark.folder / "random.zarr", benchmark.folder / "manifest"
    obygaze("models", "write-run", model, store, manifest, "-o", tmp_path / "run", "--name", "ours")
    result = obygaze("models", "score-run", tmp_path / "run", manifest)
    assert "ours-own-data: marked as using no external data" in result.output


def test_test_clips_without_features_are_named(benchmark, violence, tmp_path, obygaze):
    manifest = Manifest.load(benchmark.folder / "manifest")
    part = manifest.select(ids=manifest.ids[:149])
    write_store(tmp_path / "few.zarr", part, {clip: np.zeros(8, np.float32) for clip in part.ids})
    experiment = replace(benchmark.experiment(**VIOLENCE), store=tmp_path / "few.zarr")
    record = run_experiment(experiment, tmp_path / "runs").record
    [warning] = [warning for warning in record.warnings if warning.code == "no-features"]
    assert warning.text.startswith("1 test clip has no features (ACCEDE00149): left out here")
    assert not violence.record.warnings
    model = violence.folder / "models/mlp/non-violent-vs-violent-0"
    result = obygaze(
        "models", "write-run", model, tmp_path / "few.zarr", manifest.folder, "-o", tmp_path / "r"
    )
    assert result.exit_code == 0, result.output
    assert "49 test clips ranked" in result.output
    assert "1 test clip without features, such as ACCEDE00149" in result.output
    seen = obygaze(
        "models", "write-run", model, tmp_path / "few.zarr", manifest.folder, "-o", tmp_path / "s",
        "--split", "reversed",
    )  # fmt: skip
    assert seen.exit_code == 2
    assert "has no splits called 'reversed'" in seen.output


def test_ranking_what_a_model_was_trained_on_is_no_test(benchmark, violence, tmp_path, obygaze):
    """Sets the other way round: learning is tested. What comes next is told with them."""
    manifest = Manifest.load(benchmark.folder / "manifest")
    sets = manifest.split("official")
    turned = Split("turned", sets.ids, [2 - fold for fold in sets.folds])
    manifest.with_parts(splits=[turned]).save(tmp_path / "manifest")
    model = violence.folder / "models/mlp/non-violent-vs-violent-0"
    given = ["--labels", "violence", "--split", "turned"]
    result = obygaze(
        "models", "write-run", model, benchmark.folder / "toy.zarr", tmp_path / "manifest",
        "-o", tmp_path / "run", *given,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "50 test clips were used to train the model: this is no test" in result.stderr
    *_, next_line = result.stdout.splitlines()
    command = f"score-run {tmp_path / 'run'} {tmp_path / 'manifest'} {' '.join(given)}"
    assert next_line == f"next: obygaze models {command}"
    scored = obygaze("models", *command.split())
    assert "positive of 50 test clips" in scored.output


def test_what_a_run_leaves_out_counts_against_it(benchmark, tmp_path, obygaze):
    """Clips may be named by their files; those of other sets stand in the way."""
    positives = [row for row in range(2, COUNT, 3) if benchmark.violent[row]]
    lines = [
        f"1 Q0 ACCEDE{row:05}.mp4 1 {score} ours" for row, score in [(positives[0], 0.5), (0, 0.9)]
    ]
    (tmp_path / "run").write_text("\n".join(lines) + "\n")
    result = obygaze(
        "models", "score-run", tmp_path / "run", benchmark.folder / "manifest", "--json"
    )
    scored = json.loads(result.output)
    assert scored["value"] == pytest.approx(1 / 2 / len(positives))
    assert scored["outside"] == ["ACCEDE00000"]
    assert (len(scored["missing"]), scored["positives"]) == (49, len(positives))
    assert scored["external_data"] is None


BROKEN = {
    "a clip twice": ("1 Q0 ACCEDE00002 1 0.5 t\n" * 2, "line 2: duplicate id 'ACCEDE00002'"),
    "a clip by both names": (
        "1 Q0 ACCEDE00002 1 0.5 t\n1 Q0 ACCEDE00002.mp4 2 0.4 t\n",
        "duplicate id: ACCEDE00002 and ACCEDE00002.mp4 are the same clip",
    ),
    "a clip that there is not": (
        "1 Q0 ACCEDE99999 1 0.5 t\n",
        "accede has no clip ACCEDE99999; it has ACCEDE00000, ACCEDE00001 and",
    ),
    "a clip with a slip": (
        "1 Q0 ACCEDE0002 1 0.5 t\n",
        "accede has no clip ACCEDE0002; did you mean ACCEDE00002",
    ),
    "a table of predictions": (
        "id,said\nACCEDE00002,0\n",
        "line 1: 1 word, where a run file has six",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_runs_are_one_line(case, benchmark, tmp_path, obygaze):
    text, message = BROKEN[case]
    (tmp_path / "run").write_text(text)
    result = obygaze("models", "score-run", tmp_path / "run", benchmark.folder / "manifest")
    assert result.exit_code == 1
    assert message in result.output
    assert len(result.output.splitlines()) == 1


CLASSES = {
    "a clip twice": (
        "id,said\nACCEDE00002,0\nACCEDE00002,1\n",
        "line 3: duplicate id 'ACCEDE00002'",
    ),
    "no such class": (
        "id,said\nACCEDE00002,unsure\n",
        "line 2: unknown label 'unsure'; known are calm",
    ),
    "a run file": (
        "1 Q0 ACCEDE00002 1 0.5 t\n",
        "no column 'id', 'said'",
    ),
    "no table": ("id;said\nACCEDE00002;0\n", "line 1: wrong delimiter"),
}


@pytest.mark.parametrize("case", CLASSES)
def test_bad_tables_of_classes_are_one_line(case, benchmark, tmp_path, obygaze):
    text, message = CLASSES[case]
    (tmp_path / "said.csv").write_text(text)
    manifest = benchmark.folder / "manifest"
    result = obygaze("models", "score-run", tmp_path / "said.csv", manifest, "--labels", "arousal")
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert message in result.output


def test_labels_without_a_measure_score_no_run(world, benchmark, tmp_path, obygaze):
    (tmp_path / "run").write_text("1 Q0 tt0-000 1 0.5 t\n")
    result = obygaze("models", "score-run", tmp_path / "run", world.manifest, "--split", "ten")
    assert result.exit_code == 1
    assert "the labels 'all' of toy name no official measure" in result.output


def test_a_measure_that_there_is_not(benchmark, tmp_path):
    manifest = Manifest.load(benchmark.folder / "manifest")
    labels = manifest.labels("violence")
    odd = replace(labels, about={**labels.about, "measure": "map"})
    manifest.with_parts(labels=[odd]).save(tmp_path / "manifest")
    experiment = replace(benchmark.experiment(**VIOLENCE), manifest=tmp_path / "manifest")
    with pytest.raises(ExperimentError, match=r"labels/violence\.json: unknown measure 'map'"):
        run_experiment(experiment, tmp_path / "run")


def test_the_official_protocol_asks_for_its_split(benchmark, tmp_path):
    experiment = benchmark.experiment(**VIOLENCE, split=None)
    with pytest.raises(ExperimentError, match=r'split = "official" \(accede has development, off'):
        run_experiment(experiment, tmp_path / "run")


def test_development_is_learning_and_validation_together(benchmark, tmp_path):
    run = run_experiment(benchmark.experiment(**VIOLENCE, split="development"), tmp_path / "run")
    [draw] = run.record.fits
    assert draw.train.clips + draw.validation.clips == 100
    assert run.record.leaked == []


def test_the_page_shows_the_official_measure(violence, tmp_path):
    page = render_report([read_results(violence.folder)])
    reached = violence.record.scores[0].mean["trec_average_precision"]
    assert "AP (trec_eval)" in page
    assert f">{reached:.2f}<" in page
    assert "Official sets" in page
    assert "such a run is marked as using external data, which tiny was trained on" in page
    assert "other clips in training" not in page  # nobody knows the films


def test_the_page_leads_with_the_official_measure_of_each_label_set(benchmark, violence, tmp_path):
    valence = run_experiment(
        benchmark.experiment(**VALENCE, estimators=("logistic",)), tmp_path / "valence"
    )
    page = render_report([read_results(run.folder) for run in (violence, valence)])
    text = re.sub(r"<[^>]+>", "", page)
    mean = max((scores.mean for scores in violence.record.scores), key=lambda mean: mean["f1"])
    shown = f"AP (trec_eval) {mean['trec_average_precision']:.2f}, F1 positive {mean['f1']:.2f}"
    assert shown in text
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)', page)
    for official, second in (("AP (trec_eval)", "F1 positive"), ("Accuracy", "F1 macro")):
        assert heads[heads.index(official) + 1] == second
    assert "95% interval over draws" not in page.split("<svg", 1)[1].split("</section>")[0]
    assert 'id="films"' not in page  # no film is named
    assert "or no films are named. No interval can be given" in re.sub(r"\s+", " ", text)
    assert "Of one fit each" in text
    assert "in brackets 95% intervals" not in text
