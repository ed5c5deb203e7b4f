"""`import obygaze_features, obygaze_models`: the public names, and how quickly they come."""

import subprocess
import sys

import pytest

import obygaze_features as of
import obygaze_models as om


def run_python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("package", [of, om])
def test_public_names_are_documented(package):
    for name in 2 * package.__all__:  # functions stay when rooms of their name are loaded
        value = getattr(package, name)
        assert value.__doc__, name
        assert value.__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'open_stor'"):
        _ = package.open_stor


@pytest.mark.night
@pytest.mark.parametrize("package", ["obygaze_features", "obygaze_models"])
def test_import_takes_under_100_ms(package):
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    seconds = float(run_python(code.format(f"import {package}")))
    assert seconds < max(0.1, 2 * float(run_python(code.format("import json, typing"))))
