"""Every command of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from obygaze_models.commands.main import main


def contexts(
    command: click.Command = main, name: str = "obygaze", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield the context of every command, with groups before their commands."""
    settings = {"terminal_width": 100, **command.context_settings}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from contexts(part, name, context)
