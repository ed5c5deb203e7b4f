"""The zoo: from features to models, their evaluation, and reports.

Every everyday name is here, imported when it is first used, and each command calls one of them::

    import obygaze_models as om

    data = om.load_dataset("manifests/mine", "stores/xclip.zarr", positives=["S"], negatives=["EN"])
    cross_val_score(om.MLPProbe(), data.X, data.y, groups=data.groups, cv=om.LeaveFilmOut())
    run = om.run_experiment("sure.toml", "runs/sure")
    run.scores()
    om.report(run, "report.html")
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from obygaze_features.common.lazy import lazy_names

if TYPE_CHECKING:
    from obygaze_models.api import compare as compare
    from obygaze_models.api import report as report
    from obygaze_models.dataset import ClipDataset, load_dataset
    from obygaze_models.estimators.attention import AttentionProbe, FrameMIL
    from obygaze_models.estimators.baselines import FilmPrior
    from obygaze_models.estimators.bottlenecks import (
        ConceptBottleneck,
        HybridBottleneck,
        OracleBottleneck,
    )
    from obygaze_models.estimators.concepts import ConceptBank, RandomDirections
    from obygaze_models.estimators.logistic import LogisticProbe
    from obygaze_models.estimators.mlp import MLPProbe
    from obygaze_models.estimators.registry import make_estimator
    from obygaze_models.estimators.svm import LinearSVMProbe
    from obygaze_models.experiments.experiment import Experiment, load_experiment
    from obygaze_models.experiments.run import run_experiment
    from obygaze_models.experiments.run_folder import Run, load_run
    from obygaze_models.explain.moment_scores import evaluate_moments
    from obygaze_models.explain.moments import Moments, find_moments
    from obygaze_models.inference import (
        FramePredictions,
        Predictions,
        evaluate,
        predict,
        predict_frames,
    )
    from obygaze_models.persistence import load_model, save_model
    from obygaze_models.protocols import (
        LeakFree,
        LeaveFilmOut,
        ManifestSplit,
        OfficialSplit,
        PaperSplit,
        Released,
    )
    from obygaze_models.reproduce.reproduce import reproduce as reproduce

_ROOMS = {
    "AttentionProbe": "estimators.attention",
    "ClipDataset": "dataset",
    "ConceptBank": "estimators.concepts",
    "ConceptBottleneck": "estimators.bottlenecks",
    "Experiment": "experiments.experiment",
    "FilmPrior": "estimators.baselines",
    "FrameMIL": "estimators.attention",
    "FramePredictions": "inference",
    "HybridBottleneck": "estimators.bottlenecks",
    "LeakFree": "protocols",
    "LeaveFilmOut": "protocols",
    "LinearSVMProbe": "estimators.svm",
    "LogisticProbe": "estimators.logistic",
    "MLPProbe": "estimators.mlp",
    "ManifestSplit": "protocols",
    "Moments": "explain.moments",
    "OfficialSplit": "protocols",
    "OracleBottleneck": "estimators.bottlenecks",
    "PaperSplit": "protocols",
    "Predictions": "inference",
    "RandomDirections": "estimators.concepts",
    "Released": "protocols",
    "Run": "experiments.run_folder",
    "compare": "api",
    "evaluate": "inference",
    "evaluate_moments": "explain.moment_scores",
    "find_moments": "explain.moments",
    "load_dataset": "dataset",
    "load_experiment": "experiments.experiment",
    "load_model": "persistence",
    "load_run": "experiments.run_folder",
    "make_estimator": "estimators.registry",
    "predict": "inference",
    "predict_frames": "inference",
    "report": "api",
    "reproduce": "reproduce.reproduce",
    "run_experiment": "experiments.run",
    "save_model": "persistence",
}

__all__ = [
    "AttentionProbe",
    "ClipDataset",
    "ConceptBank",
    "ConceptBottleneck",
    "Experiment",
    "FilmPrior",
    "FrameMIL",
    "FramePredictions",
    "HybridBottleneck",
    "LeakFree",
    "LeaveFilmOut",
    "LinearSVMProbe",
    "LogisticProbe",
    "MLPProbe",
    "ManifestSplit",
    "Moments",
    "OfficialSplit",
    "OracleBottleneck",
    "PaperSplit",
    "Predictions",
    "RandomDirections",
    "Released",
    "Run",
    "compare",
    "evaluate",
    "evaluate_moments",
    "find_moments",
    "load_dataset",
    "load_experiment",
    "load_model",
    "load_run",
    "make_estimator",
    "predict",
    "predict_frames",
    "report",
    "reproduce",
    "run_experiment",
    "save_model",
]

__getattr__ = lazy_names(__name__, _ROOMS)


def __dir__() -> list[str]:
    return sorted(__all__)


class _FrontDoor(ModuleType):
    """Keeps `report` and `reproduce` the functions, also once the rooms of that name are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ROOMS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
