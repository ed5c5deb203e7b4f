"""The families of backbones: the `FAMILIES` of the modules listed below."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from obygaze_features.backbones.backbone import Family, KnownCheckpoint

_MODULES = (
    "video_families",
    "token_families",
    "xclip_lsmdc",
    "image_families",
    "sound_families",
    "word_families",
    "package_families",
)


@cache
def families() -> tuple[Family, ...]:
    """Return all families."""
    found: list[Family] = []
    for name in _MODULES:
        found.extend(import_module(f"obygaze_features.backbones.{name}").FAMILIES)
    return tuple(found)


@cache
def known_checkpoints() -> dict[str, KnownCheckpoint]:
    """Return the checkpoints that users can refer to by name."""
    return {item.name: item for family in families() for item in family.checkpoints}
