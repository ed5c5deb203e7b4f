"""`obygaze stores serve`: files and ranges of one folder, and nothing else."""

import contextlib
import os
import shutil
import signal
import socket
import sys
from functools import partial
from http.client import HTTPConnection
from subprocess import PIPE, Popen

import pytest

from obygaze_features.errors import StoreError
from obygaze_features.store import open_store
from obygaze_features.store.serving import make_server
from tests.kit.page import open_tab
from tests.kit.servers import in_a_thread

DATA = bytes(range(256)) * 9


@pytest.fixture
def folder(tmp_path):
    offered = tmp_path / "offered"
    (offered / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (offered / "deep/data").write_bytes(DATA)
    (offered / "empty").write_bytes(b"")
    (offered / ".hidden").write_bytes(b"secret")
    (offered / "link").symlink_to(tmp_path / "secret")
    (offered / "link_folder").symlink_to(tmp_path)
    (offered / "link_hidden").symlink_to(offered / ".hidden")
    return offered


@pytest.fixture
def port(folder):
    server = make_server(folder, "127.0.0.1", 0)
    with in_a_thread(server):
        yield server.server_port


def ask(port, path, span="", verb="GET", host=""):
    """Send a request with a plain client, which does not normalise the path."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Range": span, "Host": host}
    connection.request(verb, path, headers={key: value for key, value in headers.items() if value})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data, answer.headers.get("Content-Range")


def test_files_and_ranges_are_served(port):
    for span, first, stop in [
        ("bytes=0-0", 0, 1), ("bytes=5-99", 5, 100), ("bytes=2000-", 2000, 2304),
        ("bytes=2000-99999", 2000, 2304), ("bytes=-10", 2294, 2304), ("bytes=-99999", 0, 2304),
    ]:  # fmt: skip
        where = f"bytes {first}-{stop - 1}/2304"
        assert ask(port, "/deep/data", span) == (206, DATA[first:stop], where)
        assert ask(port, "/deep/data", span, "HEAD") == (206, b"", where)
    for span in ("", "bytes=-", "bytes=1-2,4-5", "lines=1-2", f"bytes={'9' * 5000}-"):
        assert ask(port, "/deep/data", span) == (200, DATA, None)
    for span in ("bytes=2304-", "bytes=9-8", "bytes=-0"):
        assert ask(port, "/deep/data", span) == (416, b"", "bytes */2304")
    assert ask(port, "/empty") == (200, b"", None)
    assert ask(port, "/deep/%64ata?x=1")[0] == 200
    hosts = {"localhost:8000": 200, "127.0.0.1": 200, "evil.example": 403, "localhost.evil": 403}
    for host, status in hosts.items():  # a page cannot read by its own host name
        assert ask(port, "/deep/data", host=host)[0] == status


@pytest.mark.parametrize("body", [
    b"Content-Length: 34\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_request_body_is_not_read_as_the_next_request(port, method, body):
    """A reverse proxy would send the second response to another client."""
    head = f"{method} /empty HTTP/1.1\r\nHost: localhost\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + body + b"GET /deep/data HTTP/1.1\r\nA: b\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError), connection.makefile("rb") as answers:
            assert answers.read().count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", [
    "/", "/deep", "/deep/", "/none", "/.hidden", "/../secret", "/deep/../../secret",
    "/%2e%2e/secret", "/deep/..%2f..%2fsecret", "//secret", "/link", "/link_folder/secret",
    "/..%5csecret", "/link_hidden", "/deep/data%00", "/c:secret", "/deep/data/x",
])  # fmt: skip
def test_nothing_outside_the_folder_is_served(port, path):
    assert ask(port, path) == (404, b"", None)
    assert ask(port, path, verb="PUT")[0] == 501


@pytest.mark.parametrize(("path", "host"), [
    ("toy.zarr", "127.0.0.1"), ("my stores/toy.zarr", "127.0.0.1"), ("stores/toy.zarr", "0.0.0.0"),
])  # fmt: skip
def test_the_command_prints_its_address_and_stops_on_ctrl_c(folder, sound, path, host):
    shutil.copytree(sound / "final.zarr", folder / path)
    command = [sys.executable, "-u", "-m", "obygaze_models.commands.main"]
    command += ["stores", "serve", str(folder), "--port", "0", "--host", host]
    interrupted = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with Popen(command, stdout=PIPE, stderr=PIPE, text=True, preexec_fn=interrupted) as process:
        served, there = process.stdout.readline(), process.stdout.readline()
        name = "127.0.0.1" if host == "127.0.0.1" else socket.gethostname()
        assert served.startswith(f"{folder} is served at http://{name}:")
        machines, _, url = there.strip().partition(": obygaze stores info ")
        assert open_store(url.replace(name, "127.0.0.1")).where.endswith("/toy.zarr")
        assert machines == ("on this machine" if host == "127.0.0.1" else "on other machines")
        if host == "127.0.0.1":
            assert "only this machine can reach it" in process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30)[1] == "ended\n"
    assert process.returncode == 0


def test_unusable_folders_and_ports_are_refused(folder, port):
    with pytest.raises(StoreError, match="data is not a folder"):
        make_server(folder / "deep/data", "127.0.0.1", 0)
    with pytest.raises(StoreError, match=f"at 127.0.0.1:{port}: Address already in use"):
        make_server(folder, "127.0.0.1", port)


READ = """
(async () => {
  const answer = await fetch(ADDRESS, {headers: {Range: "bytes=5-9"}});
  const bytes = [...new Uint8Array(await answer.arrayBuffer())];
  return [answer.status, bytes, answer.headers.get("Content-Range")];
})().catch(problem => problem.message)
"""


@pytest.mark.gate
def test_other_origins_read_only_when_allowed(folder, tmp_path):
    """The browser decides, and sends a preflight request because of the range."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("<!doctype html><title>Lab</title>")
    with in_a_thread(site := make_server(tmp_path / "site", "127.0.0.1", 0)), open_tab() as tab:
        origin = f"http://127.0.0.1:{site.server_port}"
        tab.open(f"{origin}/index.html")
        answers = []
        for allowed in ([], ["https://other.example"], [origin], ["*"]):
            server = make_server(folder, "127.0.0.1", 0, allow_origins=allowed)
            with in_a_thread(server):
                address = f"http://127.0.0.1:{server.server_port}/deep/data"
                answers.append(tab.run(READ.replace("ADDRESS", repr(address))))
    span = [206, list(DATA[5:10]), "bytes 5-9/2304"]
    assert answers == ["Failed to fetch", "Failed to fetch", span, span]


def test_an_origin_is_an_address_without_a_path(folder, obygaze):
    for wrong in ("lab.example", "https://lab.example/page", "ftp://lab.example", "null"):
        result = obygaze("stores", "serve", folder, "--allow-origin", wrong)
        assert result.exit_code == 2
        assert wrong in result.stderr
