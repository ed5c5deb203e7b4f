"""What must be read beside a result, on standard error, so that no pipe takes it along."""

from __future__ import annotations

from collections.abc import Iterable

import click

__all__ = ["echo_cautions"]


def echo_cautions(cautions: Iterable[str]) -> None:
    """Print each on a line of its own."""
    for caution in cautions:
        click.secho(f"CAUTION: {caution}", fg="yellow", bold=True, err=True)
