"""`obygaze stores`: what each command prints, and how it ends."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from obygaze_features.store import open_store
from tests.store import toys
from tests.store.making import flip_bit


@pytest.fixture(scope="module")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.a_store(tmp_path_factory.mktemp("made_store") / "toy.zarr")


@pytest.fixture
def path(made_store: Path, tmp_path: Path) -> Path:
    shutil.copytree(made_store, tmp_path / "toy.zarr")
    return tmp_path / "toy.zarr"


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


def test_from_open_to_final_and_on_to_the_next_step(obygaze, path):
    printed = obygaze("stores", "info", path).stdout
    assert "state      open" in printed
    assert f"next: obygaze stores finalise {path}" in printed
    result = obygaze("stores", "finalise", path)
    assert result.exit_code == 0
    assert f"{path} is final: 17 of 18 rows done" in result.stdout
    printed = obygaze("stores", "info", path).stdout
    assert "state      final" in printed
    assert f"next: obygaze stores verify {path}" in printed
    result = obygaze("stores", "verify", path)
    assert (result.exit_code, result.stdout) == (0, f"{path} is undamaged\n")
    result = obygaze("stores", "finalise", path)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{path} is final already: 17 of 18 rows done, ")
    answers = [json.loads(obygaze("stores", "finalise", path, "--json").stdout) for _ in range(2)]
    assert answers[0]["already"]
    assert answers[0] == answers[1]


def test_an_unfinished_store(obygaze, tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0])
    assert "next: run the extraction again" in obygaze("stores", "info", path).stdout
    result = obygaze("stores", "finalise", path)
    assert result.exit_code == 1
    assert "lacks 14 of 18 rows" in result.stderr
    result = obygaze("stores", "finalise", path, "--allow-incomplete", "--compress", "--json")
    assert json.loads(result.stdout)["done"] == 4
    assert obygaze("stores", "repair", path).stdout.endswith("nothing was changed\n")
    assert f"{path} is open again" in obygaze("stores", "repair", path, "--reopen").stdout


def test_damage_is_named_and_repaired(obygaze, path):
    damage(path / "native/c/2/0")
    (path / "staging/.1.partial").touch()
    result = obygaze("stores", "verify", path)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "native/c/2/0: its checksum is wrong; rows: tt1-008"
    assert lines[-2:] == [
        "1 damaged file, 1 damaged row",
        f"next: obygaze stores repair {path}",
    ]
    assert "harmless: staging/.1.partial: it belongs to no block" in result.stdout
    result = obygaze("stores", "verify", path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0] == {
        "file": "native/c/2/0",
        "array": "native",
        "ids": ["tt1-008"],
        "why": "its checksum is wrong",
        "harmless": False,
    }
    result = obygaze("stores", "repair", path, "--yes")
    assert result.exit_code == 3
    assert "4 rows to compute again: tt1-008, tt1-009, tt1-010, tt1-011" in result.stdout
    assert "left 1 file that a running writer may need" in result.stdout
    toys.age(path / "staging/.1.partial")
    assert obygaze("stores", "repair", path).stdout == "removed 1 file of killed writers\n"
    assert obygaze("stores", "verify", path).exit_code == 0
    assert json.loads(obygaze("stores", "repair", path, "--json").stdout)["to_do"] == []


def test_parts_are_merged_and_compared(obygaze, path, tmp_path):
    part = toys.a_store(tmp_path / "one.zarr", blocks=[0, 2, 4])
    other_part = toys.a_store(tmp_path / "two.zarr", blocks=[1, 3])
    result = obygaze("stores", "merge", part, other_part, "-o", tmp_path / "all.zarr")
    assert result.exit_code == 0
    assert f"18 rows: 17 done, 1 failed, 0 to do -> {tmp_path / 'all.zarr'}" in result.stdout
    result = obygaze("stores", "diff", path, tmp_path / "all.zarr")
    assert (result.exit_code, result.stdout) == (
        0,
        f"{path} and {tmp_path / 'all.zarr'} are identical\n",
    )
    result = obygaze("stores", "diff", path, part)
    assert result.exit_code == 1
    assert f"done only in {path}: 7 rows, tt1-004, tt1-005, tt1-007" in result.stdout
    result = obygaze("stores", "diff", path, part, "--json")
    assert json.loads(result.stdout)["rows"]["native"]["equal"] == 10
    result = obygaze("stores", "merge", part, other_part, "-o", tmp_path / "all.zarr")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    again = obygaze("stores", "merge", part, other_part, "-o", tmp_path / "all.zarr", "--overwrite")
    assert again.exit_code == 0
    assert obygaze("stores", "merge", part, "-o", tmp_path / "x.zarr").exit_code == 2
    assert obygaze("stores", "merge", "-o", tmp_path / "x.zarr").exit_code == 2


def test_a_subset_by_names_or_from_a_file(obygaze, path, tmp_path):
    names = tmp_path / "ids.txt"
    names.write_text("tt1-003\ntt1-001\n")
    out = tmp_path / "some.zarr"
    result = obygaze(
        "stores", "subset", path, "--ids", f"@{names}", "--ids", "tt1-009,tt1-010", "-o", out
    )
    assert result.exit_code == 0, result.output
    assert open_store(out).ids == ["tt1-001", "tt1-003", "tt1-009", "tt1-010"]
    assert f"next: obygaze stores finalise {out}" in result.stdout
    result = obygaze("stores", "subset", path, "--films", "tt1", "-o", out, "--overwrite", "--json")
    assert json.loads(result.stdout)["failed"] == 1
    assert obygaze("stores", "subset", path, "-o", tmp_path / "x.zarr").exit_code == 2
    result = obygaze("stores", "subset", path, "--films", "tt9", "-o", tmp_path / "x.zarr")
    assert (result.exit_code, result.stderr) == (2, "Error: no item is of the film 'tt9'\n")
    result = obygaze("stores", "subset", path, "--ids", "@nowhere", "-o", tmp_path / "x.zarr")
    assert result.exit_code == 2
    assert "nowhere cannot be read" in result.stderr


def test_differences_are_laid_out(obygaze, path, tmp_path):
    part = toys.a_store(tmp_path / "one.zarr", 18, film="tt1")
    shutil.rmtree(part)
    store = toys.a_store(part, blocks=[])
    toys.fill(toys.resume(store), None, lambda row: toys.a_row(row, "other"))
    result = obygaze("stores", "diff", path, store)
    assert result.exit_code == 1
    header, _, native, *_ = result.stdout.splitlines()
    assert " ".join(header.split()) == "array probe cosine common rows equal mean cosine least"
    assert native.split()[:4] == ["native", "1.000000", "17", "0"]
    assert "native, lowest cosines: tt1-" in result.stdout


def test_differences_of_backbones_are_a_line_a_key(obygaze, path, tmp_path):
    backbone = {
        "name": "vivit", "family": "vivit", "revision": None, "weights_sha256": "cd" * 32,
        "config": {"d": 6} | {f"key{n}": [n] for n in range(20)},
    }  # fmt: skip
    recipe = replace(toys.RECIPE, backbone=backbone, precision="float16")
    result = obygaze("stores", "diff", path, toys.a_store(tmp_path / "b.zarr", recipe=recipe))
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["backbone.name", "toy", "vivit"] in lines
    assert ["backbone.family", "-", "vivit"] in lines
    assert ["precision", "float32", "float16"] in lines
    assert ["backbone.config", "21", "differences", "(--json", "shows", "them)"] in lines
    assert "{" not in result.stdout


def test_a_mistyped_store_is_said_not_to_exist(obygaze, path):
    result = obygaze("stores", "info", f"{path}r")
    assert result.stderr == f"Error: {path}r does not exist; did you mean {path}?\n"
    result = obygaze("stores", "info", path.with_name("else"))
    assert "else does not exist; give a feature store" in result.stderr


@pytest.mark.parametrize("command", ["info", "verify", "repair", "finalise"])
def test_what_is_not_a_store_gets_one_line(obygaze, tmp_path, command):
    result = obygaze("stores", command, tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path} is not a feature store: it has no zarr.json\n"


def test_what_to_do_about_an_archive(obygaze, path, tmp_path):
    obygaze("stores", "finalise", path, "--allow-incomplete")
    packed = tmp_path / "toy.zip"
    obygaze("stores", "pack", path, "-o", packed)
    mended = obygaze("stores", "repair", packed)
    assert f"{packed} can only be read" in mended.stderr
    assert f"obygaze stores pull {packed} -o NAME.zarr" in mended.stderr
    with zipfile.ZipFile(packed) as archive:
        at = archive.getinfo("rows.csv").header_offset
    flip_bit(packed, at + 100)
    damaged = obygaze("stores", "verify", packed)
    assert damaged.exit_code == 1
    assert damaged.stdout.endswith("next: pack it again, or download it again\n")
    own = Path(shutil.make_archive(str(tmp_path / "own"), "zip", path.parent, path.name))
    for printed in (
        obygaze("stores", "unpack", own, "-o", tmp_path / "x.zarr"),
        obygaze("stores", "info", own),
    ):
        assert "pack the store with: obygaze stores pack STORE -o NAME.zip" in printed.stderr


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("s3://", "s3:// has no bucket; give s3://BUCKET/NAME.zarr"),
        ("http:/lab/x.zarr", "http:/lab/x.zarr: did you mean http://lab/x.zarr?"),
    ],
)
def test_an_address_that_is_cut_short_is_hinted_at(obygaze, address, printed):
    result = obygaze("stores", "info", address)
    assert (result.exit_code, result.stderr) == (2, f"Error: {printed}\n")


def test_a_list_of_names_that_is_not_there_is_plain_words(obygaze, path, tmp_path):
    asked = ("stores", "subset", path, "-o", tmp_path / "x.zarr", "--ids")
    printed = obygaze(*asked, f"@{tmp_path}/ids.txt").stderr
    assert printed == f"Error: {tmp_path}/ids.txt cannot be read: No such file or directory\n"
    printed = obygaze(*asked, "tt9-001").stderr
    assert printed.startswith(f"Error: {path} has no item 'tt9-001'")


def test_a_file_that_repair_cannot_make_is_to_be_restored(obygaze, path):
    damage(path / "items.csv")
    result = obygaze("stores", "verify", path)
    assert result.exit_code == 1
    assert "next: restore items.csv from a copy" in result.stdout
    assert "repair" not in result.stdout


def test_push_to_a_file_is_refused(obygaze, tmp_path):
    final = toys.a_store(tmp_path / "one.zarr", 4)
    assert obygaze("stores", "finalise", final, "--allow-incomplete").exit_code == 0
    (tmp_path / "notes.txt").touch()
    result = obygaze("stores", "push", final, tmp_path / "notes.txt")
    assert result.exit_code == 2
    assert "notes.txt is a file" in result.stderr
