"""Which backbones there are. A new family is a module here with a `FAMILY`, and a line below."""

from __future__ import annotations

from importlib import import_module

from obygaze_features.backbones.backbone import Card, Family

__all__ = ["CARDS", "FAMILIES"]

_MODULES = (
    "xclip",
    "vivit",
    "xclip_lsmdc",
    "clip",
    "open_clip",
    "siglip",
    "videomae",
)

FAMILIES: tuple[Family, ...] = tuple(
    import_module(f"obygaze_features.backbones.{name}").FAMILY for name in _MODULES
)

CARDS: dict[str, Card] = {card.name: card for family in FAMILIES for card in family.cards}
