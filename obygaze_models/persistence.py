"""Models as files: safetensors and JSON; nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["load_model", "save_model"]


def save_model(model: Any, path: Path, about: Mapping[str, Any]) -> None:
    """Write a fitted estimator as a new folder `path`: ``model.json``, ``model.safetensors``."""
    raise NotImplementedError


def load_model(path: Path) -> tuple[Any, dict[str, Any]]:
    """Read what `save_model` wrote: the estimator, and what was said about it."""
    raise NotImplementedError
