"""Commands that send, fetch, export and import: slips are one line, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import UsageError
from obygaze_features.store.export import export
from obygaze_features.store.pack import pack
from tests.exchange.conftest import Malice
from tests.kit.files import refused, touch, write
from tests.store.making import flip_bit, open_state
from tests.store.toys import a_manifest, a_store

RECIPES = {
    "text.toml": "x",
    "text.json": "{",
    "list.json": "[]",
    "key.toml": "precison = 'x'",
    "backbone.toml": "[backbone]\nnames = 'x'",
    "preprocessing.toml": "[preprocessing]\nsmapling = 'x'",
    "wrong.toml": "[preprocessing]\nprecision = 'x'",
    "word.toml": "backbone = 'x'",
    "number.toml": "[backbone]\nname = 1",
    "config.toml": "[backbone]\nconfig = 1",
    "digest.toml": "[backbone]\nweights_sha256 = 'ab'",
    "date.toml": "[preprocessing]\nwhen = 2020-01-01",
    "made.toml": "precision = 'float32'",
}
URL = "https://ann:secret@lab.example/toy.zarr?token=secret"
#: Exit code, command, facts. An import without -o is one of the manifest into output.zarr.
SLIPS = [
    *((2, command, "https://lab.example/toy.zarr is a URL", "stores pull https://lab.example/toy")
      for command in (f"pack {URL} -o output.zip", f"unpack {URL} -o output.zarr",
                      f"push {URL} output.zarr", f"repair {URL}")),
    (1, "pack open.zarr -o output.zip", "is still open", "stores finalise open.zarr"),
    (1, "pack damaged.zarr -o output.zip", "native/c/0/0 is not as it was written", "verify dama"),
    (1, "pack lost.zarr -o output.zip", "rows.csv cannot be read"),
    (2, "pack toy.zarr -o output.tar", "ends in .zip"),
    (2, "pack toy.zarr -o toy.zarr/output.zip", "is inside the store"),
    (1, "pack toy.zarr -o toy.zip", "toy.zip exists already", "--overwrite"),
    (1, "pack toy.zip -o output.zip", "is not a folder and cannot be packed; unpack it"),
    (1, "unpack nowhere.zip -o output.zarr", "nowhere.zip is not a file"),
    (2, "unpack toy.zip -o output", "ends in .zarr"),
    (1, "unpack toy.zip -o films.zarr", "films.zarr exists already"),
    (1, "unpack toy.zip -o films.zarr --overwrite", "it has no checksums.json"),
    (1, "push toy.zarr films.zarr", "films.zarr holds something else, such as film.mkv"),
    (1, "push toy.zarr other.zarr", "other.zarr holds another store"),
    (1, "push open.zarr output.zarr", "is still open", "stores finalise open.zarr"),
    (1, "push lost.zarr output.zarr", "rows.csv cannot be read (No such file"),
    (1, "push toy.zip output.zarr", "is not a folder and cannot be pushed; unpack it"),
    (2, "push toy.zarr https://lab.example/x.zarr", "nothing is sent over HTTP"),
    (2, "push toy.zarr toy.zarr", "toy.zarr is the store itself"),
    (2, "push toy.zarr toy.zarr/output", "is inside the store"),
    (2, "push toy.zarr other.zarr/native/c", "is inside the store", "other.zarr"),
    (2, "push toy.zarr X.npy/output", "X.npy is a file"),
    (2, "push toy.zarr hf://models/x", "give hf://datasets/OWNER/NAME"),
    (2, "push toy.zarr nonsense://x", "nonsense://x: ", "'nonsense' addresses"),
    (1, "pull open.zarr -o output.zarr", "is still open", "stores subset open.zarr --films"),
    (1, "pull nowhere.zarr -o output.zarr", "nowhere.zarr"),
    (2, "pull toy.zarr -o output", "ends in .zarr"),
    (1, "pull toy.zarr -o other.zarr", "other.zarr exists already", "--overwrite"),
    (1, "pull toy.zarr -o films.zarr --overwrite", "was not made by obygaze"),
    (2, "export toy.zarr -o output.mat", "the name must end in .h5, .hdf5, .parquet"),
    (2, "export toy.zarr -o toy.zarr/native/output.h5", "is inside the store"),
    (2, "export toy.zarr -o toy.zarr/output.parquet", "is inside the store"),
    (1, "export toy.zarr -o X.h5", "X.h5 exists already"),
    (1, "export damaged.zarr -o output.h5", "checksum is wrong"),
    (1, "export damaged.zarr -o output.parquet", "checksum is wrong"),
    (2, "export toy.zarr -o output.h5 --arrays cls", "no array 'cls'; it has native, frames"),
    (2, "export odd.zarr -o output.parquet", "no pooled array; name some of film"),
    (2, "export odd.zarr -o output.parquet --arrays film", "film has the name of a column"),
    (2, "import pth nowhere", "nowhere is not a folder"),
    (1, "import pth empty", "none of the 40 items", "no tt1/tt1_0.pth in empty"),
    (1, "import pth text", "can be read; text/tt1/tt1_0.pth: it is not a PyTorch file"),
    (2, "import npy features -o output", "ends in .zarr"),
    (2, "import npy features -o toy.zarr", "toy.zarr is final; choose another output"),
    (2, "import npy features other", "two paths are for the array native; name them: ARRAY=PATH"),
    (2, "import npy features --recipe made.toml --backbone x", "recipe", "backbone"),
    (2, "import npy features --recipe nowhere.toml", "nowhere.toml cannot be read"),
    (2, "import npy features --in-order", "are for one file with all rows"),
    (2, "import npy X.npy", "X.npy does not say whose its rows are; give --ids FILE"),
    (1, "import npy objects.npy --in-order", "objects.npy cannot be read as NumPy"),
    (1, "import npy X.npy --ids objects.npy", "objects.npy cannot be read as ids"),
    (2, "import npy X.npy --ids nowhere.txt", "nowhere.txt does not exist"),
    (1, "import npy X.npy --ids latin.npy", "latin.npy cannot be read as ids"),
    (1, "import npy empty.npy --ids empty.txt", "empty.npy has no rows"),
    (1, "import npy X.npy --ids short.txt", "native has 40 rows for 2 ids"),
    (1, "import npy X.npy --ids twice.txt", "two rows for 'tt1-001'"),
    (1, "import npy X.npy --ids others.txt", "like 'a0.mp4', those of the manifest like 'tt1"),
    (1, "import npy X.npy --ids wide.csv", "wide.csv: it has no column id (got clip, label)"),
    (1, "import npy flat.npy --in-order", "native is not a matrix"),
    (1, "import safetensors X.npy --in-order", "X.npy cannot be read as safetensors"),
    (1, "import parquet X.npy", "X.npy cannot be read as Parquet"),
    (2, "import hdf5 nowhere.h5", "nowhere.h5 does not exist"),
    (1, "import hdf5 X.npy", "X.npy cannot be read as HDF5"),
    (2, "import hdf5 X.h5 --backbone mine", "says itself how it was made"),
    *((1, f"import npy features --recipe {name}", name, fact) for name, fact in (
        ("text.toml", "is not valid TOML"), ("text.json", "is not valid TOML, or JSON"),
        ("list.json", "is not a table with backbone, preprocessing"),
        ("key.toml", "unknown key 'precison'; did you mean precision"),
        ("backbone.toml", "unknown key of backbone 'names'; did you mean name"),
        ("preprocessing.toml", "'smapling'; did you mean sampling"),
        ("wrong.toml", "unknown key of preprocessing 'precision'"),
        ("word.toml", "backbone must be a table"), ("number.toml", "name must be text"),
        ("config.toml", "config must be a table"), ("digest.toml", "64 hexadecimal digits"),
        ("date.toml", "is not valid TOML"))),
]  # fmt: skip


@pytest.fixture(scope="module")
def workspace(final_store, tmp_path_factory):
    """Stores, archives, matrices, ids and recipes. Not to be changed."""
    folder = tmp_path_factory.mktemp("slips")
    for name in ("toy", "damaged", "lost"):
        shutil.copytree(final_store, folder / f"{name}.zarr")
    flip_bit(folder / "damaged.zarr/native/c/0/0", 3)
    (folder / "lost.zarr/rows.csv").unlink()
    a_store(folder / "open.zarr")
    other = a_store(folder / "other.zarr", 5)
    of.open_store(other).finalise()
    open_state(folder / "odd.zarr", {"film": np.ones((2, 2, 2))})
    pack(final_store, folder / "toy.zip")
    export(of.open_store(final_store), folder / "X.h5")
    write(folder / "films.zarr/film.mkv", "precious")
    (folder / "empty").mkdir()
    write(folder / "text/tt1/tt1_0.pth", "x")
    (folder / "features/tt1").mkdir(parents=True)
    np.save(folder / "features/tt1/tt1_0.npy", np.ones(3, np.float32))
    a_manifest(40).save(folder / "manifest")
    for name, text in RECIPES.items():
        write(folder / name, text)
    rows = np.ones((40, 3), np.float32)
    for name, values in {
        "X": rows, "flat": rows[:, 0], "empty": rows[:0], "latin": np.array([b"\xe9"]),
        "objects": np.array([Malice(folder / "trace")] * 40, object),
    }.items():  # fmt: skip
        np.save(folder / f"{name}.npy", values)
    touch(folder, "empty.txt", "X.safetensors", "X.parquet")
    write(folder / "short.txt", "tt1-001", "tt1-002")
    write(folder / "twice.txt", *["tt1-001"] * 40)
    write(folder / "others.txt", *(f"a{row}.mp4" for row in range(40)))
    write(folder / "wide.csv", "clip,label", "tt1-001,1")
    return folder


def names_in(folder: Path) -> set[tuple[Path, int]]:
    """What a folder holds, with the times of its files, but what a cut-off transfer keeps."""
    return {
        (path, path.stat().st_mtime_ns * path.is_file())
        for path in folder.rglob("*")
        if ".pulling" not in str(path)
    }


@pytest.mark.parametrize(("code", "command", "facts"), [(c, w, f) for c, w, *f in SLIPS], ids=str)
def test_a_slip_is_one_line(code, command, facts, workspace, obygaze, monkeypatch):
    monkeypatch.chdir(workspace)
    before, words = names_in(workspace), command.split()
    if words[0] == "import":
        words += ["--manifest", "manifest", *(() if "-o" in words else ("-o", "output.zarr"))]
    result = obygaze("stores", *words)
    refused(result, *facts, code=code)
    assert "secret" not in result.output
    assert names_in(workspace) == before


@pytest.mark.parametrize(
    ("source", "options", "fact"),
    [
        ({}, {}, "no source"),
        ("nowhere.mat", {}, "nowhere.mat does not exist"),
        ("key.toml", {}, "unknown kind of features"),
        *(({"native": f"X.{kind}", "frames": f"Y.{kind}"}, {}, f"X.{kind}: one .* has all arrays")
          for kind in ("safetensors", "parquet", "h5")),
        *((name, options, name) for name in ("X.h5", "X.parquet")
          for options in ({"ids": ["tt1-001"]}, {"in_order": True}, {"ids": Path("short.txt")})),
    ],
    ids=str,
)  # fmt: skip
def test_a_slip_in_a_call(source, options, fact, workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    before = names_in(workspace)
    with pytest.raises(UsageError, match=fact):
        of.import_features(source, a_manifest(40), "output.zarr", **options)
    assert names_in(workspace) == before
