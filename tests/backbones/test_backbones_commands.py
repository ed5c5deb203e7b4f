"""Commands about backbones, and downloads from a stand-in of the hub."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from obygaze_features.backbones import known_checkpoints
from tests.backbones.conftest import in_shards
from tests.kit.files import refused, touch, write
from tests.kit.servers import Served, serve


def test_backbones_are_listed_for_people_and_scripts(obygaze):
    text = obygaze("features", "backbones").stdout
    rows = json.loads(obygaze("features", "backbones", "--json").stdout)
    for checkpoint in known_checkpoints().values():
        assert (checkpoint.repository or checkpoint.name) in text
    made = [row["name"] for row in rows if row["from"] == "made here, no download"]
    assert made == ["tiny-xclip", "tiny-vivit", "tiny-clap", "words"]
    card = json.loads(obygaze("features", "backbones", "xclip-kinetics", "--json").stdout)
    assert (card["family"], card["embeds_texts"]) == ("xclip", True)


def test_prefetch_prints_folders_or_reasons(obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    download = ("features", "backbones", "--download")
    folder = obygaze(*download, "tiny-vivit", code=0).stdout.strip().partition(": ")[2]
    assert (Path(folder) / "model.safetensors").is_file()
    refused(obygaze(*download, "resnet"), "unknown checkpoint or path 'resnet'")
    refused(obygaze(*download, "xclip-lsmdc"), "xclip-lsmdc=FILE")


COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"
NEEDED = {
    "config.json",
    "preprocessor_config.json",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
}


def run_python(code: str, home: Path, endpoint: str, offline: str = "0", ends_with: int = 0) -> Any:
    """Run code in a separate process, because the hub's settings are read on import."""
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": offline}
    own |= {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=os.environ | own, capture_output=True, text=True, timeout=120)
    assert done.returncode == ends_with, done.stderr
    return done


def prefetch(name: str, *arguments: Any, **options: Any) -> Any:
    call = f"main(['features', 'backbones', '--download', {name!r}])"
    code = f"from obygaze_models.commands.main import main; {call}"
    return run_python(code, *arguments, **options)


@pytest.fixture
def hub(copy, tmp_path: Path) -> Iterator[Served]:
    """A stand-in of the hub, with a checkpoint in several files as someone/small."""
    folder = in_shards(copy("tiny-vivit"))
    touch(folder, "README.md", "model.fp16.safetensors")  # not needed
    listed = [
        {"type": "file", "oid": "0", "size": file.stat().st_size, "path": file.name}
        for file in folder.iterdir()
    ]

    def refuse(path: str) -> tuple[int, dict[str, str]] | None:
        if "/gated/" in path:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
        if "someone/small/" not in path:
            return 404, {"X-Error-Code": "RepoNotFound"}
        missing = 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        return None if (served.folder / path[1:]).is_file() else missing

    def about(path: str) -> dict[str, str]:
        tag = hashlib.sha256((served.folder / path[1:]).read_bytes()).hexdigest()
        return {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'}

    with serve(tmp_path / "hub") as served:
        for revision in ("main", COMMIT):
            shutil.copytree(folder, served.folder / "someone/small/resolve" / revision)
        about_it = served.folder / "api/models/someone/small"
        write(about_it / "revision/main", json.dumps({"id": "someone/small", "sha": COMMIT}))
        write(about_it / "tree" / COMMIT, json.dumps(listed))
        served.refuse = refuse
        served.about = about
        yield served


@pytest.mark.night
def test_a_fetched_checkpoint_is_loaded_without_network(hub, tmp_path):
    result = prefetch("someone/small", tmp_path / "home", hub.url)
    name, folder = result.stdout.strip().split(": ")
    assert name == "someone/small"
    assert {path.name for path in Path(folder).iterdir()} == NEEDED

    # Cached files need no request, even if requests are allowed.
    hub.forget()
    code = "import obygaze_features as of; print(of.load_backbone('someone/small', 'cpu').about)"
    about = run_python(code, tmp_path / "home", NOWHERE).stdout
    for fact in ("'name': 'small'", "'family': 'vivit'", f"'revision': '{COMMIT}'"):
        assert fact in about
    assert hub.requests == []


@pytest.mark.parametrize(
    ("name", "offline", "facts"),
    [
        ("someone/gated", "0", "gated"),
        ("someone/else", "0", "Repository Not Found"),
        ("xclip-kinetics", "1", "HF_HUB_OFFLINE"),
    ],
)
def test_failed_downloads_are_one_line(hub, tmp_path, name, offline, facts):
    result = prefetch(name, tmp_path / "home", hub.url, offline, ends_with=1)
    for fact in (facts, "is not in the Hub's cache", "--download", "NAME=FOLDER"):
        assert fact in result.stderr
    assert len(result.stderr.splitlines()) == 1
