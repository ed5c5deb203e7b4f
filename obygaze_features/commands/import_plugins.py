"""Importers of other packages: a command is made of a function, its options of the parameters.

An importer is a function from a path, and options, to a `Manifest` or `Timelines`. An entry point
of the group ``obygaze.importers`` names it; ``module:function`` on the command line, too. One that
is called ``import_timelines`` belongs to ``obygaze annotations import``, any other to
``obygaze manifests import``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

import obygaze_features as of
from obygaze_features.common.cli import PATH
from obygaze_features.common.plugins import (
    OBJECT,
    Plugin,
    installed_plugins,
    load_object,
    plugin_at,
    plugin_errors,
)
from obygaze_features.errors import AnnotationError, ManifestError

ENTRY_POINT_GROUP = "obygaze.importers"
TYPES = {"bool": bool, "float": float, "int": int, "str": str, "Path": PATH}
OWN = ("output", "overwrite", "as_json")
RESERVED = {"source", "json", "help", *OWN}

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
        self, *args: Any, makes: str, options: Callable[[str], Callable[[Any], Any]], **kwargs: Any
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
            @wraps(function)
            def run(**options: Any) -> None:
                own = {name: options.pop(name) for name in OWN if name in options}
                self.save(function(**options), **own)

            command: click.Command = self.command(name)(self.options(name)(run))
            return command

        return decorate

    def plugins(self) -> dict[str, Plugin]:
        """The importers of other packages, by name, that make what ours make."""
        return {
            plugin.name: plugin
            for plugin in reversed(installed_plugins(ENTRY_POINT_GROUP))
            if (re.split("[.:]", plugin.path)[-1] == "import_timelines")
            == (self.makes == "Timelines")
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our importers, and those of other packages; nothing is imported."""
        return [*self.commands, *sorted(self.plugins().keys() - self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, or of ``module:function``; this imports a plug-in."""
        if command := super().get_command(ctx, cmd_name):
            return command
        plugin = self.plugins().get(cmd_name)
        if plugin is None and (match := OBJECT.fullmatch(cmd_name)):
            plugin = plugin_at(cmd_name, match[1].rpartition(".")[2])
        if plugin is None:
            return None
        with plugin_errors(plugin, self.error):
            return self._make_command(plugin, load_object(plugin.path, self.error, plugin.package))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our commands, then those of other packages with what they are."""
        click.Group(commands=self.commands).format_commands(ctx, formatter)
        if rows := [
            (name, f"{plugin}{' (ignored: another has this name)' * (name in self.commands)}")
            for name, plugin in sorted(self.plugins().items())
        ]:
            with formatter.section("Of other packages"):
                formatter.write_dl(rows)

    def _make_command(self, plugin: Plugin, function: Any) -> click.Command:
        if not callable(function):
            raise self.error(f"{plugin} is not a function")
        try:
            _, *parameters = inspect.signature(function).parameters.values()
            options = [option for p in parameters if (option := _make_option(p))]
        except (TypeError, ValueError) as problem:
            raise self.error(f"{plugin} cannot be a command: {problem}") from None
        names = {option.name for option in options}

        def run(source: Path, **values: Any) -> None:
            if not source.exists():
                raise self.error(f"{source} does not exist")
            theirs = {name: value for name, value in values.items() if name in names}
            with plugin_errors(plugin, self.error):
                result = function(source, **theirs)
            if not isinstance(result, getattr(of, self.makes)):
                kind = type(result).__name__
                raise self.error(f"{plugin} returned a {kind}, not a {self.makes}")
            self.save(result, **{name: values[name] for name in values.keys() - names})

        text = f"{inspect.getdoc(function) or plugin.path}".partition("\n\nParameters\n")[0]
        source = click.Argument(["source"], type=PATH)
        command = click.Command(
            plugin.name, None, run, [source, *options], f"{text}\n\nThis is {plugin}."
        )
        decorated: click.Command = self.options(plugin.name)(command)
        return decorated


def _make_option(parameter: inspect.Parameter) -> click.Option | None:
    """A parameter's option; None where it needs none, `TypeError` where that cannot be."""
    name, is_required = parameter.name, parameter.default is parameter.empty
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    kind = _kind(parameter)
    if kind not in TYPES:
        if not is_required:
            return None
        raise TypeError(f"its parameter {name} is a {kind}; an option is a {', '.join(TYPES)}")
    if name in RESERVED:
        raise TypeError(f"its parameter {name} has the name of an option of ours; rename it")
    flag = name.replace("_", "-")
    return click.Option(
        [f"--{flag}/--no-{flag}" if kind == "bool" else f"--{flag}", name],
        type=TYPES[kind],
        required=is_required,
        default=None if is_required else parameter.default,
        show_default=not is_required and parameter.default is not None,
    )


def _kind(parameter: inspect.Parameter) -> str:
    """The name of a parameter's type, without None; by its default where it is not annotated."""
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = str if parameter.default in (parameter.empty, None) else type(parameter.default)
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    kinds = {part.strip().rpartition(".")[2] for part in text.split("|")} - {"None"}
    return next(iter(sorted(kinds - {"str"})), "str")
