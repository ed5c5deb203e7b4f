"""Small vocabularies of our own, in the files of published ones, and networks that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.backbones.made_up import SMALL
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.package import need

__all__ = [
    "byte_letters",
    "clip_text",
    "clip_vocabulary",
    "sentence_text",
    "write_clip_tokenizer",
    "write_sentence_tokenizer",
]

_SPECIAL = ("<|startoftext|>", "<|endoftext|>")
_WORDS = "engineer picture person doctor photo image woman happy angry the and man sad an of a"
"""The longest first: what a shorter one puts together must not come between."""
_SENTENCE = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")


def byte_letters() -> list[str]:
    """A letter for each byte, as byte-level vocabularies write them: printable ones stand for
    themselves, the others for those beyond 255, in order.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(one) for one in printable] + [chr(256 + n) for n in range(256 - len(printable))]


def _merges() -> list[tuple[str, str]]:
    """Each word is put together from its front."""
    merges = []
    for word in _WORDS.split():
        letters = [*word[:-1], f"{word[-1]}</w>"]
        merges += [("".join(letters[:end]), letters[end]) for end in range(1, len(letters))]
    return list(dict.fromkeys(merges))


def clip_vocabulary() -> dict[str, int]:
    """A small vocabulary in the order of CLIP's: bytes, bytes at a word's end, merges, marks."""
    letters = byte_letters()
    ends = [f"{one}</w>" for one in letters]
    tokens = [*letters, *ends, *(a + b for a, b in _merges()), *_SPECIAL]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def write_clip_tokenizer(folder: Path, longest: int) -> None:
    """Write `clip_vocabulary` in the files that published checkpoints have."""
    start, end = _SPECIAL
    marks = {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": longest, **marks}
    merges = [f"{left} {right}" for left, right in _merges()]
    write_text(folder / "vocab.json", to_json(clip_vocabulary()))
    write_text(folder / "merges.txt", "\n".join(["#version: 0.2", *merges]) + "\n")
    write_text(folder / "special_tokens_map.json", to_json(marks))
    write_text(folder / "tokenizer_config.json", to_json(config))


def clip_text(longest: int = 77) -> dict[str, Any]:
    """The settings of a small network that reads `clip_vocabulary`."""
    vocabulary = clip_vocabulary()
    start, end = (vocabulary[one] for one in _SPECIAL)
    return {
        **SMALL,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": longest,
        "bos_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def sentence_text(longest: int = 64) -> dict[str, Any]:
    """The settings of a small network that reads what `write_sentence_tokenizer` writes."""
    return {
        **SMALL,
        "vocab_size": len(_sentence_vocabulary()),
        "max_position_embeddings": longest,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }


def write_sentence_tokenizer(folder: Path, longest: int) -> None:
    """Write a small vocabulary with a fallback to bytes, as SigLIP 2 has it from Gemma."""
    need("tokenizers", extra="extract")
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(
        models.BPE(
            vocab=_sentence_vocabulary(),
            merges=_sentence_merges(),
            unk_token="<unk>",  # noqa: S106  # no password
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0 <eos>:0", special_tokens=[("<eos>", 1)]
    )
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in _SENTENCE])
    marks = {f"{one.strip('<>')}_token": one for one in _SENTENCE}
    config = {
        "tokenizer_class": "GemmaTokenizer",
        "model_max_length": longest,
        "model_input_names": ["input_ids"],
        "padding_side": "right",
        "add_bos_token": False,
        "add_eos_token": True,
        **marks,
    }
    write_text(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_text(folder / "special_tokens_map.json", to_json(marks))
    write_text(folder / "tokenizer_config.json", to_json(config))


def _sentence_merges() -> list[tuple[str, str]]:
    """Each word, with the space before it, is put together from its front."""
    words = [f"\u2581{word}" for word in _WORDS.split()]
    merges = [(word[:end], word[end]) for word in words for end in range(1, len(word))]
    return list(dict.fromkeys(merges))


def _sentence_vocabulary() -> dict[str, int]:
    """Marks, bytes, letters, and what the merges make."""
    marks = [*_SENTENCE, *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = ["\u2581", *map(chr, range(ord("a"), ord("z") + 1))]
    tokens = [*marks, *letters, *(a + b for a, b in _sentence_merges())]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}
