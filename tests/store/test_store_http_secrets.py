"""Who asks for a store over HTTP is told to its server alone."""

from __future__ import annotations

import pickle
import re
import ssl

import numpy as np
import pytest

from obygaze_features.errors import StoreError, UsageError
from obygaze_features.store import finalise, open_store, subset
from obygaze_features.store.places import http
from tests.store.making import flip_bit
from tests.store.served_stores import ROWS, N
from tests.store.serving import serve


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
        np.testing.assert_array_equal(store.read("frames", ["tt010"])[0], ROWS[10])


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
