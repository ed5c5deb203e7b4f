"""Optional packages, asked for by the extra that brings them."""

from __future__ import annotations

import importlib
from types import ModuleType

from obygaze_features.errors import MissingExtra

__all__ = ["missing_extra", "need"]

#: Modules that many files import at their top; other optional ones are asked for by `need`.
_COMMON = {"safetensors", "scipy", "sklearn", "threadpoolctl", "torch"}


def need(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra of obygaze brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise _missing(module, problem, extra) from None


def missing_extra(problem: ModuleNotFoundError, *, extra: str) -> MissingExtra | None:
    """What to say where such a package is not installed; None if the module is not one of them."""
    module = (problem.name or "").partition(".")[0]
    return _missing(module, problem, extra) if module in _COMMON else None


def _missing(module: str, problem: ImportError, extra: str) -> MissingExtra:
    return MissingExtra(
        f"this needs {module}, which is not installed ({problem}); "
        f"install it with: pip install 'obygaze[{extra}]'"
    )
