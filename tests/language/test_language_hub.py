"""Fetching models that read texts, from a stand-in of the hub on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.backbones.test_backbones_hub import COMMIT, PREFETCH, Hub, run


@pytest.fixture
def serve(tmp_path) -> Iterator[object]:
    """Serves a folder as the repository someone/small; gives the address, and what was asked."""
    servers = []

    def start(folder: Path) -> tuple[str, list[str]]:
        handler = type("Here", (Hub,), {"folder": folder, "asked": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", handler.asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_language_model_is_fetched_ahead_and_loaded_without_network(serve, gpt2, tmp_path):
    endpoint, asked = serve(gpt2)
    fetched = run(PREFETCH.format("someone/small"), tmp_path / "home", endpoint)
    assert fetched.returncode == 0, fetched.stderr
    got = {one.removeprefix("GET ") for one in asked if one.startswith("GET")}
    there = {"config.json", "model.safetensors", "vocab.json", "merges.txt"}
    assert {name for name in got if (gpt2 / name).is_file()} == there | {"tokenizer_config.json"}
    load = (
        "from obygaze_features.language import load_language_model; import json;"
        "model = load_language_model('someone/small', 'cpu');"
        "print(json.dumps([dict(model.about), model.mean_probabilities(['a man'])]))"
    )
    loaded = run(load, tmp_path / "home", "http://127.0.0.1:9")
    assert loaded.returncode == 0, loaded.stderr
    about, [chance] = json.loads(loaded.stdout)
    assert (about["name"], about["revision"], 0 < chance < 1) == ("small", COMMIT, True)


@pytest.mark.gate
def test_an_encoder_comes_with_what_says_how_it_pools(serve, encoder, tmp_path):
    endpoint, asked = serve(encoder)
    load = (
        "from obygaze_features.language import load_sentence_encoder;"
        "print(load_sentence_encoder('someone/small', 'cpu').embed(['a man']).shape)"
    )
    found = run(load, tmp_path / "home", endpoint)
    assert found.returncode == 0, found.stderr
    got = {one.removeprefix("GET ") for one in asked if one.startswith("GET")}
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} <= got
    again = run(load, tmp_path / "home", "http://127.0.0.1:9")
    assert again.stdout == found.stdout == "torch.Size([1, 32])\n"


@pytest.mark.gate
def test_without_network_it_is_said_what_to_do(tmp_path):
    load = "from cli import main; main(['features', 'caption-scores', {!r}, '-o', {!r}])"
    table = tmp_path / "captions.csv"
    table.write_text("id,caption,object\na,a man,road\n")
    found = run(
        load.format(str(table), str(tmp_path / "out.csv")),
        tmp_path / "home",
        "http://127.0.0.1:9",
        HF_HUB_OFFLINE="1",
    )
    assert found.returncode == 1
    assert "Error: openai-community/gpt2 is not in the hub's cache" in found.stderr
    assert "run: obygaze features prefetch gpt2" in found.stderr
