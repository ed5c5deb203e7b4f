"""Texts as a checkpoint's own tokenizer cuts them up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.checkpoint import quiet
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TOKENIZER_FILES", "Tokens", "has_tokenizer", "read_tokenizer"]

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
)
"""What a tokenizer may consist of. A checkpoint has some of them."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model", "vocab.txt")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer.

    Parameters
    ----------
    tokenizer
        Of transformers.
    longest
        Tokens that the network reads, with those for begin and end; what is beyond is cut off.
    padding
        ``longest`` of the texts at hand, or ``max_length`` where a network was trained so.
    """

    tokenizer: Any
    longest: int
    padding: str

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """What the network reads of some texts."""
        found = self.tokenizer(
            list(texts),
            padding=self.padding,
            truncation=True,
            max_length=self.longest,
            return_tensors="pt",
        )
        return dict(found)

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, before any is cut off."""
        with quiet():  # that a text is too long is for who asks to say
            found = self.tokenizer(list(texts), truncation=False, padding=False)
        return [len(one) for one in found["input_ids"]]

    def attributes(self) -> dict[str, Any]:
        """As kept in a store's attributes."""
        vocabulary = json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        return {
            "longest": self.longest,
            "padding": self.padding,
            "vocabulary_sha256": hashlib.sha256(vocabulary.encode()).hexdigest(),
        }


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint folder has a vocabulary."""
    return any((folder / name).is_file() for name in _VOCABULARIES)


def read_tokenizer(
    folder: Path, longest: int, size: int, *, padding: str = "longest", of: str | None = None
) -> Tokens:
    """The tokenizer of a checkpoint folder.

    Parameters
    ----------
    folder
        The checkpoint.
    longest
        Tokens that its network reads.
    size
        Tokens that its network knows.
    padding
        As in `Tokens`.
    of
        The class of transformers', where the folder has no ``config.json`` that says it.
    """
    transformers = need("transformers", extra="extract")
    if not has_tokenizer(folder):
        raise BackboneError(
            f"{folder} has no tokenizer ({' or '.join(_VOCABULARIES)}); copy it from where the "
            "checkpoint is published"
        )
    if (folder / "spiece.model").is_file():
        need("sentencepiece", extra="extract")
    kind = getattr(transformers, of) if of else transformers.AutoTokenizer
    try:
        with quiet():
            tokenizer = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as problem:  # each kind of file has its own reader, with its own errors
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise BackboneError(f"the tokenizer of {folder} cannot be read: {reason[0]}") from None
    if len(tokenizer) > size:
        raise BackboneError(
            f"the tokenizer of {folder} has {len(tokenizer):,} tokens, and the network knows "
            f"{size:,}: they are not of one checkpoint"
        )
    return Tokens(tokenizer, longest, padding)
