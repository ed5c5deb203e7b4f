"""Where a model that reads texts lies: a folder, one that is known by name, or one of the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from obygaze_features.backbones.finding import Found
from obygaze_features.backbones.hub import (
    cached_checkpoint,
    fetch_checkpoint,
    fetch_config,
    fetch_more,
    is_repository,
)
from obygaze_features.backbones.random_weights import cached
from obygaze_features.backbones.tokens import TOKENIZER_FILES, has_tokenizer
from obygaze_features.common.files import read_json
from obygaze_features.common.text import suggest
from obygaze_features.errors import BackboneError
from obygaze_features.language.made_up import write_gpt2, write_sentence_encoder

__all__ = ["ENCODERS", "LANGUAGE_MODELS", "POOLING", "Known", "find", "prefetch", "reads_texts"]

POOLING = "1_Pooling/config.json"
"""Where a sentence encoder says how it makes one vector of its tokens'."""


@dataclass(frozen=True)
class Known:
    """A model that is known by name.

    Parameters
    ----------
    repository
        Where it is published on the Hugging Face hub.
    write
        Writes it, of random weights, into an empty folder from a seed.
    """

    repository: str = ""
    write: Callable[[Path, int], None] | None = None


_ENCODERS_OWNER = "sentence-transformers/"
LANGUAGE_MODELS: Mapping[str, Known] = {
    "gpt2": Known("openai-community/gpt2"),
    "gpt2-medium": Known("openai-community/gpt2-medium"),
    "gpt2-large": Known("openai-community/gpt2-large"),
    "gpt2-xl": Known("openai-community/gpt2-xl"),
    "distilgpt2": Known("distilbert/distilgpt2"),
    "tiny-gpt2": Known(write=write_gpt2),
}
ENCODERS: Mapping[str, Known] = {
    **{
        name: Known(_ENCODERS_OWNER + name)
        for name in (
            "roberta-large-nli-stsb-mean-tokens",
            "stsb-distilbert-base",
            "all-mpnet-base-v2",
            "all-distilroberta-v1",
            "all-MiniLM-L6-v2",
        )
    },
    "tiny-sentence-encoder": Known(write=write_sentence_encoder),
}
_SENTENCES = ("modules.json", "sentence_bert_config.json", POOLING)


def find(spec: str, known: Mapping[str, Known]) -> Found:
    """The checkpoint on this machine, fetched if need be.

    Parameters
    ----------
    spec
        A folder, a name in `known`, or ``OWNER/NAME`` on the hub; ``NAME=`` before it renames it.
    known
        `LANGUAGE_MODELS` or `ENCODERS`.
    """
    name, equals, given = spec.partition("=")
    if equals and not Path(spec).exists():  # a path may have the sign in it, too
        return replace(find(given, known), name=name)
    path = Path(spec)
    if path.exists() and spec not in known:
        if not (path / "config.json").is_file():
            raise BackboneError(f"{path} is no folder of a model: it has no config.json")
        return Found(path.resolve().name, path)
    if spec in known and (write := known[spec].write):
        return Found(spec, cached(spec, write))
    repository = known[spec].repository if spec in known else spec
    if not is_repository(repository):
        raise BackboneError(
            f"{spec} is neither a folder nor a model by name; {suggest(path.name, known)}"
        )
    folder = cached_checkpoint(repository, ()) or _fetch(repository, spec)
    if not has_tokenizer(folder):
        fetch_more(repository, folder.name, (*TOKENIZER_FILES, *_SENTENCES))
    return Found(path.name, folder, folder.name, repository)


def reads_texts(name: str) -> bool:
    """Whether a name is that of a model for texts alone: a known one, or one of the hub."""
    if name in LANGUAGE_MODELS or name in ENCODERS or name.startswith(_ENCODERS_OWNER):
        return True
    if not is_repository(name) or Path(name).exists() or (config := fetch_config(name)) is None:
        return False
    content = read_json(config, BackboneError)
    return isinstance(content, dict) and content.get("model_type") == "gpt2"


def prefetch(name: str) -> Path:
    """Get a model that `reads_texts` ahead of a machine without network."""
    one = {**LANGUAGE_MODELS, **ENCODERS}.get(name, Known(name))
    return cached(name, one.write) if one.write else _fetch(one.repository, name)


def _fetch(repository: str, name: str) -> Path:
    folder = fetch_checkpoint(repository, name, lambda folder: None, ())
    fetch_more(repository, folder.name, (*TOKENIZER_FILES, *_SENTENCES))
    return folder
