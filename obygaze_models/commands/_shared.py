"""What several commands share: warnings, and the run folders that they are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from obygaze_features.common.cli import ADDRESS
from obygaze_features.errors import UsageError

__all__ = ["echo_warnings", "run_folders", "stores_argument"]

stores_argument = click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=ADDRESS
)
"""Several stores for a model that was trained on several, in the same order."""


def echo_warnings(warnings: Iterable[object]) -> None:
    """Print each on a line, on standard error."""
    for warning in warnings:
        click.secho(f"WARNING: {warning}", fg="yellow", bold=True, err=True)


def run_folders(runs: Sequence[Path]) -> list[Path]:
    """The run folders that the user named, by themselves or by their ``run.json``."""
    folders = [run.parent if run.name == "run.json" else run for run in runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a run is named twice")
    return folders
