"""Copies of whole stores: resumed, verified, and never over something else."""

import shutil
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store import files, open_store, remote
from obygaze_features.store.diff import diff
from obygaze_features.store.transfer import pack, pull, push
from obygaze_features.store.verify import verify
from tests.kit.servers import Served, bucket, in_a_thread, serve
from tests.kit.store import files_of, flip_bit

SHARD = "native/c/0/0"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    name = f"shared-{tmp_path.name.lower().replace('_', '-')[-40:]}"  # the server forgets none
    with bucket(name):
        yield f"s3://{name}/lab/toy.zarr"


@pytest.fixture
def own(final_store, tmp_path):
    return Path(shutil.copytree(final_store, tmp_path / "own.zarr"))


def test_a_pushed_store_reads_the_same(target, final_store, own, tmp_path):
    (own / "notes.txt").write_text("private")
    result = push(own, target)
    assert result["where"] == target
    assert result["files"] == result["sent"] == len(files_of(final_store))
    assert verify(target) == []
    assert diff(open_store(target), open_store(final_store))["identical"]
    assert files_of(pull(target, tmp_path / "back.zarr").path) == files_of(final_store)
    assert push(final_store, target)["sent"] == 0


@pytest.mark.night
def test_a_store_is_pushed_beside_others(target, final_store, other_store):
    push(final_store, target)
    with pytest.raises(StoreError, match=r"toy.zarr holds another store"):
        push(other_store, target)
    # Like cp, a push to another address keeps the store's name; no store goes into another.
    folder = target.rpartition("/")[0]
    for _ in range(2):
        result = push(other_store, f"{folder}/")
        assert result["where"] == f"{folder}/other.zarr"
    assert result["sent"] == push(other_store, f"{folder}/other.zarr")["sent"] == 0
    assert verify(f"{folder}/other.zarr") == verify(target) == []


@pytest.mark.night
def test_an_interrupted_push_is_resumed(target, final_store, other_store):
    push(final_store, target)
    there = remote.Remote(target)
    system = there.connect()
    for name in ("zarr.json", "native/c/0/0"):
        system.rm_file(there.path(name))
    system.pipe_file(there.path("rows.csv"), b"half of it")
    with pytest.raises(StoreError, match="run an interrupted push again"):
        open_store(target)
    with pytest.raises(StoreError, match="holds another store"):
        push(other_store, target)
    assert push(final_store, target)["sent"] == 3
    assert verify(target) == []


def test_a_damaged_store_is_not_copied(own, tmp_path):
    shard = own / "frames/c/0/0/0"
    flip_bit(shard, 9)
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 cannot be copied: it was changed"):
        pack(own, tmp_path / "x.zip")
    shard.unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 cannot be copied: it is missing"):
        pack(own, tmp_path / "x.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["own.zarr"]


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
        pulled = pull(address, tmp_path / f"{number}.zarr")
        assert files_of(pulled.path) == files_of(final_store)
        assert verify(pulled) == []
        assert (pulled.path / "zarr.json").stat().st_mode & 0o222 == 0
    server.ranges = False
    server.cut = cut_at("items.csv", 100, 700)
    pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert files_of(tmp_path / "whole.zarr") == files_of(final_store)
    with pytest.raises(OutputExists, match=r"whole.zarr already exists"):
        pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert {path.name for path in tmp_path.iterdir()} == {
        "toy.zip", "whole.zarr", *(f"{number}.zarr" for number in range(4)),
    }  # fmt: skip


class WithoutRanges(SimpleHTTPRequestHandler):
    """Serve like ``python -m http.server``, which sends whole files."""

    #: 206 claims to send a part, but sends the whole file.
    status = HTTPStatus.OK

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(self.status if code == HTTPStatus.OK else code, message)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.night
@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT])
def test_a_server_without_ranges_is_pulled_from_and_not_read(
    final_store, tmp_path, monkeypatch, status
):
    """Otherwise the request after the first piece of a shard would return it, forever."""
    store = open_store(shutil.copytree(final_store, tmp_path / "www/x.zarr"))
    handler = type("Handler", (WithoutRanges,), {"status": status})
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path / "www"))
    with in_a_thread(served):
        url = f"http://127.0.0.1:{served.server_port}/x.zarr"
        assert files_of(pull(url, tmp_path / "x.zarr").path) == files_of(store.path)
        there = remote.Remote(url)
        monkeypatch.setattr(files, "PIECE_BYTES", (store.path / SHARD).stat().st_size)
        # It sends the whole shard, of which no more is read than was asked for.
        assert len(there.connect().cat_file(there.path(SHARD), start=0, end=10)) == 10
        for read in (
            partial(open_store(url).read, missing="drop"),
            partial(files.sha256_at, there, SHARD),
        ):
            with pytest.raises(StoreError, match="does not support range requests"):
                read()


def test_files_of_an_interrupted_pull_are_checked_again(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "PAUSES_S", ())
    url, output = f"{server.url}/toy.zarr", tmp_path / "here/x.zarr"

    def interrupt(name: str) -> Path:
        shutil.rmtree(output, ignore_errors=True)
        server.cut = cut_at(name, 10)
        with pytest.raises(StoreError, match="run the same command"):
            pull(url, output)
        return output.with_name(".x.zarr.pulling")

    begun = interrupt("zarr.json")
    begun = interrupt("README.md")
    for file in begun.rglob("*"):
        if file.is_file() and file.name != "checksums.json" and file.stat().st_size:
            flip_bit(file, 0)
    (begun / "items.csv").write_bytes(b"not that")
    pull(url, output)
    assert files_of(output) == files_of(final_store)
    begun = interrupt("rows.csv")  # files that are whole are kept
    output.with_name(".x.zarr.pulling.lock").touch()  # as a killed process leaves it
    whole = {name for name, data in files_of(begun).items() if data == files_of(final_store)[name]}
    server.forget()
    pull(url, output)
    again = whole.intersection(path.partition("zarr/")[2] for path, _ in server.requests)
    arrays = {f"{name}/zarr.json" for name in open_store(final_store).arrays}
    assert again <= {"checksums.json", "zarr.json", "status/c/0", *arrays}  # to check the list
    interrupt("rows.csv")  # and a store that changes meanwhile is fetched from the beginning
    server.folder = tmp_path
    pull(f"{server.url}/other.zarr", output)
    assert files_of(output) == files_of(other_store)
