"""Models for use: trained, saved, asked about any store, scored on any manifest, exported."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest
from obygaze_models.saved.about import footage_of, seen_in_training
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused
from tests.kit.run import RECIPE, make_world, write_experiment, write_store

UNSURE, RENAMED = "unsure", "under another id"


def train(folder, world, estimator, name="model", **keys):
    """A model of Sure against Hard Negatives, by the command; gives what that printed, too."""
    toml = write_experiment(folder / f"{name}.toml", world, estimators=[estimator], **keys)
    result = run_obygaze("models", "train", toml, "-o", folder / name)
    assert result.exit_code == 0, result.output
    return folder / name, result


@pytest.mark.parametrize(
    ("task", "is_all"),
    [
        ("positives = ['S']\ntrain_negatives = ['HN']\nprotocol = 'leave-film-out'", True),
        ("levels = ['EN', 'HN', 'S']", False),
    ],
)
def test_a_model_for_use_is_balanced_as_in_a_run(world, tmp_path, task, is_all):
    """As the protocol says, and of three classes, too."""
    toml = tmp_path / "balance.toml"
    paths = f"name = 'm'\nmanifest = '{world.manifest}'\nstore = '{world.store}'\n"
    toml.write_text(f"{paths}split = 'ten'\nestimators = ['knn']\n{task}\n")
    result = run_obygaze("models", "train", toml, "-o", tmp_path / "model")
    assert result.exit_code == 0, result.output
    seen = om.predict(tmp_path / "model", world.store).about["seen"]
    counts = Counter(world.levels[world.ids.index(clip)] for clip in seen)
    assert (len(set(counts.values())) == 1) is not is_all, counts


def test_it_learns_from_all_folds_but_the_last(world, model):
    """The same as scikit-learn's own on the same clips; what is close to call is unsure."""
    trained = world.clips("HN", "S", folds=range(9))
    rows = [world.ids.index(clip) for clip in trained]
    labels = [world.levels[row] == "S" for row in rows]
    plain = LogisticRegression(solver="liblinear").fit(world.features[rows], labels)
    predictions = om.predict(model, world.store)
    expected = plain.predict_proba(world.features)[:, 1]
    np.testing.assert_allclose(predictions.probabilities[:, 1], expected, atol=1e-3)
    seen = dict(zip(predictions.ids, predictions.seen, strict=True))
    assert {clip for clip, value in seen.items() if value == "yes"} == set(trained)
    assert set(predictions.about["seen"]) == set(trained)
    careful = om.predict(model, world.store, band=(0.3, 0.7))
    for probability, label, cautious in zip(
        predictions.probabilities[:, 1], predictions.predicted, careful.predicted, strict=True
    ):
        assert label == ("S" if probability > 0.5 else "HN")
        assert cautious == (UNSURE if 0.3 <= probability <= 0.7 else label)


def test_scores_are_scikit_learns_and_say_what_was_seen(world, model):
    scored = om.evaluate(model, world.store, Manifest.load(world.manifest))
    clips, unseen = world.clips("HN", "S"), set(world.clips("HN", "S", folds=[9]))
    sure = set(world.clips("S"))
    assert len(scored.seen) == len(clips) - len(unseen)
    for part, ids in ((scored.every, clips), (scored.unseen, [c for c in clips if c in unseen])):
        truth = np.array([clip in sure for clip in ids])
        probabilities = om.predict(model, world.store, ids=ids).probabilities[:, 1]
        assert (part.clips, part.positives) == (len(ids), truth.sum())
        assert part.scores["f1"] == pytest.approx(f1_score(truth, probabilities > 0.5))
        assert part.scores["auroc"] == pytest.approx(roc_auc_score(truth, probabilities))
        # Guesses are at the share of the clips beside which they stand.
        everything = f1_score(truth, np.ones(len(truth)))
        assert part.baselines["all positive"]["f1"] == pytest.approx(everything)


def test_what_was_not_seen_is_scored_or_said_not_to_be(world, model, tmp_path):
    """Manifests of which nothing, one class, or both classes are new to the model."""
    manifest = Manifest.load(world.manifest)
    seen, new = world.clips("HN", "S", folds=range(9)), world.clips("HN", "S", folds=[9])
    negative = world.clips("HN", folds=[9])

    def evaluate(name, ids):
        levels = [manifest.labels().level_of[clip] for clip in ids]
        items = Items.of([Item(clip) for clip in ids])
        Manifest(name, items, manifest.scheme).with_parts(
            labels=[LabelSet("all", ids, levels, [()] * len(ids))]
        ).save(tmp_path / name)
        result = run_obygaze("models", "evaluate", model, world.store, tmp_path / name)
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
    pair = evaluate("both", seen + new)
    share = 1 - len(negative) / len(new)
    _, _, apart = pair.stdout.partition("not seen in training: ")
    assert apart.startswith(f"{len(new) - len(negative)} of {len(new)} positive")
    guess = next(line.split() for line in apart.splitlines() if line.startswith("all positive"))
    assert guess[2] == f"{2 * share / (1 + share):.2f}"
    only_new = evaluate("only-new", new)
    assert ("not seen" in only_new.stdout, only_new.stderr) == (False, "")


