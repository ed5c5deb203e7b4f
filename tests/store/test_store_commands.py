"""`obygaze stores`: the facts that each command prints, and how it ends."""

import json
from concurrent.futures import ThreadPoolExecutor

import obygaze_features as of
from tests.kit import store as toys
from tests.kit.files import refused


def test_info_of_a_folder_has_a_row_for_each_store(obygaze, copy, tmp_path):
    copy("final", "done.zarr")
    copy("final", ".gone.zarr.before-repair")
    toys.a_store(tmp_path / "idle.zarr", blocks=[0, 1, 2])
    rows = json.loads(obygaze("stores", "info", tmp_path, "--json", code=0).stdout)
    idle = {"state": "open", "all": 18, "done": 11, "failed": 1, "to_do": 6}
    done = {"state": "final", "all": 18, "done": 17, "failed": 1, "to_do": 0}
    paths = [str(tmp_path / "done.zarr"), str(tmp_path / "idle.zarr")]
    assert rows == [{"store": paths[0], **done}, {"store": paths[1], **idle}]
    copy("open", "torn.zarr").joinpath("blocks/000000.json").write_text("{")
    refused(obygaze("stores", "verify", tmp_path), f"{tmp_path} is not a feature store")
    refused(obygaze("stores", "info", tmp_path), "torn.zarr/blocks/000000.json", code=1)


def test_edits_at_once_are_all_kept(path):
    edits = [{"licence": "A"}, {"citation": "B"}, {"name": "C"}]
    stores = [of.open_store(path) for _ in edits]
    for _ in range(5):
        of.set_texts(stores[0], {"licence": "", "citation": "", "name": ""})
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(of.set_texts, stores, edits))
        attributes = of.open_store(path).attributes
        assert [attributes[name] for name in ("licence", "citation", "name")] == ["A", "B", "C"]
        assert of.verify(path) == []
