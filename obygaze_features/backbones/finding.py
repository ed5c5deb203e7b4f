"""Where a backbone that is asked for lies: a folder, a card's checkpoint, or one of the hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.backbones.backbone import OPEN_CLIP, Card, Family
from obygaze_features.backbones.hub import (
    cached_checkpoint,
    fetch_checkpoint,
    fetch_more,
    is_repository,
)
from obygaze_features.backbones.random_weights import cached_weights
from obygaze_features.backbones.registry import CARDS, FAMILIES
from obygaze_features.backbones.tokens import TOKENIZER_FILES, has_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.text import closest, join_some
from obygaze_features.errors import BackboneError, UsageError

__all__ = ["Found", "family_of", "find", "prefetch", "sha256_of", "with_tokenizer"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Found:
    """A checkpoint on this machine.

    Parameters
    ----------
    name
        Of its store.
    path
        Its folder or file.
    revision
        Of the repository, where it is from the hub.
    repository
        Which one that is.
    card
        The name of its card, if it has one.
    """

    name: str
    path: Path
    revision: str | None = None
    repository: str | None = None
    card: str | None = None

    @property
    def backbone(self) -> str:
        """The backbone's name as stores record it: the card's, or the name that was typed."""
        return self.card or self.name


def find(spec: str) -> Found:
    """The name of a store, and the checkpoint on this machine, fetched if need be."""
    name, equals, given = spec.partition("=")
    if not equals or Path(spec).exists():  # a path may have the sign in it, too
        name, given = "", spec
    path = Path(given)
    own = path.resolve().parent.name if path.is_file() else path.resolve().name
    # Under a name of the user's a path is meant rather than a card, if there is one.
    here = path.exists() and (name or given not in CARDS)
    found = Found(name or own, path)
    if not _NAME.fullmatch(found.name):
        raise UsageError(f"{found.name!r} cannot name a store; use letters, digits and . _ -")
    if here:
        return found
    if given in CARDS:
        card, path = CARDS[given], _checkpoint_of(CARDS[given])
        revision = path.name if card.repository else None
        return Found(found.name, path, revision, card.repository, card.name)
    if is_repository(given):
        try:
            path = cached_checkpoint(given) or fetch_checkpoint(given, given, family_of)
        except BackboneError as problem:
            near = _beside(path)
            raise BackboneError(f"there is no folder {given} here{near}, and {problem}") from None
        card_name = next((card.name for card in CARDS.values() if card.repository == given), None)
        return Found(found.name, path, path.name, given, card_name)
    raise BackboneError(f"{given} is neither a checkpoint nor a backbone by name; {_near(given)}")


def _near(name: str) -> str:
    near = closest(Path(name).name, CARDS)
    return f"did you mean {near}?" if near else "list them with: obygaze features backbones"


def _beside(path: Path) -> str:
    """What a path that leads nowhere may have meant."""
    there = sorted(one.name for one in path.parent.glob("*")) if path.parent.is_dir() else []
    if near := closest(path.name, there):
        return f" (did you mean {path.parent / near}?)"
    return f" ({path.parent} has {join_some(there)})" if there else ""


def _checkpoint_of(card: Card, *, fetch: bool = False) -> Path:
    if card.write:
        return cached_weights(card.name)
    if not card.repository:
        raise BackboneError(f"{card.name} cannot be fetched: {card.obtain}")
    cached = None if fetch else cached_checkpoint(card.repository)
    return cached or fetch_checkpoint(card.repository, card.name, family_of)


def with_tokenizer(found: Found) -> Path:
    """The folder of a checkpoint; its tokenizer is fetched where it is from the hub without one."""
    if found.repository and not has_tokenizer(found.path):
        fetch_more(found.repository, found.path.name, TOKENIZER_FILES)
    return found.path


def family_of(path: Path) -> Family:
    """The family of a checkpoint, by what its configuration says."""
    config = path / "config.json"
    content = read_json(config, BackboneError) if config.is_file() else {}
    model_type = content.get("model_type") if isinstance(content, dict) else None
    if not config.is_file() and (path / OPEN_CLIP).is_file():
        model_type = OPEN_CLIP
    for family in FAMILIES:
        # What has no configuration is of the one layout that needs none.
        if family.model_type == model_type and (model_type or not config.is_file()):
            return family
    types = (family.model_type for family in FAMILIES)
    known = ", ".join(one for one in types if one and one != OPEN_CLIP)
    raise BackboneError(f"{path} is of the type {model_type!r}; known types are: {known}")


def prefetch(name: str) -> Path:
    """Get a card's checkpoint, or one of the hub, ahead of a machine without network."""
    if name in CARDS:
        path, repository = _checkpoint_of(CARDS[name], fetch=True), CARDS[name].repository
    elif is_repository(name) and not Path(name).exists():
        path, repository = fetch_checkpoint(name, name, family_of), name
    else:
        raise UsageError(f"{name} is nothing that can be fetched; {_near(name)}, or OWNER/NAME")
    if repository and family_of(path).towers:
        fetch_more(repository, path.name, TOKENIZER_FILES)
    return path


def sha256_of(files: Sequence[Path]) -> str:
    """The SHA-256 of one file, or of several one after another (``cat * | sha256sum``)."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
