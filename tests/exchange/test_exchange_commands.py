"""Commands that send, fetch, export and import: their output, and one-line errors."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.store.transfer import pack
from tests.kit.files import refused, write
from tests.kit.store import Malice, a_manifest, a_store

URL = "https://ann:secret@lab.example/toy.zarr?token=secret"
#: Exit code, command, facts. An import without -o writes output.zarr for the manifest.
SLIPS = [
    (2, f"push {URL} output.zip", "https://lab.example/toy.zarr is a URL", "stores pull"),
    (1, "push open.zarr output.zip", "is still open", "stores finalise"),
    (1, "push toy.zarr toy.zip", "toy.zip already exists; choose another name"),
    (1, "push toy.zip output.zip", "is read-only", "stores pull toy.zip"),
    (2, "push toy.zarr x.zarr", "x.zarr: cannot push there; push to s3://", "stores pull"),
    (2, "push toy.zarr hf://models/x", "use hf://datasets/OWNER/NAME"),
    (1, "pull open.zarr -o output.zarr", "is still open", "stores subset"),
    (2, "export toy.zarr -o output.csv", "output.csv: the file's name must end in .h5 or .hdf5"),
    (1, "import empty", "no item can be read (40 tried)", "name its file tt1/tt1-000.npy"),
    (1, "import features -o toy.zarr", "toy.zarr already exists", "--overwrite"),
    (2, "import X.npy", "X.npy has no ids", "--ids"),
    (1, "import objects.npy --ids manifest/items.csv", "objects.npy cannot be read as NumPy"),
    (1, "import flat.npy --ids manifest/items.csv", "a row per id", "(40,)"),
    (2, "import features --recipe key.toml", "key.toml", "unknown field `precison`"),
]  # fmt: skip


@pytest.fixture(scope="module")
def workspace(final_store, tmp_path_factory):
    """Stores, archives, matrices, ids and recipes. Do not change them."""
    folder = tmp_path_factory.mktemp("slips")
    shutil.copytree(final_store, folder / "toy.zarr")
    a_store(folder / "open.zarr")
    pack(final_store, folder / "toy.zip")
    (folder / "empty").mkdir()
    (folder / "features/tt1").mkdir(parents=True)
    np.save(folder / "features/tt1/tt1_0.npy", np.ones(3, np.float32))
    a_manifest(40).save(folder / "manifest")
    write(folder / "key.toml", "precison = 'x'")
    rows = np.ones((40, 3), np.float32)
    for name, values in {
        "X": rows, "flat": rows[:, 0],
        "objects": np.array([Malice(folder / "trace")] * 40, object),
    }.items():  # fmt: skip
        np.save(folder / f"{name}.npy", values)
    return folder


def names_in(folder: Path) -> set[tuple[Path, int]]:
    """Return the contents of a folder with times, without the files of an interrupted transfer."""
    return {
        (path, path.stat().st_mtime_ns * path.is_file())
        for path in folder.rglob("*")
        if ".pulling" not in str(path)
    }


@pytest.mark.parametrize(("code", "command", "facts"), [(c, w, f) for c, w, *f in SLIPS], ids=str)
def test_user_errors_are_one_line(code, command, facts, workspace, obygaze, monkeypatch):
    monkeypatch.chdir(workspace)
    before, words = names_in(workspace), command.split()
    if words[0] == "import":
        words += ["--manifest", "manifest", *(() if "-o" in words else ("-o", "output.zarr"))]
    result = obygaze("stores", *words)
    refused(result, *facts, code=code)
    assert "secret" not in result.output
    assert names_in(workspace) == before
