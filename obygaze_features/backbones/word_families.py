"""The backbone ``words``: hashed counts of the words and word pairs in a text, without weights.

scikit-learn's ``HashingVectorizer`` adds 1 or -1 to one of 1,024 numbers for each word of two or
more characters and for each pair of neighbouring words. Then the row is scaled to unit length.
Nothing is fitted, so every machine computes the same bits. Beyond pairs, the order of words is
lost, but one can still tell, with few mistakes, whether a text has a certain word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.backbone import Backbone, Family, KnownCheckpoint
from obygaze_features.backbones.readers import TextReader
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.package import need
from obygaze_features.store import ArraySpec

if TYPE_CHECKING:
    from torch import Tensor

WIDTH = 1024
MODEL_TYPE = "obygaze-words"
CONFIG = {"model_type": MODEL_TYPE, "width": WIDTH}
_WORD = re.compile(r"\b\w\w+\b")


class _Hasher:
    """A stand-in for a tokenizer that already computes the arrays."""

    max_tokens = 1 << 62

    def __init__(self) -> None:
        text = need("sklearn.feature_extraction.text", extra="extract")
        self._vectorizer = text.HashingVectorizer(
            n_features=WIDTH,
            ngram_range=(1, 2),
            token_pattern=_WORD.pattern,
        )

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        import torch

        rows = self._vectorizer.transform(texts).toarray()
        counts = torch.tensor(self.count(texts), dtype=torch.float32)
        return {"native": torch.from_numpy(rows).float(), "count": counts[:, None]}

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(_WORD.findall(text.lower())) for text in texts]

    def attributes(self) -> dict[str, Any]:
        return {"words": _WORD.pattern, "lower_case": True, "terms": "words and pairs"}


def _write(folder: Path, seed: int) -> None:
    write_text(folder / "config.json", to_json(CONFIG))


def _load(folder: Path, mode: str) -> Backbone:
    from torch import nn

    native = ArraySpec.named("native", (WIDTH,), "hashed words and pairs of words, length one")
    arrays = (native, ArraySpec.named("count", (1,)))
    text = TextReader(_Hasher, arrays, lambda counts, names: counts)
    return Backbone(nn.Module(), text=text, weights=(folder / "config.json",), config=CONFIG)


_TITLE = "words and pairs of words of a text, hashed; no network"
FAMILIES = (Family("words", MODEL_TYPE, (KnownCheckpoint("words", _TITLE, write=_write),), _load),)
