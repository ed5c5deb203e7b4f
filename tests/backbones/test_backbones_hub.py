"""Fetching published checkpoints, from a stand-in of the hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.backbones.conftest import in_shards

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What the hub answers to one who wants a file of a repository."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        _, owner, name, _, _, file = self.path.split("/", 5)
        self.asked.append(f"{self.command} {file}")
        if name == "gated":
            return self.answer(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        if (owner, name) != ("someone", "small"):
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        if not (self.folder / file).is_file():
            return self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        content = (self.folder / file).read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        return self.answer(200, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'}, content)

    do_HEAD = do_GET

    def answer(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for key, value in headers.items() | {("Content-Length", str(len(content)))}:
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub(copy) -> Iterator[ThreadingHTTPServer]:
    folder = in_shards(copy("tiny-vivit"))
    (folder / "README.md").write_text("nobody needs this")
    (folder / "tokenizer.json").write_text("{}")
    yield from serve(folder)


@pytest.fixture
def clip_hub(copy) -> Iterator[ThreadingHTTPServer]:
    yield from serve(copy("tiny-clip"))


@pytest.fixture
def video_hub(copy) -> Iterator[ThreadingHTTPServer]:
    yield from serve(copy("tiny-vjepa2"))


def serve(folder: Path) -> Iterator[ThreadingHTTPServer]:
    handler = type("Here", (Hub,), {"folder": folder, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(code: str, home: Path, endpoint: str, **more: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the hub's settings are read once, when it is imported."""
    environment = os.environ | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )


PREFETCH = "import sys; from cli import main; main(['features', 'prefetch', {!r}])"
LOAD = """
from obygaze_features.backbones import load_backbone
import json
print(json.dumps(load_backbone("someone/small", "cpu").about))
"""


def test_what_was_fetched_ahead_is_loaded_without_network(hub, tmp_path):
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    fetched = run(PREFETCH.format("someone/small"), tmp_path / "home", endpoint)
    assert fetched.returncode == 0, fetched.stderr
    name, folder = fetched.stdout.strip().split(": ")
    assert name == "someone/small"
    asked = hub.RequestHandlerClass.asked
    needed = {
        "config.json",
        "preprocessor_config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }
    assert {path.name for path in Path(folder).iterdir()} == needed
    assert {one.removeprefix("GET ") for one in asked if one.startswith("GET")} == needed

    # With what is in the cache nobody is asked, also where that is not forbidden.
    before = len(asked)
    loaded = run(LOAD, tmp_path / "home", "http://127.0.0.1:9")
    assert loaded.returncode == 0, loaded.stderr
    about = json.loads(loaded.stdout)
    assert (about["name"], about["family"], about["revision"]) == ("small", "vivit", COMMIT)
    assert len(asked) == before


def test_a_processor_of_videos_alone_is_fetched(video_hub, tmp_path):
    """As V-JEPA 2 is published; a repository with neither file is refused."""
    endpoint = f"http://127.0.0.1:{video_hub.server_port}"
    handler = video_hub.RequestHandlerClass
    fetched = run(PREFETCH.format("someone/small"), tmp_path / "home", endpoint)
    assert fetched.returncode == 0, fetched.stderr
    assert {one.removeprefix("GET ") for one in handler.asked if one.startswith("GET")} >= {
        "config.json", "video_preprocessor_config.json", "model.safetensors",
    }  # fmt: skip
    loaded = run(LOAD, tmp_path / "home", "http://127.0.0.1:9")
    assert json.loads(loaded.stdout)["family"] == "vjepa2", loaded.stderr

    (handler.folder / "video_preprocessor_config.json").unlink()
    refused = run(PREFETCH.format("someone/small"), tmp_path / "other", endpoint)
    assert refused.returncode == 1
    assert "someone/small has no preprocessor_config.json or video_preproc" in refused.stderr


def test_nothing_more_is_fetched_of_what_is_no_backbone(hub, tmp_path):
    handler = hub.RequestHandlerClass
    (handler.folder / "config.json").write_text('{"model_type": "bert"}')
    result = run(PREFETCH.format("someone/small"), tmp_path, f"http://127.0.0.1:{hub.server_port}")
    assert result.returncode == 1
    assert "unknown model_type 'bert'; known types are: xclip, vivit" in result.stderr
    assert {one.split()[1] for one in handler.asked} == {"config.json"}


@pytest.mark.parametrize(
    ("repository", "reason"),
    [
        ("someone/gated", "someone/gated requires that you agree to its terms"),
        ("someone/else", "the hub has no someone/else, or it is private"),
    ],
)
def test_what_the_hub_does_not_give_is_one_line(hub, tmp_path, repository, reason):
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    result = run(PREFETCH.format(repository), tmp_path, endpoint)
    assert result.returncode == 1
    assert f"Error: {reason}" in result.stderr
    assert f"give {repository.split('/')[1]}=FOLDER" in result.stderr
    assert len(result.stderr.splitlines()) == 2  # what is fetched, and why it is not


# Where nobody forbids it, the hub's client tries for some 20 seconds.
@pytest.mark.parametrize("offline", [pytest.param("0", marks=pytest.mark.faults), "1"])
def test_without_network_it_is_said_what_to_do(tmp_path, offline):
    result = run(
        PREFETCH.format("xclip-kinetics"), tmp_path, "http://127.0.0.1:9", HF_HUB_OFFLINE=offline
    )
    assert result.returncode == 1
    assert "microsoft/xclip-base-patch16-zero-shot is not in the hub's cache" in result.stderr
    assert "obygaze features prefetch xclip-kinetics" in result.stderr
    assert "give xclip-kinetics=FOLDER" in result.stderr
    assert len(result.stderr.splitlines()) == 2  # what is fetched, and why it is not
    assert ("HF_HUB_OFFLINE is set" in result.stderr) == (offline == "1")


READ = """
from obygaze_features.backbones import load_backbone
print(load_backbone("someone/small", "cpu").embed_texts(["a photo"]).shape)
"""
WORDS = {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"}


@pytest.mark.gate
def test_what_reads_texts_is_fetched_with_its_words(clip_hub, tmp_path):
    endpoint = f"http://127.0.0.1:{clip_hub.server_port}"
    fetched = run(PREFETCH.format("someone/small"), tmp_path / "home", endpoint)
    assert fetched.returncode == 0, fetched.stderr
    asked = clip_hub.RequestHandlerClass.asked
    got = {one.removeprefix("GET ") for one in asked if one.startswith("GET")}
    assert got == {"config.json", "preprocessor_config.json", "model.safetensors", *WORDS}
    read = run(READ, tmp_path / "home", "http://127.0.0.1:9")
    assert read.stdout == "torch.Size([1, 32])\n", read.stderr


@pytest.mark.gate
def test_words_are_fetched_when_they_are_needed(clip_hub, tmp_path):
    """What was fetched for clips, by an older version say, lacks them."""
    endpoint = f"http://127.0.0.1:{clip_hub.server_port}"
    assert run(LOAD, tmp_path / "home", endpoint).returncode == 0
    assert not WORDS & {path.name for path in (tmp_path / "home").rglob("*")}
    offline = run(READ, tmp_path / "home", endpoint, HF_HUB_OFFLINE="1")
    assert "BackboneError: someone/small is not in the hub's cache" in offline.stderr
    assert "obygaze features prefetch someone/small" in offline.stderr
    assert run(READ, tmp_path / "home", endpoint).stdout == "torch.Size([1, 32])\n"
