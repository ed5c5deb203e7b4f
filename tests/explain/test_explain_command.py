import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

import obygaze_features as of
import obygaze_models as om
from obygaze_models.explain.attributions import logits_and_gradients
from obygaze_models.saved.inference import check_features, features_of
from tests.kit.clips import logistic_on, tree_on
from tests.kit.files import refused
from tests.kit.run import RECIPE, write_store

NAMES = ["Look", "Body"]
BACKBONE = RECIPE.backbone
GOLDEN = Path(__file__).parents[1] / "golden/data"
BOTTLENECK = GOLDEN / "run/models/pcbm-tree/EN+HN-vs-S-0"
NETWORK = GOLDEN / "run/models/mlp/EN+HN-vs-S-0"
STORE = GOLDEN / "xclip.zarr"
ON_CLIPS = (STORE, "--manifest", GOLDEN / "manifest")


def about(**features):
    fits = {
        "backbone": dict(BACKBONE), "preprocessing": dict(RECIPE.preprocessing),
        "array": "native", "pooling": None,
    }  # fmt: skip
    return {"classes": ["EN", "S"], "seen": ["tt0-003"], "features": fits | features}


@pytest.fixture(scope="module")
def saved(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    y = (np.array(world.levels) == "S").astype(int)
    shown = (world.features[:, :2] > 0).astype(int)
    bank = om.ConceptBank(C=1.0).fit(world.features, shown, concept_names=NAMES)
    models = {
        "tree": tree_on(bank, max_depth=3),
        "linear": logistic_on(bank),
        "hybrid": om.HybridBottleneck(FrozenEstimator(bank)),
        "mlp": om.MLPProbe((8,), max_iter=3, random_state=0),
    }
    for name, model in models.items():
        om.save_model(model.fit(world.features, y), folder / name, about())
    oracle = om.OracleBottleneck(random_state=0).fit(world.features, y, concepts=shown)
    reads = {"estimator": "oracle-tree", "reads": "concepts"}
    om.save_model(oracle, folder / "oracle", about() | reads)
    return folder, models


@pytest.fixture
def explain(saved, world, obygaze):
    """``explain("tree", "tt0-003", ...)``: the command, given a saved model's name."""

    def explain(model, *arguments, store=world.store, code=None):
        return obygaze("models", "explain", saved[0] / model, store, *arguments, code=code)

    return explain


def test_a_trees_path_in_words(explain, saved, world):
    result = explain("tree", "tt0-003", "tt0-000", "--nearest", "3", code=0)
    first, second = result.stdout.split("\n\ntt0-000: ")
    model = saved[1]["tree"]
    odds = model.predict_proba(world.features[[3]])[0]
    label = ("EN", "S")[odds.argmax()]
    assert first.startswith(f"tt0-003: {label}, probability {odds.max():.2f} (")
    scores = model.concept_scores(world.features)
    root = model.head_.tree_.feature[0]
    others = np.delete(scores[:, root], 3) - scores[3, root]
    assert abs(others).min() > 1e-4  # so that no last bit decides
    percentile = 100 * ((others < 0).sum() + 0.5) / len(scores)
    words = rf"{NAMES[root]}: more of it than in (\d+)% of the store"
    assert float(re.search(words, first)[1]) == pytest.approx(percentile, abs=0.51)
    assert len(re.findall(rf"{NAMES[root]}:", first)) == 1
    assert f"the training clips that end there: {odds[0]:.0%} EN, {odds[1]:.0%} S" in first
    assert "nearest clips  cosine" in second


def test_a_linear_rules_parts_as_bars(explain, saved, world):
    result = explain("linear", "tt0-003", "--nearest", 0)
    lines = result.stdout.splitlines()
    assert "1 of 1 clip were used to train the model" in result.stderr
    model = saved[1]["linear"]
    parts = model.concept_scores(world.features[[3]])[0] * model.head_.coef_[0]
    for name, part in zip(NAMES, parts, strict=True):
        [[amount, *bar]] = [line.split()[1:] for line in lines if line.split()[0] == name]
        assert float(amount) == pytest.approx(part, abs=0.006)
        assert set("".join(bar)) <= {"+" if part > 0 else "-"}
    odds = model.predict_proba(world.features[[3]])[0]
    assert lines[-1] == f"  together {np.log(odds[1] / odds[0]):+.2f}: the log-odds of S"
    assert "(not explained by concepts)" in explain("hybrid", "tt0-003").stdout


def other_store(world, folder, **backbone):
    features = dict(zip(world.ids, world.features, strict=True))
    path, recipe = folder / "other.zarr", replace(RECIPE, backbone=dict(BACKBONE) | backbone)
    write_store(path, of.Manifest.load(world.manifest), features, recipe)
    return path


@pytest.mark.parametrize(("features", "words"), [
    ({"array": "cls"}, "no array 'cls', only native, frames"),
    ({"array": "frames"}, "'frames' as one vector a clip, and it is [4, 8] a clip"),
    ({"array": "frames", "pooling": "mean", "shape": [16, 8]},
     "'frames' is [4, 8] a clip, [16, 8] for the model"),
    ({}, "for tiny with weights 000000000000, the store is of tiny with weights 111111111111"),
])  # fmt: skip
def test_refuses_a_store_made_otherwise_and_says_how(features, words, world, tmp_path, explain):
    path = world.store if features else other_store(world, tmp_path, weights_sha256="1" * 64)
    for refuse in (check_features, lambda model, store: features_of(model, store, world.ids[:2])):
        with pytest.raises(ValueError, match=f"the model does not fit .*{re.escape(words)}; use"):
            refuse(about(**features), of.open_store(path))
    if not features:
        refused(explain("tree", "tt0-003", store=path), words)


def test_features_are_those_that_the_model_wants(world, tmp_path, monkeypatch):
    """In the order asked for; the same weights may have another name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    renamed = of.open_store(other_store(world, tmp_path, name="tiny-toy", family="toy"))
    wanted = ["tt2-001", "tt9-999", "tt0-000"]
    rows = world.features[[world.ids.index(clip) for clip in (wanted[0], wanted[2])]]
    for store in (renamed, of.open_store(world.store)):
        have, features = features_of(about(), store, wanted)
        assert have == ["tt2-001", "tt0-000"]
        assert (features == rows).all()
    pooled = features_of(about(array="frames", pooling="mean"), store, wanted)[1]
    assert np.allclose(pooled, rows.astype(np.float16))


def test_tcav_of_a_saved_network(obygaze):
    command = ("models", "explain", NETWORK, *ON_CLIPS, "--tcav", "--concepts", BOTTLENECK)
    table, content = (obygaze(*command, "--draws", 20, *more) for more in ((), ("--json",)))
    rows = {row["name"]: row for row in json.loads(content.stdout)["tcav"]}
    assert set(rows) == {"Look", "Body", "Clothing"}
    network, about = om.load_model(NETWORK)
    data = om.load_dataset(GOLDEN / "manifest", STORE)
    seen, sure = np.isin(data.ids, about["seen"]), np.array(data.levels) == "S"
    bank = om.load_model(BOTTLENECK)[0].bank_
    slopes = logits_and_gradients(network, data.X[sure & ~seen])[1][1] @ bank.cavs_.T
    assert [rows[name]["slope"] for name in bank.names_] == pytest.approx(slopes.mean(axis=0))
    assert {(row["clips"], row["runs"]) for row in rows.values()} == {(len(slopes), 20)}
    assert f"{rows['Look']['slope']:+.2f}" in table.stdout


SLIPS = [
    ((NETWORK, STORE), 2, "name clips"),
    ((BOTTLENECK, STORE, "--intervene"), 2, "add --manifest"),
    ((NETWORK, *ON_CLIPS, "--tcav"), 2, "add --concepts"),
    ((BOTTLENECK, *ON_CLIPS, "tt0000001-003", "--intervene"), 2, "leave out the IDs"),
    ((NETWORK, *ON_CLIPS, "--intervene"), 1, "interventions need a bottleneck"),
    ((NETWORK, *ON_CLIPS, "--significance"), 1, "no learned concepts"),
    ((NETWORK, *ON_CLIPS, "--tcav", "--concepts", NETWORK), 1, "MLPProbe, which has no learned"),
    ((GOLDEN / "models/pcbm-tree", *ON_CLIPS, "--significance"), 1, "use a model of a run"),
]


@pytest.mark.parametrize(("arguments", "code", "fact"), SLIPS)
def test_a_slip_is_one_line(obygaze, arguments, code, fact):
    refused(obygaze("models", "explain", *arguments), fact, code=code)


def test_clips_and_models_that_a_store_does_not_fit(explain, world):
    missing = f"{world.store} has no clip tt9-999"
    refused(explain("tree", "tt0-003", "tt9-999"), missing)
    refused(explain("oracle", "tt0-003"), "(oracle-tree) reads annotated concepts, not features")
    with pytest.raises(ValueError, match="does not say which features"):
        check_features({}, of.open_store(world.store))
