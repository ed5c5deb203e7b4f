"""`import obygaze_features`: the public names, and how quickly they come."""

import subprocess
import sys

import pytest

import obygaze_features

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
        "open_store",
        "pull",
        "stratified",
    ]


@pytest.mark.parametrize("name", obygaze_features.__all__)
def test_public_name_is_documented(name):
    value = getattr(obygaze_features, name)
    assert value.__doc__
    assert value.__name__ == name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'open_stor'"):
        _ = obygaze_features.open_stor


def loaded(statement: str, modules: tuple[str, ...]) -> list[str]:
    """Which of these modules a statement imports, in a fresh interpreter."""
    return run_python(f"import sys; {statement}; print(*set(sys.modules) & {set(modules)})").split()


def test_import_loads_nothing_heavy():
    assert loaded("import obygaze_features", LIGHT + HEAVY) == []


def test_import_takes_under_100_ms():
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    seconds = float(run_python(code.format("import obygaze_features")))
    assert seconds < max(0.1, 2 * float(run_python(code.format("import json, typing"))))


@pytest.mark.parametrize("name", ["Manifest", "Store", "Timelines", "merge", "open_store", "pull"])
def test_reading_needs_no_torch(name):
    assert loaded(f"from obygaze_features import {name}", HEAVY) == []
