"""Optional packages, asked for by the extra that brings them."""

from __future__ import annotations

import importlib
from types import ModuleType

from obygaze_features.errors import MissingExtra

__all__ = ["need"]


def need(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra of obygaze brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise MissingExtra(
            f"this needs {module}, which is not installed ({problem}); "
            f"install it with: pip install 'obygaze[{extra}]'"
        ) from None
