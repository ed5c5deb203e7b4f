"""Fetching a pinned public file, and refusing any other."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path

from obygaze_features.common.files import write_bytes
from obygaze_features.errors import ManifestError

__all__ = ["download"]

LIMIT = 256 * 2**20
TIMEOUT = 60


def download(url: str, path: Path, *, sha256: str) -> None:
    """Fetch `url` into `path`; a file with another checksum is not written.

    The address may only be http or https: no local file is read by it.
    """
    if not url.startswith(("https://", "http://")):
        raise ManifestError(f"{url} is not an http address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310 (checked above)
            data = answer.read(LIMIT + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise ManifestError(
            f"{url} cannot be fetched ({reason or type(error).__name__}); "
            "fetch it elsewhere and give its path as SOURCE"
        ) from None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ManifestError(
            f"{url} is not the file that obygaze knows: sha256 {found}, not {sha256}; "
            "nothing was written"
        )
    write_bytes(path, data)
