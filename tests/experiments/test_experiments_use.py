"""Models for use: trained, saved, asked about any store, scored on any manifest."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest
from obygaze_models import Experiment, evaluate, load_model, predict
from obygaze_models.experiments.train import train_model
from obygaze_models.exports import elan_files
from obygaze_models.inference import UNSURE
from obygaze_models.model_header import read_about
from tests.world import RECIPE, make_world


@pytest.fixture(scope="module")
def experiment(world) -> Experiment:
    return Experiment(
        name="Sure against Hard Negatives",
        manifest=world.manifest,
        store=world.store,
        split="ten",
        positives=("S",),
        train_negatives=("HN",),
        estimators=("logistic", "mlp", "majority", "film-prior"),
    )


@pytest.fixture(scope="module")
def model(experiment, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "sure"
    train_model(experiment, path, estimator="logistic")
    return path


def test_it_learns_from_all_folds_but_the_last(world, experiment, model):
    """The same as scikit-learn's own on the same clips."""
    rows = [
        row
        for row, (level, fold) in enumerate(zip(world.levels, world.folds, strict=True))
        if level in ("HN", "S") and fold != 9
    ]
    labels = [world.levels[row] == "S" for row in rows]
    plain = LogisticRegression(solver="liblinear").fit(world.features[rows], labels)
    predictions = predict(model, world.store)
    expected = plain.predict_proba(world.features)[:, 1]
    np.testing.assert_allclose(predictions.probabilities[:, 1], expected, atol=1e-3)
    trained = {world.ids[row] for row in rows}
    assert set(predictions.about["seen"]) == trained
    assert {
        clip for clip, seen in zip(predictions.ids, predictions.seen, strict=True) if seen == "yes"
    } == trained


def test_what_is_too_close_to_tell_is_said_to_be(world, model):
    store = world.store
    plain, careful = predict(model, store), predict(model, store, band=(0.3, 0.7))
    for probability, predicted, cautious in zip(
        plain.probabilities[:, 1], plain.predicted, careful.predicted, strict=True
    ):
        assert predicted == ("S" if probability > 0.5 else "HN")
        assert cautious == (UNSURE if 0.3 <= probability <= 0.7 else predicted)
    with pytest.raises(ExperimentError, match="two probabilities in order"):
        predict(model, store, band=(0.7, 0.3))


def test_scores_are_those_of_scikit_learn_and_say_what_was_seen(world, model):
    store, manifest = world.store, Manifest.load(world.manifest)
    scored = evaluate(model, store, manifest)
    rows = [row for row, level in enumerate(world.levels) if level in ("HN", "S")]
    truth = np.array([world.levels[row] == "S" for row in rows])
    probabilities = predict(model, store, ids=[world.ids[row] for row in rows]).probabilities[:, 1]
    assert scored.every.clips == len(rows)
    assert scored.every.positives == truth.sum()
    assert scored.every.scores["f1"] == pytest.approx(f1_score(truth, probabilities > 0.5))
    assert scored.every.scores["auroc"] == pytest.approx(roc_auc_score(truth, probabilities))
    unseen = [place for place, row in enumerate(rows) if world.folds[row] == 9]
    assert len(scored.seen) == len(rows) - len(unseen)
    assert scored.unseen.clips == len(unseen)
    assert scored.unseen.scores["auroc"] == pytest.approx(
        roc_auc_score(truth[unseen], probabilities[unseen])
    )
    # Guesses are at the share of the clips beside which they stand.
    for part, values in ((scored.every, truth), (scored.unseen, truth[unseen])):
        everything = f1_score(values, np.ones(len(values)))
        assert part.baselines["all positive"]["f1"] == pytest.approx(everything)


def test_what_was_not_seen_is_scored_or_said_not_to_be(obygaze, world, model, tmp_path):
    """Manifests of which nothing, one class, or both classes are new to the model."""
    manifest = Manifest.load(world.manifest)
    rows = [row for row, level in enumerate(world.levels) if level in ("HN", "S")]
    seen = [world.ids[row] for row in rows if world.folds[row] != 9]
    new = [world.ids[row] for row in rows if world.folds[row] == 9]
    negative = [clip for clip in new if manifest.labels().level_of[clip] == "HN"]

    def evaluate(name, ids):
        levels = [manifest.labels().level_of[clip] for clip in ids]
        items = Items.of([Item(clip) for clip in ids])
        Manifest(name, items, manifest.scheme).with_parts(
            labels=[LabelSet("all", ids, levels, [()] * len(ids))]
        ).save(tmp_path / name)
        result = obygaze("models", "evaluate", model, world.store, tmp_path / name)
        assert result.exit_code == 0, result.output
        return result

    nothing = evaluate("nothing", seen)
    assert "not seen" not in nothing.stdout
    assert f"WARNING: {len(seen)} of these {len(seen)} clips" in nothing.stderr
    assert nothing.stderr.endswith("train the model: this is no test\n")

    one_class = evaluate("one-class", seen + negative)
    assert f"not seen in training: 0 of {len(negative)} positive" in one_class.stdout
    assert "they are all of one class: there is nothing to tell apart" in one_class.stdout
    assert one_class.stdout.count("all positive") == 1
    assert one_class.stderr.endswith("on all of them this is no test\n")

    both = evaluate("both", seen + new)
    positive = len(new) - len(negative)
    _, _, apart = both.stdout.partition("not seen in training: ")
    assert apart.startswith(f"{positive} of {len(new)} positive")
    share = positive / len(new)
    guess = next(line.split() for line in apart.splitlines() if line.startswith("all positive"))
    assert guess[2] == f"{2 * share / (1 + share):.2f}"

    only_new = evaluate("only-new", new)
    assert "not seen" not in only_new.stdout
    assert only_new.stderr == ""


