"""The backbone ``words``: hashed counts of the words and word pairs in a text, without weights.

Each word of two or more letters, and each pair of neighbouring words, adds 1 or -1 to one of 1,024
numbers. Its hash (MurmurHash3) determines the sign and which number. Then the row is scaled to
length one. Nothing is fitted, so every machine computes the same bits. The order of words is lost,
but one can still tell, with few mistakes, whether a text has a certain word. The result is the same
as in scikit-learn's ``HashingVectorizer(n_features=1024, ngram_range=(1, 2))``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.backbones.backbone import NO_CLIPS, Backbone, Family, KnownCheckpoint
from obygaze_features.common.files import to_json, write_text
from obygaze_features.errors import UsageError
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

WIDTH = 1024
MODEL_TYPE = "obygaze-words"
_WORD = re.compile(r"\b\w\w+\b")
_ARRAYS = (
    ArraySpec.named("native", (WIDTH,), "hashed words and pairs of words, length one"),
    ArraySpec.named("count", (1,)),
)


class Words(Backbone):
    """A backbone that only reads texts and has no network."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the texts' hashed words as unit vectors, ``[B,1024]``."""
        return self.embed_text_arrays(texts)["native"]

    def embed_text_arrays(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Return the texts' hashed words, and the number of words."""
        import torch

        counts = np.zeros((len(texts), 1), np.float32)
        hashed = np.zeros((len(texts), WIDTH))
        for row, words in enumerate(map(split_words, texts)):
            counts[row] = len(words)
            for term in (*words, *(f"{first} {second}" for first, second in pairwise(words))):
                value = hash_term(term)
                hashed[row, abs(value) % WIDTH] += 1 if value >= 0 else -1
        # Sums of whole numbers are exact in any order, so the bits are the same everywhere.
        lengths = np.sqrt(np.square(hashed).sum(1, keepdims=True)).clip(min=1)
        arrays = {"native": (hashed / lengths).astype(np.float32), "count": counts}
        return {name: torch.from_numpy(rows).to(self.device) for name, rows in arrays.items()}

    def check_reads_texts(self) -> None:
        """Do nothing, because this backbone reads texts."""

    def for_images_and_texts(self, *, texts: bool = False, images: bool = False) -> Backbone:
        """Return the backbone itself, because it only reads texts."""
        if images:
            raise UsageError(f"{self.name} reads only texts; choose a backbone that reads images")
        return self

    @property
    def tokenizer(self) -> Any:
        """The object that splits texts into words."""
        return _Splitter()


class _Splitter:
    """A stand-in for a network's tokenizer."""

    max_tokens = 1 << 62

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(split_words(text)) for text in texts]

    def attributes(self) -> dict[str, Any]:
        return {"words": _WORD.pattern, "lower_case": True, "terms": "words and pairs"}


def split_words(text: str) -> list[str]:
    """Return the words of two or more letters, digits or underscores, in lower case.

    Examples
    --------
    >>> split_words("Look at her. I'm a fool!")
    ['look', 'at', 'her', 'fool']
    """
    return _WORD.findall(text.lower())


@lru_cache(1 << 16)
def hash_term(term: str) -> int:
    """Return the signed 32-bit MurmurHash3 of a text.

    Examples
    --------
    >>> hash_term("look")
    1404934148
    """
    data = term.encode()
    state = 0
    for start in range(0, len(data), 4):
        block = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        state ^= _rotate(block, 15) * 0x1B873593 & 0xFFFFFFFF
        if start + 4 <= len(data):
            state = _rotate(state, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    state ^= state >> 16
    return state - (state >> 31 << 32)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


def _write(folder: Path, seed: int) -> None:
    write_text(folder / "config.json", to_json({"model_type": MODEL_TYPE, "width": WIDTH}))


def _load(folder: Path, mode: str) -> Backbone:
    from torch import nn

    from obygaze_features.backbones.preprocess import Preprocessing

    def encode_clips(*_: Any) -> dict[str, Tensor]:
        raise UsageError("'words' reads texts only. Make them with: obygaze manifests subtitles")

    return Words(
        module=nn.Module(),
        sampling=NO_CLIPS,
        preprocessing=Preprocessing(None, "bilinear", (1, 1), 1.0, (), ()),
        arrays=_ARRAYS,
        encode_clips=encode_clips,
        weights=(folder / "config.json",),
        config={"model_type": MODEL_TYPE, "width": WIDTH},
        embedding=_ARRAYS[0],
        for_clips=False,
    )


_TITLE = "words and pairs of words of a text, hashed; no network"
FAMILY = Family(
    "words", MODEL_TYPE, (KnownCheckpoint("words", _TITLE, arrays=_ARRAYS, write=_write),), _load
)
