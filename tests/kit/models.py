"""Networks with random weights for the tests: small ones of every family, and full-size ones.

The package itself ships `tiny-xclip`, `tiny-vivit` and `tiny-clap`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.backbones import KnownCheckpoint, known_checkpoints, xclip_lsmdc
from obygaze_features.backbones import random_checkpoints as tiny
from obygaze_features.backbones.random_checkpoints import SMALL, SMALL_VISION, write_network
from obygaze_features.sampling import Sampling
from tests.kit.files import write

Sizes = Mapping[str, Any]
CAPTION_WORDS = (
    "a an the on of in and man woman men women person riding holding sitting road motorcycle"
)
SPACE = "\u0120"
"""A space in byte-level vocabularies."""
ROBERTA_TOKENS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
END = "<|endoftext|>"
MAX_TOKENS = 64
"""The number of tokens that small language models and sentence encoders read."""
CLIP_PIXELS = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def write_checkpoint(name: str, folder: Path, *, seed: int = 0) -> Path:
    folder.mkdir(parents=True)
    CHECKPOINTS[name].write(folder, seed)
    return folder


def write_clip(folder: Path, seed: int, vision: Sizes, dim: int) -> None:
    size = vision.get("image_size", 224)
    # As in the published checkpoints, which are older than current configurations.
    processor = {
        "feature_extractor_type": "CLIPFeatureExtractor",
        "size": size,
        "resample": 3,
        "crop_size": size,
        **CLIP_PIXELS,
    }
    sizes = {"text_config": tiny.clip_text_config(), "vision_config": dict(vision)}
    write_network(folder, seed, "CLIP", "Model", {**sizes, "projection_dim": dim}, processor)
    tiny.write_clip_tokenizer(folder)


def write_siglip(folder: Path, seed: int, vision: Sizes) -> None:
    """Write a SigLIP, whose texts are padded; the tokenizer is CLIP's."""
    side = vision.get("image_size", 224)
    text = {**tiny.clip_text_config(), "projection_size": vision.get("hidden_size", 768)}
    half = [0.5] * 3
    processor = {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": side, "width": side},
        "resample": 3,
        "image_mean": half,
        "image_std": half,
    }
    sizes = {"text_config": text, "vision_config": dict(vision)}
    write_network(folder, seed, "Siglip", "Model", sizes, processor)
    tiny.write_clip_tokenizer(folder)


