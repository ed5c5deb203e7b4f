"""Click groups of importers.

An importer is a click command that returns a `Manifest` or `Timelines`; the importers are the
`Importer` attributes of these classes. The group adds the output options and saves the result.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import click

import obygaze_features as of
from obygaze_features.common.importers import Importer, importers_of

Save = TypeVar("Save", bound=Callable[..., None])


class ImportGroup(click.Group):
    """A click group of importers.

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

    def saves(self, save: Save) -> Save:
        """Register the function that saves and describes an importer's result."""
        self.save = save
        return save

    @property
    def own(self) -> dict[str, Importer]:
        """The importers by name."""
        return importers_of(getattr(of, self.makes))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all importers."""
        return [*self.own, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an importer by name."""
        if importer := self.own.get(cmd_name):
            return self._with_saving(cmd_name, importer.command)
        return super().get_command(ctx, cmd_name)

    def _with_saving(self, name: str, importer: click.Command) -> click.Command:
        """Return a command that runs the importer and saves its result."""
        function = importer.callback
        assert function is not None
        parameters = inspect.signature(function).parameters
        positional = [name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL]
        names = {param.name for param in importer.params}
        saving = self.options(name)(click.Command(None)).params[::-1]

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
