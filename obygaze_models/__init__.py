# ruff: noqa: F401
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
    from obygaze_models.data.dataset import ClipDataset, load_dataset
    from obygaze_models.data.protocols import (
        LeakFree,
        LeaveFilmOut,
        ManifestSplit,
        OfficialSplit,
        PaperSplit,
        Released,
    )
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
    from obygaze_models.experiments.compare import compare as compare
    from obygaze_models.experiments.experiment import Experiment, load_experiment
    from obygaze_models.experiments.run import run_experiment
    from obygaze_models.experiments.run_folder import Run, load_run
    from obygaze_models.explain.moment_scores import evaluate_moments
    from obygaze_models.explain.moments import Moments, find_moments
    from obygaze_models.report.page import report as report
    from obygaze_models.reproduce.reproduce import reproduce as reproduce
    from obygaze_models.saved.inference import (
        FramePredictions,
        Predictions,
        evaluate,
        predict,
        predict_frames,
    )
    from obygaze_models.saved.persistence import load_model, save_model

_ROOMS = {
    "AttentionProbe": "estimators.attention",
    "ClipDataset": "data.dataset",
    "ConceptBank": "estimators.concepts",
    "ConceptBottleneck": "estimators.bottlenecks",
    "Experiment": "experiments.experiment",
    "FilmPrior": "estimators.baselines",
    "FrameMIL": "estimators.attention",
    "FramePredictions": "saved.inference",
    "HybridBottleneck": "estimators.bottlenecks",
    "LeakFree": "data.protocols",
    "LeaveFilmOut": "data.protocols",
    "LinearSVMProbe": "estimators.svm",
    "LogisticProbe": "estimators.logistic",
    "MLPProbe": "estimators.mlp",
    "ManifestSplit": "data.protocols",
    "Moments": "explain.moments",
    "OfficialSplit": "data.protocols",
    "OracleBottleneck": "estimators.bottlenecks",
    "PaperSplit": "data.protocols",
    "Predictions": "saved.inference",
    "RandomDirections": "estimators.concepts",
    "Released": "data.protocols",
    "Run": "experiments.run_folder",
    "compare": "experiments.compare",
    "evaluate": "saved.inference",
    "evaluate_moments": "explain.moment_scores",
    "find_moments": "explain.moments",
    "load_dataset": "data.dataset",
    "load_experiment": "experiments.experiment",
    "load_model": "saved.persistence",
    "load_run": "experiments.run_folder",
    "make_estimator": "estimators.registry",
    "predict": "saved.inference",
    "predict_frames": "saved.inference",
    "report": "report.page",
    "reproduce": "reproduce.reproduce",
    "run_experiment": "experiments.run",
    "save_model": "saved.persistence",
}

__all__ = list(_ROOMS)

__getattr__ = lazy_names(__name__, _ROOMS)


def __dir__() -> list[str]:
    return sorted(__all__)


class _FrontDoor(ModuleType):
    """Keeps `report` and `reproduce` the functions, also once the rooms of that name are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ROOMS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