def test_without_a_file_the_first_clips_are_printed(world, model):
    result = run_obygaze("models", "predict", model, world.store).stdout
    assert [clip for clip in world.ids if f"\n{clip} " in result] == world.ids[:20]
    assert "\nand 180 more clips; -o writes all to a file\n" in result
    sparse = run_obygaze("models", "predict", model, world.store, "--ids", ",".join(world.ids[:20]))
    assert "more" not in sparse.stdout
    rows = json.loads(run_obygaze("models", "predict", model, world.store, "--json").stdout)
    assert [row["id"] for row in rows] == world.ids


def test_what_a_model_cannot_be_asked_is_refused(world, model, tmp_path):
    second = replace(RECIPE, backbone=RECIPE.backbone | {"weights_sha256": "1" * 64})
    stranger = make_world(tmp_path, recipe=second)
    prior, _ = train(tmp_path, world, "film-prior", "prior")
    for call, facts in (
        (lambda: om.predict(model, stranger.store), ["the model does not fit"]),
        (lambda: om.predict(model, world.store, band=(0.7, 0.3)), ["two probabilities in order"]),
        (lambda: om.predict(model, world.store, ids=["tt0-000", "tt2-0017"]),
         ["has no clip tt2-0017; did you mean tt2-017?"]),
        (lambda: om.predict(model, world.store, ids=["x", "y"]), ["no clip x and 1 other"]),
        (lambda: om.predict(prior, world.store), ["reads each clip's film, not features"]),
        (lambda: om.predict_frames(model, world.store), ["does not predict frames"]),
    ):  # fmt: skip
        with pytest.raises(ExperimentError) as caught:
            call()
        assert all(fact in str(caught.value) for fact in facts)
    # A folder of models, or of a run, is none and says what is in it.
    inside = tmp_path / "run/models/mlp/HN-vs-S-0"
    shutil.copytree(model, inside)
    for folder, meant in ((model.parent, model), (tmp_path / "run", inside)):
        with pytest.raises(ExperimentError) as caught:
            om.load_model(folder)
        assert str(caught.value) == (
            f"{folder} is not a model; did you mean {meant}? "
            f"(all of them: obygaze models list {folder})"
        )


def test_clips_trained_on_are_recognised_under_other_ids(world, model, tmp_path):
    seen = world.clips("HN", "S", folds=range(9))
    unseen = world.clips("EN")[0]
    expected = {
        Item(seen[0], media="elsewhere.mp4"): "yes",
        Item("new-1", film="a", media=f"{seen[1]}.mkv", start=1.0, end=2.0): RENAMED,
        Item("new-2", film="b", media=f"{seen[1]}.avi"): RENAMED,
        Item("new-3", film="a", media=f"{unseen}.mp4", start=1.0, end=2.0): "no",
        Item("new-4", film=seen[0].split("-")[0]): "no",
    }
    store = tmp_path / "renamed.zarr"
    manifest = Manifest("renamed", Items.of(list(expected)))
    write_store(store, manifest, dict.fromkeys(manifest.ids, np.ones(8, np.float32)))
    predictions = om.predict(model, store)
    assert predictions.seen == list(expected.values())
    table, tables = tmp_path / "said.csv", tmp_path / "tables"
    outputs = ("-o", table, "--csv", tables)
    result = run_obygaze("models", "predict", model, store, *outputs)
    assert result.exit_code == 0, result.stderr
    assert f"1 of {len(expected)} clips were used to train the model" in result.stderr
    assert "2 show seconds of files that it was trained on, under other ids\n" in result.stderr
    assert [row["seen_in_training"] for row in csv_rows(table)] == predictions.seen
    assert f",{RENAMED}\n" in (tables / "b.csv").read_text(encoding="utf-8")


def test_footage_is_met_as_by_a_plain_loop():
    chance = np.random.default_rng(5)

    def draw(name: str, count: int) -> Items:
        items = []
        for row in range(count):
            start, length = chance.integers(0, 300), chance.integers(1, 8)
            span = (float(start), float(start + length)) if chance.random() < 0.98 else (None,) * 2
            kind = chance.integers(3)
            media = f"f{chance.integers(8)}.{'mp4' if chance.random() < 0.5 else 'mkv'}"
            film = f"g{chance.integers(8)}" if kind else ""
            items.append(Item(f"{name}{row}", "clip", film, media if kind < 2 else "", "", *span))
        return Items.of(items)

    def name(item: Item) -> str:
        return item.media.split(".")[0] or (item.film if item.start is not None else "")

    def meet(clip: Item, second: Item) -> bool:
        if not name(clip) or name(clip) != name(second):
            return False
        if clip.start is None or second.start is None:
            return True
        return clip.start < second.end and second.start < clip.end

    reference, asked = draw("k", 60), draw("a", 200)
    about = {"seen": [], "footage": footage_of(reference, reference.ids)}
    states = seen_in_training(about, asked, asked.ids)
    expected = [any(meet(clip, second) for second in reference) for clip in asked]
    assert [state == RENAMED for state in states] == expected
    assert 0 < sum(expected) < len(expected)
    earlier = seen_in_training({"seen": []}, asked, asked.ids)  # a model of an earlier obygaze
    assert set(earlier) == {"no"}


