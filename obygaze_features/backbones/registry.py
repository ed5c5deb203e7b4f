"""The families of backbones: the `FAMILIES` of the modules that `families` imports."""

from __future__ import annotations

from functools import cache

from obygaze_features.backbones.backbone import Family, KnownCheckpoint


@cache
def families() -> tuple[Family, ...]:
    """Return all families."""
    from obygaze_features.backbones import (
        image_families,
        package_families,
        sound_families,
        token_families,
        video_families,
        word_families,
        xclip_lsmdc,
    )

    return (
        *video_families.FAMILIES,
        *token_families.FAMILIES,
        *xclip_lsmdc.FAMILIES,
        *image_families.FAMILIES,
        *sound_families.FAMILIES,
        *word_families.FAMILIES,
        *package_families.FAMILIES,
    )


@cache
def known_checkpoints() -> dict[str, KnownCheckpoint]:
    """Return the checkpoints that users can refer to by name."""
    return {item.name: item for family in families() for item in family.checkpoints}
