"""Estimators of other packages: where they are from, and what their code raises, in one line."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import packages_distributions, version
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
_NOT_LOADED_BY_PLUGINS = {"__main__", "cli", "obygaze_features", _OWN}


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
    with any of its files that are loaded.
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
        files = _loaded_files(package)
        if files:
            content = b"".join(file.read_bytes() for file in files)
            digest = hashlib.sha256(content).hexdigest()
            versions[f"{kind.__module__}:{kind.__qualname__}"] = f"sha256 {digest[:16]}"
    return dict(sorted(versions.items()))


def _loaded_files(package: str) -> list[Path]:
    """The files of a package that are loaded.

    A module in a plain folder has no package: its neighbours there, and theirs, count.
    """
    own, folder = _file_of(package), None
    if own and not hasattr(sys.modules[package], "__path__") and "site-packages" not in own.parts:
        folder = own.parent
    packages = {package}
    for name in {package_of(name) for name in sys.modules} - _NOT_LOADED_BY_PLUGINS:
        if folder and (file := _file_of(name)) and folder in file.parents[:2]:
            packages.add(name)
    loaded = [_file_of(name) for name in list(sys.modules) if package_of(name) in packages]
    return sorted({file for file in loaded if file})


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None
