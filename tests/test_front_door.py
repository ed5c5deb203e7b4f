"""`import obygaze_features, obygaze_models`: the public names, and how quickly they come."""

import json
import subprocess
import sys

import pytest

import obygaze_features as of
import obygaze_models as om

HEAVY = {"av", "matplotlib", "pandas", "pyarrow", "torch", "transformers", "xarray"}
#: What is imported, one after the other, and what must not have been loaded by then.
STEPS = [
    ("import obygaze_features, obygaze_models", HEAVY | {"numpy", "sklearn", "zarr"}),
    *((f"from obygaze_features import {name}", HEAVY)
      for name in ("Manifest", "Store", "Timelines", "merge", "open_store", "pull")),
    ("from obygaze_models import load_dataset, load_run", {"torch"}),
]  # fmt: skip


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


def test_imports_load_nothing_heavy():
    code = "import json, sys\nloaded = []\n"
    for statement, _ in STEPS:
        code += f"{statement}\nloaded.append(sorted(sys.modules))\n"
    loaded = json.loads(run_python(f"{code}print(json.dumps(loaded))"))
    for (statement, unwanted), modules in zip(STEPS, loaded, strict=True):
        assert not unwanted & set(modules), statement


@pytest.mark.night
@pytest.mark.parametrize("package", ["obygaze_features", "obygaze_models"])
def test_import_takes_under_100_ms(package):
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    seconds = float(run_python(code.format(f"import {package}")))
    assert seconds < max(0.1, 2 * float(run_python(code.format("import json, typing"))))
