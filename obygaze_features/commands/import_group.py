"""Click groups of importers, built in or from other packages.

An importer is a click command that returns a `Manifest` or `Timelines`. The group adds the output
options and saves the result. Built-in importers are the `Importer` attributes of these classes.
Importers from other packages are entry points in the group ``obygaze.importers``, or are called
as ``module:command`` on the command line. A function named ``import_timelines`` belongs to
``obygaze annotations import``; any other function belongs to ``obygaze manifests import``.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

import obygaze_features as of
from obygaze_features.common.importers import Importer, importers_of
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
Save = TypeVar("Save", bound=Callable[..., None])


class ImportGroup(click.Group):
    """A click group of importers, built in or from other packages.

    Parameters
    ----------
    makes
        The class that the importers return: ``Manifest`` or ``Timelines``.
    options
        A function that takes an importer's name and returns a decorator for its output options.
    """

    def __init__(
        self, *args: Any, makes: str, options: Callable[[str], Callable[[Any], Any]], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.makes, self.options = makes, options
        self.error = AnnotationError if makes == "Timelines" else ManifestError

    def saves(self, save: Save) -> Save:
        """Register the function that saves and describes an importer's result."""
        self.save = save
        return save

    @property
    def own(self) -> dict[str, Importer]:
        """The built-in importers by name."""
        return importers_of(getattr(of, self.makes))

    def plugins(self) -> dict[str, Plugin]:
        """Return the importers from other packages that belong to this group, by name."""
        return {
            plugin.name: plugin
            for plugin in reversed(installed_plugins(ENTRY_POINT_GROUP))
            if (re.split("[.:]", plugin.path)[-1] == "import_timelines")
            == (self.makes == "Timelines")
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all importers, built-in ones first, without importing plug-ins."""
        ours = [*self.own, *self.commands]
        return [*ours, *sorted(self.plugins().keys() - ours)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an importer by name; import it if it is a plug-in or ``module:command``."""
        if importer := self.own.get(cmd_name):
            return self._with_saving(cmd_name, importer.command)
        if command := super().get_command(ctx, cmd_name):
            return command
        plugin = self.plugins().get(cmd_name)
        if plugin is None and (match := OBJECT.fullmatch(cmd_name)):
            plugin = plugin_at(cmd_name, match[1].rpartition(".")[2])
        return self._load(plugin) if plugin else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the built-in importers, then importers from other packages with their package."""
        ours = {name: importer.command for name, importer in self.own.items()}
        ours |= self.commands
        click.Group(commands=ours).format_commands(ctx, formatter)
        rows = []
        for name, plugin in sorted(self.plugins().items()):
            ignored = " (ignored: this name is taken)" if name in ours else ""
            rows.append((name, f"{plugin}{ignored}"))
        if rows:
            with formatter.section("From other packages"):
                formatter.write_dl(rows)

    def _load(self, plugin: Plugin) -> click.Command:
        with plugin_errors(plugin, self.error):
            command = load_object(plugin.path, self.error, plugin.package)
        if not isinstance(command, click.Command) or command.callback is None:
            raise self.error(f"{plugin} is not a click command; put @click.command() above it")
        function = command.callback

        @functools.wraps(function)
        def checked(**options: Any) -> Any:
            with plugin_errors(plugin, self.error):
                result = function(**options)
            if not isinstance(result, getattr(of, self.makes)):
                kind = type(result).__name__
                raise self.error(f"{plugin} must return a {self.makes} (got {kind})")
            self._refuse_unreadable(plugin, result)
            return result

        command = copy.copy(command)
        command.callback = checked
        command.help = f"{command.help or plugin.path}\n\nThis is {plugin}."
        return self._with_saving(plugin.name, command)

    def _refuse_unreadable(self, plugin: Plugin, result: Any) -> None:
        """Raise if a plug-in's result cannot be read back after saving."""
        with plugin_errors(plugin, self.error), TemporaryDirectory() as folder:
            path = Path(folder, "saved")
            result.save(path)
            try:
                saved = getattr(of, self.makes).load(path)
                problems = saved.check(repeats=False) if self.makes == "Manifest" else []
            except self.error as problem:
                problems = [problem]
            if problems:
                reason = str(problems[0]).replace(f"{path}{os.sep}", "")
                raise self.error(f"{plugin} returned a {self.makes} that cannot be read: {reason}")

    def _with_saving(self, name: str, importer: click.Command) -> click.Command:
        """Return a command that runs the importer and saves its result."""
        function = importer.callback
        assert function is not None
        parameters = inspect.signature(function).parameters
        positional = [name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL]
        names = {param.name for param in importer.params}
        saving = self.options(name)(click.Command(None)).params[::-1]
        if clash := sorted(names & {param.name for param in saving}):
            raise self.error(f"{name}: a built-in option is also called {clash[0]}; rename yours")

        def run(**options: Any) -> None:
            ours = {name: options.pop(name) for name in options.keys() - names}
            values = [value for name in positional for value in options.pop(name, ())]
            self.save(function(*values, **options), **ours)

        command = copy.copy(importer)
        command.name, command.callback = name, run
        command.params = [_with_default(param, parameters) for param in importer.params] + saving
        return command


def _with_default(param: click.Parameter, parameters: Any) -> click.Parameter:
    """Return an option, with the default of the function's parameter if the parameter has one."""
    parameter = parameters.get(param.name)
    if param.required or parameter is None or parameter.default in (parameter.empty, None, ()):
        return param
    param = copy.copy(param)
    param.default = parameter.default
    return param
