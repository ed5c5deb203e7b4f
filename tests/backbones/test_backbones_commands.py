"""Commands about backbones, and downloads from a stand-in of the hub."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from obygaze_features.backbones import known_checkpoints
from tests.backbones.conftest import in_shards
from tests.kit.files import write
from tests.kit.servers import Served, serve


def test_backbones_are_listed_for_people_and_scripts(obygaze):
    text = obygaze("features", "backbones").stdout
    rows = json.loads(obygaze("features", "backbones", "--json").stdout)
    for checkpoint in known_checkpoints().values():
        assert (checkpoint.repository or checkpoint.name) in text
    made = [row["name"] for row in rows if row["from"] == "made here, no download"]
    assert made == ["tiny-xclip", "tiny-vivit", "tiny-clap", "words"]
    two = json.loads(obygaze("features", "backbones", "xclip-kinetics", "vivit", "--json").stdout)
    assert [(card["family"], card["embeds_texts"]) for card in two] == [
        ("xclip", True),
        ("vivit", False),
    ]


@pytest.mark.night
def test_random_weights_are_the_same_on_an_older_processor(checkpoints, tmp_path):
    kernels = {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Nehalem"}
    code = "import sys, obygaze_features as of; of.load_backbone('tiny-xclip', 'cpu')"
    environment = os.environ | kernels | {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    [older] = tmp_path.rglob("model.safetensors")
    assert older.read_bytes() == (checkpoints["tiny-xclip"] / "model.safetensors").read_bytes()


def test_prefetch_prints_folders_or_reasons(obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    download = ("features", "backbones", "--download")
    printed = obygaze(*download, "tiny-vivit", "tiny-xclip", code=0).stdout
    for line in printed.splitlines():
        folder = line.partition(": ")[2]
        assert (Path(folder) / "model.safetensors").is_file()
    assert "unknown checkpoint 'resnet'" in obygaze(*download, "resnet", code=1).stderr
    assert "xclip-lsmdc=FILE" in obygaze(*download, "xclip-lsmdc", code=1).stderr


COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"


def run_python(code: str, home: Path, endpoint: str, offline: str = "0", ends_with: int = 0) -> Any:
    """Run code in a separate process, because the hub's settings are read on import."""
    environment = {
        **os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": offline,
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == ends_with, done.stderr
    return done


def prefetch(name: str, *arguments: Any, **options: Any) -> Any:
    call = f"main(['features', 'backbones', '--download', {name!r}])"
    code = f"from obygaze_models.commands.main import main; {call}"
    return run_python(code, *arguments, **options)


@pytest.fixture
def serve_hub(tmp_path: Path) -> Iterator[Callable[[Path], Served]]:
    """``serve_hub(folder)``: serve a stand-in of the hub with the folder as someone/small."""
    with serve(tmp_path / "hub") as served:
        small = served.folder / "someone/small/resolve"
        about_it = served.folder / "api/models/someone/small"

        def offer(folder: Path) -> Served:
            small.mkdir(parents=True)
            for revision in ("main", COMMIT):
                (small / revision).symlink_to(folder)
            write(about_it / "revision/main", json.dumps({"id": "someone/small", "sha": COMMIT}))
            return served

        def list_files() -> None:
            files = [file for file in (small / "main").rglob("*") if file.is_file()]
            rows = [
                {
                    "type": "file",
                    "oid": "0",
                    "size": file.stat().st_size,
                    "path": str(file.relative_to(small / "main")),
                }
                for file in files
            ]
            write(about_it / "tree" / COMMIT, json.dumps(rows))

        def refuse(path: str) -> tuple[int, dict[str, str]] | None:
            if "/gated/" in path:
                return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
            if "/tree/" in path:
                list_files()
            if "someone/small/" not in path:
                return 404, {"X-Error-Code": "RepoNotFound"}
            missing = 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
            return None if (served.folder / path[1:]).is_file() else missing

        def about(path: str) -> dict[str, str]:
            tag = hashlib.sha256((served.folder / path[1:]).read_bytes()).hexdigest()
            return {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'}

        served.refuse = refuse
        served.about = about
        yield offer


def requested_files(hub: Served, least: int = 0) -> set[str]:
    """Return the names of requested files, or of files with this many bytes sent."""
    files = [(path, size) for path, size in hub.requests if not path.startswith("/api/")]
    return {path.split("/", 5)[5] for path, size in files if size >= least}


ABOUT = """
from obygaze_features.backbones import load_backbone
import json
print(json.dumps(load_backbone("someone/small", "cpu").about))
"""
NEEDED = {
    "config.json",
    "preprocessor_config.json",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
}


@pytest.mark.night
def test_a_fetched_checkpoint_is_loaded_without_network(serve_hub, copy, tmp_path):
    folder = in_shards(copy("tiny-vivit"))
    for name in ("README.md", "model.fp16.safetensors"):  # not needed
        (folder / name).write_text("{}")
    hub = serve_hub(folder)
    result = prefetch("someone/small", tmp_path / "home", hub.url)
    name, folder = result.stdout.strip().split(": ")
    assert name == "someone/small"
    assert {path.name for path in Path(folder).iterdir()} == NEEDED == requested_files(hub, 1)

    # Cached files need no request, even if requests are allowed.
    hub.forget()
    loaded = run_python(ABOUT, tmp_path / "home", NOWHERE)
    about = json.loads(loaded.stdout)
    assert (about["name"], about["family"], about["revision"]) == ("small", "vivit", COMMIT)
    assert hub.requests == []


@pytest.mark.night
@pytest.mark.parametrize(("name", "offline", "facts"), [
    ("someone/gated", "0", "gated"),
    ("someone/else", "0", "Repository Not Found"),
    ("xclip-kinetics", "1", "HF_HUB_OFFLINE"),
    # Unless requests are forbidden, the hub's client retries for about 20 seconds.
    pytest.param("xclip-kinetics", "0", "check your internet", marks=pytest.mark.faults),
])  # fmt: skip
def test_failed_downloads_are_one_line(serve_hub, tmp_path, name, offline, facts):
    endpoint = serve_hub(tmp_path).url if "/" in name else NOWHERE
    result = prefetch(name, tmp_path / "home", endpoint, offline, ends_with=1)
    for fact in (facts, "is not in the Hub's cache", "--download", "NAME=FOLDER"):
        assert fact in result.stderr
    assert len(result.stderr.splitlines()) == 1
