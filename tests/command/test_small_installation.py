"""``pip install obygaze`` alone: what works, and how missing extras are named."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.workspace import copy_data
from tests.kit.run import World

HIDDEN = (
    "PIL aiohttp av fsspec huggingface_hub jinja2 matplotlib pandas "
    "ray s3fs safetensors scipy sentencepiece sklearn threadpoolctl torch "
    "transformers xarray"
)
SCRIPT = """
import json, sys
from importlib import metadata
from importlib.machinery import PathFinder
from click.testing import CliRunner

hidden, find, version = sys.argv[1].split(), PathFinder.find_spec, metadata.version
modules = {"pillow": "PIL", "scikit-learn": "sklearn"}
modules["sentence-transformers"] = "transformers"

def version_of(name):
    if modules.get(name, name.replace("-", "_")) in hidden:
        raise metadata.PackageNotFoundError(name)
    return version(name)

metadata.version = version_of
PathFinder.find_spec = lambda name, *at: None if name.split(".")[0] in hidden else find(name, *at)
from obygaze_models.commands.main import main
for call in json.loads(sys.argv[2]):
    result = CliRunner().invoke(main, call)
    print(json.dumps([result.exit_code, result.stdout, result.stderr, repr(result.exception)]))
"""


def run_without_extras(calls: list[list[str]], *, but: str = "") -> list[list[str | int]]:
    """Return code, output, errors and exception of each call; only the extras in `but` exist."""
    hidden = {*HIDDEN.split()} - {*but.split()}
    command = [sys.executable, "-c", SCRIPT, " ".join(hidden), json.dumps(calls)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


EXTRAS = {
    "models report": (
        "PIL jinja2 matplotlib pandas safetensors scipy sklearn threadpoolctl torch",
        "models run golden.toml -o new",
        "models train golden.toml --estimator svm -o svm",
        "models predict svm xclip.zarr -o predictions.csv",
        "report new -o report.html",
    ),
    "extract": (
        "PIL av huggingface_hub safetensors sentencepiece torch transformers",
        "features demo clips --count 1 --scenes 2 --seconds 1",
        "manifests import csv clips/annotations.csv -o made",
        "features extract made --videos clips/videos --backbone tiny-xclip -o stores",
    ),
}
"""Extras that README names together: what they install, and what they are enough for."""


@pytest.mark.night
@pytest.mark.parametrize("extras", EXTRAS)
def test_each_extra_suffices_for_its_job(
    extras: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy_data(tmp_path / "data"))
    modules, *words = EXTRAS[extras]
    calls = [call.split() for call in words]
    results = run_without_extras(calls, but=modules)
    for call, (code, _, errors, problem) in zip(calls, results, strict=True):
        assert code == 0, (call, errors, problem)


CALLS = [
    ("models", "models run e.toml -o run"),
    ("report", "report run -o r.html"),
    ("models", "reproduce table2 --manifest MANIFEST"),
    ("extract", "features demo clips"),
    ("extract", "features extract MANIFEST --videos . --backbone tiny-xclip -o stores"),
    ("extract", "features saliency MANIFEST --images . --backbone tiny-xclip --text x -o maps"),
    ("language", "features caption-scores captions.csv --language-model gpt2 -o scores.csv"),
    ("remote", "stores info s3://bucket/a.zarr"),
]


def test_a_missing_extra_is_named_in_one_line(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("captions.csv").write_text("id,caption,object\na,A man reads.,book\n")
    paths = {"MANIFEST": str(world.manifest), "STORE": str(world.store)}
    calls = [[paths.get(word, word) for word in call.split()] for _, call in CALLS]
    results = run_without_extras(calls)
    for (extra, call), (code, _, errors, problem) in zip(CALLS, results, strict=True):
        named = re.findall(r"pip install 'obygaze\[(\w+)\]'", str(errors))
        assert (code, named) == (1, [extra]), (call, errors, problem)
        assert str(errors).count("\n") == 1, errors
