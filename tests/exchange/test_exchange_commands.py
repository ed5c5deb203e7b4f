"""Commands that send, fetch, export and import: their output, and one-line errors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.store.export import export
from tests.kit.files import refused, write
from tests.kit.store import Malice, a_manifest, a_store, pack

RECIPES = {
    "key.toml": "precison = 'x'",
}
URL = "https://ann:secret@lab.example/toy.zarr?token=secret"
#: Exit code, command, facts. An import without -o writes output.zarr for the manifest.
SLIPS = [
    *((2, command, "https://lab.example/toy.zarr is a URL", "stores pull")
      for command in (f"push {URL} output.zip", f"import {URL}", f"repair {URL}")),
    (1, "push open.zarr output.zip", "is still open", "stores finalise"),
    (1, "push toy.zarr toy.zip", "toy.zip already exists; choose another name"),
    (1, "pull nowhere.zip -o output.zarr", "nowhere.zip does not exist"),
    (1, "push toy.zip output.zip", "is read-only", "stores pull toy.zip"),
    *((2, f"push toy.zarr {target}", "x.zarr: push to NAME.zip, s3://", "stores pull")
      for target in ("https://lab.example/x.zarr", "x.zarr")),
    (2, "push toy.zarr hf://models/x", "use hf://datasets/OWNER/NAME"),
    (1, "pull open.zarr -o output.zarr", "is still open", "stores subset"),
    (2, "export toy.zarr -o output.csv", "output.csv: the file's name must end in .h5 or .hdf5"),
    (2, "import nowhere", "nowhere: import a folder"),
    (1, "import empty", "none of the 40 items", "name one tt1/tt1-000.npy"),
    (1, "import text", "none of the 40 items", "text/tt1/tt1_0.pth is not a file of PyTorch"),
    (1, "import features -o toy.zarr", "toy.zarr cannot be continued", "different items"),
    (2, "import X.npy", "X.npy: import", "with ids (--ids)"),
    (1, "import objects.npy --ids manifest/items.csv", "objects.npy cannot be read as NumPy"),
    (1, "import X.npy --ids short.csv", "for each of 2 ids", "(40, 3)"),
    (1, "import flat.npy --ids manifest/items.csv", "one row for each", "(40,)"),
    *((2, f"import features --recipe {name}", name, fact) for name, fact in (
        ("key.toml", "unknown field `precison`"), ("X.npy", "is not valid TOML"))),
]  # fmt: skip


@pytest.fixture(scope="module")
def workspace(final_store, tmp_path_factory):
    """Stores, archives, matrices, ids and recipes. Do not change them."""
    folder = tmp_path_factory.mktemp("slips")
    shutil.copytree(final_store, folder / "toy.zarr")
    a_store(folder / "open.zarr")
    pack(final_store, folder / "toy.zip")
    export(of.open_store(final_store), folder / "X.h5")
    (folder / "empty").mkdir()
    write(folder / "text/tt1/tt1_0.pth", "x")
    (folder / "features/tt1").mkdir(parents=True)
    np.save(folder / "features/tt1/tt1_0.npy", np.ones(3, np.float32))
    a_manifest(40).save(folder / "manifest")
    for name, text in RECIPES.items():
        write(folder / name, text)
    rows = np.ones((40, 3), np.float32)
    for name, values in {
        "X": rows, "flat": rows[:, 0],
        "objects": np.array([Malice(folder / "trace")] * 40, object),
    }.items():  # fmt: skip
        np.save(folder / f"{name}.npy", values)
    write(folder / "short.csv", "id", "tt1-001", "tt1-002")
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


def test_an_import_names_unknown_and_failed_clips(obygaze, tmp_path, monkeypatch):
    def bring(arguments, output="s.zarr", code=0):
        words = [*arguments.split(), "--manifest", "manifest", "-o", output, "--json"]
        return json.loads(obygaze("stores", "import", *words, code=code).stdout)

    monkeypatch.chdir(tmp_path)
    a_manifest(4).save(tmp_path / "manifest")
    (tmp_path / "features/tt1").mkdir(parents=True)
    for row in (0, 1, 3):
        np.save(f"features/tt1/tt1_{row}.npy", np.full(3, row, np.float32))
    facts = bring("features", code=3)
    assert facts["rows"] == {"all": 4, "done": 3, "failed": 1, "to_do": 0}
    assert "name one tt1/tt1-002.npy" in facts["failures"]["tt1-002"]
    assert facts["unknown"] == ["backbone", "weights", "preprocessing", "precision"]
    np.save("features/tt1/tt1_2.npy", np.full(3, 2, np.float32))
    bring("features", code=3)  # a failed row is not tried again
    assert bring("features", output="again.zarr")["failures"] == {}
    of_sound = "[preprocessing.extractor]", 'class = "ClapFeatureExtractor"'
    write(tmp_path / "made.toml", 'precision = "float32"', "[backbone]", 'name = "x"', *of_sound)
    made = bring("features --recipe made.toml", output="t.zarr")
    assert made["unknown"] == ["weights", "preprocessing"]
