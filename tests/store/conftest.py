"""Stores behind a server, for the tests of HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from obygaze_features.store import finalise, remote
from tests.store.making import open_state
from tests.store.served_stores import VALUES
from tests.store.serving import Served, serve


@pytest.fixture(scope="session")
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
def server(made: Path) -> Iterator[Served]:
    with serve(made) as served:
        yield served


@pytest.fixture
def own(tmp_path: Path, server: Served, made: Path) -> Path:
    """A copy of the final store, which may be spoilt."""
    server.folder = tmp_path / "www"
    return Path(shutil.copytree(made / "final.zarr", tmp_path / "www/final.zarr"))


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES_S", (0.0,) * len(remote.PAUSES_S))