def write_dino(folder: Path, seed: int, sizes: Sizes, kind: str = "Dinov2") -> None:
    """Write a DINOv2, a DINOv2 with registers (``Dinov2WithRegisters``), or a DINOv3."""
    # DINOv2's processor crops to fewer pixels than the network was trained with.
    side = 32 if sizes["image_size"] == 48 else sizes["image_size"]
    processor = tiny.video_processor(side)
    if kind == "DINOv3ViT":
        processor |= {
            "image_processor_type": "DINOv3ViTImageProcessorFast",
            "size": {"height": side, "width": side},
            "do_center_crop": None,
            "crop_size": None,
        }
    else:
        processor |= {
            "image_processor_type": "BitImageProcessor",
            "resample": 3,
            "size": {"shortest_edge": side * 256 // 224},
        }
    write_network(folder, seed, kind, "Model", sizes, processor)


def write_xclip_lsmdc(folder: Path, seed: int, sizes: Mapping[str, int]) -> None:
    """Write a state dict of X-CLIP by Ma et al., with a single tensor for the text tower."""
    import torch

    network = xclip_lsmdc.make_network({**sizes, "temporal_layers": 4}, positions=77)
    random = np.random.default_rng(seed)
    state: dict[str, Any] = {"clip.logit_scale": torch.tensor(4.6)}
    state[xclip_lsmdc.SYNTHETIC_TENSOR] = torch.ones(())
    for name, weights in network.state_dict().items():
        values = torch.from_numpy(random.standard_normal(weights.shape, np.float32))
        size = weights[0].numel() if weights.ndim > 1 else len(weights)
        values *= 0.5 / math.sqrt(size)
        if "ln_" in name:
            values = torch.full_like(weights, float(name.endswith("weight")))
        elif name.startswith(xclip_lsmdc.VISION) and weights.ndim > 1:
            values = values.half()  # as CLIP's matrices in published checkpoints
        state[name] = values
    state[xclip_lsmdc.FRAME_WEIGHTS] = torch.eye(12)
    torch.save(state, folder / "pytorch_model.bin.0")


def write_tokens(folder: Path, seed: int, model: str, sizes: Sizes) -> None:
    """Write a network that returns the tokens of clips, with or without a classifier."""
    kind = next(kind for kind in TOKENS if model.startswith(kind))
    write_network(folder, seed, kind, model.removeprefix(kind), sizes, tiny.video_processor(32))


def write_gpt2(folder: Path, seed: int) -> None:
    special = {"bos_token": END, "eos_token": END, "unk_token": END}
    count = write_byte_tokenizer(folder, "GPT2Tokenizer", special, after=(END,))
    # A larger range than for training, so that tokens differ in probability.
    sizes = {
        "n_positions": MAX_TOKENS,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": count,
        "bos_token_id": count - 1,
        "eos_token_id": count - 1,
        "initializer_range": 0.2,
    }
    write_network(folder, seed, "GPT2", "LMHeadModel", sizes)


def write_sentence_encoder(folder: Path, seed: int) -> None:
    """Write a sentence encoder: the mean over the tokens of a RoBERTa."""
    special = {f"{name}_token": token for name, token in ROBERTA_TOKENS.items()}
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    *before, mask = ROBERTA_TOKENS.values()
    count = write_byte_tokenizer(folder, "RobertaTokenizer", special, before=before, after=(mask,))
    # Positions other than those of tokens: the padding's, and the one before it.
    sizes = {
        **SMALL,
        "vocab_size": count,
        "type_vocab_size": 1,
        "initializer_range": 0.2,
        "max_position_embeddings": MAX_TOKENS + 2,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    write_network(folder, seed, "Roberta", "Model", sizes)
    kind = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"},
    ]
    pooling = {
        "word_embedding_dimension": 32,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": False,
    }
    write(folder / "modules.json", json.dumps(modules))
    write(folder / "1_Pooling/config.json", json.dumps(pooling))
    length = {"max_seq_length": MAX_TOKENS, "do_lower_case": False}
    write(folder / "sentence_bert_config.json", json.dumps(length))


def write_byte_tokenizer(
    folder: Path, kind: str, special: Sizes, *, before: Sequence[str] = (), after: Sequence[str]
) -> int:
    """Write bytes and the merges that form words; return the number of tokens."""
    words = [pre + word for word in CAPTION_WORDS.split() for pre in ("", SPACE)]
    merges = dict.fromkeys((word[:n], word[n]) for word in words for n in range(1, len(word)))
    merged = map("".join, merges)
    tokens = [*before, *tiny.byte_letters(), *merged, *after]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    config = {"model_max_length": MAX_TOKENS, "tokenizer_class": kind, **special}
    write(folder / "vocab.json", json.dumps(vocabulary))
    write(folder / "merges.txt", "#version: 0.2", *map(" ".join, merges))
    write(folder / "tokenizer_config.json", json.dumps(config))
    return len(vocabulary)


TINY_VIDEO = {**SMALL_VISION, "num_frames": 8, "num_labels": 5}
VJEPA2 = {
    "crop_size": 32,
    "frames_per_clip": 8,
    "mlp_ratio": 2,
    "pred_hidden_size": 32,
    "pred_num_attention_heads": 2,
    "pred_num_hidden_layers": 1,
    "pred_num_mask_tokens": 1,
    "num_pooler_layers": 1,
}
PRISM = {"tubelet_size": [1, 8, 8], "num_spatial_layers": 1, "num_temporal_layers": 1}
TOKENS = {
    "VideoMAE": TINY_VIDEO,
    "VJEPA2": TINY_VIDEO | VJEPA2,
    "Timesformer": TINY_VIDEO,
    "VideoPrismVision": TINY_VIDEO | PRISM,
}
# 48 pixels, so that its embeddings of positions are resized, as in published checkpoints.
TINY_DINOV2 = {**SMALL, "image_size": 48, "patch_size": 8, "mlp_ratio": 2}
del TINY_DINOV2["intermediate_size"]
REGISTERS = {**SMALL_VISION, "num_register_tokens": 4}
TINY_LSMDC = {"image_size": 32, "patch_size": 8, "width": 64, "layers": 2, "dim": 64}
LSMDC = {"image_size": 224, "patch_size": 32, "width": 768, "layers": 12, "dim": 512}
#: name -> the writer and its sizes.
_WRITERS: dict[str, tuple[Any, ...]] = {
    "tiny-clip": (write_clip, [SMALL_VISION, 32]),
    "tiny-siglip": (write_siglip, [SMALL_VISION]),
    "tiny-dinov2": (write_dino, [TINY_DINOV2]),
    "tiny-dinov2-with-registers": (write_dino, [TINY_DINOV2, "Dinov2WithRegisters"]),
    "tiny-dinov3": (write_dino, [REGISTERS, "DINOv3ViT"]),
    **{
        f"tiny-{kind.lower().removesuffix('vision')}": (write_tokens, [f"{kind}Model", sizes])
        for kind, sizes in TOKENS.items()
    },
    # Differences from the defaults of XCLIPVisionConfig, which are B/32 at 8 frames.
    "random-xclip": (tiny.write_xclip, [{"patch_size": 16, "num_frames": 32}, 512]),
    "random-vivit": (tiny.write_vivit, [{}]),
    "random-xclip-lsmdc": (write_xclip_lsmdc, [LSMDC]),
    "tiny-xclip-lsmdc": (write_xclip_lsmdc, [TINY_LSMDC]),
}


def _card(name: str, writer: Any, sizes: Sequence[Any]) -> KnownCheckpoint:
    sampling = Sampling(12, 1.0) if name == "tiny-xclip-lsmdc" else Sampling(32)
    if writer is write_tokens:
        sampling = Sampling(8)
    return KnownCheckpoint(
        name, "", sampling, write=lambda folder, seed: writer(folder, seed, *sizes)
    )


CHECKPOINTS: dict[str, Any] = {n: card for n, card in known_checkpoints().items() if card.write}
CHECKPOINTS |= {name: _card(name, *row) for name, row in _WRITERS.items()}
TINY = tuple(name for name in CHECKPOINTS if name.startswith("tiny-"))


def with_clip(backbone: Any, **changes: Any) -> Any:
    """Return a backbone whose reader of clips is changed."""
    return backbone.with_changes(clip=replace(backbone.clip, **changes))


class Checkpoints(dict[str, Path]):
    """The folders of `CHECKPOINTS` by name, each written on first use."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = write_checkpoint(name, self.folder / name)
        return self[name]
