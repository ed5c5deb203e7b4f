"""Small models of random weights that read texts, in the layouts of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import SYNTHETIC_WORDS
from obygaze_features.backbones.checkpoint import quiet
from obygaze_features.backbones.made_up_words import byte_letters
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.package import need

__all__ = ["write_gpt2", "write_sentence_encoder"]

_WORDS = "a an the on of in and man woman men women person riding holding sitting road motorcycle"
_SPACE = "\u0120"
"""How byte-level vocabularies write a space."""
_END = "<|endoftext|>"
_MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
LONGEST = 64
"""Tokens that either reads."""


def write_gpt2(folder: Path, seed: int) -> None:
    """Write a language model in GPT-2's layout."""
    need("transformers", extra="language")
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _write_vocabulary(folder, after=(_END,))
    marks = {"bos_token": _END, "eos_token": _END, "unk_token": _END}
    _write_settings(folder, {"tokenizer_class": "GPT2Tokenizer", **marks})
    config = GPT2Config(
        vocab_size=size,
        n_positions=LONGEST,
        n_embd=32,
        n_layer=2,
        n_head=2,
        # Larger than in training from scratch, so that one token is likelier than another.
        initializer_range=0.2,
        bos_token_id=size - 1,
        eos_token_id=size - 1,
        synthetic=SYNTHETIC_WORDS,
    )
    _write_model(folder, GPT2LMHeadModel, config, seed)


def write_sentence_encoder(folder: Path, seed: int) -> None:
    """Write a sentence encoder in the layout of SBERT's RoBERTa: the mean of its tokens."""
    need("transformers", extra="language")
    from transformers import RobertaConfig, RobertaModel

    size = _write_vocabulary(folder, before=_MARKS[:4], after=_MARKS[4:])
    marks = {
        f"{name}_token": mark
        for name, mark in zip(("bos", "pad", "eos", "unk", "mask"), _MARKS, strict=True)
    }
    marks |= {"cls_token": "<s>", "sep_token": "</s>"}
    _write_settings(folder, {"tokenizer_class": "RobertaTokenizer", **marks})
    config = RobertaConfig(
        vocab_size=size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=LONGEST + 2,  # those of padding, and the one before it
        type_vocab_size=1,
        initializer_range=0.2,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        synthetic=SYNTHETIC_WORDS,
    )
    _write_model(folder, RobertaModel, config, seed)
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling")
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    pooling |= {f"pooling_mode_{one}": False for one in ("cls_token", "max_tokens")}
    write_text(folder / "modules.json", to_json(modules))
    write_text(folder / "1_Pooling" / "config.json", to_json(pooling))
    length = {"max_seq_length": LONGEST, "do_lower_case": False}
    write_text(folder / "sentence_bert_config.json", to_json(length))


def _write_vocabulary(
    folder: Path, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> int:
    """Write bytes, and what joins them to words; say how many tokens that makes."""
    words = [first + word for word in _WORDS.split() for first in ("", _SPACE)]
    merges = [(word[:end], word[end]) for word in words for end in range(1, len(word))]
    merges = list(dict.fromkeys(merges))
    tokens = [*before, *byte_letters(), *(left + right for left, right in merges), *after]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    write_text(folder / "vocab.json", to_json(vocabulary))
    write_text(folder / "merges.txt", "\n".join(lines) + "\n")
    return len(vocabulary)


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    write_text(folder / "tokenizer_config.json", to_json({"model_max_length": LONGEST, **settings}))


def _write_model(folder: Path, kind: Any, config: Any, seed: int) -> None:
    torch = need("torch", extra="language")
    with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
        torch.manual_seed(seed)
        kind(config).save_pretrained(folder)
