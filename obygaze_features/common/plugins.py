"""Load plug-ins from other packages, and describe their errors in one line."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path
from traceback import walk_tb
from typing import Any

from obygaze_features.common.text import first_line
from obygaze_features.errors import ObygazeError

MAX_LETTERS = 300
OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
"""A pattern for the address of an object, ``module:object``."""
RAISED = (Exception, SystemExit, GeneratorExit)
"""Exceptions to catch from plug-ins, so that they do not end the process."""
_OWN = ("obygaze_features", "obygaze_models")


@dataclass(frozen=True)
class Plugin:
    """An object of another package: the name for users, its ``module:object``, and its package."""

    name: str
    path: str
    package: str


def installed_plugins(group: str) -> tuple[Plugin, ...]:
    """Return a group's entry points without importing them, with packages as in ``mylab 1.0``."""
    return tuple(
        Plugin(point.name, point.value, f"{point.dist.name} {point.dist.version}")
        for point in entry_points(group=group)
        if point.dist is not None
    )


def plugin_at(path: str, name: str = "") -> Plugin:
    """Return the plug-in at ``module:object``, even if no entry point names it."""
    packages = sorted(set(_distributions(tuple(sys.path)).get(package_of(path), ())))
    return Plugin(name or path, path, ", ".join(f"{name} {version(name)}" for name in packages))


@lru_cache(maxsize=1)
def _distributions(search_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions of each package. This takes a quarter of a second."""
    return packages_distributions()


def load_object(path: str, error: type[ObygazeError]) -> Any:
    """Import the object at ``module:object``; raise `error` if there is no such module or object.

    Exceptions from the module's own code are not changed.
    """
    module = path.partition(":")[0]
    try:
        return pkgutil.resolve_name(path)
    except ImportError as problem:
        if package_of(module) not in _OWN and not f"{module}.".startswith(f"{problem.name}."):
            raise  # an import inside the module failed
        remedy = "Install its package, or set PYTHONPATH to its folder"
        raise error(f"{path} cannot be imported ({first_line(problem)}). {remedy}") from None
    except AttributeError as problem:
        raise error(f"{path} cannot be imported: {first_line(problem)}") from None


def package_of(path: str) -> str:
    """Return the top-level package of a module or a ``module:object``."""
    return re.split("[.:]", path, maxsplit=1)[0]


def same_folder() -> AbstractContextManager[None]:
    """Restore the working folder after the ``with`` block, so that relative paths stay valid."""
    with suppress(FileNotFoundError):  # it was removed
        return chdir(Path.cwd())
    return nullcontext()


def passed_through(problem: BaseException, packages: Collection[str]) -> bool:
    """Return True if an error was raised in the code of `packages`, or in code that they called."""
    return bool(_lines_of(problem, packages))


def describe_error(problem: BaseException, packages: Collection[str]) -> str:
    """Describe an error: its type, its message, and its last traceback line in `packages`."""
    text = f"{type(problem).__name__}: {one_line(problem)}".removesuffix(": ")
    lines = _lines_of(problem, packages)
    return f"{text} ({lines[-1]})" if lines else text


def _lines_of(problem: BaseException, packages: Collection[str]) -> list[str]:
    """Return the traceback lines that are in `packages`, each as ``package/module.py:3``."""
    return [
        f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line}"
        for frame, line in walk_tb(problem.__traceback__)
        if package_of(frame.f_globals.get("__name__", "")) in packages
    ]


def one_line(problem: object) -> str:
    """Return an error's message on one line, shortened if it is long."""
    text = " ".join(str(problem).split())
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."
