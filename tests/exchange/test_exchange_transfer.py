"""Whole stores to and from elsewhere: resumed, verified, and never over something else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.store import diff, finalise, open_store, verify
from obygaze_features.store.exchange import pack, pull, push
from obygaze_features.store.places import http
from tests.exchange.hub import LARGE, Hub, hub
from tests.store import toys
from tests.store.making import flip_bit, numbers, open_state
from tests.store.s3 import bucket, relay
from tests.store.serving import Served, serve


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {"frames": numbers(200, (32, 64), "float16"), "native": numbers(200, (64,), "float32")}
    path = open_state(tmp_path_factory.mktemp("large") / "large.zarr", values, block_rows=32)
    finalise(path)
    return path


@pytest.fixture
def server(final_store: Path) -> Iterator[Served]:
    with serve(final_store.parent) as served:
        yield served


@pytest.fixture
def other_store(tmp_path: Path) -> Path:
    path = toys.a_store(tmp_path / "other.zarr", 5)
    finalise(path)
    return path


def obygaze(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli", "stores", *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_what_is_pulled_is_what_was_offered(server, final_store, tmp_path):
    pack(final_store, tmp_path / "toy.zip")
    for number, address in enumerate(
        [f"{server.url}/toy.zarr", tmp_path / "toy.zip", final_store, str(final_store)]
    ):
        done = pull(address, tmp_path / f"{number}.zarr")
        assert files_of(done.path) == files_of(final_store)
        assert verify(done.path) == []
        assert (done.path / "zarr.json").stat().st_mode & 0o222 == 0
        assert done.files == len(files_of(final_store))
        assert done.size > done.fetched > 0.9 * done.size - 5000
    server.ranges = False  # all that takes no more than whole files, cut off or not
    cuts = iter([100, 700])
    server.cut = lambda path: next(cuts, None) if path.endswith("items.csv") else None
    assert pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr").files == done.files
    with pytest.raises(OutputExists, match=r"whole.zarr exists already"):
        pull(f"{server.url}/toy.zarr", tmp_path / "whole.zarr")
    assert {one.name for one in tmp_path.iterdir()} == {
        "toy.zip", "whole.zarr", *(f"{number}.zarr" for number in range(4)),
    }  # fmt: skip


def test_a_pull_killed_three_times_at_random_bytes_goes_on(large_store, tmp_path):
    chance = np.random.default_rng(11)
    output, address = tmp_path / "got.zarr", ""
    with serve(large_store.parent) as served:
        address = f"{served.url}/large.zarr"
        for _ in range(3):
            left = int(chance.integers(50_000, 250_000))
            running = obygaze("pull", address, "-o", output)

            def kill_at(path: str) -> int | None:
                nonlocal left
                if left < 0:  # it asks for what was cut off, and so has what came before
                    running.send_signal(signal.SIGKILL)  # noqa: B023  # none other is started yet
                    return 0
                size = (large_store.parent / path[1:]).stat().st_size
                left -= size
                return None if left >= 0 else size + left

            served.cut = kill_at
            running.communicate(timeout=60)
            assert running.returncode == -signal.SIGKILL
            assert not output.exists()
        served.cut = lambda path: None
        last = obygaze("pull", address, "-o", output, "--json")
        told = json.loads(last.communicate(timeout=60)[0])
    assert told["fetched"] < 0.8 * told["size"]
    assert files_of(output) == files_of(large_store)
    assert verify(output) == []
    assert [one.name for one in tmp_path.iterdir()] == ["got.zarr"]


def test_what_was_fetched_wrong_is_fetched_again(server, final_store, tmp_path, monkeypatch):
    monkeypatch.setattr(http, "PAUSES", ())
    server.cut = lambda path: 10 if path.endswith("items.csv") else None
    with pytest.raises(StoreError, match=r"items.csv cannot be read: the connection was cut"):
        pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
    [begun] = tmp_path.iterdir()
    part = next(begun.rglob(".items.csv.part"))
    assert part.stat().st_size == 10
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
    monkeypatch.setattr(http, "PAUSES", ())
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
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is not there, although"):
        pull(url, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr").exists()
    with pytest.raises(StoreError, match=r"none.zarr is not a feature store"):
        pull(f"{server.url}/none.zarr", tmp_path / "x.zarr")
    toys.a_store(tmp_path / "open.zarr")
    with pytest.raises(StoreError, match=r"is still open.*obygaze stores subset .*/open.zarr --fi"):
        pull(f"{server.url}/open.zarr", tmp_path / "x.zarr")
    with pytest.raises(UsageError, match=r"ends in .zarr"):
        pull(url, tmp_path / "x")


def test_a_store_is_replaced_only_when_told_and_when_the_new_one_is_there(
    server, final_store, other_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(http, "PAUSES", ())
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
    with pytest.raises(OutputExists, match="is not something that obygaze made"):
        pull(url, tmp_path / "films.zarr", overwrite=True)
    assert files_of(tmp_path / "films.zarr") == {"one.mkv": b"precious"}
    assert len(server.requests) <= 2  # said before anything is fetched


def test_two_that_fetch_the_same_do_not_mix_their_bytes(server, final_store, tmp_path):
    said = []

    def meanwhile(path: str) -> None:
        if path.endswith("rows.csv"):
            with pytest.raises(StoreError, match=r"another process is fetching .*x\.zarr; wait"):
                pull(f"{server.url}/toy.zarr", tmp_path / "x.zarr")
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
    with pytest.raises(StoreError, match=rf"/own\.zarr: '{name}' is n") as problem:
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
    with pytest.raises(StoreError, match="no name of a store's"):
        pull(f"{server.url}/own.zarr", tmp_path / "deep/x.zarr")
    assert {one.name for one in tmp_path.iterdir()} == {"own.zarr"}


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "shared" / "toy.zarr")
    else:
        name = f"shared-{tmp_path.name.lower().replace('_', '-')[-40:]}"  # the server forgets none
        with bucket(name):
            yield f"s3://{name}/lab/toy.zarr"


def test_what_is_pushed_is_what_is_read_there(target, final_store, other_store, tmp_path):
    done = push(final_store, target)
    assert (done.where, done.files) == (target, len(files_of(final_store)))
    assert done.sent == done.files
    assert verify(target) == []
    assert diff(open_store(target), open_store(final_store)).identical
    assert files_of(pull(target, tmp_path / "back.zarr").path) == files_of(final_store)
    assert push(final_store, target).sent == 0
    with pytest.raises(StoreError, match=r"toy.zarr holds another store; choose another"):
        push(other_store, target)
    with pytest.raises(StoreError, match=r"holds something else, such as toy.zarr/README.md"):
        push(other_store, target.rpartition("/")[0])
    assert verify(target) == []


def test_a_push_that_was_cut_off_goes_on(target, final_store, other_store):
    from obygaze_features.store.places.fsspec_place import file_system

    push(final_store, target)
    system, root = file_system(target)
    digest = hashlib.sha256((final_store / "checksums.json").read_bytes()).hexdigest()
    for name in ("checksums.json", "zarr.json", "native/c/0/0"):
        system.rm_file(f"{root}/{name}")
    system.pipe_file(f"{root}/.pushing", digest.encode())
    system.pipe_file(f"{root}/rows.csv", b"half of it")
    damaged = bytearray((final_store / "frames/c/0/0/0").read_bytes())
    damaged[9] ^= 1
    system.pipe_file(f"{root}/frames/c/0/0/0", bytes(damaged))
    with pytest.raises(StoreError, match="is not a feature store"):
        open_store(target)
    with pytest.raises(StoreError, match="holds a part of another store that is being pushed"):
        push(other_store, target)
    assert push(final_store, target).sent == 5
    assert verify(target) == []
    assert not system.exists(f"{root}/.pushing")


def test_a_push_killed_three_times_at_random_bytes_goes_on(large_store, tmp_path):
    chance = np.random.default_rng(5)
    with bucket("killed"), relay(os.environ["AWS_ENDPOINT_URL"]) as way:
        target = "s3://killed/large.zarr"
        for _ in range(3):
            running = obygaze("push", large_store, target, AWS_ENDPOINT_URL=way.url)
            way.after = int(chance.integers(20_000, 500_000))
            way.then = lambda: running.send_signal(signal.SIGKILL)  # noqa: B023  # called now
            running.communicate(timeout=60)
            assert running.returncode == -signal.SIGKILL
            with pytest.raises(StoreError, match="is not a feature store"):
                open_store(target)
        way.after = 10**12
        last = obygaze("push", large_store, target, "--json", AWS_ENDPOINT_URL=way.url)
        told = json.loads(last.communicate(timeout=60)[0])
        assert 0 < told["sent"] < told["files"]
        assert verify(target) == []
        assert files_of(pull(target, tmp_path / "back.zarr").path) == files_of(large_store)


def test_a_store_that_is_damaged_here_is_not_offered_there(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    flip_bit(own / "rows.csv", 20)
    with pytest.raises(StoreError, match=r"rows.csv is not as it was.*; run: .*verify .*/own.zarr"):
        push(own, target)
    with pytest.raises(StoreError, match=r"is not a feature store"):
        open_store(target)


def test_what_is_damaged_here_does_not_replace_what_is_whole_there(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    push(own, target)
    shard = own / "frames/c/0/0/0"
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 is not as it was written, so the store "):
        push(own, target)
    shard.unlink()
    with pytest.raises(StoreError, match=r"frames/c/0/0/0 cannot be read \(No such file"):
        push(own, target)
    assert verify(target) == []


def test_only_the_stores_own_files_are_sent(target, final_store, tmp_path):
    own = Path(shutil.copytree(final_store, tmp_path / "own.zarr"))
    (own / "notes.txt").write_text("private")
    assert push(own, target).left_out == ("notes.txt",)
    assert files_of(pull(target, tmp_path / "back.zarr").path) == files_of(final_store)
    own = Path(shutil.copytree(final_store, tmp_path / "strange.zarr"))
    (tmp_path / "secret").write_text("private")
    listed = json.loads((own / "checksums.json").read_text())
    for name, why in (("../secret", "no name of a store's"), ("notes", "no file of a store")):
        (own / "checksums.json").chmod(0o644)
        (own / "checksums.json").write_text(json.dumps({name: "0" * 64, **listed}))
        with pytest.raises(StoreError, match=why):
            push(own, f"{target}.other")
    with pytest.raises(StoreError, match=r"is not a feature store|does not exist"):
        open_store(f"{target}.other")


def test_of_two_that_push_at_once_one_gets_the_place(final_store, other_store, tmp_path):
    """The other's mark comes over ours, when both saw that there is nothing yet."""
    from fsspec.implementations.local import LocalFileSystem

    ours, put = (
        hashlib.sha256((other_store / "checksums.json").read_bytes()),
        LocalFileSystem.put_file,
    )

    def meanwhile(self, here, there, **options):
        put(self, here, there, **options)
        (tmp_path / "x.zarr/.pushing").write_text(ours.hexdigest())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", meanwhile)
        with pytest.raises(StoreError, match="holds a part of another store that is being pushed"):
            push(final_store, tmp_path / "x.zarr")
    assert not (tmp_path / "x.zarr/checksums.json").exists()


