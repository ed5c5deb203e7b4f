"""Which backbones there are. A new family is a file that defines its `FAMILY`, and a line here."""

from __future__ import annotations

from obygaze_features.backbones import vivit, xclip, xclip_lsmdc
from obygaze_features.backbones.backbone import Card, Family

__all__ = ["CARDS", "FAMILIES"]

FAMILIES: tuple[Family, ...] = (
    xclip.FAMILY,
    vivit.FAMILY,
    xclip_lsmdc.FAMILY,
)

CARDS: dict[str, Card] = {card.name: card for family in FAMILIES for card in family.cards}
