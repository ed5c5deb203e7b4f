"""`import obygaze_features, obygaze_models`: the public names, and how quickly they come."""

import subprocess
import sys

import pytest

import obygaze_features
import obygaze_models

LIGHT = ("numpy", "zarr")
HEAVY = ("av", "matplotlib", "pandas", "pyarrow", "torch", "transformers", "xarray")


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_public_names():
    assert obygaze_features.__all__ == [
        "Manifest",
        "ObygazeError",
        "Store",
        "Timelines",
        "extract",
        "import_features",
        "leave_film_out",
        "load_backbone",
        "merge",
        "obygaze_scheme",
        "open_store",
        "pull",
        "search",
        "stratified",
    ]
    assert obygaze_models.__all__ == [
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


PACKAGES = (obygaze_features, obygaze_models)


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__]
)
def test_public_name_is_documented(package, name):
    value = getattr(package, name)
    assert value.__doc__
    assert value.__name__ == name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'open_stor'"):
        _ = obygaze_features.open_stor


def loaded(statement: str, modules: tuple[str, ...]) -> list[str]:
    """Which of these modules a statement imports, in a fresh interpreter."""
    return run_python(f"import sys; {statement}; print(*set(sys.modules) & {set(modules)})").split()


@pytest.mark.parametrize("package", ["obygaze_features", "obygaze_models"])
def test_import_loads_nothing_heavy(package):
    assert loaded(f"import {package}", (*LIGHT, *HEAVY, "sklearn")) == []


@pytest.mark.night
@pytest.mark.parametrize("package", ["obygaze_features", "obygaze_models"])
def test_import_takes_under_100_ms(package):
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    seconds = float(run_python(code.format(f"import {package}")))
    assert seconds < max(0.1, 2 * float(run_python(code.format("import json, typing"))))


@pytest.mark.parametrize("name", ["Manifest", "Store", "Timelines", "merge", "open_store", "pull"])
def test_reading_needs_no_torch(name):
    assert loaded(f"from obygaze_features import {name}", HEAVY) == []


@pytest.mark.gate
def test_functions_stay_when_rooms_of_their_name_are_loaded():
    code = (
        "import obygaze_models as om, obygaze_models.report.page, obygaze_models.reproduce.context"
    )
    assert run_python(f"{code}; print(om.report.__name__, om.reproduce.__name__)").split() == [
        "report",
        "reproduce",
    ]


@pytest.mark.gate
def test_a_dataset_needs_no_torch():
    assert loaded("from obygaze_models import load_dataset, load_run", ("torch",)) == []
