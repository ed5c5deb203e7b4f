"""The commands' pages of the site: written from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli import main


def contexts(
    command: click.Command = main, name: str = "obygaze", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Every command, as it is when it is called; groups before what they hold."""
    settings = {"terminal_width": 100, **command.context_settings}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            yield from contexts(part, name, context)
