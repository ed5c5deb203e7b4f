"""The run folders that a command is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from obygaze_features.errors import UsageError

__all__ = ["run_folders"]


def run_folders(runs: Sequence[Path]) -> list[Path]:
    """The folders, where a run may be named by its ``run.json`` too; each but once."""
    folders = [run.parent if run.name == "run.json" else run for run in runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a run is named twice")
    return folders
