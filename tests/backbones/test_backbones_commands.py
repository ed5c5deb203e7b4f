"""The commands about backbones, and what they fetch from a stand-in of the hub."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.backbones import known_checkpoints
from tests.backbones.conftest import in_shards
from tests.kit.models import write_gpt2, write_sentence_encoder

SHIPPED = ["tiny-xclip", "tiny-vivit", "tiny-xclip-lsmdc"]
NO_DOWNLOAD = [*SHIPPED, "words"]


def test_backbones_are_listed_for_people_and_scripts(obygaze):
    text = obygaze("features", "backbones").stdout
    for checkpoint in known_checkpoints().values():
        assert f"{checkpoint.bytes_per_clip:,} B" in text
        assert (checkpoint.repository or checkpoint.name) in text
    cards = json.loads(obygaze("features", "backbones", "--json").stdout)
    assert list(cards) == list(known_checkpoints())
    paper = cards["xclip-kinetics"]
    assert paper["repository"] == "microsoft/xclip-base-patch16-zero-shot"
    assert (paper["frames"], paper["bytes_a_clip"]) == (32, 3 * 512 * 4 + 2 * 32 * 512 * 2)
    assert cards["timesformer-hr-finetuned-k400"]["arrays"]["tokens"]["shape"] == [12545, 768]
    texts = {name for name, card in cards.items() if card["images_and_texts"]}
    images = {name for name, card in cards.items() if card["images"]}
    assert {"tiny-xclip", "clip-vit-base-patch32", "openclip-vit-base-patch32"} < texts < images
    assert {"dinov2-base", "dinov3-vitb16-pretrain-lvd1689m"} < images - texts
    assert not {"tiny-vivit", "tiny-xclip-lsmdc"} & images
    assert [name for name, card in cards.items() if not card["needs_download"]] == NO_DOWNLOAD


def test_listing_loads_nothing_heavy():
    code = (
        "import sys; from cli import main\n"
        "try: main(['features', 'backbones'])\n"
        "except SystemExit: pass\n"
        "sys.exit(' '.join({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == ""


def test_random_weights_are_written_and_loaded(obygaze, tmp_path):
    for name in SHIPPED:
        folder = tmp_path / name
        result = obygaze("features", "make-weights", name, folder)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"SYNTHETIC {name} with random weights in {folder}\n"
        assert of.load_backbone(folder, "cpu").arrays
    (tmp_path / "films").mkdir()
    for name, *more, code, reason in (
        ("tiny-xclip", tmp_path / "tiny-xclip", 1, "exists already"),
        ("tiny-xclip", tmp_path / "films", "--overwrite", 1, "films"),  # not random weights
        ("vivit", tmp_path / "new", 2, "use one of tiny-xclip"),
    ):
        wrong = obygaze("features", "make-weights", name, *more)
        assert (wrong.exit_code, reason in wrong.stderr) == (code, True)


def test_prefetch_prints_folders_or_the_reason(obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = obygaze("features", "prefetch", "tiny-vivit", "tiny-xclip")
    assert result.exit_code == 0
    folders = dict(line.split(": ") for line in result.stdout.splitlines())
    assert list(folders) == ["tiny-vivit", "tiny-xclip"]
    assert all((Path(folder) / "model.safetensors").is_file() for folder in folders.values())
    for name, code, reason in (
        ("resnet", 1, "resnet is neither a path nor a known name"),
        ("xclip-lsmdc", 1, "xclip-lsmdc cannot be downloaded: no public download is known"),
        ("vivit", 1, "google/vivit-b-16x2-kinetics400 is not in the hub's cache"),
    ):
        result = obygaze("features", "prefetch", name)
        assert (result.exit_code, reason in result.stderr) == (code, True)


COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"


class Handler(BaseHTTPRequestHandler):
    """Answers requests for the files of the repository ``someone/small``."""

    folder: Path
    requests: list[str]

    def do_GET(self) -> None:
        _, owner, name, _, _, file = self.path.split("/", 5)
        self.requests.append(f"{self.command} {file}")
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


class Hub:
    """A server of a folder; `requests` are those so far."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[str] = []
        handler = type("Handler", (Handler,), {"folder": folder, "requests": self.requests})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def downloads(self) -> set[str]:
        """The files that were asked for."""
        return {line.removeprefix("GET ") for line in self.requests if line.startswith("GET")}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def run_python(
    code: str, home: Path, endpoint: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own: the hub's settings are read when it is imported."""
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    environment = os.environ | settings | environment
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )


