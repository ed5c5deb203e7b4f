"""``--download`` against a server on loopback: the pinned file, and any other."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.reading import download_pinned

CONTENT = b"id;label\n" * 1000


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
    path = tmp_path / "file.csv"
    download_pinned(f"{address}/file.csv", path, sha256=hashlib.sha256(CONTENT).hexdigest())
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["file.csv", "cut.csv", "missing.csv"])
def test_any_other_is_refused(address, tmp_path, name):
    right = hashlib.sha256(CONTENT).hexdigest()
    sha256 = "0" * 64 if name == "file.csv" else right
    with pytest.raises(ManifestError) as caught:
        download_pinned(f"{address}/{name}", tmp_path / name, sha256=sha256)
    assert ("is not the file that obygaze knows" in str(caught.value)) == (name != "missing.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "nonsense"])
def test_only_http(url, tmp_path):
    with pytest.raises(ManifestError, match="is not an http address"):
        download_pinned(url, tmp_path / "x", sha256="0" * 64)


def test_nobody_answers(tmp_path):
    with pytest.raises(ManifestError, match="give its path as SOURCE"):
        download_pinned("http://127.0.0.1:1/x", tmp_path / "x", sha256="0" * 64)


def test_command_refuses_another_file(address, tmp_path, obygaze):
    arguments = ("manifests", "import", "obygaze12", "--download", "-o", tmp_path / "m")
    result = obygaze(*arguments, "--url", f"{address}/file.csv")
    assert result.exit_code == 1
    assert reference_json("sources.json")["obygaze12"]["sha256"] in result.stderr
    assert not list(tmp_path.iterdir())


def test_command_takes_the_right_file(address, authors, tmp_path, monkeypatch, obygaze):
    content = (authors / "obygaze12" / "ObyGaze12_thresh_02.csv").read_bytes()
    monkeypatch.setitem(globals(), "CONTENT", content)
    arguments = ("manifests", "import", "obygaze12", "--download", "-o", tmp_path / "m")
    result = obygaze(*arguments, "--url", f"{address}/file.csv")
    assert result.exit_code == 0, result.output
    assert "1,914 clips of 12 films" in result.output


def test_source_or_download(obygaze, tmp_path):
    assert obygaze("manifests", "import", "obygaze12").exit_code == 2
    pair = obygaze("manifests", "import", "obygaze12", tmp_path / "x.csv", "--download")
    assert (pair.exit_code, pair.stderr.count("\n")) == (2, 1)
