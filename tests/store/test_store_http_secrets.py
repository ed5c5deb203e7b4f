"""Who asks for a store over HTTP is told to its server alone."""

from __future__ import annotations

import os
import pickle
import re
import ssl
import subprocess
import sys

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import finalise, open_store, subset
from tests.store.making import flip_bit
from tests.store.served_stores import ROWS, N
from tests.store.serving import serve


def test_https_is_held_to_its_certificate(made, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve(made, context) as served:
        with pytest.raises(StoreError, match="the certificate is not trusted") as problem:
            open_store(f"{served.url}/final.zarr")
        assert "\n" not in str(problem.value)
        # By a process of its own, as certificates are read when Python's client is imported.
        ask = [sys.executable, "-m", "cli", "stores", "info", f"{served.url}/final.zarr"]
        environment = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        subprocess.run(ask, env=environment, check=True, capture_output=True)


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
        np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])
        assert all("Authorization" in one for one in server.headers)
        assert not any("Authorization" in one for one in other.headers)
        assert store.where == f"{server.url}/final.zarr"
        other.refuse = lambda path: (403, {})
        with pytest.raises(StoreError, match="answers 403 Forbidden") as problem:
            store.read("frames", ["tt020"])
        assert not {"secret", "signed", "hush"} & set(re.findall(r"\w+", str(problem.value)))
        server.refuse = lambda path: (302, {"Location": "gopher://bob:secret@x/?key=signed"})
        with pytest.raises(StoreError) as problem:
            open_store(f"{server.url}/other.zarr")
        assert not {"secret", "signed"} & set(re.findall(r"\w+", str(problem.value)))


def test_a_server_that_repeats_what_it_was_sent_is_not_quoted(server):
    host = server.url.removeprefix("http://")
    server.refuse = lambda path: (400, {"reason line": f"{server.headers[-1]['Authorization']}"})
    with pytest.raises(StoreError, match="answers 400 Bad Request") as problem:
        open_store(f"http://ann:secret@{host}/final.zarr")
    assert "Basic" not in str(problem.value)


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


@pytest.mark.parametrize(
    "address",
    [
        "http://user:HU/SH@127.0.0.1/x.zarr",
        "http://user:80/HUSH@127.0.0.1/x.zarr",
        "SERVER/x.zarr?token=HUSH x",
        "SERVER/x.zarr?token=a@HUSH",
        "SERVER/x.zarr#HUSH",
        "http:/user:HUSH@127.0.0.1/x.zarr",
        "s3://WHO:HUSH@bucket/x",
        "s3://WHO:HU/SH@bucket/x",
        "hf://HUSH@datasets/x",
        "hf://datasets/x#HUSH",
    ],
)
@pytest.mark.parametrize("command", ["info", "verify"])
def test_no_address_is_shown_with_its_secret(server, obygaze, impatient, command, address):
    result = obygaze("stores", command, address.replace("SERVER", server.url))
    assert result.exit_code in (1, 2)
    assert "Error: " in result.stderr
    assert not re.search("HUSH|HU/|SH@|WHO", result.output)


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
    assert result.output.endswith("next: tell its owner, who may run: obygaze stores repair\n")
