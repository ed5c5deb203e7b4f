"""Stores read over HTTP: the same as on a disk, in few requests, whatever the network does."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import socket
import ssl
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import describe, diff, exchange, finalise, open_store, subset, verify
from obygaze_features.store.items import read_items
from obygaze_features.store.places import http
from obygaze_features.store.views import StoreDataset
from obygaze_models.experiments.reading import load_experiment
from obygaze_models.experiments.run import run_experiment
from tests.store import toys
from tests.store.making import final_state, flip_bit, open_state
from tests.store.serving import Served, serve

N, T, D = 300, 32, 512
ROWS = np.random.default_rng(0).standard_normal((N, T, D), np.float32).astype(np.float16)
VALUES = {"native": ROWS[:, 0].astype(np.float32), "frames": ROWS}
CHUNK = T * D * 2 + 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 300 clips, one that is open still, and a compressed one."""
    folder = tmp_path_factory.mktemp("served")
    open_state(folder / "open.zarr", VALUES, failed=[7], todo=[9], block_rows=32)
    for name in ("final", "compressed"):
        shutil.copytree(folder / "open.zarr", folder / f"{name}.zarr")
        compress = name == "compressed"
        finalise(folder / f"{name}.zarr", compress=compress, allow_incomplete=True)
    return folder


@pytest.fixture
def server(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve(made) as served:
        yield served


@pytest.fixture
def own(tmp_path: Path, server: Served, made: Path) -> Path:
    """A copy of the final store, which may be spoilt."""
    server.folder = tmp_path / "www"
    return Path(shutil.copytree(made / "final.zarr", tmp_path / "www/final.zarr"))


@pytest.fixture(params=["open", "final", "compressed"])
def state(request: pytest.FixtureRequest) -> str:
    return request.param


def test_everything_reads_as_from_the_folder(server, made, state):
    here, there = open_store(made / f"{state}.zarr"), open_store(f"{server.url}/{state}.zarr/")
    assert describe(there) == describe(here)
    assert there.sources == here.sources
    assert there.ids == here.ids
    for name in here.arrays:
        np.testing.assert_array_equal(there.array(name), here.array(name))
    wanted = ["tt005", "tt200", "tt005", "tt033"]
    for name in here.arrays:
        np.testing.assert_array_equal(there.read(wanted, name)[1], here.read(wanted, name)[1])
    with pytest.raises(StoreError, match="tt007 failed: row 7 is broken"):
        there["tt007"]
    with pytest.raises(StoreError, match="tt288 is not done yet"):
        there["tt288"]
    items = [read_items(one.place, one.attributes) for one in (here, there)]
    assert items[0].digest == items[1].digest
    again = pickle.loads(pickle.dumps(there))
    np.testing.assert_array_equal(again["tt001"]["frames"], ROWS[1])
    dataset = StoreDataset(f"{server.url}/{state}.zarr", "native", ["tt001", "tt040"])
    assert pickle.loads(pickle.dumps(dataset))[1].tolist() == VALUES["native"][40].tolist()
    assert repr(there).startswith(f"FeatureStore('{server.url}/{state}.zarr', ")


@pytest.mark.parametrize("name", ["final", "compressed"])
def test_opening_takes_four_requests_and_a_clips_frames_three(server, made, name):
    store = open_store(f"{server.url}/{name}.zarr")
    assert len(store.ids) == len(store.status) == N
    assert len(server.requests) == 4
    assert server.bytes < 40_000
    server.forget()
    np.testing.assert_array_equal(store.read(["tt123"], "frames")[1][0], ROWS[123])
    assert len(server.requests) == 3
    index, header = 512 * 16 + 4, 2000
    assert server.bytes < header + index + CHUNK
    server.forget()
    np.testing.assert_array_equal(store.read(["tt222"], "frames")[1][0], ROWS[222])
    assert len(server.requests) == 1
    assert 0 < server.bytes <= CHUNK
    assert server.connections == 1
    server.forget()
    # What was read is kept: a new opening asks only whether it is still the same store.
    store = open_store(f"{server.url}/{name}.zarr")
    np.testing.assert_array_equal(store.read(["tt222", "tt123"], "frames")[1], ROWS[[222, 123]])
    assert [path for path, _ in server.requests] == [f"/{name}.zarr/checksums.json"]


def test_a_subset_takes_only_its_chunks_and_neighbours_together(server, tmp_path):
    store = open_store(f"{server.url}/final.zarr")
    store.read(["tt000"], "frames")
    server.forget()
    rows = [*range(40, 50), 100, *range(60, 70)]
    values = store.read([f"tt{row:03}" for row in rows], "frames")[1]
    np.testing.assert_array_equal(values, ROWS[rows])
    sizes = sorted(size for _, size in server.requests)
    assert sizes == [CHUNK, 10 * CHUNK, 10 * CHUNK]
    server.forget()
    made = subset(store, tmp_path / "some.zarr", ids=[f"tt{row:03}" for row in (3, 4, 41)])
    assert made.done == 3
    found = open_store(made.path)
    np.testing.assert_array_equal(found.array("frames"), ROWS[[3, 4, 41]])
    assert sum(size for path, size in server.requests if path.endswith("frames/c/0/0/0")) == (
        2 * CHUNK  # row 41 is kept from before
    )


def test_an_open_store_takes_the_blocks_records(server):
    store = open_store(f"{server.url}/open.zarr")
    store.read(["tt040"], "frames")
    paths = [path.partition("zarr/")[2] for path, _ in server.requests]
    assert sorted(paths)[:1] == ["blocks/000001.json"]
    assert sum(path.startswith("blocks/") for path in paths) == 1
    assert len(paths) <= 8
    server.forget()
    assert (store.status == open_store(server.folder / "open.zarr").status).all()
    assert len(server.requests) == 9 + 1  # the other records, and whether it is still the same


def test_what_a_writer_added_is_seen_when_it_is_opened_again(server, tmp_path):
    server.folder = tmp_path
    path = toys.a_store(tmp_path / "toy.zarr", blocks=[0])
    url = f"{server.url}/toy.zarr"
    assert (open_store(url).status != 0).sum() == 4
    toys.fill(toys.resume(path))
    assert open_store(url).status.all()
    assert verify(url) == []
    assert diff(open_store(url), open_store(path)).identical


def test_verify_names_what_is_damaged_as_on_the_disk(server, own):
    url = f"{server.url}/final.zarr"
    assert verify(url) == []
    flip_bit(own / "frames/c/0/0/0", 3 * CHUNK + 5)
    flip_bit(own / "rows.csv", 100)
    (own / "README.md").unlink()
    assert verify(url) == verify(own)
    assert {one.file for one in verify(url)} == {"frames/c/0/0/0", "rows.csv", "README.md"}


@pytest.mark.parametrize("name", ["rows.csv", "frames/c/0/0/0", "evil"])
def test_verify_holds_the_list_to_what_such_a_store_has_wherever_it_lies(server, own, name):
    sums = json.loads((own / "checksums.json").read_text())
    if name == "evil":
        (own / name).write_bytes(b"x")
        sums[name] = hashlib.sha256(b"x").hexdigest()
    else:
        del sums[name]
    (own / "checksums.json").chmod(0o644)
    (own / "checksums.json").write_text(json.dumps(sums))
    with zipfile.ZipFile(own.parent / "final.zip", "w") as archive:
        for file in own.rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(own).as_posix())
    here = [one for one in verify(own) if not one.harmless]
    assert [one.file for one in here] == [name]
    assert "list" in here[0].why
    for address in (
        f"{server.url}/final.zarr", f"{server.url}/final.zip", own.parent / "final.zip",
        f"file://{own}",
    ):  # fmt: skip
        assert verify(address) == here


