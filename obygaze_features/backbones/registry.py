"""Which backbones there are, and how one is asked for.

A new family is a file that defines its `CARD`, and one line here.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from obygaze_features.backbones import xclip
from obygaze_features.backbones.backbone import Backbone, Card
from obygaze_features.common.extras import need
from obygaze_features.common.files import read_json
from obygaze_features.errors import BackboneError, UsageError

__all__ = ["CARDS", "load_backbone"]

CARDS: dict[str, Card] = {
    card.name: card
    for card in [
        xclip.CARD,
    ]
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def load_backbone(spec: str, device: str | None = None) -> Backbone:
    """Load a backbone.

    Parameters
    ----------
    spec
        ``NAME=PATH`` is a checkpoint folder in Hugging Face's layout, under a name of your
        choice; ``PATH`` alone is named after the folder; ``NAME`` alone is the published
        checkpoint of a card in `CARDS`, fetched from the hub unless it is in its cache.
    device
        ``cpu``, ``cuda``, ``cuda:1`` ...; by default a GPU if there is one.
    """
    name, _, given = spec.rpartition("=")
    path = Path(given)
    revision = None
    if not name and given in CARDS:
        name, path = given, _fetch(CARDS[given])
        revision = path.name
    name = name or path.resolve().name
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a store; use letters, digits and . _ -")
    return _card_of(path).load(path, name, revision, _device(device))


def _card_of(path: Path) -> Card:
    if not path.is_dir():
        near = difflib.get_close_matches(path.name, CARDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the names are: {', '.join(CARDS)}"
        raise BackboneError(f"{path} is neither a checkpoint folder nor a backbone by name; {hint}")
    model_type = read_json(path / "config.json", BackboneError).get("model_type")
    for card in CARDS.values():
        if card.model_type == model_type:
            return card
    known = ", ".join(card.model_type for card in CARDS.values())
    raise BackboneError(f"{path} is of the type {model_type!r}; known types are: {known}")


def _device(device: str | None) -> str:
    torch = need("torch", extra="extract")
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as problem:
        # What torch says first is a list of every kind of device that anybody ever built.
        reason = str(problem).splitlines()[0]
        known = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise BackboneError(
            f"the device {device!r} cannot be used{known}; take cpu, cuda, cuda:1 or mps, "
            "and see what there is with: obygaze doctor"
        ) from None
    return device


def _fetch(card: Card) -> Path:
    """The folder of a card's checkpoint in the hub's cache."""
    hub = need("huggingface_hub", extra="extract")
    for weights in ("model.safetensors", "pytorch_model.bin"):
        try:
            wanted = ["*.json", weights]
            folder = Path(hub.snapshot_download(card.checkpoint, allow_patterns=wanted))
        except (OSError, ValueError) as problem:
            reason = str(problem).splitlines()[0]
            raise BackboneError(
                f"{card.checkpoint} cannot be fetched ({reason}); "
                f"download it elsewhere and give {card.name}=FOLDER"
            ) from None
        if (folder / weights).is_file():
            return folder
    raise BackboneError(f"{card.checkpoint} has no weights")
