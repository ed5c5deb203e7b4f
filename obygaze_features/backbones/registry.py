"""The families of backbones: our own, and those of installed packages.

A family of ours is a module here with a `FAMILY`, or several `FAMILIES`, and its name below.
Another package provides one by an entry point: ``[project.entry-points."obygaze.backbones"] toy =
"my_package.toy:FAMILY"``. An entry point may also be a class or a function that makes a `Backbone`
from a preprocessing mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.common.text import first_line
from obygaze_features.errors import BackboneError

_MODULES = (
    "xclip",
    "vivit",
    "xclip_lsmdc",
    "clip",
    "siglip",
    "videomae",
    "vjepa2",
    "timesformer",
    "dinov2",
)
ENTRY_POINT_GROUP = "obygaze.backbones"
_OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")

Maker = Callable[[str], Backbone]
"""Makes a backbone from a preprocessing mode."""


@cache
def families() -> tuple[Family, ...]:
    """All families: ours first."""
    modules = [vars(import_module(f"obygaze_features.backbones.{name}")) for name in _MODULES]
    own = [family for module in modules for family in module.get("FAMILIES") or (module["FAMILY"],)]
    plugins, _ = load_plugins()
    return (*own, *(plugin for plugin in plugins.values() if isinstance(plugin, Family)))


@cache
def known_checkpoints() -> dict[str, KnownCheckpoint]:
    """The checkpoints that users can name; the first family with a name has it."""
    checkpoints: dict[str, KnownCheckpoint] = {}
    for family in families():
        for checkpoint in family.checkpoints:
            checkpoints.setdefault(checkpoint.name, checkpoint)
    return checkpoints


@cache
def load_plugins() -> tuple[dict[str, Any], dict[str, str]]:
    """The objects of installed packages by entry point, and why others cannot be loaded."""
    plugins: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            plugins[point.name] = point.load()
        except Exception as problem:  # any code of somebody else's
            errors[point.name] = f"{point.value}: {first_line(problem)}"
    return plugins, errors


def find_maker(spec: str) -> Maker | None:
    """The maker that a spec names, an entry point or ``module:Class``; None if neither."""
    plugins, _ = load_plugins()
    if spec in plugins and not isinstance(plugins[spec], Family):
        maker = plugins[spec]
    elif (match := _OBJECT.fullmatch(spec)) and not Path(spec).exists():
        try:
            maker = getattr(import_module(match[1]), match[2])
        except (ImportError, AttributeError) as problem:
            raise BackboneError(
                f"{spec} cannot be imported ({problem}). Install its package, or set PYTHONPATH"
            ) from None
        except Exception as problem:  # any code of somebody else's
            kind = type(problem).__name__
            raise BackboneError(
                f"{spec} cannot be imported: {match[1]} raises {kind} ({first_line(problem)})"
            ) from problem
    else:
        return None
    if not callable(maker):
        raise BackboneError(f"{spec} is not a class or a function that makes a Backbone")
    return maker  # type: ignore[no-any-return]
