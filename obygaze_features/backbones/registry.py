"""The families of backbones in obygaze and in installed plug-ins.

obygaze's own families are the `FAMILY` or `FAMILIES` of modules in this folder; the modules are
listed below. Another package can provide a family with an entry point:
``[project.entry-points."obygaze.backbones"] toy = "my_package.toy:FAMILY"``. The entry point may
also be a class or function that makes a `Backbone` for a preprocessing mode. Errors in the code of
another package are raised as `BrokenBackbone`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.common.plugins import (
    OBJECT,
    Plugin,
    installed_plugins,
    load_object,
    plugin_at,
    plugin_errors,
)
from obygaze_features.errors import BackboneError, BrokenBackbone

_MODULES = (
    "video_families",
    "xclip_lsmdc",
    "image_families",
    "sound_families",
    "words",
)
ENTRY_POINT_GROUP = "obygaze.backbones"
LIBRARIES = ("timm", "torchvision")
"""Libraries whose models can be used as ``LIBRARY:NAME``."""

Maker = Callable[[str], Backbone]
"""A function that makes a backbone for a preprocessing mode."""


@cache
def own_families() -> tuple[Family, ...]:
    """Return the families of this package."""
    modules = [vars(import_module(f"obygaze_features.backbones.{name}")) for name in _MODULES]
    return tuple(
        family for module in modules for family in module.get("FAMILIES") or (module["FAMILY"],)
    )


@cache
def families() -> tuple[Family, ...]:
    """Return all families, obygaze's own first."""
    plugins, _ = load_plugins()
    return (*own_families(), *(item for item in plugins.values() if isinstance(item, Family)))


@cache
def known_checkpoints() -> dict[str, KnownCheckpoint]:
    """Return the checkpoints that users can refer to by name."""
    return {item.name: item for family in families() for item in family.checkpoints}


@cache
def load_plugins() -> tuple[dict[Plugin, Any], dict[Plugin, str]]:
    """Return the families and makers of plug-ins, and the reasons why other plug-ins are unused."""
    plugins: dict[Plugin, Any] = {}
    problems: dict[Plugin, str] = {}
    used_names = {item.name for family in own_families() for item in family.checkpoints}
    for plugin in installed_plugins(ENTRY_POINT_GROUP):
        try:
            loaded = _load_plugin(plugin)
            is_family = isinstance(loaded, Family)
            names = {item.name for item in loaded.checkpoints} if is_family else {plugin.name}
            if common := sorted(names & used_names):
                raise BackboneError(f"the name {common[0]} of {plugin} is already taken")
            used_names |= names
            plugins[plugin] = loaded
        except BackboneError as problem:
            problems[plugin] = str(problem)
    return plugins, problems


def maker_names() -> set[str]:
    """Return the names of entry points that make a backbone, including those that fail to load."""
    plugins, problems = load_plugins()
    makers = {plugin.name for plugin, maker in plugins.items() if not isinstance(maker, Family)}
    return makers | {plugin.name for plugin in problems}


def find_maker(spec: str) -> tuple[Plugin, Maker] | None:
    """Return the maker for an entry point, a ``module:Class`` or a library's model, or None."""
    library, colon, _ = spec.partition(":")
    if colon and library in LIBRARIES:
        from obygaze_features.backbones.own import load_library

        return plugin_at(spec), partial(load_library, spec)
    plugins, problems = load_plugins()
    for plugin, loaded in plugins.items():
        if plugin.name == spec and not isinstance(loaded, Family):
            return plugin, loaded
    if spec not in known_checkpoints() and not Path(spec).exists():
        for plugin, problem in problems.items():
            if plugin.name == spec:
                raise BrokenBackbone(problem)
        if OBJECT.fullmatch(spec):
            plugin = plugin_at(spec)
            maker = _load_plugin(plugin)
            if isinstance(maker, Family):
                raise BackboneError(f"{plugin} is a family; pass one of its checkpoints: NAME=PATH")
            return plugin, maker
    return None


def _load_plugin(plugin: Plugin) -> Any:
    """Load a plug-in's family or maker, and wrap it so that its errors are `BrokenBackbone`."""

    def guard(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function, updated=())
        def guarded(*arguments: Any) -> Any:
            with plugin_errors(plugin, BrokenBackbone):
                return function(*arguments)

        return guarded

    with plugin_errors(plugin, BrokenBackbone):
        loaded = load_object(plugin.path, BrokenBackbone, plugin.package)
        if isinstance(loaded, Family):
            checkpoints = tuple(
                replace(item, write=item.write and guard(item.write)) for item in loaded.checkpoints
            )
            return replace(loaded, checkpoints=checkpoints, load=guard(loaded.load), plugin=plugin)
    if not callable(loaded):
        raise BrokenBackbone(f"{plugin} is not a class or function that makes a Backbone")
    return guard(loaded)
