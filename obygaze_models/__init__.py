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
    from obygaze_models.experiments.experiment import Experiment, load_experiment
    from obygaze_models.experiments.run import run_experiment
    from obygaze_models.experiments.run_folder import Run, load_run
    from obygaze_models.inference import Predictions, evaluate, predict
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
    "ClipDataset": "dataset",
    "Experiment": "experiments.experiment",
    "LeakFree": "protocols",
    "LeaveFilmOut": "protocols",
    "ManifestSplit": "protocols",
    "OfficialSplit": "protocols",
    "PaperSplit": "protocols",
    "Predictions": "inference",
    "Released": "protocols",
    "Run": "experiments.run_folder",
    "compare": "api",
    "evaluate": "inference",
    "load_dataset": "dataset",
    "load_experiment": "experiments.experiment",
    "load_model": "persistence",
    "load_run": "experiments.run_folder",
    "predict": "inference",
    "report": "api",
    "reproduce": "reproduce.reproduce",
    "run_experiment": "experiments.run",
    "save_model": "persistence",
}

__all__ = [
    "ClipDataset",
    "Experiment",
    "LeakFree",
    "LeaveFilmOut",
    "ManifestSplit",
    "OfficialSplit",
    "PaperSplit",
    "Predictions",
    "Released",
    "Run",
    "compare",
    "evaluate",
    "load_dataset",
    "load_experiment",
    "load_model",
    "load_run",
    "predict",
    "report",
    "reproduce",
    "run_experiment",
    "save_model",
]

__getattr__ = lazy_names(__name__, _ROOMS)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _FrontDoor(ModuleType):
    """Keeps `report` and `reproduce` the functions, also once the rooms of that name are loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _ROOMS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
