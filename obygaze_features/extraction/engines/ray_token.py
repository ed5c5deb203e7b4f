"""The token that a Ray cluster may ask for: Ray shows it only where it is told to.

With a wrong one, or none, Ray goes on trying for twenty seconds, logs each try, and in the end does
not say why. So the cluster is asked before, by the fewest bytes that gRPC takes.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from obygaze_features.errors import ClusterError

__all__ = ["GREETING", "settle_token"]

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2 begins, which Ray speaks: the other side answers with its settings."""
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
PATIENCE = 5.0
"""Seconds for an answer; without one it is left to Ray."""
_METHOD = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_HEADERS, _DATA, _END_HEADERS, _END_STREAM = 1, 0, 4, 1


def settle_token(host: str, port: int) -> None:
    """Have Ray show this machine's token where a cluster asks for one.

    `ClusterError` if there is none here, or it is another cluster's.
    """
    if not _is_refused(host, port, None):
        return
    token = _token()
    if token and not _is_refused(host, port, token):
        os.environ[MODE] = "token"
        if raylet := sys.modules.get("ray._raylet"):  # which has read the environment by then
            raylet.Config.initialize("")
        return
    have = "has another one" if token else "has none"
    raise ClusterError(
        f"the Ray cluster at {host}:{port} asks for a token, and this machine {have}; copy "
        f"~/.ray/auth_token from its head, or have {TOKEN_PATH} say where it lies"
    )


def _token() -> str:
    """The token as Ray looks for it."""
    if told := os.environ.get(TOKEN, "").strip():
        return told
    path = Path(os.environ.get(TOKEN_PATH) or "~/.ray/auth_token")
    try:
        return path.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return ""


def _is_refused(host: str, port: int, token: str | None) -> bool:
    """Whether the cluster refuses a request for its token's sake."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": f"{host}:{port}",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    if token:
        fields["authorization"] = f"Bearer {token}"
    if any(len(value.encode()) > 126 for value in fields.values()):  # lengths of one byte
        return False
    said = b""
    try:
        with socket.create_connection((host, port), PATIENCE) as channel:
            channel.sendall(
                GREETING
                + _frame(_HEADERS, _END_HEADERS, b"".join(map(_field, fields.items())))
                + _frame(_DATA, _END_STREAM, bytes(5))
            )
            while b"grpc-status" not in said and (data := channel.recv(2**12)):
                said += data
    except OSError:
        return False
    return b"InvalidAuthToken" in said


def _field(field: tuple[str, str]) -> bytes:
    """A header as HPACK has it at its plainest: neither from a table nor for one."""
    name, value = (text.encode() for text in field)
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


def _frame(kind: int, flags: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags, 0, 0, 0, 1)) + payload
