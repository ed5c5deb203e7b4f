"""Copies of whole stores: resumed, verified, and never over something else."""

import shutil
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store import files, open_store
from obygaze_features.store.diff import diff
from obygaze_features.store.finalise import finalise
from obygaze_features.store.transfer import pull
from obygaze_features.store.verify import verify
from tests.kit.servers import Served, at_a_time, bucket, in_a_thread, serve
from tests.kit.store import files_of, flip_bit, open_state, pack, push


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.gate)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "shared" / "toy.zarr")
    else:
        name = f"shared-{tmp_path.name.lower().replace('_', '-')[-40:]}"  # the server forgets none
        with bucket(name):
            yield f"s3://{name}/lab/toy.zarr"


@pytest.fixture
def own(final_store, tmp_path):
    return Path(shutil.copytree(final_store, tmp_path / "own.zarr"))


def test_a_pushed_store_reads_the_same(target, final_store, own, other_store, tmp_path):
    (own / "notes.txt").write_text("private")
    result = push(own, target)
    assert (result.where, result.left_out) == (target, ["notes.txt"])
    assert result.files == result.sent == len(files_of(final_store))
    assert verify(target) == []
    assert diff(open_store(target), open_store(final_store)).identical
    assert files_of(pull(target, tmp_path / "back.zarr").path) == files_of(final_store)
    assert push(final_store, target).sent == 0
    with pytest.raises(StoreError, match=r"toy.zarr holds another store"):
        push(other_store, target)
    # Like cp, a push to a folder keeps the store's name; no store goes into another.
    folder = target.rpartition("/")[0]
    for _ in range(2):
        result = push(other_store, f"{folder}/")
        assert result.where == f"{folder}/other.zarr"
    assert result.sent == push(other_store, f"{folder}/other.zarr").sent == 0
    assert verify(f"{folder}/other.zarr") == verify(target) == []
    # A folder that was filled by an earlier version, which did not keep the store's name.
    shutil.copytree(final_store, tmp_path / "before")
    assert push(final_store, tmp_path / "before").sent == 0


def test_an_interrupted_push_is_resumed(target, final_store, other_store):
    push(final_store, target)
    files = open_files(target)
    system, root = files.system, files.root
    for name in ("zarr.json", "native/c/0/0"):
        system.rm_file(f"{root}/{name}")
    system.pipe_file(f"{root}/rows.csv", b"half of it")
    damaged = bytearray((final_store / "frames/c/0/0/0").read_bytes())
    damaged[9] ^= 1
    system.pipe_file(f"{root}/frames/c/0/0/0", bytes(damaged))
    with pytest.raises(StoreError, match="a push was interrupted"):
        open_store(target)
    with pytest.raises(StoreError, match="holds another store"):
        push(other_store, target)
    assert push(final_store, target).sent == 4
    assert verify(target) == []


