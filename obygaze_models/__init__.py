# ruff: noqa: F401
# mypy: implicit-reexport
"""The zoo: models trained on features, their evaluation, and reports.

Import the most used names from here. Each is loaded on first use::

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

from obygaze_features.common import lazy_names

if TYPE_CHECKING:
    from obygaze_models.data.dataset import ClipDataset, load_dataset
    from obygaze_models.data.example import load_example
    from obygaze_models.data.protocols import (
        LeaveFilmOut,
    )
    from obygaze_models.estimators.attention import FrameMIL
    from obygaze_models.estimators.baselines import FilmPrior
    from obygaze_models.estimators.bottlenecks import (
        ConceptBottleneck,
    )
    from obygaze_models.estimators.concepts import ConceptBank, RandomDirections
    from obygaze_models.estimators.fusion import StoreFusion
    from obygaze_models.estimators.mlp import MLPProbe
    from obygaze_models.estimators.registry import make_estimator
    from obygaze_models.estimators.svm import LinearSVMProbe
    from obygaze_models.experiments.compare import compare as compare
    from obygaze_models.experiments.curve import learning_curve as learning_curve
    from obygaze_models.experiments.experiment import Experiment, load_experiment
    from obygaze_models.experiments.run import run_experiment
    from obygaze_models.experiments.tables import Run, load_run
    from obygaze_models.experiments.train import train_model
    from obygaze_models.explain.moments import find_moments, frame_table
    from obygaze_models.explain.tcav import tcav as tcav
    from obygaze_models.report.page import report as report
    from obygaze_models.reproduce.reproduce import reproduce as reproduce
    from obygaze_models.saved.about import About
    from obygaze_models.saved.model import load_model, save_model
    from obygaze_models.saved.predict import (
        FramePredictions,
        Predictions,
        evaluate,
        predict,
        predict_frames,
    )

_NAMES = {
    "data.dataset": ["ClipDataset", "load_dataset"],
    "data.example": ["load_example"],
    "data.protocols": [
        "LeaveFilmOut",
    ],
    "estimators.attention": ["FrameMIL"],
    "estimators.baselines": ["FilmPrior"],
    "estimators.bottlenecks": ["ConceptBottleneck"],
    "estimators.concepts": ["ConceptBank", "RandomDirections"],
    "estimators.fusion": ["StoreFusion"],
    "estimators.mlp": ["MLPProbe"],
    "estimators.registry": ["make_estimator"],
    "estimators.svm": ["LinearSVMProbe"],
    "experiments.compare": ["compare"],
    "experiments.curve": ["learning_curve"],
    "experiments.experiment": ["Experiment", "load_experiment"],
    "experiments.run": ["run_experiment"],
    "experiments.tables": ["Run", "load_run"],
    "experiments.train": ["train_model"],
    "explain.moments": ["find_moments", "frame_table"],
    "explain.tcav": ["tcav"],
    "report.page": ["report"],
    "reproduce.reproduce": ["reproduce"],
    "saved.about": ["About"],
    "saved.model": ["load_model", "save_model"],
    "saved.predict": ["FramePredictions", "Predictions", "evaluate", "predict", "predict_frames"],
}
_ROOMS = {name: room for room, names in _NAMES.items() for name in names}

__all__ = sorted(_ROOMS)

__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__


class _FrontDoor(ModuleType):
    """A module in which subpackages do not replace the functions `report` and `reproduce`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ROOMS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
