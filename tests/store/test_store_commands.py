"""`obygaze stores`: the facts that each command prints, and how it ends."""

import json
import shutil

import pytest

from obygaze_features.store import open_store
from tests.kit import store as toys
from tests.kit.files import refused


def test_info_of_a_folder_has_a_row_for_each_store(obygaze, copy, tmp_path):
    copy("final", "done.zarr")
    copy("final", ".gone.zarr.before-repair")
    toys.a_store(tmp_path / "idle.zarr", blocks=[0, 1, 2])
    lines = obygaze("stores", "info", tmp_path, code=0).stdout.splitlines()
    assert [line.split()[1:] for line in lines[2:]] == [
        ["final", "18", "17", "1", "0"], ["open", "18", "11", "1", "6"],
    ]  # fmt: skip
    rows = json.loads(obygaze("stores", "info", tmp_path, "--json").stdout)
    assert [row["store"] for row in rows] == [str(tmp_path / f"{n}.zarr") for n in ("done", "idle")]
    assert [row["to_do"] for row in rows] == [0, 6]
    copy("open", "torn.zarr").joinpath("blocks/000000.json").write_text("{")
    refused(obygaze("stores", "info", tmp_path), "torn.zarr/blocks/000000.json", code=1)


def test_a_subset_is_named_by_ids(obygaze, path, tmp_path):
    out = tmp_path / "some.zarr"
    ask = ("stores", "subset", path, "-o", out)
    obygaze(*ask, "--ids", "tt1-003,tt1-001", "--ids", "tt1-009,tt1-010", code=0)
    assert open_store(out).ids == ["tt1-001", "tt1-003", "tt1-009", "tt1-010"]
    result = obygaze(*ask, "--film", "tt1", "--overwrite", "--json")
    assert json.loads(result.stdout)["rows"]["failed"] == 1


SUBSET = "stores subset {path} -o {new}.zarr"
SLIPS = [
    (f"{SUBSET} --film tt9", 2, ["unknown film 'tt9'"]),
    (f"{SUBSET} --ids tt9-001", 1, ["unknown id 'tt9-001'"]),
    *((f"stores {command} {{folder}}", 1, ["{folder} is not a feature store"])
      for command in ("info", "verify", "repair", "finalise")),
    ("stores info s3://", 2, ["use s3://BUCKET/NAME.zarr"]),
    ("stores info {own}", 1, ["own.zip is not a feature store"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def names(sound, tmp_path_factory):
    """Stores and archives: one packed by obygaze, and one zipped by another program."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "folder").mkdir()
    (folder / "folder/notes.txt").touch()
    own = shutil.make_archive(str(folder / "own"), "zip", sound, "final.zarr")
    return {
        "path": sound / "open.zarr",
        "own": own, "folder": folder / "folder", "new": folder / "new",
    }  # fmt: skip


@pytest.mark.parametrize(("command", "code", "facts"), SLIPS)
def test_user_errors_are_one_line(obygaze, names, command, code, facts):
    result = obygaze(*command.format(**names).split())
    refused(result, *(fact.format(**names) for fact in facts), code=code)
