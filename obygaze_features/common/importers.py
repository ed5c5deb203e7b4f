"""Importers, which are click commands that can also be called from Python as static methods."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import click

T = TypeVar("T")
_ONLY_FOR_THE_COMMAND = re.compile(r"\n *\x08\n.*?(?=\f|\Z)|\f", re.DOTALL)
r"""A pattern for the command's examples, which start with ``\b``, and for the end of its help."""


class Importer(staticmethod):  # type: ignore[type-arg]  # a staticmethod, for documentation tools
    r"""A static method that calls an importer in the folder ``importers`` next to its class.

    The importer's module has a click command that returns an instance of the class, for example
    ``import_manifest`` for `Manifest`. The command's help ends at ``\f``; the rest of the docstring
    is for Python callers. The module is imported on first use. `obygaze manifests import` or
    `obygaze annotations import` lists the importer.
    """

    def __init__(self, file: str) -> None:
        super().__init__(self._load)
        self.file = file

    def __repr__(self) -> str:
        return f"Importer({self.file!r})"

    def __set_name__(self, owner: type, name: str) -> None:
        package = owner.__module__.rpartition(".")[0]
        self.module = f"{package}.importers.{self.file}"
        self.function = f"import_{owner.__name__.lower()}"

    @property
    def command(self) -> click.Command:
        """The click command."""
        command: click.Command = getattr(import_module(self.module), self.function)
        return command

    def __get__(  # type: ignore[override]
        self, instance: object, owner: type[T]
    ) -> Callable[..., T]:
        return self._load()

    def _load(self) -> Callable[..., Any]:
        """Import the function, keeping the part of its docstring that is for Python callers."""
        function = self.command.callback
        assert function is not None
        function.__doc__ = _ONLY_FOR_THE_COMMAND.sub("", function.__doc__ or "")
        return function


def importers_of(owner: type) -> dict[str, Importer]:
    """Return the importers of a class by name, without ``from_``."""
    return {
        name.removeprefix("from_"): value
        for name, value in vars(owner).items()
        if isinstance(value, Importer)
    }
