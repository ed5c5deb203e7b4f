"""``obygaze annotations``: from annotators' timelines to labels of clips."""

from __future__ import annotations

import click

from obygaze_features.commands.agreement import agreement

__all__ = ["group"]


@click.group("annotations")
def group() -> None:
    """From annotators' timelines to labels of clips.

    \b
    Example:
      obygaze annotations agreement manifests/mine
    """


group.add_command(agreement)
