import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store
from obygaze_models.dataset import load_dataset
from obygaze_models.estimators.bottlenecks import HybridBottleneck, OracleBottleneck
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.mlp import MLPProbe
from obygaze_models.explain.attributions import logit_gradients
from obygaze_models.inference import check_features, features_of
from obygaze_models.persistence import load_model, save_model
from obygaze_models.tasks import concept_targets
from tests.estimators.clips import logistic_on, tree_on
from tests.world import RECIPE, write_store

NAMES = ["Look", "Body"]
BACKBONE = RECIPE.backbone


def about(**features):
    fits = {
        "backbone": dict(BACKBONE),
        "preprocessing": dict(RECIPE.preprocessing),
        "array": "native",
        "pooling": None,
    }
    return {"classes": ["EN", "S"], "features": fits | features}


@pytest.fixture(scope="module")
def saved(world, tmp_path_factory):
    """A folder of models of the world's clips, and the models by name."""
    folder = tmp_path_factory.mktemp("models")
    y = (np.array(world.levels) == "S").astype(int)
    shown = (world.features[:, :2] > 0).astype(int)
    bank = ConceptBank(C=1.0).fit(world.features, shown, concept_names=NAMES)
    models = {
        "tree": tree_on(bank, max_depth=3),
        "linear": logistic_on(bank),
        "hybrid": HybridBottleneck(FrozenEstimator(bank)),
        "mlp": MLPProbe((8,), max_iter=3, random_state=0),
    }
    for name, model in models.items():
        save_model(model.fit(world.features, y), folder / name, about())
    oracle = OracleBottleneck(random_state=0).fit(world.features, y, concepts=shown)
    save_model(
        oracle, folder / "oracle", about() | {"estimator": "oracle-tree", "reads": "concepts"}
    )
    return folder, models


@pytest.fixture
def say(saved, world, obygaze):
    """``say("tree", "tt0-003", ...)``: the command, given a saved model's name."""

    def run(model, *arguments, store=world.store):
        path = saved[0] / model
        return obygaze("models", "explain", path, store, *arguments)

    return run


def test_a_trees_path_in_words(say, saved, world):
    result = say("tree", "tt0-003", "tt0-000", "--nearest", "3")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.split("\n\ntt0-000: ")
    model = saved[1]["tree"]
    sure = model.predict_proba(world.features[[3]])[0]
    label = ("EN", "S")[sure.argmax()]
    assert first.startswith(f"tt0-003: {label}, probability {sure.max():.2f} (")
    scores = model.concept_scores(world.features)
    root = model.head_.tree_.feature[0]
    others = np.delete(scores[:, root], 3) - scores[3, root]
    assert abs(others).min() > 1e-4  # so that no last bit decides
    percentile = 100 * ((others < 0).sum() + 0.5) / len(scores)
    words = rf"{NAMES[root]}: more of it than in (\d+)% of the store"
    assert float(re.search(words, first)[1]) == pytest.approx(percentile, abs=0.51)
    assert len(re.findall(rf"{NAMES[root]}:", first)) == 1
    assert f"the training clips that end there: {sure[0]:.0%} EN, {sure[1]:.0%} S" in first
    assert "nearest clips  cosine" in second


def test_a_linear_rules_parts_as_bars(say, saved, world):
    lines = say("linear", "tt0-003", "--nearest", "0").stdout.splitlines()
    model = saved[1]["linear"]
    parts = model.concept_scores(world.features[[3]])[0] * model.head_.coef_[0]
    for name, part in zip(NAMES, parts, strict=True):
        (line,) = (line for line in lines if line.split()[0] == name)
        assert float(line.split()[1]) == pytest.approx(part, abs=0.006)
        assert set("".join(line.split()[2:])) <= {"+" if part > 0 else "-"}
    said = model.predict_proba(world.features[[3]])[0]
    assert lines[-1] == f"  together {np.log(said[1] / said[0]):+.2f}: the log-odds of S"
    assert "(not explained by concepts)" in say("hybrid", "tt0-003").stdout


def test_a_network_gives_no_reasons(say, saved, world):
    alone = say("mlp", "tt0-003", "--nearest", "0")
    assert alone.stdout.splitlines()[1:] == ["  this model gives no reasons"]
    for model in ("mlp", "tree"):
        refused = say(model, "tt0-003", "--concepts", saved[0] / "tree")
        assert refused.exit_code == 2
        assert "--concepts is for --tcav" in refused.stderr
    wrong = say("mlp", "--tcav", "--concepts", saved[0] / "oracle", "--manifest", world.manifest)
    assert wrong.exit_code == 1
    assert "OracleBottleneck, which has no concepts" in wrong.stderr