def test_without_a_file_the_first_clips_are_printed(obygaze, world, model):
    result = obygaze("models", "predict", model, world.store).stdout
    printed = [clip for clip in world.ids if f"\n{clip} " in result]
    assert printed == world.ids[:20]
    assert "\nand 180 more clips; -o writes all to a file\n" in result
    few = obygaze("models", "predict", model, world.store, "--ids", ",".join(world.ids[:20])).stdout
    assert "more" not in few
    output = obygaze("models", "predict", model, world.store, "--json").stdout
    assert [row["id"] for row in json.loads(output)] == world.ids


def test_another_backbone_is_refused(model, tmp_path):
    from dataclasses import replace

    other = replace(RECIPE, backbone=RECIPE.backbone | {"weights_sha256": "1" * 64})
    world = make_world(tmp_path, recipe=other)
    with pytest.raises(ExperimentError, match="the model does not fit"):
        predict(model, world.store)


def test_a_folder_of_models_is_none_and_says_what_is_in_it(model, tmp_path):
    """Also a run's folder, where they lie further down."""
    inside = tmp_path / "run/models/mlp/HN-vs-S-0"
    shutil.copytree(model, inside)
    for folder, meant in ((model.parent, model), (tmp_path / "run", inside)):
        for read in (load_model, read_about):
            with pytest.raises(ExperimentError) as problem:
                read(folder)
            assert str(problem.value) == (
                f"{folder} is not a model; did you mean {meant}? "
                f"(all of them: obygaze models list {folder})"
            )


def test_an_id_that_the_store_lacks_is_refused_with_the_nearest(world, model):
    store = world.store
    with pytest.raises(ExperimentError, match=r"has no clip tt2-0017; did you mean tt2-017\?"):
        predict(model, store, ids=["tt0-000", "tt2-0017"])
    with pytest.raises(ExperimentError, match=r"no clip x and 1 other; .* tt0-000"):
        predict(model, store, ids=["x", "y"])


def test_a_model_of_annotations_cannot_be_asked_about_a_store(world, experiment, tmp_path):
    train_model(experiment, tmp_path / "prior", estimator="film-prior")
    with pytest.raises(ExperimentError, match="reads each clip's film, not features"):
        predict(tmp_path / "prior", world.store)


def test_an_unknown_estimator_is_refused_with_the_nearest(experiment, tmp_path):
    with pytest.raises(ExperimentError, match="did you mean logistic"):
        train_model(experiment, tmp_path / "x", estimator="logistics")


@pytest.mark.gate
def test_the_commands(obygaze, world, tmp_path):
    file = tmp_path / "sure.toml"
    file.write_text(
        f'name = "Sure"\nmanifest = "{world.manifest}"\nstore = "{world.store}"\nsplit = "ten"\n'
        'positives = ["S"]\ntrain_negatives = ["EN", "HN"]\nestimators = ["mlp", "logistic"]\n'
    )
    model = tmp_path / "models/sure"
    trained = obygaze("models", "train", file, "-o", model)
    assert trained.exit_code == 0, trained.stderr
    assert "EN+HN vs S: trained on 90 clips, 15 held out" in trained.stdout
    assert "# sure: EN+HN vs S" in (model / "README.md").read_text()
    assert obygaze("models", "train", file, "-o", model).exit_code == 1

    table = tmp_path / "said.csv"
    result = obygaze("models", "predict", model, world.store, "--band", 0.4, 0.6, "-o", table)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("WARNING: 105 of 200 clips were used to train the model")
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == world.ids
    for row in rows:
        positive = float(row["probability_S"])
        assert float(row["probability_EN+HN"]) + positive == pytest.approx(1, abs=2e-6)
        assert (row["said"] == UNSURE) == (0.4 <= positive <= 0.6)

    # A fresh process that only has the files says the same.
    code = (
        "import sys, obygaze_models as om\n"
        "print(om.predict(sys.argv[1], sys.argv[2]).to_csv(), end='')"
    )
    fresh = subprocess.run(
        [sys.executable, "-c", code, model, world.store], capture_output=True, text=True, check=True
    )
    again = list(csv.DictReader(fresh.stdout.splitlines()))
    assert [row["probability_S"] for row in again] == [row["probability_S"] for row in rows]

    scored = obygaze("models", "evaluate", model, world.store, world.manifest)
    assert "EN+HN vs S: 50 of 150 positive" in scored.stdout
    assert "WARNING: 105 of these 150 clips were used to train the model" in scored.stderr
    output = json.loads(
        obygaze("models", "evaluate", model, world.store, world.manifest, "--json").stdout
    )
    assert len(output["seen"]) == 105

    assert "pcbm-tree" in obygaze("models", "list").stdout
    assert (
        "sure   mlp        EN+HN vs S         105"
        in obygaze("models", "list", tmp_path / "models").stdout
    )
    assert load_model(model)[1]["learns"] == {"positives": ["S"], "negatives": ["EN", "HN"]}


