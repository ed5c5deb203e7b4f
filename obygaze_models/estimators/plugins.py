"""Estimators of other packages: where they are from, and what their code raises, in one line."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import packages_distributions, version
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from obygaze_features.common.plugins import (
    Plugin,
    describe_error,
    installed_plugins,
    load_object,
    package_of,
    passed_through,
)
from obygaze_features.errors import ExperimentError, ObygazeError

ENTRY_POINT_GROUP = "obygaze.estimators"
_OWN, _SKLEARN = "obygaze_models", "sklearn"


class PluginError(ExperimentError):
    """What the code of another package raised, in one line."""


def plugins() -> tuple[Plugin, ...]:
    """The estimators that installed packages provide."""
    return installed_plugins(ENTRY_POINT_GROUP)


def trusted_classes() -> dict[str, str]:
    """The package of each class that an entry point names: a skops file may hold these.

    Only these, and nothing else of such a package: skops builds what a file names, and a forged
    file could name any function that the package's modules have imported.
    """
    trusted = {}
    for plugin in plugins():
        with suppress(Exception, SystemExit):  # any code of somebody else's
            kind = load_class(plugin.path)
            trusted[f"{kind.__module__}.{kind.__qualname__}"] = plugin.package
    return trusted


def load_class(path: str) -> Any:
    """The class of ``module:Class``."""
    return load_object(path, ExperimentError)


def parts_of(estimator: Any) -> list[Any]:
    """An estimator and those within it."""
    values = estimator.get_params(deep=True).values()
    parts = [value for value in values if hasattr(value, "fit") and not isinstance(value, type)]
    return [estimator, *parts]


@contextmanager
def plugin_errors(modules: Collection[str]) -> Iterator[None]:
    """Raise what other packages' code raises as a `PluginError`; errors of our code stay.

    Parameters
    ----------
    modules
        Those of an estimator and of its parts. scikit-learn's parts of ours count as ours.
    """
    packages = {package_of(module) for module in modules}
    foreign = packages - {_OWN} - ({_SKLEARN} if _OWN in packages else set())
    try:
        yield
    except ExperimentError:
        raise
    except (Exception, SystemExit) as problem:
        is_ours = isinstance(problem, ObygazeError) and not passed_through(problem, foreign)
        if is_ours or not foreign:
            raise
        raise PluginError(describe_error(problem, foreign - {_SKLEARN})) from problem


def plugin_versions(estimator: Any) -> dict[str, str]:
    """The versions of the packages of an estimator and its parts, and digests of their files.

    Ours and scikit-learn are left out. Of a package without a version the digest still changes
    with any of its files.
    """
    provided = {package_of(plugin.path): plugin.package for plugin in plugins()}
    versions = {}
    for kind in {type(part) for part in parts_of(estimator)}:
        package = package_of(kind.__module__)
        if package in (_OWN, _SKLEARN):
            continue
        if package in provided:
            name, _, number = provided[package].rpartition(" ")
            versions[name] = number
        else:
            versions |= {name: version(name) for name in packages_distributions().get(package, ())}
        if files := _files_of(package):
            content = b"".join(file.read_bytes() for file in files)
            digest = hashlib.sha256(content).hexdigest()
            versions[f"{kind.__module__}:{kind.__qualname__}"] = f"sha256 {digest[:16]}"
    return dict(sorted(versions.items()))


def _files_of(package: str) -> list[Path]:
    """The files of a package; of a module, its own, and those in its folder that it imports.

    Also what is only imported while a model is fitted.
    """
    module = sys.modules[package]
    if folders := getattr(module, "__path__", None):
        return sorted(file for folder in folders for file in Path(folder).rglob("*.py"))
    path = getattr(module, "__file__", None)
    if path is None or not path.endswith(".py"):
        return [] if path is None else [Path(path)]
    finder = ModuleFinder([] if "site-packages" in Path(path).parts else [str(Path(path).parent)])
    finder.run_script(path)
    files = [getattr(part, "__file__", None) for part in finder.modules.values()]
    return sorted(Path(file) for file in files if file)
