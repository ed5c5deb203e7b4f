"""`obygaze stores pack`, `unpack`, `export` and `import`: what they print, and how they end."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.store import open_store, verify
from tests.kit import store as toys
from tests.kit.servers import serve


@pytest.fixture
def manifest(tmp_path):
    toys.a_manifest(4).save(tmp_path / "manifest")
    return tmp_path / "manifest"


@pytest.fixture
def folder(tmp_path):
    for row in range(4):
        path = tmp_path / f"features/tt1/tt1_{row}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full(3, row, np.float32))
    return tmp_path / "features"


def test_pack_and_unpack(obygaze, final_store, tmp_path):
    result = obygaze("stores", "pack", final_store, "-o", tmp_path / "toy.zip")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(f"kB -> {tmp_path / 'toy.zip'}\n")
    result = obygaze("stores", "pack", final_store, "-o", tmp_path / "toy.zip")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    result = obygaze(
        "stores", "unpack", tmp_path / "toy.zip", "-o", tmp_path / "toy.zarr", "--json"
    )
    assert json.loads(result.stdout)["path"] == str(tmp_path / "toy.zarr")
    assert obygaze("stores", "diff", final_store, tmp_path / "toy.zarr").exit_code == 0
    result = obygaze("stores", "unpack", tmp_path / "no.zip", "-o", tmp_path / "x.zarr")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("archive", ["toy.zip", "toy.zarr.zip"])
def test_unpack_names_the_store(archive, obygaze, final_store, tmp_path, monkeypatch):
    assert obygaze("stores", "pack", final_store, "-o", tmp_path / archive).exit_code == 0
    monkeypatch.chdir(tmp_path)
    assert obygaze("stores", "unpack", archive).exit_code == 0
    assert obygaze("stores", "diff", final_store, tmp_path / "toy.zarr").exit_code == 0


@pytest.mark.parametrize("end", ["h5", "hdf5", "parquet"])
def test_export(end, obygaze, final_store, tmp_path):
    output = tmp_path / f"toy.{end}"
    result = obygaze("stores", "export", final_store, "-o", output, "--arrays", "native,frames")
    assert result.exit_code == 0
    assert result.stdout.startswith("18 rows, 17 done, of native, frames; ")
    again = obygaze("stores", "export", final_store, "-o", output, "--overwrite", "--json")
    assert json.loads(again.stdout)["done"] == 17
    assert obygaze("stores", "export", final_store, "-o", tmp_path / "x.mat").exit_code == 2


@pytest.mark.parametrize("end", ["h5", "parquet"])
def test_export_takes_an_archive_and_an_address(end, obygaze, final_store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    obygaze("stores", "pack", final_store, "-o", tmp_path / "toy.zip")
    with serve(final_store.parent) as server:
        for number, address in enumerate((tmp_path / "toy.zip", f"{server.url}/toy.zarr")):
            output = tmp_path / f"{number}.{end}"
            result = obygaze("stores", "export", address, "-o", output)
            assert (result.exit_code, result.stderr) == (0, "")
            here = tmp_path / f"here.{end}"
            obygaze("stores", "export", final_store, "-o", here, "--overwrite")
            assert output.stat().st_size == here.stat().st_size
    if end == "h5":
        with h5py.File(tmp_path / "1.h5") as file:
            np.testing.assert_array_equal(
                file["native"], open_store(final_store).read("native", missing="nan")
            )


def test_an_address_where_a_path_is_meant_is_one_line(obygaze, final_store, tmp_path):
    address = "https://ann:secret@lab.example/toy.zarr?token=secret"
    for ask in (
        ["pack", address, "-o", tmp_path / "x.zip"],
        ["unpack", address, "-o", tmp_path / "x.zarr"],
        ["push", address, tmp_path / "x.zarr"],
        ["repair", address],
    ):
        result = obygaze("stores", *ask)
        assert (result.exit_code, result.output) == (
            2,
            "Error: https://lab.example/toy.zarr is a URL; this takes a local path. Fetch the "
            "store first: obygaze stores pull https://lab.example/toy.zarr -o NAME.zarr\n",
        )
    obygaze("stores", "pack", final_store, "-o", tmp_path / "toy.zip")
    for ask in (
        ["pack", tmp_path / "toy.zip", "-o", tmp_path / "x.zip"],
        ["push", tmp_path / "toy.zip", tmp_path / "x.zarr"],
    ):
        result = obygaze("stores", *ask)
        assert result.exit_code == 1
        assert f"toy.zip is not a folder and cannot be {ask[0]}ed; unpack it" in result.output


def test_what_is_left_out_is_named(obygaze, final_store, tmp_path):
    own = shutil.copytree(final_store, tmp_path / "own.zarr")
    (own / "notes.txt").write_text("x")
    for ask in (["pack", own, "-o", tmp_path / "x.zip"], ["push", own, tmp_path / "x.zarr"]):
        result = obygaze("stores", *ask)
        assert (result.exit_code, result.stderr) == (
            0,
            "left out, not a file of the store: notes.txt\n",
        )


@pytest.mark.parametrize("name", ["x.h5", "x.parquet", "native/x.h5"])
def test_nothing_is_exported_into_the_store(name, obygaze, final_store):
    result = obygaze("stores", "export", final_store, "-o", final_store / name)
    (final_store / name).unlink(missing_ok=True)
    assert (result.exit_code, result.stderr) == (
        2,
        f"Error: {final_store / name} is inside the store; choose another output\n",
    )


def test_nothing_is_imported_into_a_final_store(obygaze, manifest, folder, tmp_path):
    out = tmp_path / "s.zarr"
    ask = ("stores", "import", "npy", folder, "--manifest", manifest, "-o", out)
    obygaze(*ask)
    obygaze("stores", "finalise", out)
    before = (out / "log.jsonl").read_bytes()
    result = obygaze(*ask)
    assert (result.exit_code, result.output) == (
        2,
        f"Error: {out} is final; choose another output\n",
    )
    assert (out / "log.jsonl").read_bytes() == before


def test_import_says_what_is_not_known(obygaze, manifest, folder, tmp_path):
    out = tmp_path / "s.zarr"
    result = obygaze("stores", "import", "npy", folder, "--manifest", manifest, "-o", out)
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "recorded as unknown: backbone, weights, preprocessing, precision\n"
        f"4 rows: 4 done, 0 failed, 0 to do\nnext: obygaze stores finalise {out}\n"
    )
    result = obygaze(
        "stores", "import", "npy", folder, "--manifest", manifest, "-o", out, "--backbone", "x"
    )
    assert result.exit_code == 1
    assert "made with other backbone weights" in result.stderr


def test_a_folder_without_such_files_makes_no_store(obygaze, manifest, folder, tmp_path):
    ask = ("stores", "import", "pth", folder, "--manifest", manifest, "-o", tmp_path / "s.zarr")
    result = obygaze(*ask)
    assert result.exit_code == 1
    assert result.stderr.endswith("is there: no tt1/tt1_0.pth in features\n")


def test_rows_that_fail_alike_are_one_line(obygaze, manifest, tmp_path):
    ids = of.Manifest.load(manifest).ids
    values = np.ones((len(ids), 3), np.float32)
    values[[0, 2, 3], 1] = np.nan
    np.save(tmp_path / "native.npy", values)
    result = obygaze(
        "stores", "import", "npy", tmp_path / "native.npy", "--manifest", manifest, "--in-order",
        "-o", tmp_path / "s.zarr",
    )  # fmt: skip
    assert result.exit_code == 3
    assert result.stderr == f"  {ids[0]} and 2 more: native has NaN or infinity\n"
    assert "4 rows: 1 done, 3 failed" in result.stdout


def test_rows_that_fail_are_named(obygaze, manifest, folder, tmp_path):
    (folder / "tt1/tt1_2.npy").rename(tmp_path / "aside")
    ask = ("stores", "import", "npy", f"max={folder}", "--manifest", manifest, "-o")
    result = obygaze(*ask, tmp_path / "s.zarr", "--precision", "float32")
    assert result.exit_code == 3
    assert result.stderr == "  tt1-002: no tt1/tt1_2.npy in features\n"
    assert result.stdout.endswith(", or mend what failed and run this again with --retry-failed\n")
    (tmp_path / "aside").rename(folder / "tt1/tt1_2.npy")
    again = (*ask, tmp_path / "s.zarr", "--precision", "float32")
    assert obygaze(*again).exit_code == 3
    result = obygaze(*again, "--retry-failed", "--json")
    assert (result.exit_code, json.loads(result.stdout)["failures"]) == (0, {})
    assert open_store(tmp_path / "s.zarr").arrays == ["max"]


def test_a_recipe_or_words_not_both(obygaze, manifest, folder, tmp_path):
    (tmp_path / "made.toml").write_text('precision = "float32"\n[backbone]\nname = "x"\n')
    ask = ("stores", "import", "npy", folder, "--manifest", manifest, "-o", tmp_path / "s.zarr")
    recipe = ("--recipe", tmp_path / "made.toml")
    assert obygaze(*ask, *recipe, "--backbone", "x").exit_code == 2
    result = obygaze(*ask, *recipe, "--json")
    assert json.loads(result.stdout)["unknown"] == ["weights", "preprocessing"]


def test_there_and_back(obygaze, final_store, tmp_path):
    toys.a_manifest().save(tmp_path / "m")
    obygaze("stores", "export", final_store, "-o", tmp_path / "toy.h5")
    out = tmp_path / "toy.zarr"
    result = obygaze(
        "stores", "import", "hdf5", tmp_path / "toy.h5", "--manifest", tmp_path / "m", "-o", out
    )
    assert result.exit_code == 3  # the row that had failed is still one
    assert open_store(out).failures == open_store(final_store).failures
    result = obygaze(
        "stores", "import", "pth", "a", "b", "--manifest", tmp_path / "m", "-o", tmp_path / "x.zarr"
    )
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: two paths are for the array native; name them: ARRAY=PATH\n",
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [(["native"], ["other"]), (["native"], ["native", "other"]), (["native", "other"], ["native"])],
    ids=str,
)
@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_an_import_goes_on_with_the_arrays_that_it_was_begun_with(
    kind, first, then, obygaze, manifest, folder, tmp_path
):
    def asked(names):
        if kind == "npy":
            return [f"{name}={folder}" for name in names]
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["ids"] = toys.a_manifest(4).ids[1:]
            file.update({name: np.ones((3, 3), np.float32) for name in names})
        return [tmp_path / "x.h5"]

    (folder / "tt1/tt1_2.npy").unlink()
    out = tmp_path / "s.zarr"
    goal = ("--manifest", manifest, "-o", out, "--retry-failed")
    assert obygaze("stores", "import", kind, *asked(first), *goal).exit_code == 3
    before = (out / "blocks/000000.json").read_bytes()
    result = obygaze("stores", "import", kind, *asked(then), *goal)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"was begun with {', '.join(first)}, and the source has '" in result.stderr
    assert (out / "blocks/000000.json").read_bytes() == before


def test_an_archive_is_named_after_its_store(obygaze, final_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert obygaze("stores", "pack", final_store).exit_code == 0
    assert verify(tmp_path / "toy.zarr.zip") == []
    again = obygaze("stores", "pack", final_store)
    assert (again.exit_code, "--overwrite" in again.stderr) == (1, True)


def test_verify_says_what_is_no_part_of_a_final_store(obygaze, final_store, tmp_path):
    own = shutil.copytree(final_store, tmp_path / "own.zarr")
    (own / "notes.txt").write_text("mine")
    result = obygaze("stores", "verify", own)
    assert result.exit_code == 0
    assert "harmless: notes.txt: it is not part of the store" in result.stdout
    assert "writer" not in result.stdout
