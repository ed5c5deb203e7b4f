"""Small networks with random weights, in the same layouts as published checkpoints.

With them, you can try the software without a download. Their features have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones.backbone import RANDOM_WEIGHTS_NOTE
from obygaze_features.backbones.weights import quiet
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.package import need

SMALL: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
"""The sizes of a small transformer."""
SMALL_VISION: Mapping[str, Any] = {**SMALL, "image_size": 32, "patch_size": 8}
"""The sizes of a small vision transformer."""
TINY_VIVIT = {**SMALL_VISION, "tubelet_size": [2, 8, 8], "num_frames": 8}
TINY_XCLIP = {
    **SMALL_VISION,
    "num_frames": 8,
    "mit_hidden_size": 32,
    "mit_intermediate_size": 64,
    "mit_num_attention_heads": 2,
}
WORDS = "engineer picture person doctor photo image woman happy angry the and man sad an of a"
"""The words of small vocabularies, longest first so that merges of shorter words do no harm."""
MAX_TOKENS = 77
"""The number of tokens that the text towers of CLIP read."""
_START_END = ("<|startoftext|>", "<|endoftext|>")


def write_xclip(
    folder: Path,
    seed: int,
    vision: Mapping[str, Any] = TINY_XCLIP,
    dim: int = 32,
) -> None:
    """Write an X-CLIP checkpoint with a vision tower of the given sizes and a small text tower."""
    sizes = {
        "text_config": clip_text_config(),
        "vision_config": dict(vision),
        "projection_dim": dim,
        "prompt_num_attention_heads": 2,
    }
    processor = video_processor(vision.get("image_size", 224))
    write_network(folder, seed, "XCLIP", "Model", sizes, processor)
    write_clip_tokenizer(folder)


def write_vivit(folder: Path, seed: int, sizes: Mapping[str, Any] = TINY_VIVIT) -> None:
    """Write a ViViT checkpoint with a classifier, as in published checkpoints."""
    side = sizes.get("image_size", 224)
    processor = {
        **video_processor(side),
        "image_processor_type": "VivitImageProcessor",
        "size": {"shortest_edge": side * 256 // 224},
        "rescale_factor": 1 / 127.5,
        "offset": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    # By default, these weights are zeros, which would make all positions look the same.
    normal = ("position_embeddings", "cls_token")
    write_network(folder, seed, "Vivit", "ForVideoClassification", sizes, processor, normal)


def write_clap(folder: Path, seed: int) -> None:
    """Write a CLAP checkpoint that takes windows of one second."""
    text = clip_text_config()
    text["max_position_embeddings"] += text["pad_token_id"] + 1
    audio = {
        "num_mel_bins": 16,
        "spec_size": 64,
        "window_size": 4,
        "depths": [1, 1],
        "hidden_size": 32,
        "num_attention_heads": [2, 2],
        "patch_embeds_hidden_size": 16,
    }
    extractor = {
        "feature_extractor_type": "ClapFeatureExtractor",
        "sampling_rate": 16_000,
        "feature_size": 16,
        "fft_window_size": 256,
        "hop_length": 80,
        "max_length_s": 1,
        "frequency_min": 50,
        "frequency_max": 8000,
        "truncation": "rand_trunc",
        "padding": "repeatpad",
    }
    sizes = {"text_config": text, "audio_config": audio, "projection_dim": 32}
    write_network(folder, seed, "Clap", "Model", sizes, extractor)
    write_clip_tokenizer(folder)


def video_processor(size: int) -> dict[str, Any]:
    """Return the processor configuration of X-CLIP for input of `size` pixels."""
    return {
        "image_processor_type": "VideoMAEImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": size},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": size, "width": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }


def write_network(
    folder: Path,
    seed: int,
    family: str,
    model: str,
    sizes: Mapping[str, Any],
    processor: Mapping[str, Any] | None = None,
    normal: Sequence[str] = (),
) -> None:
    """Write a network of transformers with random weights, and its processor if it has one.

    Its classes are ``{family}Config`` and ``{family}{model}``. Weights named in `normal`, which
    transformers sets to zero, are also random. NumPy draws the weights, because the last bits of
    torch's random numbers depend on the CPU.
    """
    torch = need("torch", extra="extract")
    transformers = need("transformers", extra="extract")
    config = getattr(transformers, family + "Config")(**sizes, synthetic=RANDOM_WEIGHTS_NOTE)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
        torch.manual_seed(seed)
        network = getattr(transformers, family + model)(config)
        for part in normal:
            for name, weights in network.named_parameters():
                if part in name:
                    weights.normal_(std=config.initializer_range)
        random = np.random.default_rng(seed)
        for weights in filter(torch.numel, network.parameters()):
            spread = float(f"{weights.std(correction=0):.1e}")
            if spread:
                values = spread * random.standard_normal(weights.shape)
                weights.copy_(torch.from_numpy(values))
        network.save_pretrained(folder)
    if processor:
        write_text(folder / "preprocessor_config.json", to_json(processor))


def byte_letters() -> list[str]:
    """Return the character for each byte in byte-level vocabularies."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def clip_vocabulary() -> dict[str, int]:
    """Return a small CLIP vocabulary: bytes, bytes at the end of a word, merges, special tokens."""
    letters = byte_letters()
    tokens = [*letters, *(letter + "</w>" for letter in letters)]
    for left, right in _clip_merges():
        tokens.append(left + right)
    tokens.extend(_START_END)
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def write_clip_tokenizer(folder: Path) -> None:
    """Write the tokenizer of `clip_vocabulary`, in the files that published checkpoints have."""
    start, end = _START_END
    special = {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": MAX_TOKENS, **special}
    merges = ["#version: 0.2"]
    for left, right in _clip_merges():
        merges.append(f"{left} {right}")
    write_text(folder / "vocab.json", to_json(clip_vocabulary()))
    write_text(folder / "merges.txt", "\n".join(merges) + "\n")
    write_text(folder / "special_tokens_map.json", to_json(special))
    write_text(folder / "tokenizer_config.json", to_json(config))


def clip_text_config() -> dict[str, Any]:
    """Return the configuration of a small text tower for `clip_vocabulary`."""
    vocabulary = clip_vocabulary()
    start = vocabulary[_START_END[0]]
    end = vocabulary[_START_END[1]]
    return {
        **SMALL,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": MAX_TOKENS,
        "bos_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def _clip_merges() -> list[tuple[str, str]]:
    """Return the merges that build each word, starting from its first letters."""
    merges = []
    for word in WORDS.split():
        letters = [*word[:-1], word[-1] + "</w>"]
        start = letters[0]
        for letter in letters[1:]:
            merges.append((start, letter))
            start += letter
    return list(dict.fromkeys(merges))