def test_a_flipped_bit_is_named_and_not_kept(server, own):
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    store = open_store(f"{server.url}/final.zarr")
    with pytest.raises(StoreError) as problem:
        store.read(["tt004", "tt005", "tt006"], "frames")
    assert "frames/c/0/0/0: its checksum is wrong; the row of tt005 cannot be" in str(problem.value)
    assert str(problem.value).startswith(server.url)
    assert "repair" not in str(problem.value)
    flip_bit(own / "frames/c/0/0/0", 5 * CHUNK + 5)
    np.testing.assert_array_equal(store.read(["tt005"], "frames")[1][0], ROWS[5])


@pytest.mark.parametrize("name", ["ids/c/0/0", "frames/zarr.json", "rows.csv", "items.csv"])
def test_small_files_are_held_to_the_list(server, own, name):
    flip_bit(own / name, 30)
    store = open_store(f"{server.url}/final.zarr")
    with pytest.raises(StoreError, match=f"{name} is not as it was written"):
        _ = store.ids, store["tt001"], store.sources, read_items(store.place, store.attributes)


def test_a_store_that_is_replaced_meanwhile_is_not_mixed_with_the_old(server, own, tmp_path):
    url = f"{server.url}/final.zarr"
    store = open_store(url)
    np.testing.assert_array_equal(store.read(["tt005"], "frames")[1][0], ROWS[5])
    shutil.rmtree(own)
    other = {name: np.ascontiguousarray(value[::-1]) for name, value in VALUES.items()}
    finalise(open_state(own, other, block_rows=32))
    np.testing.assert_array_equal(open_store(url)["tt005"]["frames"], ROWS[N - 6])
    with pytest.raises(StoreError, match=r"final.zarr was changed since it was opened; open it ag"):
        _ = store.sources
    shutil.rmtree(own)
    with pytest.raises(StoreError, match="is not there any more; it was moved, maybe"):
        store.read(["tt100"], "frames")


