"""Models as ONNX, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from obygaze_features.errors import ExperimentError, OutputExists
from obygaze_features.store import open_store
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.logistic import LogisticProbe
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.train import train_model
from obygaze_models.inference import predict
from obygaze_models.onnx_export import export_onnx
from obygaze_models.persistence import save_model


def experiment(world, *estimators) -> Experiment:
    return Experiment(
        name="Sure",
        manifest=world.manifest,
        store=world.store,
        split="ten",
        positives=("S",),
        train_negatives=("HN",),
        estimators=estimators,
    )


@pytest.mark.parametrize(
    "estimator",
    [
        "mlp",
        {"name": "mlp", "hidden_layer_sizes": (16, 8), "calibrate": True},
        "logistic",
    ],
    ids=["mlp", "deep", "logistic"],
)
def test_a_runtime_of_another_kind_says_the_same(world, tmp_path, estimator):
    train_model(experiment(world, estimator), tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (said,) = session.run(None, {"features": world.features})
    ours = predict(tmp_path / "model", open_store(world.store))
    np.testing.assert_allclose(said, ours.probabilities, atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"] == "HN, S"
    with pytest.raises(OutputExists):
        export_onnx(tmp_path / "model", tmp_path / "model.onnx")


@pytest.mark.parametrize("output", ["distance", "decision"])
def test_a_linear_bottleneck_is_one_layer(tmp_path, output):
    chance = np.random.default_rng(3)
    shows = chance.random((300, 3)) < 0.4
    clips = (chance.normal(size=(300, 12)) + shows @ (2 * np.eye(3, 12))).astype(np.float32)
    labels = shows.sum(axis=1) > 1
    bank = ConceptBank(C=0.1, output=output)
    model = ConceptBottleneck(bank, LogisticProbe(C=0.1)).fit(clips, labels, concepts=shows)
    about = {
        "task": "few vs many", "classes": ["few", "many"],
        "features": {"array": "native", "backbone": {"weights_sha256": "0" * 64}},
    }  # fmt: skip
    save_model(model, tmp_path / "model", about)
    export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (said,) = session.run(None, {"features": clips})
    np.testing.assert_allclose(said, model.predict_proba(clips), atol=1e-5)


def test_what_is_no_chain_of_layers_is_refused(world, tmp_path):
    train_model(experiment(world, "knn"), tmp_path / "model")
    with pytest.raises(ExperimentError, match="KNeighborsClassifier, which is no chain"):
        export_onnx(tmp_path / "model", tmp_path / "model.onnx")


def test_the_command(obygaze, world, tmp_path):
    train_model(experiment(world, "mlp"), tmp_path / "model")
    result = obygaze("models", "export", tmp_path / "model", "-o", tmp_path / "sure.onnx")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "sure.onnx").stat().st_size > 1000