def prefetch(
    name: str, home: Path, endpoint: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``obygaze features prefetch NAME``."""
    code = f"from cli import main; main(['features', 'prefetch', {name!r}])"
    return run_python(code, home, endpoint, **environment)


@pytest.fixture
def serve_hub() -> Iterator[Callable[[Path], Hub]]:
    """Serves a folder as the repository ``someone/small``."""
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(contextlib.closing(Hub(folder)))


ABOUT = """
from obygaze_features.backbones import load_backbone
import json
print(json.dumps(load_backbone("someone/small", "cpu").about))
"""
READ = """
from obygaze_features.backbones import load_backbone
print(load_backbone("someone/small", "cpu").embed_texts(["a photo"]).shape)
"""
CONFIGS = {"config.json", "preprocessor_config.json"}
WORDS = {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"}


@pytest.mark.gate
def test_a_fetched_checkpoint_is_loaded_without_network(serve_hub, copy, tmp_path):
    folder = in_shards(copy("tiny-vivit"))
    for name in ("README.md", "tokenizer.json"):  # nobody needs them
        (folder / name).write_text("{}")
    hub = serve_hub(folder)
    result = prefetch("someone/small", tmp_path / "home", hub.endpoint)
    assert result.returncode == 0, result.stderr
    name, folder = result.stdout.strip().split(": ")
    assert name == "someone/small"
    needed = CONFIGS | {"model.safetensors.index.json"} | {
        f"model-0000{number}-of-00002.safetensors" for number in (1, 2)
    }  # fmt: skip
    assert {path.name for path in Path(folder).iterdir()} == needed == hub.downloads()

    # What is in the cache needs no request, also where requests are allowed.
    before = len(hub.requests)
    loaded = run_python(ABOUT, tmp_path / "home", NOWHERE)
    assert loaded.returncode == 0, loaded.stderr
    about = json.loads(loaded.stdout)
    assert (about["name"], about["family"], about["revision"]) == ("small", "vivit", COMMIT)
    assert len(hub.requests) == before


@pytest.mark.night
def test_a_processor_of_videos_alone_is_fetched(serve_hub, copy, tmp_path):
    """As V-JEPA 2 is published; what cannot be used is refused before its weights are fetched."""
    folder, processor = copy("tiny-vjepa2"), "video_preprocessor_config.json"
    hub = serve_hub(folder)
    result = prefetch("someone/small", tmp_path / "home", hub.endpoint)
    assert result.returncode == 0, result.stderr
    assert hub.downloads() >= {"config.json", processor, "model.safetensors"}
    loaded = run_python(ABOUT, tmp_path / "home", NOWHERE)
    assert json.loads(loaded.stdout)["family"] == "vjepa2", loaded.stderr

    (folder / processor).unlink()
    refused = prefetch("someone/small", tmp_path / "other", hub.endpoint)
    assert refused.returncode == 1
    assert "someone/small has no preprocessor_config.json or video_preproc" in refused.stderr
    (folder / "config.json").write_text('{"model_type": "bert"}')
    hub.requests.clear()
    refused = prefetch("someone/small", tmp_path / "third", hub.endpoint)
    assert refused.returncode == 1
    assert "unknown model_type 'bert'; known types are: xclip, vivit" in refused.stderr
    assert {request.split()[1] for request in hub.requests} == {"config.json"}


OFFLINE = [
    "microsoft/xclip-base-patch16-zero-shot is not in the hub's cache",
    "obygaze features prefetch xclip-kinetics",
    "give xclip-kinetics=FOLDER",
]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("name", "offline", "facts"),
    [
        ("someone/gated", "0", ["requires that you agree to its terms", "give gated=FOLDER"]),
        ("someone/else", "0", ["the hub has no someone/else, or it is", "give else=FOLDER"]),
        ("xclip-kinetics", "1", [*OFFLINE, "HF_HUB_OFFLINE is set"]),
        # Where nobody forbids it, the hub's client tries for some 20 seconds.
        pytest.param("xclip-kinetics", "0", OFFLINE, marks=pytest.mark.faults),
        ("gpt2", "1", ["openai-community/gpt2 is not in the hub's cache", "prefetch gpt2"]),
    ],
)
def test_what_cannot_be_fetched_is_one_line(serve_hub, tmp_path, name, offline, facts):
    endpoint = serve_hub(tmp_path).endpoint if "/" in name else NOWHERE
    result = prefetch(name, tmp_path / "home", endpoint, HF_HUB_OFFLINE=offline)
    assert result.returncode == 1
    for fact in facts:
        assert fact in result.stderr
    assert len(result.stderr.splitlines()) == 2  # what is fetched, and why it is not


@pytest.mark.night
def test_words_are_fetched_ahead_or_when_needed(serve_hub, copy, tmp_path):
    """What was fetched for clips, by an older version say, lacks them."""
    hub = serve_hub(copy("tiny-clip"))
    result = prefetch("someone/small", tmp_path / "home", hub.endpoint)
    assert result.returncode == 0, result.stderr
    assert hub.downloads() == {*CONFIGS, "model.safetensors", *WORDS}
    read = run_python(READ, tmp_path / "home", NOWHERE)
    assert read.stdout == "torch.Size([1, 32])\n", read.stderr

    clips = tmp_path / "clips"
    assert run_python(ABOUT, clips, hub.endpoint).returncode == 0
    assert not WORDS & {path.name for path in clips.rglob("*")}
    offline = run_python(READ, clips, hub.endpoint, HF_HUB_OFFLINE="1")
    assert "BackboneError: someone/small is not in the hub's cache" in offline.stderr
    assert "obygaze features prefetch someone/small" in offline.stderr
    assert run_python(READ, clips, hub.endpoint).stdout == "torch.Size([1, 32])\n"


@pytest.mark.night
def test_a_text_model_is_fetched_and_loaded(serve_hub, tmp_path):
    (folder := tmp_path / "encoder").mkdir()
    write_sentence_encoder(folder, seed=3)
    hub = serve_hub(folder)
    code = (
        "from obygaze_features.language import load_sentence_encoder; import json;"
        "model = load_sentence_encoder('someone/small', 'cpu');"
        "print(json.dumps([model.about['revision'], model.embed(['a man']).tolist()]))"
    )
    fetched = run_python(code, tmp_path / "home", hub.endpoint)
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} <= hub.downloads()
    loaded = run_python(code, tmp_path / "home", NOWHERE)
    assert (loaded.returncode, loaded.stdout) == (0, fetched.stdout), loaded.stderr
    revision, [values] = json.loads(loaded.stdout)
    assert (revision, 0 < np.linalg.norm(values) < 1.0001) == (COMMIT, True)


@pytest.mark.night
def test_a_language_model_is_prefetched(serve_hub, tmp_path):
    (folder := tmp_path / "gpt2").mkdir()
    write_gpt2(folder, seed=3)
    assert prefetch("someone/small", tmp_path / "home", serve_hub(folder).endpoint).returncode == 0
    code = (
        "from obygaze_features.language import load_language_model as load;"
        "print(load('someone/small', 'cpu').mean_probabilities(['a man']))"
    )
    loaded = run_python(code, tmp_path / "home", NOWHERE)
    assert loaded.returncode == 0, loaded.stderr