def test_without_a_list_of_checksums_nothing_is_kept(server, tmp_path):
    server.folder = tmp_path
    small = {name: value[:9] for name, value in VALUES.items()}
    source = open_state(tmp_path / "open.zarr", small)
    final_state(source, tmp_path / "plain.zarr", 6, 2)
    store = open_store(f"{server.url}/plain.zarr")
    np.testing.assert_array_equal(store.array("frames"), ROWS[:9])
    server.forget()
    np.testing.assert_array_equal(store.array("frames"), ROWS[:9])
    assert server.bytes > ROWS[:9].nbytes
    assert not (tmp_path / "cache").exists()


def test_a_connection_that_is_cut_is_gone_on_with(server):
    chance = np.random.default_rng(3)
    cuts = iter([int(chance.integers(1, 4000)) for _ in range(12)])
    server.cut = lambda path: next(cuts, None)
    store = open_store(f"{server.url}/final.zarr")
    np.testing.assert_array_equal(store.read(["tt010", "tt011"], "frames")[1], ROWS[10:12])
    assert next(cuts, None) is None  # all of them happened
    spans = [headers.get("Range") for headers in server.headers]
    assert len(set(spans) - {None}) > 8  # each went on where it was


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that nobody but itself vouches for, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    written = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(written + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_https_is_held_to_its_certificate(made, certificate, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve(made, context) as served:
        with pytest.raises(StoreError, match="its certificate is not trusted") as problem:
            open_store(f"{served.url}/final.zarr")
        assert "\n" not in str(problem.value)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        store = open_store(f"{served.url}/final.zarr")
        np.testing.assert_array_equal(store.read(["tt010"], "frames")[1][0], ROWS[10])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSES", (0.0,) * len(http.PAUSES))


@pytest.mark.usefixtures("impatient")
def test_a_connection_that_is_cut_for_good_is_one_line(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    server.cut = lambda path: 0
    with pytest.raises(StoreError) as problem:
        store.read(["tt010"], "frames")
    line = str(problem.value)
    assert line.startswith(f"{server.url}/final.zarr/frames/zarr.json cannot be read: ")
    assert "tried 5 times" in line
    assert "\n" not in line


@pytest.mark.usefixtures("impatient")
def test_no_server_at_all_is_one_line():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{one.getsockname()[1]}/x.zarr"
        with pytest.raises(StoreError, match=r"cannot be read: Connection refused"):
            open_store(url)


def test_a_server_that_is_busy_is_asked_again(server):
    answers = iter([(503, {}), (429, {"Retry-After": "0"})])
    server.refuse = lambda path: next(answers, None)
    assert len(open_store(f"{server.url}/final.zarr")) == N


def test_a_server_without_ranges_is_one_line(server):
    server.ranges = False
    store = open_store(f"{server.url}/final.zarr")
    assert len(store.ids) == N
    with pytest.raises(StoreError, match=r"does not support range requests.*stores pull"):
        store.read(["tt010"], "frames")


def test_a_server_that_compresses_is_one_line(server):
    server.refuse = lambda path: (200, {"Content-Encoding": "gzip"})
    with pytest.raises(StoreError, match=r"the server changes files on their way \(it sends gzip"):
        open_store(f"{server.url}/final.zarr")


def test_what_is_not_there_is_one_line(server):
    with pytest.raises(StoreError, match=r"/moved.zarr is not a feature store: it has no zarr"):
        open_store(f"{server.url}/moved.zarr")
    server.refuse = lambda path: (403, {})
    with pytest.raises(StoreError, match="answers 403 Forbidden; it takes a user and a password"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (418, {})
    with pytest.raises(StoreError, match="the server answers 418"):
        open_store(f"{server.url}/final.zarr")
    for address in ("https://", "http://host:abc/x.zarr"):
        with pytest.raises(UsageError, match="names no host"):
            open_store(address)


def test_redirects_are_followed_and_remembered(server):
    server.refuse = lambda path: (
        (302, {"Location": f"{server.url}{path[4:]}?signed=1"}) if path.startswith("/old") else None
    )
    store = open_store(f"{server.url}/old/final.zarr")
    np.testing.assert_array_equal(store.read(["tt010"], "frames")[1][0], ROWS[10])
    server.forget()
    np.testing.assert_array_equal(store.read(["tt020"], "frames")[1][0], ROWS[20])
    assert len(server.requests) == 1  # straight to where it was sent last time
    expired = iter([(403, {})])
    before = server.refuse
    server.refuse = lambda path: before(path) or next(expired, None)
    np.testing.assert_array_equal(store.read(["tt030"], "frames")[1][0], ROWS[30])
    assert next(expired, None) is None
    server.refuse = lambda path: (301, {"Location": path})
    with pytest.raises(StoreError, match="sends us from one place to the next"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (301, {"Location": "ftp://elsewhere/"})
    with pytest.raises(StoreError, match="which is no page"):
        open_store(f"{server.url}/final.zarr")


def test_a_user_and_a_query_are_sent_and_never_shown(server):
    host = server.url.removeprefix("http://")
    store = open_store(f"http://ann:s%40cret@{host}/final.zarr?token=hush")
    assert store.where == f"{server.url}/final.zarr"
    assert "cret" not in repr(store)
    assert len(pickle.loads(pickle.dumps(store)).ids) == N
    assert {one.get("Authorization") for one in server.headers} == {"Basic YW5uOnNAY3JldA=="}


def test_who_asks_is_told_to_no_other_server(server, made):
    with serve(made) as other:
        server.refuse = lambda path: (302, {"Location": f"{other.url}{path}?key=signed"})
        host = server.url.removeprefix("http://")
        store = open_store(f"http://ann:secret@{host}/final.zarr?token=hush")
        np.testing.assert_array_equal(store.read(["tt010"], "frames")[1][0], ROWS[10])
        assert all("Authorization" in one for one in server.headers)
        assert not any("Authorization" in one for one in other.headers)
        assert store.where == f"{server.url}/final.zarr"
        other.refuse = lambda path: (403, {})
        with pytest.raises(StoreError, match="answers 403 Forbidden") as problem:
            store.read(["tt020"], "frames")
        assert not {"secret", "signed", "hush"} & set(re.findall(r"\w+", str(problem.value)))
        server.refuse = lambda path: (302, {"Location": "gopher://bob:secret@x/?key=signed"})
        with pytest.raises(StoreError, match=r"sends us to 'gopher://x/', which") as problem:
            open_store(f"{server.url}/other.zarr")
        assert "signed" not in str(problem.value)


def test_who_asks_is_not_told_in_clear_by_a_server_of_https(made, certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("OBYGAZE_CACHE_SIZE", "0")
    assert http._is_as_safe("http://a/x", "https://a/y")
    assert not http._is_as_safe("https://a/x", "http://a/y")
    assert not http._is_as_safe("http://a:1/x", "https://a:1/y")
    with serve(made) as plain, serve(made, context) as safe:
        safe.refuse = lambda path: (302, {"Location": f"{plain.url}{path}"})
        assert len(open_store(safe.url.replace("://", "://ann:secret@") + "/final.zarr")) == N
        assert all("Authorization" in one for one in safe.headers)
        assert not any("Authorization" in one for one in plain.headers)


def test_nothing_kept_tells_who_asked(server, tmp_path):
    host = server.url.removeprefix("http://")
    store = open_store(f"http://ann:secret@{host}/final.zarr?token=hush")
    some = subset(store, tmp_path / "some.zarr", ids=["tt001"]).path
    finalise(some)
    kept = [one for one in (*tmp_path.rglob("*"),) if one.is_file()]
    assert len(kept) > 10
    for one in kept:
        assert not re.search(rb"secret|hush", one.name.encode() + one.read_bytes())


@pytest.mark.parametrize(
    "address", ["http://ann:secret@host:abc/x?token=hush", "http://a:se?hush@"]
)
def test_an_address_that_is_wrong_is_shown_without_its_secrets(address):
    with pytest.raises(UsageError, match="names no host") as problem:
        open_store(address)
    assert not re.search("secret|hush|se", str(problem.value).removesuffix("of one"))


def test_a_file_that_was_moved_to_nowhere_is_not_there(server, tmp_path):
    """As a server does that sends whatever it lacks to another page."""
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "/gone" not in path else None
    with pytest.raises(StoreError, match=r"final.zarr is not a feature store: it has no zarr.json"):
        open_store(f"{server.url}/final.zarr")
    server.refuse = lambda path: (302, {"Location": "/gone"}) if "log.jsonl" in path else None
    assert exchange.pull(f"{server.url}/final.zarr", tmp_path / "x.zarr").files


def test_a_server_that_sends_more_than_was_asked_for_is_one_line(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    server.refuse = lambda path: (206, {"Content-Range": f"bytes 0-{10**12}/{10**12 + 1}"})
    with pytest.raises(StoreError, match="the server gives another part than asked for"):
        store.place.read_part("frames/c/0/0/0", 0, 100)
    server.refuse = lambda path: (206, {"Content-Range": "bytes 0-0/9"})
    with pytest.raises(StoreError, match="the server sends more than it says"):
        store.place.read_part("frames/c/0/0/0", 0, 1)


def test_a_proxy_is_asked_where_there_is_one(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    assert len(open_store("http://far.example/final.zarr").ids) == N
    assert not any("Proxy-Authorization" in one for one in server.headers)
    server.forget()
    monkeypatch.setenv("http_proxy", server.url.replace("://", "://ann:s%40cret@"))
    assert len(open_store("http://far.example/final.zarr").ids) == N
    told = {one.get("Proxy-Authorization") for one in server.headers}
    assert told == {"Basic YW5uOnNAY3JldA=="}
    server.forget()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert len(open_store(f"{server.url}/final.zarr").ids) == N


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_makes_connections_of_its_own(server):
    store = open_store(f"{server.url}/final.zarr")
    _ = store.status
    before = server.connections
    child = os.fork()
    if not child:
        good = np.array_equal(store.read(["tt010"], "frames")[1][0], ROWS[10])
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(store.read(["tt011"], "frames")[1][0], ROWS[11])
    assert server.connections == before + 1


def test_the_commands_take_urls(server, made, tmp_path, obygaze):
    url = f"{server.url}/final.zarr"
    shown = obygaze("stores", "info", url)
    assert shown.output.startswith(f"{url}: toy, features of made-up")
    assert f"next: obygaze stores verify {url}" in shown.output
    assert obygaze("stores", "verify", url).output == f"{url} is sound\n"
    done = obygaze("stores", "subset", url, "--ids", "tt003,tt004", "-o", tmp_path / "two.zarr")
    assert done.output.startswith("2 rows: 2 done")
    assert obygaze("stores", "diff", url, made / "final.zarr").exit_code == 0
    assert obygaze("stores", "diff", url, tmp_path / "two.zarr").exit_code == 1
    lost = obygaze("stores", "info", f"{server.url}/none.zarr")
    assert (lost.exit_code, lost.output.count("\n")) == (1, 1)
    gone = obygaze("stores", "pull", url, "-o", tmp_path / "here.zarr")
    assert gone.output.endswith(f"all verified -> {tmp_path}/here.zarr\n")
    sent = obygaze("stores", "push", tmp_path / "here.zarr", tmp_path / "there.zarr", "--json")
    assert json.loads(sent.output)["where"] == str(tmp_path / "there.zarr")


def test_commands_show_no_secret(server, own, tmp_path, obygaze):
    url = f"{server.url.replace('://', '://ann:hush@')}/final.zarr?token=hush"
    for ask in (["info", url], ["verify", url], ["diff", url, own], ["diff", own, f"{url}x"]):
        result = obygaze("stores", *ask)
        assert (result.exit_code, "hush" in result.output) == (0, False)
        assert f"{server.url}/final.zarr" in result.output
    flip_bit(own / "rows.csv", 100)
    flip_bit(own / "zarr.json", 9)
    result = obygaze("stores", "verify", url)
    assert (result.exit_code, "hush" in result.output) == (1, False)
    assert result.output.endswith(
        "next: tell whoever offers it, for whom it may be: obygaze stores repair\n"
    )


def test_an_experiment_reads_a_store_elsewhere(
    server, world, experiment, finished_run, tmp_path, obygaze
):
    server.folder = world.folder
    url = f"{server.url}/toy.zarr"
    (tmp_path / "far.toml").write_text(
        f'name = "far"\nmanifest = "{world.manifest}"\nstore = "{url}?token=hush"\nsplit = "ten"\n'
        'positives = ["S"]\ntrain_negatives = ["HN"]\n'
    )
    assert load_experiment(tmp_path / "far.toml").store == f"{url}?token=hush"
    run = run_experiment(replace(experiment, store=f"{url}?token=hush"), tmp_path / "run")
    assert run.record["experiment"]["store"] == url
    assert run.record["store"] == finished_run.record["store"]
    assert (tmp_path / "run/predictions.csv").read_bytes() == (
        finished_run.folder / "predictions.csv"
    ).read_bytes()
