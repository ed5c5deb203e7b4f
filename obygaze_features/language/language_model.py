"""How likely a text is to a language model in GPT-2's layout: the mean probability of its tokens.

As Sabir and Padro (2023) have it: the token for the beginning stands before, the one for the end
counts as one of the text's, and it is the probabilities that are averaged, not their logarithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.backbones.checkpoint import load_model, quiet, weight_files
from obygaze_features.backbones.devices import arithmetic, device_of, enough_memory, move
from obygaze_features.backbones.finding import sha256_of
from obygaze_features.backbones.tokens import Tokens, read_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.package import need
from obygaze_features.errors import BackboneError
from obygaze_features.language.finding import LANGUAGE_MODELS, find

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LanguageModel", "load_language_model"]

AT_ONCE = 2048
"""Tokens of a batch: each has a number for every token of the vocabulary."""


@dataclass(frozen=True)
class LanguageModel:
    """A loaded language model.

    Parameters
    ----------
    name
        For people.
    network
        Of transformers'.
    tokens
        Its tokenizer.
    device
        Where it runs.
    about
        ``name``, ``revision`` and ``weights_sha256``, for records.
    """

    name: str
    network: Any
    tokens: Tokens
    device: str
    about: Mapping[str, Any]

    def mean_probabilities(self, texts: Sequence[str]) -> list[float | None]:
        """The mean token probability of each text; None where a text is longer than it reads."""
        with quiet():  # that a text is too long is for who asks to say
            read = self.tokens.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        settings = self.network.config
        whole = [[settings.bos_token_id, *one, settings.eos_token_id] for one in read]
        found: list[float | None] = [None] * len(whole)
        # The last token is only told, and what is to be told begins after the first.
        rows = [row for row, one in enumerate(whole) if len(one) - 1 <= self.tokens.longest]
        for some in _batches(rows, whole):
            with enough_memory(self.name, self.device):
                means = self._score([whole[row] for row in some])
            for row, mean in zip(some, means, strict=True):
                found[row] = mean
        return found

    def _score(self, whole: Sequence[Sequence[int]]) -> list[float]:
        import torch

        longest = max(map(len, whole))
        # What stands after a text's end changes nothing before it, so that any token will do.
        filled = [[*one, *[one[-1]] * (longest - len(one))] for one in whole]
        ids = torch.tensor(filled, device=self.device)
        lengths = torch.tensor([len(one) for one in whole], device=self.device)
        with torch.inference_mode(), arithmetic(torch.device(self.device).type, "float32"):
            told = self.network(input_ids=ids[:, :-1], use_cache=False).logits.float()
            chosen = told.gather(-1, ids[:, 1:, None])[..., 0]
            chance: Tensor = (chosen - told.logsumexp(-1)).double().exp()
        ours = torch.arange(longest - 1, device=self.device) < (lengths - 1)[:, None]
        means: list[float] = ((chance * ours).sum(1) / ours.sum(1)).tolist()
        return means


def load_language_model(spec: str, device: str | None = None) -> LanguageModel:
    """Load a language model in GPT-2's layout.

    Parameters
    ----------
    spec
        A folder, a name in `LANGUAGE_MODELS`, or ``OWNER/NAME`` on the hub.
    device
        ``cpu``, ``cuda``, ``cuda:1``, ``mps``; by default a GPU if there is one.
    """
    need("transformers", extra="language")
    from transformers import GPT2LMHeadModel

    where, found = device_of(device), find(spec, LANGUAGE_MODELS)
    _check_kind(found.path)
    files = weight_files(found.path)
    network = load_model(GPT2LMHeadModel, found.path, files)
    settings = network.config
    move(network, where, found.name)
    return LanguageModel(
        name=found.name,
        network=network,
        tokens=read_tokenizer(found.path, settings.n_positions, settings.vocab_size),
        device=where,
        about={
            "name": found.name,
            "revision": found.revision,
            "weights_sha256": sha256_of(files),
        },
    )


def _check_kind(folder: Path) -> None:
    config = read_json(folder / "config.json", BackboneError)
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "gpt2":
        raise BackboneError(
            f"{folder} is of the type {kind!r}; a language model of the type 'gpt2' is meant"
        )


def _batches(rows: Sequence[int], whole: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Rows in batches of texts that are about as long, so that little is filled up."""
    batch: list[int] = []
    for row in sorted(rows, key=lambda row: len(whole[row])):
        if batch and (len(batch) + 1) * len(whole[row]) > AT_ONCE:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
