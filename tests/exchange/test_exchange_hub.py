"""Whole stores to and from the Hugging Face Hub, with a stand-in of its client and served files."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

from tests.kit.files import refused
from tests.kit.servers import serve
from tests.kit.store import files_of

TOKEN = "hf_secret0123456789"


class Api:
    """The part of the Hub's client that a push calls; it commits to a folder in one step."""

    folder: Path
    private: set[str]
    patience = 1  # the number of uploads that fail, with a message that quotes the request

    def create_repo(self, repo_id: str, *, private: bool, **_: object) -> None:
        if repo_id.startswith("closed/"):
            problem = OSError(f"no: Bearer {TOKEN}")
            problem.response = SimpleNamespace(status_code=403)
            raise problem
        self.files(repo_id).mkdir(parents=True, exist_ok=True)
        if private:
            self.private.add(repo_id)

    def list_repo_tree(self, repo_id: str, **_: object) -> Iterator[object]:
        from huggingface_hub import RepoFile

        for name, data in files_of(self.files(repo_id)).items():
            yield RepoFile(path=name, size=len(data), oid="1" * 40)

    def upload_folder(
        self, repo_id: str, *, folder_path: Path, allow_patterns: list[str], **_: object
    ) -> None:
        if Api.patience:
            Api.patience -= 1
            raise OSError(f"out of patience with {TOKEN}")
        for name in allow_patterns:
            target = self.files(repo_id) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder_path / name, target)

    def files(self, repo_id: str) -> Path:
        return self.folder / "datasets" / repo_id / "resolve/main"


@pytest.fixture
def lab(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    with serve(tmp_path / "hub") as served:
        for name, value in {"HF_ENDPOINT": served.url, "HF_TOKEN": TOKEN}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        api = create_autospec(hub.HfApi, instance=True)  # which knows how each method is called
        for name in ("create_repo", "list_repo_tree", "upload_folder"):
            getattr(api, name).side_effect = getattr(Api(), name)
        monkeypatch.setattr(hub, "HfApi", lambda: api)
        monkeypatch.setattr(Api, "patience", 1)
        monkeypatch.setattr(Api, "folder", tmp_path / "hub", raising=False)
        monkeypatch.setattr(Api, "private", set(), raising=False)
        yield served


def test_the_hub_stores_and_returns_a_store_in_one_commit(
    lab, obygaze, final_store, other_store, tmp_path, monkeypatch
):
    def run(*words):
        result = obygaze("stores", *words)
        assert TOKEN not in result.output
        return result

    address = "hf://datasets/lab/toy"
    own = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (own / "notes.txt").write_text("private")  # it stays here
    films = Api().files("lab/films")
    films.mkdir(parents=True)
    (films / "film.mkv").write_bytes(b"precious")
    refused(run("push", own, address), f"{address}: out of patience")
    assert run("push", own, address).exit_code == 0
    assert files_of(Api().files("lab/toy")) == files_of(final_store)
    assert Api.private == {"lab/toy"}
    before = files_of(tmp_path / "hub")
    assert json.loads(run("push", own, address, "--json").output)["sent"] == 0
    refused(run("push", other_store, address), "holds another store")
    refused(run("push", own, "hf://datasets/lab/films"), "holds another store or other files")
    refused(run("push", own, "hf://datasets/closed/x"), "answered 403 Forbidden; check the address")
    refused(run("info", "hf://datasets/lab/none"), "hf://datasets/lab/none")
    assert files_of(tmp_path / "hub") == before
    assert lab.headers[-1]["Authorization"] == f"Bearer {TOKEN}"

    back = tmp_path / "back.zarr"
    assert run("pull", address, "-o", back).exit_code == 0
    assert files_of(back) == files_of(final_store)
    assert run("verify", address).output == "undamaged  yes\n"
    (Api().files("lab/toy") / "rows.csv").write_text("other")  # incorrect files are sent again
    assert json.loads(run("push", own, address, "--json").output)["sent"] == 1
    assert files_of(tmp_path / "hub") == before
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for ask in (("info", address), ("push", own, address)):
        refused(run(*ask), "unset HF_HUB_OFFLINE")
