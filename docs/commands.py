"""The pages of the site about commands, generated from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from obygaze_models.commands.main import main

SPECIAL = re.compile(r"([\\*_{}\[\]<>#|$])")


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


def anchor(command_path: str) -> str:
    """Return the name by which pages link to a command."""
    return command_path.replace(" ", "-")


def escape(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged."""
    return SPECIAL.sub(r"\\\1", text)


def format_text(text: str) -> str:
    """Return a command's help as Markdown: examples as a block, other blocks unchanged."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\b\n", "\n\b").strip()):
        is_block, paragraph = "\b" in paragraph, paragraph.replace("\b", "").strip("\n")
        title, _, rest = paragraph.partition("\n")
        if is_block and re.fullmatch(r"Examples?:", title.strip()):
            parts.append(f"**{title.strip()[:-1]}**\n\n```sh\n{inspect.cleandoc(rest)}\n```")
        elif is_block:
            parts.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            parts.append(escape(paragraph))
    return "\n\n".join(parts)


def format_command(context: click.Context, level: int) -> str:
    """Return a command's help, usage and options."""
    command = context.command
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [
        f"({anchor(context.command_path)})=\n\n{'#' * level} {context.command_path}",
        format_text(command.help or ""),
    ]
    if isinstance(command, click.Group):
        rows = [
            f"| [{context.command_path} {name}](#{anchor(f'{context.command_path} {name}')}) | "
            f"{escape(part.get_short_help_str(200))} |"
            for name in command.list_commands(context)
            if (part := command.get_command(context, name))
        ]
        lines.append("\n".join(["| command | |", "|---|---|", *rows]))
        return "\n\n".join(lines)
    lines.append(f"```text\n{usage}\n```")
    records = [
        record
        for option in command.get_params(context)
        if isinstance(option, click.Option)
        and option.name != "help"
        and (record := option.get_help_record(context))
    ]
    lines += [f"`{names}`\n: {escape(text) or '-'}" for names, text in records]
    return "\n\n".join(lines)


def write_pages(folder: Path) -> None:
    """Write a page for each top-level command, with its subcommands."""
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[str]] = {}
    for context in contexts():
        words = context.command_path.split()
        if len(words) > 1:
            text = format_command(context, level=min(len(words) - 1, 3))
            pages.setdefault(words[1], []).append(text)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, parts in pages.items():
        path, text = folder / f"{name}.md", "\n\n".join(parts) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