def test_a_damaged_store_does_not_replace_a_sound_one(final_store, own, tmp_path):
    target = f"{tmp_path}/shared/toy.zarr"
    push(own, target)
    shard = own / "frames/c/0/0/0"
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(
        StoreError, match=r"frames/c/0/0/0 does not match its checksum, so the store "
    ):
        push(own, target)
    shard.unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 cannot be read \(No such file"):
        push(own, target)
    assert verify(target) == []
    shutil.copyfile(final_store / "frames/c/0/0/0", shard)
    flip_bit(own / "rows.csv", 20)
    with pytest.raises(StoreError, match=r"rows.csv does not match its checksum"):
        push(own, f"{target}.zarr")
    with pytest.raises(StoreError, match="a push was interrupted"):
        open_store(f"{target}.zarr")


@pytest.fixture
def server(final_store: Path) -> Iterator[Served]:
    with serve(final_store.parent) as served:
        yield served


def cut_at(name: str, *sizes: int):
    """Cut the connection while a file is sent, after each of these numbers of bytes."""
    rest = list(sizes)
    return lambda path: rest.pop(0) if path.endswith(name) and rest else None


def test_a_pulled_store_equals_the_original(server, final_store, tmp_path):
    pack(final_store, tmp_path / "toy.zip")
    for number, address in enumerate(
        [f"{server.url}/toy.zarr", tmp_path / "toy.zip", final_store, str(final_store)]
    ):
        result = pull(address, tmp_path / f"{number}.zarr")
        assert files_of(result.path) == files_of(final_store)
        assert verify(result.path) == []
        assert (result.path / "zarr.json").stat().st_mode & 0o222 == 0
        assert result.files == len(files_of(final_store))
        assert result.size > result.fetched > 0.9 * result.size - 5000
    server.ranges = False  # works with whole files alone, interrupted or not
    server.cut = cut_at("items.csv", 100, 700)
    result = pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert files_of(result.path) == files_of(final_store)
    with pytest.raises(OutputExists, match=r"whole.zarr already exists"):
        pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert {path.name for path in tmp_path.iterdir()} == {
        "toy.zip", "whole.zarr", *(f"{number}.zarr" for number in range(4)),
    }  # fmt: skip


def test_files_are_pulled_eight_at_a_time(server, final_store, tmp_path):
    with at_a_time(server) as counts:
        pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    assert 1 < max(counts) <= 8
    server.ranges = False  # each file is in memory as a whole
    with at_a_time(server) as counts:
        pull(f"{server.url}/toy.zarr", tmp_path / "y.zarr")
    assert max(counts) == 1
    assert files_of(tmp_path / "x.zarr") == files_of(tmp_path / "y.zarr") == files_of(final_store)


class WithoutRanges(SimpleHTTPRequestHandler):
    """Serve like ``python -m http.server``, but stop eventually, so that no test fills a disk."""

    asked = 0
    #: Claims to send a part, but sends the whole file.
    status = HTTPStatus.OK

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.asked > 100:
            self.send_error(HTTPStatus.FORBIDDEN)
        else:
            super().do_GET()

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(self.status if code == HTTPStatus.OK else code, message)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT])
def test_a_file_of_one_piece_downloads_without_ranges(tmp_path, status, obygaze):
    """Otherwise the request after an 8 MiB shard would return its beginning, forever."""
    rows = np.random.default_rng(0).standard_normal((337, 6218), np.float32)
    store = finalise(open_state(tmp_path / "www/x.zarr", {"native": rows}, block_rows=337))
    assert (store.path / "native/c/0/0").stat().st_size == files.PIECE_BYTES
    handler = type("Handler", (WithoutRanges,), {"status": status})
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path / "www"))
    with in_a_thread(served):
        url, output = f"http://127.0.0.1:{served.server_port}/x.zarr", tmp_path / "x.zarr"
        result = obygaze("stores", "pull", url, "-o", output, code=None)
        if status == HTTPStatus.OK:
            assert result.exit_code == 0
            assert files_of(output) == files_of(store.path)
            assert verify(url) == []
            rest = files.Remote(url).stream("rows.csv", 5)
            assert b"".join(rest) == (output / "rows.csv").read_bytes()[5:]
        else:
            assert result.exit_code == 1
            assert "did not send the part of the file that was requested" in result.stderr
            assert not output.exists()
    assert handler.asked <= 100


def test_an_archive_is_fetched_whole(server, final_store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server.folder, server.ranges = tmp_path, False
    pack(final_store, tmp_path / "toy.zip")
    server.cut = cut_at("toy.zip", 100, 700)
    url = f"{server.url}/toy.zip"
    result = pull(url, tmp_path / "new/toy.zarr")
    assert files_of(result.path) == files_of(final_store)
    assert result.fetched == (tmp_path / "toy.zip").stat().st_size
    flip_bit(tmp_path / "toy.zip", 3000)
    with pytest.raises(StoreError, match=rf"^{url}"):
        pull(url, tmp_path / "new/other.zarr")
    assert [path.name for path in result.path.parent.iterdir()] == ["toy.zarr"]


def test_files_of_an_interrupted_pull_are_checked_again(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "PAUSES_S", ())
    url, output = f"{server.url}/toy.zarr", tmp_path / "here/x.zarr"

    def interrupt(name: str) -> None:
        shutil.rmtree(output, ignore_errors=True)
        server.cut = cut_at(name, 10)
        with pytest.raises(StoreError, match=f"{name}: .*run the same command"):
            pull(url, output)

    interrupt("items.csv")
    [begun] = output.parent.iterdir()
    next(begun.rglob(".items.csv.part")).write_bytes(b"not that")
    for file in begun.rglob("*.json"):
        if file.name != "checksums.json":
            flip_bit(file, 3)
    pull(url, output)
    assert files_of(output) == files_of(final_store)
    interrupt("rows.csv")  # files that are whole are kept
    output.with_name(".x.zarr.pulling.lock").touch()  # as a killed process leaves it
    result = pull(url, output)
    assert 0 < result.fetched < 0.5 * result.size
    interrupt("rows.csv")  # and a store that changes meanwhile is fetched from the beginning
    server.folder = tmp_path
    pull(f"{server.url}/other.zarr", output)
    assert files_of(output) == files_of(other_store)