def test_prints_json_for_scripts(say, saved, world):
    (found,) = json.loads(say("linear", "tt1-007", "--nearest", "4", "--json").stdout)
    row = world.ids.index("tt1-007")
    assert found["id"] == "tt1-007"
    explanation = found["explanation"]
    sure = saved[1]["linear"].predict_proba(world.features[[row]])[0]
    assert list(explanation["probabilities"].values()) == pytest.approx(sure.tolist())
    parts = explanation["why"]["contributions"]
    assert {part["concept"] for part in parts} == set(NAMES)
    sizes = [abs(part["amount"]) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    cosines = cosine_similarity(world.features[[row]], world.features)[0]
    order = [one for one in np.argsort(-cosines) if one != row][:4]
    assert [one["id"] for one in found["nearest"]] == [world.ids[one] for one in order]
    assert [one["cosine"] for one in found["nearest"]] == pytest.approx(cosines[order].tolist())


def test_an_id_that_is_not_there_is_one_line(say, world):
    result = say("tree", "tt0-003", "tt9-999")
    assert result.exit_code == 1
    assert result.stderr == f"Error: {world.store}: tt9-999 is not an item of this store\n"


OTHERS = {
    "weights": (
        {"backbone": dict(BACKBONE) | {"weights_sha256": "1" * 64}}, {},
        "the model is for tiny with weights 000000000000, "
        "the store is of tiny with weights 111111111111",
    ),
    "preprocessing": (
        {"preprocessing": {"mode": "squash"}}, {},
        "preprocessing mode is 'squash' in the store, 'standard' for the model",
    ),
    "array": ({}, {"array": "cls"}, "the store has no array 'cls', only native, frames"),
    "pooled": (
        {}, {"pooling": "max"},
        "the model reads 'native' pooled by max, and it is [8] a clip",
    ),
    "tokens": (
        {}, {"array": "frames"},
        "the model reads 'frames' as one vector a clip, and it is [4, 8] a clip",
    ),
    "shape": (
        {}, {"array": "frames", "pooling": "mean", "shape": [16, 8]},
        "'frames' is [4, 8] a clip, [16, 8] for the model",
    ),
}  # fmt: skip


def test_a_model_fits_the_same_weights_by_another_name(world, tmp_path):
    manifest = Manifest.load(world.manifest)
    features = dict(zip(world.ids, world.features, strict=True))
    backbone = dict(BACKBONE) | {"name": "tiny-toy", "family": "toy"}
    write_store(tmp_path / "other.zarr", manifest, features, replace(RECIPE, backbone=backbone))
    ids, rows = features_of(about(), open_store(tmp_path / "other.zarr"), world.ids[:2])
    assert ids == world.ids[:2]
    np.testing.assert_array_equal(rows, world.features[:2])


@pytest.mark.parametrize("which", OTHERS)
def test_refuses_a_store_made_otherwise_and_says_how(which, world, tmp_path):
    of_store, of_model, words = OTHERS[which]
    manifest = Manifest.load(world.manifest)
    features = dict(zip(world.ids, world.features, strict=True))
    write_store(tmp_path / "other.zarr", manifest, features, replace(RECIPE, **of_store))
    store = open_store(tmp_path / "other.zarr")
    for refuse in (check_features, lambda said, store: features_of(said, store, world.ids[:2])):
        with pytest.raises(ValueError, match="the model does not fit") as problem:
            refuse(about(**of_model), store)
        assert f"other.zarr: {words}; use the store" in str(problem.value)
        assert "\n" not in str(problem.value)


def test_the_command_refuses_it_too(say, world, tmp_path):
    manifest = Manifest.load(world.manifest)
    features = dict(zip(world.ids, world.features, strict=True))
    other = replace(RECIPE, preprocessing={"mode": "squash"})
    write_store(tmp_path / "other.zarr", manifest, features, other)
    result = say("tree", "tt0-003", store=tmp_path / "other.zarr")
    assert result.exit_code == 1
    assert "preprocessing mode is 'squash'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_of_annotations_and_one_of_nothing_fit_no_store(say, world):
    result = say("oracle", "tt0-003")
    assert result.exit_code == 1
    assert "(oracle-tree) reads annotated concepts, not features" in result.stderr
    with pytest.raises(ValueError, match="does not say which features"):
        check_features({}, open_store(world.store))


def test_features_are_pooled_as_the_model_wants_in_the_order_asked_for(
    world, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store, wanted = open_store(world.store), ["tt2-001", "tt9-999", "tt0-000"]
    have, features = features_of(about(array="frames", pooling="mean"), store, wanted)
    assert have == ["tt2-001", "tt0-000"]
    rows = world.features[[world.ids.index(one) for one in have]]
    assert np.allclose(features, rows.astype(np.float16))
    assert (features_of(about(), store, wanted)[1] == rows).all()


def test_help_shows_examples(obygaze):
    assert "obygaze models explain runs/" in obygaze("models", "explain", "--help").stdout


GOLDEN = Path(__file__).parents[1] / "golden/data"
BOTTLENECK = GOLDEN / "run/models/pcbm-tree/EN+HN-vs-S-0"
NETWORK = GOLDEN / "run/models/mlp/EN+HN-vs-S-0"
ON_CLIPS = (GOLDEN / "xclip.zarr", "--manifest", GOLDEN / "manifest")


def test_tcav_of_a_saved_network(obygaze):
    arguments = ("models", "explain", NETWORK, *ON_CLIPS, "--tcav", "--concepts", BOTTLENECK)
    result = obygaze(*arguments, "--draws", 20, "--json")
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)["tcav"]}
    assert set(rows) == {"Look", "Body", "Clothing"}
    network, about = load_model(NETWORK)
    data = load_dataset(GOLDEN / "manifest", GOLDEN / "xclip.zarr")
    chosen = [
        row
        for row, clip in enumerate(data.ids)
        if data.levels[row] == "S" and clip not in about["seen"]
    ]
    bank = load_model(BOTTLENECK)[0].bank_
    slopes = (logit_gradients(network, data.X[chosen], 1) @ bank.cavs_.T).mean(axis=0)
    assert [rows[name]["slope"] for name in bank.names_] == pytest.approx(slopes.tolist())
    assert {(row["clips"], row["runs"]) for row in rows.values()} == {(len(chosen), 20)}
    table = obygaze(*arguments, "--draws", 20).stdout
    assert f"{rows['Look']['slope']:+.2f}" in table
    assert "20 directions of shuffled labels" in table


