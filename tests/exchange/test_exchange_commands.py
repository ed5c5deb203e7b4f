"""Commands that send, fetch, export and import: their output, and one-line errors."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from tests.kit.files import refused, write
from tests.kit.store import Malice, a_manifest, a_store

URL = "https://ann:secret@lab.example/toy.zarr?token=secret"


@pytest.fixture(scope="module")
def workspace(final_store, tmp_path_factory):
    """Stores, archives, matrices, ids and recipes. Do not change them."""
    folder = tmp_path_factory.mktemp("slips")
    shutil.copytree(final_store, folder / "toy.zarr")
    a_store(folder / "open.zarr")
    of.pack(final_store, folder / "toy.zip")
    (folder / "empty").mkdir()
    a_manifest(40).save(folder / "manifest")
    write(folder / "key.toml", "precison = 'x'")
    np.save(folder / "X.npy", np.ones((40, 3), np.float32))
    evil = Malice(folder / "trace")
    np.save(folder / "objects.npy", np.array([evil] * 40, object))
    return folder


def times_in(folder: Path) -> dict[Path, int]:
    """Return the contents of a folder with times, without the files of an interrupted transfer."""
    times = {}
    for path in folder.rglob("*"):
        if ".pulling" not in str(path):
            times[path] = path.stat().st_mtime_ns if path.is_file() else 0
    return times


@pytest.mark.parametrize(
    ("code", "command", "fact"),
    [
        (2, f"push {URL} output.zip", "https://lab.example/toy.zarr is a URL"),
        (1, "push open.zarr output.zip", "is still open"),
        (1, "push toy.zarr toy.zip", "toy.zip already exists; choose another name"),
        (2, "push toy.zarr s3://lab", "s3://lab: cannot push there"),
        (2, "push toy.zarr hf://models/x", "use hf://datasets/OWNER/NAME"),
        (2, "import X.npy", "X.npy has no ids"),
        (1, "import objects.npy --ids manifest/items.csv", "objects.npy cannot be read as NumPy"),
        (2, "import empty --recipe key.toml", "unknown field `precison`"),
    ],
)
def test_user_errors_are_one_line(code, command, fact, workspace, obygaze, monkeypatch):
    monkeypatch.chdir(workspace)
    before = times_in(workspace)
    words = command.split()
    if words[0] == "import":
        words += ["--manifest", "manifest", "-o", "output.zarr"]
    result = obygaze("stores", *words)
    refused(result, fact, code=code)
    assert "secret" not in result.output
    assert times_in(workspace) == before
