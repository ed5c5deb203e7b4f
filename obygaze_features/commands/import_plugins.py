"""Importers of other packages: a command is made of a function, its options of the parameters.

An importer is a function from a path, and options, to a `Manifest` or `Timelines`. An entry point
of the group ``obygaze.importers`` names it; ``module:function`` on the command line, too. One that
is called ``import_timelines`` belongs to ``obygaze annotations import``, any other to
``obygaze manifests import``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

import obygaze_features as of
from obygaze_features.common.cli import PATH
from obygaze_features.common.plugins import (
    Plugin,
    installed_plugins,
    load_object,
    plugin_at,
    plugin_errors,
)
from obygaze_features.errors import AnnotationError, ManifestError, ObygazeError

ENTRY_POINT_GROUP = "obygaze.importers"
TYPES = {"bool": bool, "float": float, "int": int, "str": str, "Path": PATH}
RESERVED = {"source", "output", "overwrite", "as_json", "json", "help"}
_OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")

Save = TypeVar("Save", bound=Callable[..., None])


class ImportGroup(click.Group):
    """A group of importers: our own commands, and those of other packages.

    Parameters
    ----------
    makes
        ``Manifest`` or ``Timelines``: what its importers return.
    options
        From an importer's name to a decorator that adds the options of `save`.
    """

    def __init__(
        self,
        *args: Any,
        makes: str,
        options: Callable[[str], Callable[[Any], Any]],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.makes, self.options = makes, options
        self.error = AnnotationError if makes == "Timelines" else ManifestError

    def saves(self, save: Save) -> Save:
        """Register the function that saves and describes what an importer returned."""
        self.save = save
        return save

    def importer(self, name: str) -> Callable[[Callable[..., Any]], click.Command]:
        """Make a command of a function from options to what the group saves."""

        def decorate(function: Callable[..., Any]) -> click.Command:
            @functools.wraps(function)
            def run(output: Path, overwrite: bool, **options: Any) -> None:
                own = {"as_json": options.pop("as_json")} if "as_json" in options else {}
                self.save(function(**options), output=output, overwrite=overwrite, **own)

            command: click.Command = self.command(name)(self.options(name)(run))
            return command

        return decorate

    def installed(self) -> list[Plugin]:
        """The importers of other packages that make what ours make."""
        is_timelines = re.compile(r".*[.:]import_timelines")
        return [
            plugin
            for plugin in installed_plugins(ENTRY_POINT_GROUP)
            if bool(is_timelines.fullmatch(plugin.path)) == (self.makes == "Timelines")
        ]

    def plugins(self) -> dict[str, Plugin]:
        """Those by name that are not hidden by one of ours, or by an earlier one."""
        by_name = {plugin.name: plugin for plugin in reversed(self.installed())}
        return {name: plugin for name, plugin in by_name.items() if name not in self.commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our importers, and those of other packages; nothing is imported."""
        return [*super().list_commands(ctx), *sorted(self.plugins())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or of ``module:function``; this imports a plug-in."""
        if command := super().get_command(ctx, cmd_name):
            return command
        plugin = self.plugins().get(cmd_name)
        if plugin is None and (match := _OBJECT.fullmatch(cmd_name)):
            plugin = plugin_at(cmd_name, match[1].rpartition(".")[2])
        if plugin is None:
            return None
        try:
            with plugin_errors(plugin, self.error):
                return self._make_command(plugin, load_object(plugin.path, self.error))
        except ObygazeError as problem:
            # Raised when it is called: whoever lists the commands gets the others.
            settings = {"ignore_unknown_options": True, "allow_extra_args": True}
            raises = partial(_raise, problem)
            return click.Command(cmd_name, settings, raises, add_help_option=False)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our commands, then those of other packages with what they are."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)
        used = self.plugins().values()
        ignored = " (ignored: another has this name)"
        rows = [(p.name, f"{p}{'' if p in used else ignored}") for p in self.installed()]
        if rows:
            with formatter.section("Of other packages"):
                formatter.write_dl(sorted(rows))

    def _make_command(self, plugin: Plugin, function: Any) -> click.Command:
        if not callable(function):
            raise self.error(f"{plugin} is not a function")
        try:
            options = list(_options(function))
        except (TypeError, ValueError) as problem:
            raise self.error(f"{plugin} cannot be a command: {problem}") from None
        names = [option.name for option in options]

        def run(source: Path, **values: Any) -> None:
            if not source.exists():
                raise self.error(f"{source} does not exist")
            own = {name: value for name, value in values.items() if name not in names}
            with plugin_errors(plugin, self.error):
                result = function(source, **{name: values[name] for name in names if name})
            if not isinstance(result, getattr(of, self.makes)):
                kind = type(result).__name__
                raise self.error(f"{plugin} returned a {kind}, not a {self.makes}")
            self.save(result, **own)

        text = f"{inspect.getdoc(function) or plugin.path}".partition("\n\nParameters\n")[0]
        source = click.Argument(["source"], type=PATH)
        command = click.Command(
            plugin.name, None, run, [source, *options], f"{text}\n\nThis is {plugin}."
        )
        decorated: click.Command = self.options(plugin.name)(command)
        return decorated


def _options(function: Callable[..., Any]) -> Iterator[click.Option]:
    """An option for each parameter after the first; `TypeError` where that cannot be."""
    _, *parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        name, default = parameter.name, parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_required = default is parameter.empty
        kind = _kind(parameter)
        if kind not in TYPES:
            if is_required:
                raise TypeError(
                    f"its parameter {name} is a {kind}; an option is a {', '.join(TYPES)}"
                )
            continue
        if name in RESERVED:
            raise TypeError(f"its parameter {name} has the name of an option of ours; rename it")
        flag = f"--{name.replace('_', '-')}"
        if kind == "bool":
            flag = f"{flag}/--no-{flag[2:]}"
        yield click.Option(
            [flag, name],
            type=TYPES[kind],
            required=is_required,
            default=None if is_required else default,
            show_default=not is_required and default is not None,
        )


def _kind(parameter: inspect.Parameter) -> str:
    """The name of a parameter's type, without None; by its default where it is not annotated."""
    kind = parameter.annotation
    if kind is parameter.empty:
        has_value = parameter.default not in (parameter.empty, None)
        kind = type(parameter.default) if has_value else str
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    parts = [part.strip().rpartition(".")[2] for part in text.split("|")]
    kinds = [part for part in parts if part != "None"]
    return next((part for part in kinds if part != "str"), "str") if kinds else "str"


def _raise(problem: ObygazeError) -> None:
    raise problem
