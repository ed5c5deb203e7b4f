"""A saved model as an ONNX file, for programs that do not speak Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.files import refuse_to_overwrite, write_bytes
from obygaze_features.common.package import need
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.classes import as_logits
from obygaze_models.saved.persistence import load_model

OPSET = 17
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]


def export_onnx(model: Path, output: Path, *, overwrite: bool = False) -> None:
    """Write a model as ONNX: features [N, D] in, probabilities [N, classes] out.

    Parameters
    ----------
    model
        Its folder. Networks, logistic regression and bottlenecks with a linear head can be written.
    output
        The file.
    overwrite
        Replace an earlier file.
    """
    onnx = need("onnx", extra="onnx")
    refuse_to_overwrite(output, overwrite=overwrite)
    estimator, about = load_model(model)
    layers = _layers(estimator, model)
    graph = _graph(onnx, layers)
    written = onnx.helper.make_model(
        graph, producer_name="obygaze", opset_imports=[onnx.helper.make_opsetid("", OPSET)]
    )
    written.ir_version = 8  # what opset 17 came with: older runtimes refuse newer ones
    onnx.helper.set_model_props(
        written,
        {
            "task": about["task"],
            "classes": ", ".join(about["classes"]),
            "array": about["features"]["array"],
            "backbone_weights_sha256": about["features"]["backbone"]["weights_sha256"],
        },
    )
    onnx.checker.check_model(written)
    write_bytes(output, written.SerializeToString())


def _layers(estimator: Any, path: Path) -> list[Layer]:
    """The estimator as linear layers, with a ReLU between them and a softmax at the end."""
    kind = type(estimator).__name__
    linear: Any = estimator if kind == "LogisticProbe" else getattr(estimator, "head_", None)
    if kind == "MLPProbe":
        *hidden, (weight, offset) = zip(estimator.coefs_, estimator.intercepts_, strict=True)
        scale = estimator.temperature_
        layers = [*hidden, (weight / scale, offset / scale)]
    elif (
        kind in ("LogisticProbe", "ConceptBottleneck")
        and linear is not None
        and hasattr(linear, "coef_")
    ):
        # A linear map is known from a row of zeros and from each feature alone.
        rows = np.vstack([np.zeros(estimator.n_features_in_), np.eye(estimator.n_features_in_)])
        if kind == "ConceptBottleneck":
            rows = estimator.concept_scores(rows)
        logits = as_logits(linear.decision_function(rows))
        offset, weight = logits[0], logits[1:] - logits[0]
        layers = [(weight, offset)]
    else:
        raise ExperimentError(
            f"{path} is a {kind}, which is no chain of linear layers and is not written as ONNX; "
            "networks, logistic regression and bottlenecks with a linear head are"
        )
    return [(np.asarray(w, np.float32), np.asarray(b, np.float32)) for w, b in layers]


def _graph(onnx: Any, layers: list[Layer]) -> Any:
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    nodes, constants, last = [], [], "features"
    for place, (weight, offset) in enumerate(layers):
        constants += [
            numpy_helper.from_array(weight, f"weight{place}"),
            numpy_helper.from_array(offset, f"offset{place}"),
        ]
        nodes.append(
            helper.make_node("Gemm", [last, f"weight{place}", f"offset{place}"], [f"sum{place}"])
        )
        last = f"sum{place}"
        if place < len(layers) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"hidden{place}"]))
            last = f"hidden{place}"
    nodes.append(helper.make_node("Softmax", [last], ["probabilities"], axis=1))
    real = onnx.TensorProto.FLOAT
    return helper.make_graph(
        nodes,
        "obygaze",
        [helper.make_tensor_value_info("features", real, ["clips", layers[0][0].shape[0]])],
        [helper.make_tensor_value_info("probabilities", real, ["clips", layers[-1][0].shape[1]])],
        constants,
    )
