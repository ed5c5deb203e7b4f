"""Texts to token ids, by a checkpoint's own tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.weights import quiet
from obygaze_features.common.package import need
from obygaze_features.common.text import first_line
from obygaze_features.errors import BackboneError

if TYPE_CHECKING:
    from torch import Tensor

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "spiece.model",
)
"""The files of a tokenizer. A checkpoint has some of them."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "spiece.model", "vocab.txt")


@dataclass(frozen=True)
class Tokenizer:
    """A checkpoint's tokenizer.

    Parameters
    ----------
    tokenizer
        Of transformers.
    max_tokens
        Tokens that the network reads, with the start and end tokens; the rest is cut off.
    padding
        ``longest`` pads to the longest text of a batch, ``max_length`` to `max_tokens`.
    """

    tokenizer: Any
    max_tokens: int
    padding: str

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """The network's input for a batch of texts."""
        return dict(
            self.tokenizer(
                list(texts),
                padding=self.padding,
                truncation=True,
                max_length=self.max_tokens,
                return_tensors="pt",
            )
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, before any is cut off."""
        with quiet():  # the caller reports texts that are too long
            encoded = self.tokenizer(list(texts), truncation=False, padding=False)
        return [len(ids) for ids in encoded["input_ids"]]

    def attributes(self) -> dict[str, Any]:
        """As recorded in a store's attributes."""
        vocabulary = json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        return {
            "longest": self.max_tokens,
            "padding": self.padding,
            "vocabulary_sha256": hashlib.sha256(vocabulary.encode()).hexdigest(),
        }


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint folder has a vocabulary."""
    return any((folder / name).is_file() for name in _VOCABULARIES)


def read_tokenizer(
    folder: Path, max_tokens: int, vocabulary_size: int, padding: str = "longest"
) -> Tokenizer:
    """Read the tokenizer of a checkpoint folder, of a network that knows so many tokens."""
    need("transformers", extra="extract")
    from transformers import AutoTokenizer

    if not has_tokenizer(folder):
        raise BackboneError(
            f"{folder} has no tokenizer ({' or '.join(_VOCABULARIES)}); copy it from the page "
            "where the checkpoint is published"
        )
    if (folder / "spiece.model").is_file():
        need("sentencepiece", extra="extract")
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as problem:  # each file format has its own errors
        reason = first_line(problem)
        raise BackboneError(f"{folder}: the tokenizer cannot be read: {reason}") from None
    if len(tokenizer) > vocabulary_size:
        raise BackboneError(
            f"{folder}: the tokenizer has {len(tokenizer):,} tokens, but the network knows "
            f"{vocabulary_size:,}. Use the tokenizer of the same checkpoint"
        )
    return Tokenizer(tokenizer, max_tokens, padding)
