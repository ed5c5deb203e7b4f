"""`obygaze stores`: the facts that each command prints, and how it ends."""

import json
import shutil
from dataclasses import replace

import pytest

from obygaze_features.manifests import Manifest
from obygaze_features.store import StoreWriter, open_store
from tests.kit import store as toys
from tests.kit.files import refused
from tests.kit.store import flip_bit


def test_finalise_counts_rows_and_files(obygaze, path, tmp_path):
    first, again = (
        json.loads(obygaze("stores", "finalise", path, "--json", code=0).stdout) for _ in range(2)
    )
    assert first == again
    assert first["path"] == str(path)
    assert first["rows"] == {"all": 18, "done": 17, "failed": 1, "to_do": 0}
    assert first["files"] == sum(file.is_file() for file in path.rglob("*"))
    half = toys.a_store(tmp_path / "half.zarr", blocks=[0])
    refused(obygaze("stores", "finalise", half), "lacks 14 of 18 rows")


def test_damage_is_listed_and_repaired(obygaze, path):
    flip_bit(path / "native/c/2/0", 3)
    found = json.loads(obygaze("stores", "verify", path, "--json", code=1).stdout)
    damage = {entry["file"]: entry for entry in found["damage"]}
    assert not found["undamaged"]
    assert damage["native/c/2/0"]["ids"] == ["tt1-008"]
    assert damage["native/c/2/0"]["why"] == "it was changed"

    repaired = json.loads(obygaze("stores", "repair", path, "--yes", "--json", code=3).stdout)
    assert repaired["to_do"] == ["tt1-008"]
    assert obygaze("stores", "repair", path, code=0).stdout == f"path  {path}\n"
    assert obygaze("stores", "verify", path, code=0).stdout.startswith("undamaged  yes\n")
    flip_bit(path / "items.csv", 3)  # which a repair cannot make
    assert "items.csv" in obygaze("stores", "verify", path, code=1).stdout
    refused(obygaze("stores", "repair", path), "items.csv cannot be repaired")


def test_diff_lists_each_part_of_an_attribute_that_differs(obygaze, path, tmp_path):
    about = toys.RECIPE.backbone | {"weights_sha256": "cd" * 32}
    recipe = replace(toys.RECIPE, backbone=about)
    other = toys.a_store(tmp_path / "other.zarr", recipe=recipe)
    found = json.loads(obygaze("stores", "diff", path, other, "--json", code=1).stdout)
    assert not found["identical"]
    rows = {row["attribute"]: (row["left"], row["right"]) for row in found["attributes"]}
    weights = toys.RECIPE.backbone["weights_sha256"]
    assert rows == {"backbone.weights_sha256": (weights, "cd" * 32)}
    assert found["rows"]["native"]["n"] == found["rows"]["native"]["equal"] == 17
    assert obygaze("stores", "diff", path, path, code=0).stdout.startswith("identical     yes\n")


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


def test_a_licence_typed_into_the_header_keeps_the_digest(tmp_path):
    before = toys.plain_manifest(3)
    before.save(tmp_path / "m")
    header = tmp_path / "m" / "manifest.json"
    changes = {"licence": "CC-BY-4.0", "name": "doors"}
    header.write_text(json.dumps(json.loads(header.read_text()) | changes))
    after = Manifest.load(tmp_path / "m")
    assert (after.name, after.licence, after.digest) == ("doors", "CC-BY-4.0", before.digest)
    store = StoreWriter.create(tmp_path / "a.zarr", after, toys.plain_recipe()).store
    assert store.attributes["licence"] == "CC-BY-4.0"


def test_a_subset_is_named_by_ids(obygaze, path, tmp_path):
    out = tmp_path / "some.zarr"
    ask = ("stores", "subset", path, "-o", out)
    obygaze(*ask, "--ids", "tt1-003,tt1-001", "--ids", "tt1-009,tt1-010", code=0)
    assert open_store(out).ids == ["tt1-001", "tt1-003", "tt1-009", "tt1-010"]
    result = obygaze(*ask, "--film", "tt1", "--overwrite", "--json")
    assert json.loads(result.stdout)["rows"]["failed"] == 1
    assert obygaze(*ask).exit_code == 2


SUBSET = "stores subset {path} -o {new}.zarr"
SLIPS = [
    ("stores merge {path} -o {new}.zarr", 2, ["two or more stores"]),
    (f"{SUBSET} --film tt9", 2, ["unknown film 'tt9'"]),
    (f"{SUBSET} --ids tt9-001", 1, ["no item 'tt9-001'"]),
    ("stores info {folder}/notes.txt", 1, ["notes.txt is not a folder"]),
    *((f"stores {command} {{folder}}", 1, ["{folder} is not a feature store: it has no zarr.json"])
      for command in ("info", "verify", "repair", "finalise")),
    ("stores set {path}", 2, ["nothing to set; pass at least one of licence, citation, name"]),
    ("stores info s3://", 2, ["use s3://BUCKET/NAME.zarr"]),
    ("stores info {own}", 1, ["obygaze stores push STORE NAME.zip"]),
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
