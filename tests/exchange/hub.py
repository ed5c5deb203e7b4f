"""A stand-in of the Hub's HTTP API on loopback: what uploading and reading a data set takes.

It keeps files as the Hub does (large ones by SHA-256, fetched by a redirect; small ones by git's
hash) and commits them in one step. Logging in, quotas, revisions and Xet are not in it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = 1000
"""Bytes from which on this stand-in has a file sent as a large one."""


@dataclass
class Hub:
    url: str = ""
    #: Repository -> name -> content.
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    #: SHA-256 of the large files that were sent, in turn.
    sent: list[str] = field(default_factory=list)
    #: How many large files are taken before the stand-in fails; None for all.
    patience: int | None = None


@contextlib.contextmanager
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def say(self, status: int, value: object = None, **headers: str) -> None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status >= 400:  # as a hostile endpoint does
                self.send_header("X-Error-Message", f"no: {self.headers.get('Authorization')}")
            if not isinstance(value, bytes):
                self.send_header("Content-Type", "application/json")
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def missing(self) -> None:
            self.say(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/main/?", path):
                files = state.repos.get(found[1])
                if files is None:
                    self.missing()
                else:
                    self.say(200, [entry(name, data) for name, data in sorted(files.items())])
            elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/main/(.+)", path):
                data = state.repos.get(found[1], {}).get(found[2])
                if data is None:
                    self.say(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
                elif len(data) >= LARGE:
                    name = hashlib.sha256(data).hexdigest()
                    self.say(302, b"", Location=f"{state.url}/large/{name}?signature=1")
                else:
                    self.part(data)
            elif path.startswith("/large/"):
                self.part(state.large[path.removeprefix("/large/")])
            else:
                self.say(404, {"error": path})

        def part(self, data: bytes) -> None:
            found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if not found:
                self.say(200, data)
                return
            first = int(found[1]) if found[1] else max(0, len(data) - int(found[2]))
            last = min(int(found[2]), len(data) - 1) if found[1] and found[2] else len(data) - 1
            span = f"bytes {first}-{last}/{len(data)}"
            self.say(206, data[first : last + 1], Content_Range=span)

        def do_POST(self) -> None:
            body, path = self.body(), self.path.partition("?")[0]
            if path == "/api/repos/create":
                asked = json.loads(body)
                if asked["organization"] == "closed":
                    self.say(403, {"error": "not yours"})
                    return
                name = f"{asked['organization']}/{asked['name']}"
                state.repos.setdefault(name, {".gitattributes": b"*.bin filter=lfs\n"})
                if asked.get("private") or asked.get("visibility") == "private":
                    state.private.add(name)
                self.say(200, {"url": f"{state.url}/datasets/{name}", "name": name})
            elif path == "/api/validate-yaml":
                self.say(200, {"errors": [], "warnings": []})
            elif path.endswith("/preupload/main"):
                files = json.loads(body)["files"]
                modes = [
                    {
                        "path": one["path"],
                        "uploadMode": "lfs" if one["size"] >= LARGE else "regular",
                        "shouldIgnore": False,
                    }
                    for one in files
                ]
                self.say(200, {"files": modes})
            elif path.endswith("/info/lfs/objects/batch"):
                objects = []
                for one in json.loads(body)["objects"]:
                    about = {"oid": one["oid"], "size": one["size"]}
                    if one["oid"] not in state.large:
                        href = f"{state.url}/upload/{one['oid']}"
                        about["actions"] = {"upload": {"href": href, "header": {}}}
                    objects.append(about)
                self.say(200, {"transfer": "basic", "objects": objects})
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/main", path):
                files = dict(state.repos[found[1]])
                for line in map(json.loads, body.splitlines()):
                    value = line["value"]
                    if line["key"] == "file":
                        files[value["path"]] = base64.b64decode(value["content"])
                    elif line["key"] == "lfsFile":
                        files[value["path"]] = state.large[value["oid"]]
                state.repos[found[1]] = files
                url = f"{state.url}/datasets/{found[1]}/commit/{'0' * 40}"
                self.say(200, {"success": True, "commitOid": "0" * 40, "commitUrl": url})
            else:
                self.say(404, {"error": path})

        def do_PUT(self) -> None:
            body, name = self.body(), self.path.removeprefix("/upload/")
            if state.patience is not None and len(state.sent) >= state.patience:
                self.say(400, {"error": "out of patience"})
                return
            assert hashlib.sha256(body).hexdigest() == name
            state.sent.append(name)
            state.large[name] = body
            self.say(200, b"")

    def entry(name: str, data: bytes) -> dict[str, object]:
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        about: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": blob}
        if len(data) >= LARGE:
            sha256 = hashlib.sha256(data).hexdigest()
            about["oid"] = "1" * 40  # git's hash of the pointer, which nobody needs here
            about["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 130}
        return about

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
