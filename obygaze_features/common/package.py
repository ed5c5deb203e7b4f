"""What obygaze's installation has: shipped data, optional packages, and the user's cache."""

from __future__ import annotations

import importlib
import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from obygaze_features.common.files import read_json
from obygaze_features.errors import ManifestError, MissingExtra

_PACKAGE = Path(__file__).resolve().parent.parent


def obygaze_version() -> str:
    """The installed version; ``0+checkout`` for a checkout that is only on the search path."""
    try:
        return version("obygaze")
    except PackageNotFoundError:
        return "0+checkout"


def reference_file(name: str) -> Path:
    """The path of a shipped file: in the wheel as package data, else in the checkout."""
    for folder in (
        _PACKAGE / "reference",
        _PACKAGE.parent / "manifests",
        _PACKAGE.parent / "examples",
    ):
        if (folder / name).exists():
            return folder / name
    raise ManifestError(f"obygaze ships no {name}; this installation is not complete")


@cache
def reference_json(name: str) -> Any:
    """A shipped JSON file, read once. Treat it as read-only."""
    return read_json(reference_file(name), ManifestError)


#: Optional modules that files import at their top; the others are imported by `need`.
_COMMON = {"msgspec", "safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra of obygaze installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise _missing(module, problem, extra) from None


def missing_extra(problem: ModuleNotFoundError, *, extra: str) -> MissingExtra | None:
    """The error for a missing optional package; None if the module is not one of ours."""
    module = (problem.name or "").partition(".")[0]
    return _missing(module, problem, extra) if module in _COMMON else None


def _missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    return MissingExtra(
        f"this needs {module}, which is not installed ({problem}); "
        f"install it with: pip install 'obygaze[{extra}]'"
    )


def cache_folder(name: str) -> Path:
    """A folder in the user's cache; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "obygaze" / name
