"""What `obygaze stores pack`, `export`, `import` and `push` print, and how they end."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest

from obygaze_features.store import open_store, verify
from tests.kit.files import refused
from tests.store.serving import serve
from tests.store.toys import a_manifest


@pytest.fixture
def features(tmp_path, monkeypatch):
    """A folder with a file for each of four clips, beside their manifest."""
    monkeypatch.chdir(tmp_path)
    a_manifest(4).save(tmp_path / "manifest")
    for row in range(4):
        path = tmp_path / f"features/tt1/tt1_{row}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.full(3, row, np.float32))
    return tmp_path / "features"


@pytest.fixture
def bring(obygaze, features):
    def run(arguments, output="s.zarr"):
        words = [*arguments.split(), "--manifest", "manifest", "-o", output]
        return obygaze("stores", "import", *words)

    return run


def test_archives_are_named_after_their_stores(obygaze, final_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = obygaze("stores", "pack", final_store)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("kB -> toy.zarr.zip\n")
    assert verify(tmp_path / "toy.zarr.zip") == []
    result = obygaze("stores", "unpack", "toy.zarr.zip", "--json")
    assert json.loads(result.stdout)["path"] == "toy.zarr"
    assert obygaze("stores", "diff", final_store, "toy.zarr").exit_code == 0
    shutil.move("toy.zarr.zip", "other.zip")
    assert obygaze("stores", "unpack", "other.zip").exit_code == 0
    assert obygaze("stores", "diff", final_store, "other.zarr").exit_code == 0


def test_files_of_nobody_are_named(obygaze, final_store, tmp_path):
    own = shutil.copytree(final_store, tmp_path / "own.zarr")
    (own / ".DS_Store").write_text("x")
    (own / "notes.txt").write_text("mine")
    for command in (("pack", own, "-o", tmp_path / "x.zip"), ("push", own, tmp_path / "x.zarr")):
        result = obygaze("stores", *command)
        assert result.exit_code == 0
        assert "left out, not a file of the store: .DS_Store and 1 more" in result.stderr
    result = obygaze("stores", "verify", own)
    assert (result.exit_code, "writer" in result.stdout) == (0, False)
    assert "harmless: .DS_Store and notes.txt: " in result.stdout.replace(", ", " and ", 1)


@pytest.mark.parametrize("end", ["h5", "parquet"])
def test_export_takes_a_store_wherever_it_is(end, obygaze, final_store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    obygaze("stores", "pack", final_store, "-o", tmp_path / "toy.zip")
    sizes = set()
    with serve(final_store.parent) as server:
        for source in (final_store, tmp_path / "toy.zip", f"{server.url}/toy.zarr"):
            words = ("stores", "export", source, "-o", tmp_path / f"toy.{end}", "--overwrite")
            result = obygaze(*words, "--arrays", "native,frames")
            assert (result.exit_code, result.stderr) == (0, "")
            assert result.stdout.startswith("18 rows, 17 done, of native, frames; ")
            sizes.add((tmp_path / f"toy.{end}").stat().st_size)
    assert len(sizes) == 1
    if end == "h5":
        with h5py.File(tmp_path / "toy.h5") as file:
            np.testing.assert_array_equal(
                file["native"], open_store(final_store).read("native", missing="nan")
            )


def test_an_import_says_what_is_unknown_and_what_failed(bring, features, tmp_path):
    (features / "tt1/tt1_2.npy").rename(tmp_path / "aside")
    result = bring("npy max=features --precision float32")
    assert (result.exit_code, result.stderr) == (3, "  tt1-002: no tt1/tt1_2.npy in features\n")
    assert result.stdout == (
        "recorded as unknown: backbone, weights, preprocessing\n"
        "4 rows: 3 done, 1 failed, 0 to do\n"
        "next: obygaze stores finalise s.zarr, or mend what failed and run this again with "
        "--retry-failed\n"
    )
    (tmp_path / "aside").rename(features / "tt1/tt1_2.npy")
    assert bring("npy max=features --precision float32").exit_code == 3
    result = bring("npy max=features --precision float32 --retry-failed --json")
    assert (result.exit_code, json.loads(result.stdout)["failures"]) == (0, {})
    assert open_store("s.zarr").arrays == ["max"]
    (tmp_path / "made.toml").write_text('precision = "float32"\n[backbone]\nname = "x"\n')
    result = bring("npy features --recipe made.toml --json", output="t.zarr")
    assert json.loads(result.stdout)["unknown"] == ["weights", "preprocessing"]


def test_rows_that_fail_alike_are_one_line(bring, features):
    values = np.ones((4, 3), np.float32)
    values[[0, 2, 3], 1] = np.nan
    np.save("native.npy", values)
    result = bring("npy native.npy --in-order")
    assert result.exit_code == 3
    assert result.stderr == "  tt1-000 and 2 more: native has NaN or infinity\n"
    assert "4 rows: 1 done, 3 failed" in result.stdout


@pytest.mark.parametrize(
    ("first", "second"),
    [("native", "other"), ("native", "native other"), ("native other", "native")],
)
def test_an_import_keeps_the_arrays_that_it_began_with(first, second, bring, features, tmp_path):
    first, second = (
        " ".join(f"{name}=features" for name in names.split()) for names in (first, second)
    )
    (features / "tt1/tt1_2.npy").unlink()
    assert bring(f"npy {first} --retry-failed").exit_code == 3
    before = (tmp_path / "s.zarr/blocks/000000.json").read_bytes()
    arrays = ", ".join(open_store("s.zarr").arrays)
    refused(
        bring(f"npy {second} --retry-failed"),
        f"was begun with {arrays}, and the source has '", code=2,
    )  # fmt: skip
    assert (tmp_path / "s.zarr/blocks/000000.json").read_bytes() == before
