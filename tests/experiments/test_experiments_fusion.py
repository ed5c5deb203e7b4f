"""Several stores as one model: informative and missing stores, and saved models."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Concept, Manifest
from obygaze_features.store import ArraySpec
from tests.conftest import run_obygaze
from tests.kit import run as kit
from tests.kit.floats import close

FILMS, CLIPS = 9, 24
ALONE = ("see", "hear", "read")
SILENT = np.isin(np.arange(FILMS * CLIPS) % 8, 5)
"""The clips that the store of sound lacks."""


def write_senses(folder):
    """Write 216 clips of 9 films in which only sound reveals the class.

    Pictures tell the film and texts tell nothing, and both have a far larger scale.
    """
    chance = np.random.default_rng(4)
    ids = [f"film{film}-{clip:03}" for film in range(FILMS) for clip in range(CLIPS)]
    truth, film = chance.integers(0, 2, len(ids)), np.arange(len(ids)) // CLIPS
    concepts_of = [("Look", "Voice")[not i % 2 :] if code else () for i, code in enumerate(truth)]
    vocabulary = (Concept("Look"), Concept("Voice", visual=False))
    levels = np.array(["EN", "S"])[truth]
    folds = (film % 3).tolist()
    labels = {"folds": folds, "scheme": vocabulary}
    manifest = kit.labelled(ids, levels.tolist(), concepts_of, **labels, seconds=1)
    manifest.save(folder / "manifest")
    hear = chance.normal(size=(len(ids), 6))
    hear[:, 0] += 1.2 * (2 * truth - 1)
    see = 50 * chance.normal(size=(len(ids), 12)) + 100 * chance.normal(size=(FILMS, 12))[film]
    read = 30 * chance.normal(size=(len(ids), 8))
    for name, values in zip(ALONE, (see, hear, read), strict=True):
        made_by = {"weights_sha256": hashlib.sha256(name.encode()).hexdigest()}
        array = ArraySpec("native", (values.shape[1],), "float32", "one vector a clip")
        recipe = replace(kit.RECIPE, backbone=kit.RECIPE.backbone | made_by, arrays=(array,))
        rows = np.flatnonzero(~SILENT) if name == "hear" else range(len(ids))
        subset, table = manifest.select(ids=[ids[row] for row in rows]), values[rows]
        arrays = {"native": table.astype(np.float32)}
        kit.write_rows(folder / f"{name}.zarr", subset, arrays, recipe, block_rows=512)
    return folder, [folder / f"{name}.zarr" for name in ALONE], ids, truth, hear


def experiment(folder, **keys):
    values = {"name": "Senses", "manifest": "manifest", "split": "ten", "protocol": "split"}
    values |= {"positives": ["S"], "train_negatives": ["EN"], "balance": "none"}
    values |= {"store": [f"{name}.zarr" for name in ALONE], "estimators": ["logistic"]}
    return kit.write_experiment(folder / "experiment.toml", **values | keys)


@pytest.fixture(scope="module")
def senses(tmp_path_factory):
    return write_senses(tmp_path_factory.mktemp("senses"))


@pytest.fixture(scope="module")
def fused(senses, tmp_path_factory):
    """A run of a model of all stores, and of one for each store."""
    output = tmp_path_factory.mktemp("runs") / "fused"
    printed = run_obygaze("models", "run", experiment(senses[0]), "-o", output, code=0)
    assert "hear lacks 27 clips" in " ".join(printed.stderr.split())
    return om.load_run(output)


def test_scales_come_from_training_clips_alone(senses, fused):
    """Compare with scikit-learn on columns scaled by hand, also after saving."""
    folder, stores, ids, truth, hear = senses
    data = om.load_dataset(folder / "manifest", stores, positives=["S"], negatives=["EN"])
    assert dict(data.stores) == {"see": 12, "hear": 6, "read": 8}
    assert data.ids == np.array(ids)[~SILENT].tolist()
    assert data.X[:, 12:18] == close(hear[~SILENT], eps=1e-5)
    model = fused.folder / "models/logistic/EN-vs-S-0"
    predicted = om.predict(model, stores)
    seen = predicted.table["seen"] != "no"
    parts = [part - part[seen].mean(axis=0) for part in np.split(data.X, [12, 18], axis=1)]
    scaled = np.hstack([part / np.sqrt(part[seen].var(axis=0).sum()) for part in parts])
    oracle = LogisticRegression(solver="liblinear").fit(scaled[seen], truth[~SILENT][seen])
    shares = predicted.values
    np.testing.assert_allclose(shares, oracle.predict_proba(scaled), atol=1e-3)
    fit = fused.predictions[fused.predictions["fit"] == 0]
    tested = shares[np.isin(data.ids, fit["id"]), 1]
    np.testing.assert_allclose(fit["probability"], tested, atol=1e-6)
    with pytest.raises(ExperimentError, match="does not fit"):
        om.predict(model, stores[0])


def test_stores_of_one_name_are_numbered(marked):
    data = om.load_dataset(marked.manifest, [marked.store] * 2)
    assert dict(data.stores) == {"toy": 8, "toy-2": 8}


def test_every_model_of_features_is_fused(marked, tmp_path):
    rows = dict(zip(marked.ids, np.random.default_rng(1).normal(size=(200, 8)), strict=True))
    stores = [marked.store, tmp_path / "noise.zarr"]
    kit.write_store(stores[1], Manifest.load(marked.manifest), rows)
    names = [{"name": "mlp", "max_iter": 3}, {"name": "pcbm-tree", "bank__C": 0.1}, "majority"]
    options = {"split": "three", "protocol": "official", "estimators": names}
    options |= {"positives": ["S"], "train_negatives": ["HN"], "store": stores}
    zoo = om.Experiment(name="Zoo", manifest=marked.manifest, **options)
    run = om.run_experiment(zoo, tmp_path / "run")
    assert run.header.skipped == []
    for row in run.saved:
        fused = row["model"] != "majority"
        assert isinstance(om.load_model(row["folder"]).estimator, Pipeline) == fused
        fit = run.predictions[run.predictions["model"] == row["model"]]
        shares = om.predict(row["folder"], stores, ids=fit["id"].tolist()).values
        np.testing.assert_allclose(shares[:, 1], fit["probability"], atol=1e-6)
    with pytest.raises(ExperimentError, match="frame features need a single store"):
        om.run_experiment(structs.replace(zoo, estimators=("frame-mil",)), tmp_path / "frames")
