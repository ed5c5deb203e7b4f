"""Whole stores from elsewhere: resumed, verified, and never over something else."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.store import finalise, remote, verify
from obygaze_features.store.pack import pack
from obygaze_features.store.pull import pull
from obygaze_features.store.remote import PIECE_BYTES
from tests.exchange.travelling import files_of, obygaze
from tests.kit import store as toys
from tests.kit.servers import Served, serve
from tests.kit.store import flip_bit, numbers, open_state


@pytest.fixture
def server(final_store: Path) -> Iterator[Served]:
    with serve(final_store.parent) as served:
        yield served


def test_what_is_pulled_is_what_was_offered(server, final_store, tmp_path):
    pack(final_store, tmp_path / "toy.zip")
    for number, address in enumerate(
        [f"{server.url}/toy.zarr", tmp_path / "toy.zip", final_store, str(final_store)]
    ):
        done = pull(address, tmp_path / f"{number}.zarr")
        assert files_of(done["path"]) == files_of(final_store)
        assert verify(done["path"]) == []
        assert (done["path"] / "zarr.json").stat().st_mode & 0o222 == 0
        assert done["files"] == len(files_of(final_store))
        assert done["size"] > done["fetched"] > 0.9 * done["size"] - 5000
    server.ranges = False  # all that takes no more than whole files, cut off or not
    cuts = iter([100, 700])
    server.cut = lambda path: next(cuts, None) if path.endswith("items.csv") else None
    assert pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")["files"] == done["files"]
    with pytest.raises(OutputExists, match=r"whole.zarr exists already"):
        pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert {one.name for one in tmp_path.iterdir()} == {
        "toy.zip", "whole.zarr", *(f"{number}.zarr" for number in range(4)),
    }  # fmt: skip


@pytest.mark.gate
def test_a_pull_killed_three_times_at_random_bytes_goes_on(tmp_path):
    """Whole pieces stay; of the one that was being fetched nothing does."""
    values = {"frames": numbers(1200, (32, 512), "float16")}
    store = open_state(tmp_path / "www/large.zarr", values, block_rows=400)
    finalise(store)
    chance = np.random.default_rng(11)
    output = tmp_path / "here/got.zarr"
    with serve(store.parent) as served:
        address = f"{served.url}/large.zarr"
        for _ in range(3):
            served.forget()
            limit = int(chance.integers(PIECE_BYTES, 2 * PIECE_BYTES))
            running = obygaze("pull", address, "-o", output)
            # The piece after that is cut off, and when it is asked for again, there is an end.
            served.cut = lambda path: 50_000 if served.bytes > limit else None  # noqa: B023
            served.then = lambda path: (
                running.send_signal(signal.SIGKILL) if served.bytes > limit + 50_000 else None  # noqa: B023
            )
            running.communicate(timeout=600)
            assert running.returncode == -signal.SIGKILL
            assert not output.exists()
        served.cut, served.then = lambda path: None, lambda path: None
        last = obygaze("pull", address, "-o", output, "--json")
        told = json.loads(last.communicate(timeout=600)[0])
    assert told["fetched"] < 0.8 * told["size"]
    assert files_of(output) == files_of(store)
    assert verify(output) == []
    assert [one.name for one in output.parent.iterdir()] == ["got.zarr"]


def test_what_was_fetched_wrong_is_fetched_again(server, final_store, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "PAUSES_S", ())
    server.cut = lambda path: 10 if path.endswith("items.csv") else None
    with pytest.raises(StoreError, match=r"items.csv: the connection was cut"):
        pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    [begun] = tmp_path.iterdir()
    part = next(begun.rglob(".items.csv.part"))
    part.write_bytes(b"not that")
    for file in begun.rglob("*.json"):
        if file.name != "checksums.json":
            flip_bit(file, 3)
    server.cut = lambda path: None
    pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    assert files_of(tmp_path / "x.zarr") == files_of(final_store)


def test_a_store_that_changes_between_two_runs_is_begun_anew(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "PAUSES_S", ())
    server.cut = lambda path: 10 if path.endswith("rows.csv") else None
    with pytest.raises(StoreError):
        pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    server.cut, server.folder = lambda path: None, tmp_path
    pull(f"{server.url}/other.zarr", tmp_path / "x.zarr")
    assert files_of(tmp_path / "x.zarr") == files_of(other_store)


def test_what_is_damaged_where_it_comes_from_is_one_line(server, final_store, tmp_path):
    server.folder = tmp_path
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    flip_bit(own / "frames/c/0/0/0", 3)
    url = f"{server.url}/own.zarr"
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is not as it was written; tell whoever"):
        pull(url, tmp_path / "x.zarr")
    (own / "frames/c/0/0/0").unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is missing, although"):
        pull(url, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
    with pytest.raises(StoreError, match=r"there is no store at .*none.zarr"):
        pull(f"{server.url}/none.zarr", tmp_path / "x.zarr")
    toys.a_store(tmp_path / "open.zarr")
    with pytest.raises(StoreError, match=r"is still open.*obygaze stores subset .*/open.zarr --fi"):
        pull(f"{server.url}/open.zarr", tmp_path / "x.zarr")
    with pytest.raises(UsageError, match=r"ends in .zarr"):
        pull(url, tmp_path / "x")


def test_a_store_is_replaced_only_when_told_and_when_the_new_one_is_there(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "PAUSES_S", ())
    url, before = f"{server.url}/toy.zarr", files_of(other_store)
    with pytest.raises(OutputExists, match=r"exists already; .* or add --overwrite"):
        pull(url, other_store)
    server.cut = lambda path: 10 if path.endswith("rows.csv") else None
    with pytest.raises(StoreError, match="the connection was cut"):
        pull(url, other_store, overwrite=True)
    assert files_of(other_store) == before
    server.cut = lambda path: None
    pull(url, other_store, overwrite=True)
    assert files_of(other_store) == files_of(final_store)
    assert [one.name for one in tmp_path.iterdir()] == ["other.zarr"]
    (tmp_path / "films.zarr").mkdir()
    (tmp_path / "films.zarr/one.mkv").write_text("precious")
    server.forget()
    with pytest.raises(OutputExists, match="was not made by obygaze"):
        pull(url, tmp_path / "films.zarr", overwrite=True)
    assert files_of(tmp_path / "films.zarr") == {"one.mkv": b"precious"}
    assert len(server.requests) <= 2  # said before anything is fetched


def test_two_that_fetch_the_same_do_not_mix_their_bytes(server, final_store, tmp_path):
    said = []
    # Under another name, as the connection that is being answered cannot be asked meanwhile.
    other_url = server.url.replace("127.0.0.1", "localhost")

    def meanwhile(path: str) -> None:
        if path.endswith("rows.csv"):
            with pytest.raises(StoreError, match=r"another process is fetching .*x\.zarr; wait"):
                pull(f"{other_url}/toy.zarr", tmp_path / "x.zarr")
            said.append(path)

    server.then = meanwhile
    pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    assert said
    assert files_of(tmp_path / "x.zarr") == files_of(final_store)
    assert [one.name for one in tmp_path.iterdir()] == ["x.zarr"]


@pytest.mark.parametrize("name", ["frames/c/0/0/0", "rows.csv", "evil"])
def test_a_store_whose_list_is_not_right_is_not_pulled(server, final_store, tmp_path, name):
    """Lost from the files and from the list, or added to both: all that is listed holds."""
    server.folder = tmp_path
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    listed = json.loads((own / "checksums.json").read_text())
    if name == "evil":
        (own / name).write_text("x")
        listed[name] = hashlib.sha256(b"x").hexdigest()
    else:
        (own / name).unlink()
        del listed[name]
    (own / "checksums.json").chmod(0o644)
    (own / "checksums.json").write_text(json.dumps(listed))
    with pytest.raises(StoreError, match=rf"/own\.zarr: checksums.json .*'{name}'") as problem:
        pull(f"{server.url}/own.zarr", tmp_path / "x.zarr")
    assert "pulling" not in str(problem.value)
    assert not (tmp_path / "x.zarr").exists()


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../b", ".hidden", "a\\b", ""])
def test_a_list_that_leads_elsewhere_is_refused(server, final_store, tmp_path, name):
    server.folder = tmp_path
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    listed = json.loads((own / "checksums.json").read_text())
    (own / "checksums.json").chmod(0o644)
    (own / "checksums.json").write_text(json.dumps({name: "0" * 64, **listed}))
    with pytest.raises(StoreError, match="not a file name of a store"):
        pull(f"{server.url}/own.zarr", tmp_path / "deep/x.zarr")
    assert {one.name for one in tmp_path.iterdir()} == {"own.zarr"}


def test_an_archive_behind_a_server_of_whole_files_is_fetched_whole(
    server, final_store, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server.folder, server.ranges = tmp_path, False
    pack(final_store, tmp_path / "toy.zip")
    url = f"{server.url}/toy.zip"
    cuts = iter([100, 700])
    server.cut = lambda path: next(cuts, None)
    done = pull(url, tmp_path / "new/got.zarr")
    assert files_of(done["path"]) == files_of(final_store)
    assert done["files"] == len(files_of(final_store))
    assert done["fetched"] == (tmp_path / "toy.zip").stat().st_size
    assert [one.name for one in done["path"].parent.iterdir()] == ["got.zarr"]
    flip_bit(tmp_path / "toy.zip", 3000)
    with pytest.raises(StoreError, match=rf"^{url}.*nothing was unpacked"):
        pull(url, tmp_path / "new/other.zarr")
    assert [one.name for one in done["path"].parent.iterdir()] == ["got.zarr"]
