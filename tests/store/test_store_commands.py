"""`obygaze stores`: the facts that each command prints, and how it ends."""

import json

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
    refused(obygaze("stores", "verify", tmp_path), f"{tmp_path} is not a feature store")
    refused(obygaze("stores", "info", tmp_path), "torn.zarr/blocks/000000.json", code=1)
