"""Code that the commands share: options, warnings, and run folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import ADDRESS, PATH, echo
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_models.data.warnings import RunWarning


PARTLY_DONE = 3
"""The exit code if part of the work was skipped, or if an input for it is missing."""
option = partial(click.option, show_default=True)
"""`click.option` for an option whose help shows its default."""
path_option = partial(click.option, type=PATH)
"""`click.option` for an option that takes a path."""
stores_argument = click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=ADDRESS
)
"""The store or stores, in the order in which the model was trained on them."""

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print all tables, notes and warnings."
)
MAX_WARNINGS_SHOWN = 5


def echo_warnings(
    warnings: Iterable[RunWarning | str],
    *,
    heading: str = "WARNING",
    skip: int = 0,
    verbose: bool = True,
) -> None:
    """Print warnings on standard error, one line each.

    Parameters
    ----------
    warnings
        The warnings. Duplicates are printed once.
    heading
        The start of each line.
    skip
        The number of lines to skip because they were already printed.
    verbose
        Print all warnings. Otherwise print one per kind, up to `MAX_WARNINGS_SHOWN`.
    """
    from obygaze_models.data.warnings import group_warnings

    warnings = list(warnings)
    lines = list(dict.fromkeys(map(str, warnings))) if verbose else group_warnings(warnings)
    last = len(lines) if verbose else MAX_WARNINGS_SHOWN
    for line in lines[skip:last]:
        echo(f"{heading}: {line}", fg="yellow", bold=heading == "WARNING", err=True)
    if len(lines) > last:
        rest = counted(len(lines) - last, "more kind of warning", "more kinds of warnings")
        echo(f"and {rest}; -v prints all", fg="yellow", err=True)


def run_folders(runs: Sequence[Path]) -> list[Path]:
    """Return the paths, with each header file, such as ``run.json``, replaced by its folder."""
    headers = ("run.json", "manifest.json", "timelines.json")
    folders = [run.parent if run.name in headers else run for run in runs]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError(f"duplicate folder (got {', '.join(map(str, runs))}). Pass it once")
    return folders
