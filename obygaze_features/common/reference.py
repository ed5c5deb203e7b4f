"""The data that obygaze ships (the folder manifests/ of the project), wherever it was installed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.errors import ManifestError

__all__ = ["reference_file", "reference_json"]

_PACKAGE = Path(__file__).resolve().parent.parent


def reference_file(name: str) -> Path:
    """The path of a shipped file: in the wheel as package data, else in the checkout."""
    for folder in (_PACKAGE / "reference", _PACKAGE.parent / "manifests"):
        if (folder / name).is_file():
            return folder / name
    raise ManifestError(f"obygaze ships no {name}; this installation is not complete")


@cache
def reference_json(name: str) -> Any:
    """A shipped JSON file, read once. Treat it as read-only."""
    return read_json(reference_file(name), ManifestError)
