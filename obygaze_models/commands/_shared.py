"""What several commands share: warnings, and the run folders that they are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import ADDRESS
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_models.warnings import RunWarning

__all__ = ["echo_warnings", "run_folders", "stores_argument"]

stores_argument = click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=ADDRESS
)
"""Several stores for a model that was trained on several, in the same order."""


MAX_WARNINGS_SHOWN = 5


def echo_warnings(warnings: Iterable[RunWarning | str], *, file: Path | None = None) -> None:
    """Print warnings on standard error, a line each.

    With a `file` that has them all at most five are printed: one of each code first.
    """
    warnings = list(warnings)
    printed = warnings
    if file is not None and len(warnings) > MAX_WARNINGS_SHOWN:
        codes = [getattr(warning, "code", warning) for warning in warnings]
        order = sorted(range(len(warnings)), key=lambda row: (codes[row] in codes[:row], row))
        printed = [warnings[row] for row in sorted(order[:MAX_WARNINGS_SHOWN])]
    for warning in printed:
        click.secho(f"WARNING: {warning}", fg="yellow", bold=True, err=True)
    if more := len(warnings) - len(printed):
        rest = counted(more, "more warning", "more warnings")
        click.secho(f"and {rest}; {file} has all of them", fg="yellow", err=True)


def run_folders(runs: Sequence[Path]) -> list[Path]:
    """The run folders that the user named, by themselves or by their ``run.json``."""
    folders = [run.parent if run.name == "run.json" else run for run in runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a run is named twice")
    return folders
