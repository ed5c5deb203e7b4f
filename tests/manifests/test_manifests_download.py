"""``--download`` against a server on loopback: the pinned file, and any other."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.reading import download_pinned
from tests.kit.files import refused

CONTENT = b"id;label\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves one file whole, the same file cut short, and nothing else."""

    def do_GET(self):
        if self.path not in ("/file.csv", "/cut.csv"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/file.csv" else CONTENT[:100])

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture(scope="module")
def address():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_pinned_file(address, tmp_path):
    download_pinned(f"{address}/file.csv", tmp_path / "file.csv", sha256=SHA256)
    assert (tmp_path / "file.csv").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("url", "sha256", "fact"),
    [
        ("{}/file.csv", "0" * 64, "is not the file that obygaze knows"),
        ("{}/cut.csv", SHA256, "is not the file that obygaze knows"),
        ("{}/missing.csv", SHA256, "Not Found"),
        ("file:///etc/passwd", SHA256, "is not an http address"),
        ("ftp://127.0.0.1/x", SHA256, "is not an http address"),
        ("nonsense", SHA256, "is not an http address"),
        ("http://127.0.0.1:1/x", SHA256, "give its path as SOURCE"),
    ],
)
def test_any_other_file_is_refused(address, tmp_path, url, sha256, fact):
    with pytest.raises(ManifestError, match=fact):
        download_pinned(url.format(address), tmp_path / "x", sha256=sha256)
    assert not list(tmp_path.iterdir())


def test_the_command_takes_the_pinned_file_alone(
    address, tmp_path, monkeypatch, obygaze, small_authors
):
    importer = ("manifests", "import", "obygaze12")
    command = (*importer, "--download", "-o", tmp_path / "m", "--url", f"{address}/file.csv")
    sha256 = reference_json("sources.json")["obygaze12"]["sha256"]
    refused(obygaze(*command), sha256)
    assert not list(tmp_path.iterdir())
    content = (small_authors / "obygaze12/ObyGaze12_thresh_02.csv").read_bytes()
    monkeypatch.setitem(globals(), "CONTENT", content)
    monkeypatch.setitem(
        reference_json("sources.json")["obygaze12"], "sha256", hashlib.sha256(content).hexdigest()
    )
    result = obygaze(*command)
    assert "192 clips of 12 films" in result.output, result.output
    assert obygaze(*importer).exit_code == 2
    refused(obygaze(*importer, tmp_path / "x.csv", "--download"), code=2)
