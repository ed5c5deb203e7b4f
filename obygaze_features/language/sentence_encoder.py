"""Sentence encoders in SBERT's layout: the mean of a transformer's tokens, of length one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.checkpoint import load_model, quiet, weight_files
from obygaze_features.backbones.devices import arithmetic, device_of, enough_memory, move
from obygaze_features.backbones.finding import sha256_of
from obygaze_features.backbones.tokens import Tokens, read_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.language.finding import ENCODERS, POOLING, find

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SentenceEncoder", "load_sentence_encoder"]

AT_ONCE = 64
"""Texts of a batch."""
_KNOWN = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True)
class SentenceEncoder:
    """A loaded sentence encoder.

    Parameters
    ----------
    name
        For people.
    network
        Of transformers'.
    tokens
        Its tokenizer; what is longer than it reads is cut off, as SBERT does it.
    lower
        Texts are put into lower case first.
    device, about
        As in `LanguageModel`.
    """

    name: str
    network: Any
    tokens: Tokens
    lower: bool
    device: str
    about: Mapping[str, Any]

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embeddings ``[B,D]`` of length one, in float32."""
        import torch

        texts = [one.lower() for one in texts] if self.lower else list(texts)
        rows = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        parts = []
        for start in range(0, len(rows), AT_ONCE):
            with enough_memory(self.name, self.device):
                parts.append(self._embed([texts[row] for row in rows[start : start + AT_ONCE]]))
        return torch.cat(parts)[torch.tensor(rows).argsort()]

    def _embed(self, texts: Sequence[str]) -> Tensor:
        import torch
        from torch.nn.functional import normalize

        read = {name: one.to(self.device) for name, one in self.tokens(texts).items()}
        with torch.inference_mode(), arithmetic(torch.device(self.device).type, "float32"):
            tokens = self.network(**read).last_hidden_state.float()
            there = read["attention_mask"][..., None].to(tokens.dtype)
            return normalize((tokens * there).sum(1) / there.sum(1), dim=1).cpu()


def load_sentence_encoder(spec: str, device: str | None = None) -> SentenceEncoder:
    """Load a sentence encoder in SBERT's layout that takes the mean of its tokens.

    Parameters
    ----------
    spec
        A folder, a name in `ENCODERS`, or ``OWNER/NAME`` on the hub. A folder without
        ``modules.json`` is a plain transformer, of whose tokens the mean is taken, too.
    device
        As in `load_language_model`.
    """
    need("transformers", extra="language")
    from transformers import MODEL_MAPPING, AutoConfig

    where, found = device_of(device), find(spec, ENCODERS)
    folder = _transformer(found.path)
    files = weight_files(folder)
    try:
        with quiet():
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = MODEL_MAPPING[type(config)]
    except Exception as problem:  # each kind of configuration has its own errors
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise BackboneError(f"{folder} is of no known type: {reason[0]}") from None
    # The pooling of BERT's own is not used here, and not in every checkpoint.
    pooled = "add_pooling_layer" in signature(kind.__init__).parameters
    network = load_model(kind, folder, files, **({"add_pooling_layer": False} if pooled else {}))
    move(network, where, found.name)
    longest, lower = _texts(folder, network)
    return SentenceEncoder(
        name=found.name,
        network=network,
        tokens=read_tokenizer(folder, longest, config.vocab_size),
        lower=lower,
        device=where,
        about={
            "name": found.name,
            "revision": found.revision,
            "weights_sha256": sha256_of(files),
        },
    )


def _transformer(folder: Path) -> Path:
    """Where the transformer of a sentence encoder lies, if it does nothing that we do not."""
    path = folder / "modules.json"
    if not path.is_file():
        return folder
    try:
        modules = read_json(path, BackboneError)
        where = {one["type"].rpartition(".")[2]: one["path"] for one in modules}
        inside = [Path(one).name == one for one in where.values()]
    except (KeyError, TypeError, AttributeError):
        inside = []
    if not inside or not all(inside) or "Transformer" not in where:
        raise BackboneError(f"{path} is no list of a sentence encoder's modules")
    if other := [kind for kind in where if kind not in _KNOWN]:
        raise BackboneError(
            f"{folder} has a module {other[0]}; only encoders of {', '.join(_KNOWN)} are known"
        )
    _check_pooling(folder / where.get("Pooling", "1_Pooling") / Path(POOLING).name)
    return Path(folder / where["Transformer"])


def _check_pooling(path: Path) -> None:
    pooling = read_json(path, BackboneError)
    on = [name for name, value in pooling.items() if value is True] if pooling else []
    ways = [name[13:] for name in on if re.fullmatch("pooling_mode_.*tokens?", name)]
    if ways != ["mean_tokens"]:
        raise BackboneError(
            f"{path} pools by {' and '.join(ways) or 'nothing'}; only the mean of tokens is known"
        )


def _texts(folder: Path, network: Any) -> tuple[int, bool]:
    """How many tokens are read, and whether texts are put into lower case first."""
    path = folder / "sentence_bert_config.json"
    told = read_json(path, BackboneError) if path.is_file() else {}
    most = getattr(network.config, "max_position_embeddings", None)
    if most is None:
        raise BackboneError(
            f"{folder} is of the type {network.config.model_type!r}, which has no number of "
            "positions; take an encoder such as BERT, RoBERTa or MPNet"
        )
    # The first positions of RoBERTa and its kin, up to that of padding, are no tokens'.
    table = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    most -= 0 if padding is None else padding + 1
    return min(told.get("max_seq_length") or most, most), bool(told.get("do_lower_case"))
