"""Several stores as one model: informative and missing stores, and saved models."""

import numpy as np
import pytest
from msgspec import structs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest
from tests.kit import run as kit


@pytest.fixture(scope="module")
def zoo(marked, tmp_path_factory):
    """Stores of features, and of noise of a far larger scale that lacks clips; an experiment."""
    manifest = Manifest.load(marked.manifest)
    kept = [clip for row, clip in enumerate(marked.ids) if row % 9]
    few = manifest.select(ids=kept)
    noise = 100 * np.random.default_rng(1).normal(size=(len(few), 8))
    stores = [marked.store, tmp_path_factory.mktemp("zoo") / "noise.zarr"]
    kit.write_store(stores[1], few, dict(zip(few.ids, noise, strict=True)))
    places = {"manifest": marked.manifest, "store": stores, "split": "three"}
    levels = {"positives": ["S"], "train_negatives": ["HN"]}
    return om.Experiment(name="Zoo", estimators=["logistic"], **places, **levels)


def test_scales_come_from_training_clips_alone(zoo, tmp_path):
    """Compare with scikit-learn on columns scaled by hand, also after saving."""
    run = om.run_experiment(structs.replace(zoo, balance="none"), tmp_path / "run")
    [text] = [own.text for own in run.warnings if own.code == "no-features"]
    assert "noise lacks 11 clips" in text
    data = om.load_dataset(zoo.manifest, zoo.store, positives=["S"], negatives=["HN"])
    assert dict(data.stores) == {"toy": 8, "noise": 8}
    predicted = om.predict(run.saved[0]["folder"], zoo.store, ids=data.ids)
    seen = predicted.table["seen"] == "clip"
    parts = []
    for part in np.split(data.X, [8], axis=1):
        spread = part[seen].var(axis=0).sum() ** 0.5
        parts.append((part - part[seen].mean(axis=0)) / spread)
    scaled = np.hstack(parts)
    oracle = LogisticRegression(solver="liblinear").fit(scaled[seen], data.y[seen])
    shares = predicted.values
    np.testing.assert_allclose(shares, oracle.predict_proba(scaled), atol=1e-3)
    fit = run.predictions[run.predictions["fit"] == 0]
    tested = shares[np.isin(data.ids, fit["id"]), 1]
    np.testing.assert_allclose(fit["probability"], tested, atol=1e-6)
    with pytest.raises(ExperimentError, match="does not fit"):
        om.predict(run.saved[0]["folder"], zoo.store[0])


def test_stores_of_one_name_are_numbered(marked):
    data = om.load_dataset(marked.manifest, [marked.store] * 2)
    assert dict(data.stores) == {"toy": 8, "toy-2": 8}


def test_every_model_of_features_is_fused(zoo, tmp_path):
    names = [{"name": "mlp", "max_iter": 3}, {"name": "pcbm-tree", "bank__C": 0.1}, "majority"]
    changed = structs.replace(zoo, protocol="official", estimators=names)
    run = om.run_experiment(changed, tmp_path / "run")
    assert run.header.skipped == []
    for row in run.saved:
        fused = row["model"] != "majority"
        assert isinstance(om.load_model(row["folder"]).estimator, Pipeline) == fused
        fit = run.predictions[run.predictions["model"] == row["model"]]
        shares = om.predict(row["folder"], zoo.store, ids=fit["id"].tolist()).values
        np.testing.assert_allclose(shares[:, 1], fit["probability"], atol=1e-6)
    with pytest.raises(ExperimentError, match="several stores have no shared frames"):
        om.run_experiment(structs.replace(zoo, estimators=("frame-mil",)), tmp_path / "frames")
