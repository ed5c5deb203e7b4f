"""``obygaze annotations``: from annotators' timelines to labels of clips."""

from __future__ import annotations

import click

from obygaze_features.commands.agreement import agreement

__all__ = ["annotation_commands"]


@click.group("annotations")
def annotation_commands() -> None:
    """From annotators' timelines to labels of clips.

    \b
    Example:
      obygaze annotations agreement manifests/mine
    """


annotation_commands.add_command(agreement)
