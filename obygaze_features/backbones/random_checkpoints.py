"""Small networks with random weights, in the same layouts as published checkpoints.

With them, you can try the software without a download. Their features have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
_START_END = ("<|startoftext|>", "<|endoftext|>")


def write_xclip(
    folder: Path,
    seed: int,
    vision: Mapping[str, Any] = TINY_XCLIP,
    dim: int = 32,
) -> None:
    """Write an X-CLIP checkpoint with a vision tower of the given sizes and a small text tower."""
    need("transformers", extra="extract")
    from transformers import XCLIPConfig, XCLIPModel

    config = XCLIPConfig(
        text_config=clip_text_config(),
        vision_config=dict(vision),
        projection_dim=dim,
        prompt_num_attention_heads=2,
        synthetic=RANDOM_WEIGHTS_NOTE,
    )
    processor = video_processor(config.vision_config.image_size)
    write_model(folder, lambda: XCLIPModel(config), processor, seed)
    write_clip_tokenizer(folder, config.text_config.max_position_embeddings)


def write_vivit(folder: Path, seed: int, sizes: Mapping[str, Any] = TINY_VIVIT) -> None:
    """Write a ViViT checkpoint with a classifier, as in published checkpoints."""
    need("transformers", extra="extract")
    from transformers import VivitConfig, VivitForVideoClassification

    config = VivitConfig(**sizes, synthetic=RANDOM_WEIGHTS_NOTE)
    processor = {
        **video_processor(config.image_size),
        "image_processor_type": "VivitImageProcessor",
        "size": {"shortest_edge": config.image_size * 256 // 224},
        "rescale_factor": 1 / 127.5,
        "offset": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }

    def make() -> Any:
        model = VivitForVideoClassification(config)
        # By default, these weights are zeros, which would make all positions look the same.
        embeddings = model.vivit.embeddings
        for weights in (embeddings.position_embeddings, embeddings.cls_token):
            weights.normal_(std=config.initializer_range)
        return model

    write_model(folder, make, processor, seed)


def write_clap(folder: Path, seed: int) -> None:
    """Write a CLAP checkpoint that takes windows of one second."""
    need("transformers", extra="extract")
    from transformers import ClapConfig, ClapModel

    text = clip_text_config()
    text["max_position_embeddings"] += text["pad_token_id"] + 1
    audio = {
        "num_mel_bins": 16, "spec_size": 64, "window_size": 4, "depths": [1, 1], "hidden_size": 32,
        "num_attention_heads": [2, 2], "patch_embeds_hidden_size": 16,
    }  # fmt: skip
    config = ClapConfig(
        text_config=text,
        audio_config=audio,
        projection_dim=32,
        synthetic=RANDOM_WEIGHTS_NOTE,
    )
    extractor = {
        "feature_extractor_type": "ClapFeatureExtractor", "sampling_rate": 16_000,
        "feature_size": 16, "fft_window_size": 256, "hop_length": 80, "max_length_s": 1,
        "frequency_min": 50, "frequency_max": 8000, "truncation": "rand_trunc",
        "padding": "repeatpad",
    }  # fmt: skip
    write_model(folder, lambda: ClapModel(config), extractor, seed)
    write_clip_tokenizer(folder, clip_text_config()["max_position_embeddings"])


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


def write_model(
    folder: Path,
    make: Callable[[], Any],
    processor: Mapping[str, Any] | None,
    seed: int,
) -> None:
    """Write a transformers model with random weights, and its processor if it has one.

    NumPy draws the weights, because the last bits of torch's random numbers depend on the CPU.
    """
    torch = need("torch", extra="extract")
    with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet():
        torch.manual_seed(seed)
        model = make()
        random = np.random.default_rng(seed)
        for weights in filter(torch.numel, model.parameters()):
            spread = float(f"{weights.std(correction=0):.1e}")
            if spread:
                values = spread * random.standard_normal(weights.shape)
                weights.copy_(torch.from_numpy(values))
        model.save_pretrained(folder)
    if processor:
        write_text(folder / "preprocessor_config.json", to_json(processor))


def byte_letters() -> list[str]:
    """Return the character for each byte in byte-level vocabularies."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def clip_vocabulary() -> dict[str, int]:
    """Return a small CLIP vocabulary: bytes, bytes at the end of a word, merges, special tokens."""
    letters = byte_letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    for left, right in _clip_merges():
        tokens.append(left + right)
    tokens.extend(_START_END)
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def write_clip_tokenizer(folder: Path, max_tokens: int) -> None:
    """Write the tokenizer of `clip_vocabulary`, in the files that published checkpoints have."""
    start, end = _START_END
    special = {"bos_token": start, "eos_token": end, "unk_token": end, "pad_token": end}
    config = {"tokenizer_class": "CLIPTokenizer", "model_max_length": max_tokens, **special}
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
        "max_position_embeddings": 77,
        "bos_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
    }


def _clip_merges() -> list[tuple[str, str]]:
    """Return the merges that build each word, starting from its first letters."""
    merges = []
    for word in WORDS.split():
        letters = [*word[:-1], f"{word[-1]}</w>"]
        start = letters[0]
        for letter in letters[1:]:
            merges.append((start, letter))
            start += letter
    return list(dict.fromkeys(merges))