def test_what_is_not_real_is_said_wherever_the_model_is_used(obygaze, tmp_path):
    from dataclasses import replace

    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random weights"}})
    world = make_world(tmp_path / "w", recipe=recipe, synthetic="drawn by a test")
    file, model = tmp_path / "sure.toml", tmp_path / "sure"
    file.write_text(
        f'name = "Sure"\nmanifest = "{world.manifest}"\nstore = "{world.store}"\nsplit = "ten"\n'
        'positives = ["S"]\ntrain_negatives = ["EN", "HN"]\nestimators = ["logistic"]\n'
    )
    cautions = [
        "Not a real result: the clips are synthetic (drawn by a test).",
        "Not a real result: the backbone is synthetic (random weights).",
    ]
    for command in (
        ["train", file, "-o", model],
        ["predict", model, world.store],
        ["predict", model, world.store, "--json"],
        ["evaluate", model, world.store, world.manifest],
        ["explain", model, world.store, world.ids[0]],
    ):
        result = obygaze("models", *command)
        assert result.exit_code == 0, result.stderr
        output = [line for line in result.stderr.splitlines() if "Not a real" in line]
        assert output == [f"WARNING: {text}" for text in cautions], command
        assert "Not a real" not in result.stdout or "--json" in command
    assert all(f"**{text}**" in (model / "README.md").read_text() for text in cautions)

    predictions = predict(model, world.store)
    spans = [
        Item(clip, media="all.mp4", start=float(row), end=row + 1.0)
        for row, clip in enumerate(world.ids)
    ]
    [text] = elan_files(predictions, Items.of(spans)).values()
    properties = ElementTree.fromstring(text).iter("PROPERTY")
    assert [
        node.text for node in properties if node.attrib["NAME"].startswith("warning")
    ] == cautions
    assert "Not a real" not in predictions.to_csv()


def test_a_real_model_says_that_the_clips_it_is_asked_about_are_not(world, model, tmp_path):
    drawn = make_world(tmp_path, synthetic="drawn by a test")
    assert predict(model, world.store).warnings == []
    assert [str(warning) for warning in predict(model, drawn.store).warnings] == [
        "Not a real result: the clips are synthetic (drawn by a test)."
    ]


def test_the_counts_of_clips_and_the_card_agree(obygaze, tmp_path):
    """Concepts are learnt from more clips than those that are told apart."""
    world = make_world(tmp_path / "w", marked=True)
    file, model = tmp_path / "tree.toml", tmp_path / "tree"
    file.write_text(
        f'name = "Tree"\nmanifest = "{world.manifest}"\nstore = "{world.store}"\nsplit = "ten"\n'
        'positives = ["S"]\ntrain_negatives = ["HN"]\n'
        'estimators = [{name = "pcbm-tree", negatives = "b"}]\n'
    )
    trained = obygaze("models", "train", file, "-o", model)
    assert trained.exit_code == 0, trained.stderr
    numbers = [
        int(number)
        for number in re.findall(r"(?:on|clips,|seen) (\d+)", trained.stdout.splitlines()[-3])
    ]
    assert len(numbers) == 3
    seen = load_model(model)[1]["seen"]
    assert numbers[2] == len(seen) > numbers[0] + numbers[1]
    result = obygaze("models", "predict", model, world.store)
    assert f"{len(seen)} of 200 clips were used to train the model" in result.stderr

    card = (model / "README.md").read_text()
    more = numbers[2] - numbers[0] - numbers[1]
    assert (
        f"- {numbers[0]} clips of the manifest toy to learn from, and {numbers[1]} to\n"
        f"  choose and to stop; {more} more, which its concepts were learnt from\n"
    ) in card
    assert card.index("What to beware of") < card.index("What it was trained on")
    aucs = load_model(model)[1]["facts"]["concepts"]
    for name, values in aucs.items():
        assert f"{name} {values['auc']:.2f}" in card
    assert "{" not in card
    assert "the rest is in `model.json`" in card
    assert len(card.splitlines()) < 45
