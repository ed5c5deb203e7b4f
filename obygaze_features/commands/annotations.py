"""``obygaze annotations``: from annotators' timelines to labels of clips."""

from __future__ import annotations

import click

from obygaze_features.commands.agreement import agreement
from obygaze_features.commands.projection import merge, project, sweep
from obygaze_features.commands.timeline_figure import figure

__all__ = ["annotation_commands"]


@click.group("annotations")
def annotation_commands() -> None:
    """From annotators' timelines to labels of clips.

    \b
    Examples:
      obygaze annotations project timelines/mine --grid 60 -o manifests/mine
      obygaze annotations merge manifests/mine
      obygaze annotations agreement manifests/mine
    """


for command in (project, merge, sweep, agreement, figure):
    annotation_commands.add_command(command)