def test_significance_of_a_saved_bottleneck(obygaze):
    arguments = ("models", "explain", BOTTLENECK, *ON_CLIPS, "--significance", "--draws", 40)
    analysis = json.loads(obygaze(*arguments, "--json").stdout)
    assert analysis["model"] == "pcbm-tree/EN+HN-vs-S-0"
    rows = analysis["significance"]
    assert [row["name"] for row in rows] == ["Look", "Body", "Clothing"]
    data = load_dataset(GOLDEN / "manifest", GOLDEN / "xclip.zarr")
    model, about = load_model(BOTTLENECK)
    unseen = data.select([row for row, clip in enumerate(data.ids) if clip not in about["seen"]])
    truth = concept_targets(unseen.levels, unseen.concepts, "b")
    look = list(unseen.concept_names).index("Look")
    rows_of_look = truth[:, look] >= 0
    scores = unseen.X[rows_of_look] @ model.bank_.cavs_[0]
    assert rows[0]["auc"] == pytest.approx(roc_auc_score(truth[rows_of_look, look], scores))
    assert rows[0]["p"] == pytest.approx(1 / 41)
    assert f"{rows[0]['auc']:.3f}" in obygaze(*arguments).stdout


def test_interventions_on_a_saved_bottleneck(obygaze):
    arguments = ("models", "explain", BOTTLENECK, *ON_CLIPS, "--intervene", "--draws", 5)
    found = json.loads(obygaze(*arguments, "--json").stdout)["intervene"]
    record = json.loads((GOLDEN / "run/run.json").read_text(encoding="utf-8"))
    assert found["clips"] == record["tests"]["EN+HN vs S"]["clips"]
    random, nearest = found["curves"]
    assert len(random["accuracy"]) == len(found["concepts"]) + 1
    assert random["accuracy"][0] == pytest.approx(nearest["accuracy"][0])
    assert random["accuracy"][-1] == pytest.approx(nearest["accuracy"][-1])
    table = obygaze(*arguments).stdout
    assert f"{random['accuracy'][0]:.3f}" in table
    assert "5 random orders" in table


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((NETWORK, GOLDEN / "xclip.zarr"), 2, "name clips"),
        ((BOTTLENECK, GOLDEN / "xclip.zarr", "--intervene"), 2, "add --manifest"),
        ((NETWORK, *ON_CLIPS, "--tcav"), 2, "add --concepts"),
        ((BOTTLENECK, *ON_CLIPS, "tt0000001-003", "--intervene"), 2, "leave out the IDs"),
        ((NETWORK, *ON_CLIPS, "--intervene"), 1, "interventions need a bottleneck"),
        ((NETWORK, *ON_CLIPS, "--significance"), 1, "no learned concepts"),
        ((BOTTLENECK, *ON_CLIPS, "--tcav", "--concepts", BOTTLENECK), 1, "needs a network"),
        ((GOLDEN / "models/pcbm-tree", *ON_CLIPS, "--significance"), 1, "use a model of a run"),
    ],
)
def test_analyses_name_what_is_missing(obygaze, arguments, code, message):
    result = obygaze("models", "explain", *arguments)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
