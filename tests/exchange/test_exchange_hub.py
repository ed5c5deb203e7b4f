"""Whole stores to and from the Hugging Face Hub, by a stand-in of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from obygaze_features.store import open_store
from tests.exchange.conftest import files_of

LARGE = 1000
"""Bytes from which on the stand-in has a file sent as a large one."""


@dataclass
class Hub:
    """The Hub's HTTP API on loopback: what uploading and reading a data set takes.

    It keeps files as the Hub does (large ones by SHA-256, fetched by a redirect; small ones by
    git's hash) and commits them in one step. Logging in, quotas, revisions and Xet are not in it.
    """

    url: str = ""
    #: Repository -> name -> content.
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    #: SHA-256 of the large files that were sent, in turn.
    sent: list[str] = field(default_factory=list)
    #: How many large files are taken before the stand-in fails, once.
    patience: int | None = 2


def entry(name: str, data: bytes) -> dict[str, object]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if len(data) < LARGE:
        return {"type": "file", "path": name, "size": len(data), "oid": blob}
    lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    # Of large files git has the hash of a pointer, which nobody needs here.
    return {"type": "file", "path": name, "size": len(data), "oid": "1" * 40, "lfs": lfs}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: Hub

    def log_message(self, *_: object) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def answer(self, status: int, value: object = None, **headers: str) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers["Content-Length"] = str(len(data))
        if not isinstance(value, bytes):
            headers["Content-Type"] = "application/json"
        if status >= 400:  # as a hostile endpoint does
            headers["X-Error-Message"] = f"no: {self.headers.get('Authorization')}"
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self) -> None:
        path, state = self.path.partition("?")[0], self.state
        if match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/main/?", path):
            if match[1] not in state.repos:
                self.answer(404, {"error": "no such repository"}, X_Error_Code="RepoNotFound")
            else:
                files = sorted(state.repos[match[1]].items())
                self.answer(200, [entry(name, data) for name, data in files])
        elif match := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/main/(.+)", path):
            data = state.repos.get(match[1], {}).get(match[2])
            if data is None:
                self.answer(404, {"error": "no such entry"}, X_Error_Code="EntryNotFound")
            elif len(data) >= LARGE:
                name = hashlib.sha256(data).hexdigest()
                self.answer(302, b"", Location=f"{state.url}/large/{name}?signature=1")
            else:
                self.answer_part(data)
        elif path.startswith("/large/"):
            self.answer_part(state.large[path.removeprefix("/large/")])
        else:
            self.answer(404, {"error": path})

    def answer_part(self, data: bytes) -> None:
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not span:
            return self.answer(200, data)
        first = int(span[1]) if span[1] else max(0, len(data) - int(span[2]))
        last = min(int(span[2]), len(data) - 1) if span[1] and span[2] else len(data) - 1
        content_range = f"bytes {first}-{last}/{len(data)}"
        return self.answer(206, data[first : last + 1], Content_Range=content_range)

    def do_POST(self) -> None:
        body, path, state = self.body(), self.path.partition("?")[0], self.state
        if path == "/api/repos/create":
            request = json.loads(body)
            name = f"{request['organization']}/{request['name']}"
            if request["organization"] == "closed":
                return self.answer(403, {"error": "not yours"})
            state.repos.setdefault(name, {".gitattributes": b"*.bin filter=lfs\n"})
            if request.get("private") or request.get("visibility") == "private":
                state.private.add(name)
            answer = {"url": f"{state.url}/datasets/{name}", "name": name}
        elif path.endswith("/preupload/main"):
            answer = {"files": [
                {"path": file["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if file["size"] >= LARGE else "regular"}
                for file in json.loads(body)["files"]
            ]}  # fmt: skip
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [{"oid": x["oid"], "size": x["size"]} for x in json.loads(body)["objects"]]
            for file in objects:
                if file["oid"] not in state.large:
                    upload = {"href": f"{state.url}/upload/{file['oid']}", "header": {}}
                    file["actions"] = {"upload": upload}
            answer = {"transfer": "basic", "objects": objects}
        elif match := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/main", path):
            files = dict(state.repos[match[1]])
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = state.large[value["oid"]]
            state.repos[match[1]] = files
            url = f"{state.url}/datasets/{match[1]}/commit/{'0' * 40}"
            answer = {"success": True, "commitOid": "0" * 40, "commitUrl": url}
        else:
            answer = {"errors": [], "warnings": []}  # of /api/validate-yaml
        return self.answer(200, answer)

    def do_PUT(self) -> None:
        body, name, state = self.body(), self.path.removeprefix("/upload/"), self.state
        if state.patience is not None and len(state.sent) >= state.patience:
            state.patience = None
            self.answer(400, {"error": "out of patience"})
            return
        assert hashlib.sha256(body).hexdigest() == name
        state.sent.append(name)
        state.large[name] = body
        self.answer(200, b"")


@pytest.fixture
def lab() -> Iterator[Hub]:
    state = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("", (Handler,), {"state": state}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


RUN = """
import json, sys
from click.testing import CliRunner
from cli import main
results = [CliRunner().invoke(main, ["stores", *words.split()]) for words in sys.argv[1:]]
print(json.dumps([(result.exit_code, result.output) for result in results]))
"""


@pytest.fixture
def run_all(lab, tmp_path):
    """Commands in a process of their own, as the Hub's client looks at its environment but once."""

    def run(*commands, **environment):
        settings = {
            "HF_ENDPOINT": lab.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_secret0123456789",
            "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment,
        }  # fmt: skip
        process = subprocess.run(
            [sys.executable, "-c", RUN, *commands], env=os.environ | settings, cwd=tmp_path,
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert "hf_secret" not in process.stdout + process.stderr
        return [tuple(result) for result in json.loads(process.stdout)]

    return run


@pytest.mark.gate
def test_the_hub_gets_a_store_in_one_commit_and_gives_it_back(
    lab, run_all, final_store, other_store, tmp_path
):
    address = "hf://datasets/lab/toy"
    own = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (own / "notes.txt").write_text("private")  # it stays here
    large = {name for name, data in files_of(final_store).items() if len(data) >= LARGE}
    lab.repos["lab/films"] = {"film.mkv": b"precious"}
    refused, again = run_all(f"push toy.zarr {address}", f"push toy.zarr {address} --json")
    assert (refused[0], refused[1].count("\n")) == (1, 1)
    assert refused[1].startswith(f"Error: {address}: ")
    assert again[0] == 0, again[1]
    assert lab.private == {"lab/toy"}
    assert len(lab.sent) == len(set(lab.sent)) == len(large)  # none was sent twice
    before = {name: dict(files) for name, files in lab.repos.items()}
    files = {name: data for name, data in before["lab/toy"].items() if name[0] != "."}
    assert files == files_of(final_store)
    same, *others = run_all(
        f"push toy.zarr {address} --json", f"push other.zarr {address}",
        "push toy.zarr hf://datasets/lab/films", "push toy.zarr hf://datasets/closed/films",
        "info hf://datasets/lab/none", f"pull {address} -o back.zarr", f"verify {address}",
        f"subset {address} --ids tt1-003 -o one.zarr",
    )  # fmt: skip
    others += run_all(f"info {address}", f"push toy.zarr {address}", HF_HUB_OFFLINE="1")
    assert lab.repos == before
    assert (same[0], json.loads(same[1])["sent"]) == (0, 0)
    expected = [
        (1, "holds another store"), (1, "holds something else, such as film.mkv"),
        (1, "the server answers 403 Forbidden; log in"), (1, "hf://datasets/lab/none"),
        (0, ""), (0, f"{address} is undamaged"), (0, ""),
        (1, "HF_HUB_OFFLINE is set"), (1, "HF_HUB_OFFLINE is set; unset it"),
    ]  # fmt: skip
    for (code, output), (expected_code, fact) in zip(others, expected, strict=True):
        assert (code, fact in output) == (expected_code, True), output
    assert files_of(tmp_path / "back.zarr") == files_of(final_store)
    np.testing.assert_array_equal(
        open_store(tmp_path / "one.zarr").read("native", missing="nan"),
        [open_store(final_store)["tt1-003"]["native"]],
    )
