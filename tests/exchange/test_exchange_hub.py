"""Whole stores to and from the Hugging Face Hub, by a stand-in of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.store import open_store
from tests.exchange.hub import LARGE, Hub, hub
from tests.exchange.travelling import files_of, obygaze


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_TOKEN", "hf_secret0123456789")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield state


@pytest.mark.gate
def test_the_hub_gets_a_store_in_one_commit_and_gives_it_back(
    lab, final_store, other_store, tmp_path
):
    """By processes of their own, as the Hub's client looks at its environment but once."""
    address = "hf://datasets/lab/toy"
    own = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (own / "notes.txt").write_text("private")  # it stays here
    large = {name for name, data in files_of(final_store).items() if len(data) >= LARGE}
    lab.patience = 2
    first = obygaze("push", own, address)
    told = first.communicate(timeout=600)[0]
    assert first.returncode == 1, told
    assert told.startswith(f"Error: {address}: ")
    assert told.count("\n") == 1
    assert set(lab.repos["lab/toy"]) == {".gitattributes"}
    assert lab.private == {"lab/toy"}
    lab.patience = None
    again = obygaze("push", own, address, "--json")
    told = again.communicate(timeout=600)[0]
    assert again.returncode == 0, told
    assert len(lab.sent) == len(set(lab.sent)) == len(large)  # none was sent twice
    kept = {name: data for name, data in lab.repos["lab/toy"].items() if name[0] != "."}
    assert kept == files_of(final_store)

    # All at once, as each takes a second to start.
    lab.repos["lab/films"] = {"film.mkv": b"precious"}
    before = {name: dict(files) for name, files in lab.repos.items()}
    runs = {
        "same": obygaze("push", final_store, address, "--json"),
        "other": obygaze("push", other_store, address),
        "films": obygaze("push", final_store, "hf://datasets/lab/films"),
        "closed": obygaze("push", final_store, "hf://datasets/closed/films"),
        "pull": obygaze("pull", address, "-o", tmp_path / "back.zarr"),
        "verify": obygaze("verify", address),
        "subset": obygaze("subset", address, "--ids", "tt1-003", "-o", tmp_path / "one.zarr"),
        "none": obygaze("info", "hf://datasets/lab/none"),
        "offline": obygaze("info", address, HF_HUB_OFFLINE="1"),
        "unsent": obygaze("push", final_store, address, HF_HUB_OFFLINE="1"),
    }
    said = {name: run.communicate(timeout=600)[0] for name, run in runs.items()}
    codes = {name: run.returncode for name, run in runs.items()}
    assert codes == {
        "same": 0, "other": 1, "films": 1, "pull": 0, "verify": 0, "subset": 0, "none": 1,
        "offline": 1, "unsent": 1, "closed": 1,
    }, said  # fmt: skip
    assert json.loads(said["same"])["sent"] == 0
    assert "holds another store" in said["other"]
    assert "holds something else, such as film.mkv" in said["films"]
    assert "the server answers 403 Forbidden; log in" in said["closed"]
    assert "hf_secret" not in "".join(said.values())
    assert f"{address} is undamaged" in said["verify"]
    assert "HF_HUB_OFFLINE is set" in said["offline"]
    assert "HF_HUB_OFFLINE is set; unset it" in said["unsent"]
    assert lab.repos == before
    assert files_of(tmp_path / "back.zarr") == files_of(final_store)
    np.testing.assert_array_equal(
        open_store(tmp_path / "one.zarr").read("native", missing="nan"),
        [open_store(final_store)["tt1-003"]["native"]],
    )