@pytest.mark.gate
def test_a_fresh_process_says_the_same(world, tmp_path):
    model, _ = train(tmp_path, world, {"name": "mlp", "max_iter": 5})
    code = "import sys, obygaze_models as om\nprint(om.predict(*sys.argv[1:]).to_csv(), end='')"
    fresh = subprocess.run(
        [sys.executable, "-c", code, model, world.store], capture_output=True, text=True, check=True
    )
    assert fresh.stdout == om.predict(model, world.store).to_csv()
    refused(run_obygaze("models", "train", tmp_path / "model.toml", "-o", model), "--overwrite")


def test_what_is_not_real_is_said_wherever_it_is_used(tmp_path, model, world):
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random weights"}})
    drawn = make_world(tmp_path / "w", recipe=recipe, synthetic="drawn by a test")
    cautions = [
        "Not a real result: the clips are synthetic (drawn by a test).",
        "Not a real result: the backbone is synthetic (random weights).",
    ]

    def said(result):
        assert "Not a real" not in result.stdout or result.stdout.startswith("[")
        return [line for line in result.stderr.splitlines() if "Not a real" in line]

    model, trained = train(tmp_path, drawn, "logistic")
    assert said(trained) == [f"WARNING: {text}" for text in cautions]
    for command in (
        ["predict", model, drawn.store],
        ["predict", model, drawn.store, "--json"],
        ["evaluate", model, drawn.store, drawn.manifest],
        ["explain", model, drawn.store, drawn.ids[0]],
    ):
        result = run_obygaze("models", *command)
        assert result.exit_code == 0, result.stderr
        assert said(result) == [f"WARNING: {text}" for text in cautions], command
    assert all(f"**{text}**" in (model / "README.md").read_text() for text in cautions)
    assert "Not a real" not in om.predict(model, drawn.store).to_csv()


def test_the_counts_of_clips_and_the_card_agree(marked, tmp_path):
    """Concepts are learnt from more clips than those that are told apart."""
    tree = {"name": "pcbm-tree", "negatives": "b", "bank__C": 0.1}
    model, trained = train(tmp_path, marked, tree)
    line = trained.stdout.splitlines()[-3]
    learnt, held, all_seen = map(int, re.findall(r"(?:on|clips,|seen) (\d+)", line))
    about = om.load_model(model)[1]
    assert all_seen == len(about["seen"]) > learnt + held
    result = run_obygaze("models", "predict", model, marked.store)
    assert f"{all_seen} of 200 clips were used to train the model" in result.stderr
    card = (model / "README.md").read_text()
    assert (
        f"- {learnt} clips of the manifest toy to learn from, and {held} to\n  choose and to stop; "
        f"{all_seen - learnt - held} more, which its concepts were learnt from\n"
    ) in card
    assert card.index("What to beware of") < card.index("What it was trained on")
    for name, values in about["facts"]["concepts"].items():
        assert f"{name} {values['auc']:.2f}" in card
    assert "{" not in card
    assert "the rest is in `model.json`" in card
    assert len(card.splitlines()) < 45


@pytest.mark.parametrize(
    "estimator",
    [
        {"name": "mlp", "max_iter": 3, "hidden_layer_sizes": [16, 8], "calibrate": True},
        {"name": "pcbm-logistic", "negatives": "b", "bank__C": 0.1, "bank__output": "decision"},
        {"name": "pcbm-logistic", "negatives": "b", "bank__C": 0.1, "bank__output": "distance"},
        "logistic",
    ],
    ids=["mlp", "decision", "distance", "logistic"],
)
def test_onnxruntime_says_the_same(marked, tmp_path, estimator):
    model, _ = train(tmp_path, marked, estimator)
    result = run_obygaze("models", "export", model, "-o", tmp_path / "model.onnx")
    assert result.exit_code == 0, result.stderr
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (probabilities,) = session.run(None, {"features": marked.features})
    expected = om.predict(model, marked.store).probabilities
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"] == "HN, S"
    again = run_obygaze("models", "export", model, "-o", tmp_path / "model.onnx")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)


def test_what_is_no_chain_of_layers_is_not_exported(world, tmp_path):
    model, _ = train(tmp_path, world, "knn")
    result = run_obygaze("models", "export", model, "-o", tmp_path / "m.onnx")
    assert result.exit_code == 1
    assert "KNeighborsClassifier, which is no chain" in result.stderr
