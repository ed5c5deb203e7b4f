"""Writes docs/help.md from the commands themselves: ``python -m docs.help``, or ``make docs``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from cli import main

PATH = Path(__file__).with_name("help.md")


def contexts(
    command: click.Command = main, name: str = "obygaze", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Every command, as it is when it is called; groups before what they hold."""
    settings = {"terminal_width": 100, **command.context_settings}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from contexts(found, part, context)


def page() -> str:
    """The whole page."""
    parts = ["# Every command\n\nWritten by `make docs` from the commands themselves.\n"]
    for context in contexts():
        text = context.command.get_help(context)
        parts.append(f"## {context.command_path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
