"""Load objects from other packages, and describe their errors in one line."""

from __future__ import annotations

import pkgutil
import re
import traceback
from functools import cache
from importlib.metadata import EntryPoint, packages_distributions, version
from pathlib import Path
from typing import Any

from obygaze_features.errors import ObygazeError, first_line

MAX_LETTERS = 300
OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
"""A pattern for the address of an object, ``module:object``."""

_NOT_THEIRS = re.compile("obygaze_|importlib|pkgutil")
"""A pattern for files whose lines do not tell where a plug-in failed."""


def plugin_package(plugin: EntryPoint) -> str:
    """Return the package of an entry point, as in ``mylab 1.0``."""
    assert plugin.dist is not None  # only a hand-made entry point has no package
    return f"{plugin.dist.name} {plugin.dist.version}"


@cache
def package_versions(package: str) -> str:
    """Return the distributions of a top-level package, as in ``mylab 1.0``; "" if there are none.

    This takes a quarter of a second.
    """
    names = sorted(set(packages_distributions().get(package, [])))
    return ", ".join(f"{name} {version(name)}" for name in names)


def load_object(path: str, error: type[ObygazeError]) -> Any:
    """Import the object at ``module:object``; raise `error` if it cannot be imported."""
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError) as problem:
        remedy = "Install its package, set PYTHONPATH to its folder, or correct the name"
        raise error(f"{path} cannot be imported: {first_line(problem)}. {remedy}") from problem
    except Exception as problem:  # the module's code may raise anything
        raise error(f"{path} cannot be imported: {describe_error(problem)}") from problem


def package_of(path: str) -> str:
    """Return the top-level package of a module or a ``module:object``."""
    return re.split("[.:]", path)[0]


def describe_error(problem: BaseException) -> str:
    """Return an error's type and message, and the line of the plug-in's file that led to it."""
    text = f"{type(problem).__name__}: {one_line(problem)}".removesuffix(": ")
    for frame in traceback.extract_tb(problem.__traceback__):
        if not _NOT_THEIRS.search(frame.filename):
            file = "/".join(Path(frame.filename).parts[-2:])
            return f"{text} ({file}:{frame.lineno})"
    return text


def one_line(problem: object) -> str:
    """Return an error's message on one line, shortened if it is long."""
    text = " ".join(str(problem).split())
    if len(text) > MAX_LETTERS:
        return f"{text[:MAX_LETTERS]}..."
    return text