def test_what_cannot_be_pushed_is_one_line(final_store, tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films/one.mkv").write_text("precious")
    with pytest.raises(StoreError, match=r"films holds something else, such as one.mkv"):
        push(final_store, tmp_path / "films")
    assert files_of(tmp_path / "films") == {"one.mkv": b"precious"}
    toys.a_store(tmp_path / "open.zarr")
    with pytest.raises(StoreError, match=r"is still open.*run: obygaze stores finalise"):
        push(tmp_path / "open.zarr", tmp_path / "x.zarr")
    with pytest.raises(UsageError, match="over HTTP stores are only read"):
        push(final_store, "https://lab.example/x.zarr")
    with pytest.raises(UsageError, match="lies inside the store"):
        push(final_store, final_store / "copy")
    with pytest.raises(UsageError, match="hf://datasets/OWNER/NAME is meant"):
        push(final_store, "hf://models/x")
    with pytest.raises(UsageError, match="nonsense://x cannot be opened"):
        push(final_store, "nonsense://x")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub() as state:
        monkeypatch.setenv("HF_ENDPOINT", state.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield state


def test_the_hub_gets_a_store_in_one_commit_and_gives_it_back(
    lab, final_store, other_store, tmp_path
):
    """By processes of their own, as the Hub's client looks at its environment but once."""
    address = "hf://datasets/lab/toy"
    own = shutil.copytree(final_store, tmp_path / "toy.zarr")
    (own / "notes.txt").write_text("private")  # it stays here
    large = {name for name, data in files_of(final_store).items() if len(data) >= LARGE}
    lab.patience = 2
    first = obygaze("push", own, address)
    told = first.communicate(timeout=60)[0]
    assert first.returncode == 1, told
    assert told.startswith(f"Error: {address}: ")
    assert told.count("\n") == 1
    assert set(lab.repos["lab/toy"]) == {".gitattributes"}
    assert lab.private == {"lab/toy"}
    lab.patience = None
    again = obygaze("push", own, address, "--json")
    told = again.communicate(timeout=60)[0]
    assert again.returncode == 0, told
    assert len(lab.sent) == len(set(lab.sent)) == len(large)  # none was sent twice
    kept = {name: data for name, data in lab.repos["lab/toy"].items() if name[0] != "."}
    assert kept == files_of(final_store)

    # All at once, as each takes a second to start.
    lab.repos["lab/films"] = {"film.mkv": b"precious"}
    before = {name: dict(files) for name, files in lab.repos.items()}
    runs = {
        "same": obygaze("push", final_store, address, "--json"),
        "other": obygaze("push", other_store, address),
        "films": obygaze("push", final_store, "hf://datasets/lab/films"),
        "pull": obygaze("pull", address, "-o", tmp_path / "back.zarr"),
        "verify": obygaze("verify", address),
        "subset": obygaze("subset", address, "--ids", "tt1-003", "-o", tmp_path / "one.zarr"),
        "none": obygaze("info", "hf://datasets/lab/none"),
        "offline": obygaze("info", address, HF_HUB_OFFLINE="1"),
    }
    said = {name: run.communicate(timeout=60)[0] for name, run in runs.items()}
    codes = {name: run.returncode for name, run in runs.items()}
    assert codes == {
        "same": 0, "other": 1, "films": 1, "pull": 0, "verify": 0, "subset": 0, "none": 1,
        "offline": 1,
    }, said  # fmt: skip
    assert json.loads(said["same"])["sent"] == 0
    assert "holds another store" in said["other"]
    assert "holds something else, such as film.mkv" in said["films"]
    assert "hf_secret" not in "".join(said.values())
    assert f"{address} is sound" in said["verify"]
    assert "HF_HUB_OFFLINE is set" in said["offline"]
    assert lab.repos == before
    assert files_of(tmp_path / "back.zarr") == files_of(final_store)
    np.testing.assert_array_equal(
        open_store(tmp_path / "one.zarr").array("native"),
        [open_store(final_store)["tt1-003"]["native"]],
    )
