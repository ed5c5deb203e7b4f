"""Networks of random weights for the tests: small ones of every family, and full-size ones.

The package itself ships `tiny-xclip`, `tiny-vivit` and `tiny-xclip-lsmdc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from obygaze_features.backbones import KnownCheckpoint, known_checkpoints
from obygaze_features.backbones.backbone import RANDOM_WEIGHTS_NOTE
from obygaze_features.backbones.clip import clip_arrays
from obygaze_features.backbones.dinov2 import dino_arrays
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.siglip import siglip_arrays
from obygaze_features.backbones.timesformer import timesformer_arrays
from obygaze_features.backbones.tiny import (
    SMALL,
    SMALL_VISION,
    WORDS,
    byte_letters,
    clip_text_config,
    video_processor,
    write_clip_tokenizer,
    write_model,
    write_vivit,
    write_xclip,
)
from obygaze_features.backbones.videomae import videomae_arrays
from obygaze_features.backbones.vjepa2 import vjepa2_arrays
from obygaze_features.backbones.weights import write_random_weights
from obygaze_features.backbones.xclip_lsmdc import write_xclip_lsmdc
from obygaze_features.common.files import to_json, write_text

SENTENCE_TOKENS = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
CAPTION_WORDS = (
    "a an the on of in and man woman men women person riding holding sitting road motorcycle"
)
SPACE = "\u0120"
"""A space in byte-level vocabularies."""
END = "<|endoftext|>"
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MAX_TOKENS = 64
"""Tokens that the small language model and the small sentence encoder read."""


def write_checkpoint(name: str, folder: Path, *, seed: int = 0) -> Path:
    """Write one of `CHECKPOINTS` into a new folder."""
    write = CHECKPOINTS[name].write
    assert write
    write_random_weights(write, folder, seed=seed)
    return folder


def write_clip(folder: Path, seed: int, vision: Mapping[str, Any], dim: int) -> None:
    """A CLIP whose text tower and vocabulary are small."""
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(text_config=clip_text_config(), vision_config=dict(vision),
                        projection_dim=dim, synthetic=RANDOM_WEIGHTS_NOTE)  # fmt: skip
    size = config.vision_config.image_size
    # As in the published checkpoints, which are older than today's configurations.
    processor = {"feature_extractor_type": "CLIPFeatureExtractor", "do_resize": True, "size": size,
                 "resample": 3, "do_center_crop": True, "crop_size": size, "do_normalize": True,
                 "image_mean": [0.48145466, 0.4578275, 0.40821073],
                 "image_std": [0.26862954, 0.26130258, 0.27577711]}  # fmt: skip
    write_model(folder, lambda: CLIPModel(config), processor, seed)
    write_clip_tokenizer(folder, config.text_config.max_position_embeddings)


def write_siglip(folder: Path, seed: int, vision: Mapping[str, Any]) -> None:
    """A SigLIP whose text tower and vocabulary are small."""
    from transformers import SiglipConfig, SiglipModel

    config = SiglipConfig(
        text_config={**_sentence_config(), "projection_size": vision.get("hidden_size", 768)},
        vision_config=dict(vision),
        synthetic=RANDOM_WEIGHTS_NOTE,
    )
    size = config.vision_config.image_size
    processor = {"image_processor_type": "SiglipImageProcessor", "do_resize": True,
                 "size": {"height": size, "width": size}, "resample": 3, "do_rescale": True,
                 "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
                 "image_std": [0.5] * 3}  # fmt: skip
    write_model(folder, lambda: SiglipModel(config), processor, seed)
    _write_sentence_tokenizer(folder, config.text_config.max_position_embeddings)


def write_videomae(
    folder: Path, seed: int, sizes: Mapping[str, Any], *, finetuned: bool = True
) -> None:
    """A VideoMAE: a classifier, or as it is before any fine-tuning."""
    import transformers

    kind = "ForVideoClassification" if finetuned else "ForPreTraining"
    options = {"use_mean_pooling": finetuned, "synthetic": RANDOM_WEIGHTS_NOTE}
    config = transformers.VideoMAEConfig(**sizes, **options)
    make = getattr(transformers, f"VideoMAE{kind}")
    write_model(folder, lambda: make(config), video_processor(config.image_size), seed)


def write_vjepa2(
    folder: Path, seed: int, sizes: Mapping[str, Any], *, finetuned: bool = False
) -> None:
    """A V-JEPA 2: pretrained, or with the attention and the classifier of a fine-tuned one."""
    import transformers

    config = transformers.VJEPA2Config(**sizes, synthetic=RANDOM_WEIGHTS_NOTE)
    make = getattr(transformers, f"VJEPA2{'ForVideoClassification' if finetuned else 'Model'}")
    processor = {
        **video_processor(config.crop_size),
        "video_processor_type": "VJEPA2VideoProcessor",
    }
    processor["size"] = {"shortest_edge": config.crop_size * 256 // 224}
    del processor["image_processor_type"]
    write_model(folder, lambda: make(config), processor, seed)
    (folder / "preprocessor_config.json").rename(folder / "video_preprocessor_config.json")


def write_timesformer(folder: Path, seed: int, sizes: Mapping[str, Any]) -> None:
    """A TimeSformer classifier, the form in which they are published."""
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    config = TimesformerConfig(**sizes, synthetic=RANDOM_WEIGHTS_NOTE)
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}

    def make() -> Any:
        model = TimesformerForVideoClassification(config)
        # Zeros by default: all frames would look alike, and the attention in time would do nothing.
        for name, weights in model.named_parameters():
            if "embeddings" in name or "temporal" in name or "cls_token" in name:
                weights.normal_(std=config.initializer_range)
        return model

    write_model(folder, make, video_processor(config.image_size) | half, seed)


def write_dino(folder: Path, seed: int, sizes: Mapping[str, Any], kind: str = "Dinov2") -> None:
    """A DINOv2, one with registers (``Dinov2WithRegisters``), or a DINOv3 (``DINOv3ViT``)."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes, synthetic=RANDOM_WEIGHTS_NOTE)
    # DINOv2 was trained at 518 pixels, and its processor crops to 224.
    size = {518: 224, 48: 32}.get(config.image_size, config.image_size)
    processor = video_processor(size) | {
        "image_processor_type": "BitImageProcessor", "do_convert_rgb": True, "resample": 3,
        "size": {"shortest_edge": size * 256 // 224},
    }  # fmt: skip
    if kind == "DINOv3ViT":
        processor |= {"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 2,
                      "size": {"height": size, "width": size}, "do_center_crop": None,
                      "crop_size": None}  # fmt: skip
    write_model(folder, lambda: getattr(transformers, f"{kind}Model")(config), processor, seed)


def write_gpt2(folder: Path, seed: int) -> None:
    """A language model in GPT-2's layout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _write_byte_vocabulary(folder, after=(END,))
    special = {"bos_token": END, "eos_token": END, "unk_token": END}
    _write_tokenizer_config(folder, {"tokenizer_class": "GPT2Tokenizer", **special})
    sizes = {"n_positions": MAX_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": size - 1, "eos_token_id": size - 1}
    # A larger range than for training, so that tokens differ in probability.
    config = GPT2Config(vocab_size=size, initializer_range=0.2, synthetic=RANDOM_WEIGHTS_NOTE,
                        **sizes, **ends)  # fmt: skip
    write_model(folder, lambda: GPT2LMHeadModel(config), None, seed)


def write_sentence_encoder(folder: Path, seed: int) -> None:
    """A sentence encoder: the mean of a RoBERTa's tokens."""
    from transformers import RobertaConfig, RobertaModel

    size = _write_byte_vocabulary(folder, before=ROBERTA_TOKENS[:4], after=ROBERTA_TOKENS[4:])
    special = {
        f"{name}_token": token
        for name, token in zip(("bos", "pad", "eos", "unk", "mask"), ROBERTA_TOKENS, strict=True)
    }
    special |= {"cls_token": "<s>", "sep_token": "</s>"}
    _write_tokenizer_config(folder, {"tokenizer_class": "RobertaTokenizer", **special})
    config = RobertaConfig(
        **SMALL, vocab_size=size, type_vocab_size=1, initializer_range=0.2,
        max_position_embeddings=MAX_TOKENS + 2,  # padding's, and the one before it
        pad_token_id=1, bos_token_id=0, eos_token_id=2, synthetic=RANDOM_WEIGHTS_NOTE,
    )  # fmt: skip
    write_model(folder, lambda: RobertaModel(config), None, seed)
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling")
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    pooling |= {f"pooling_mode_{mode}": False for mode in ("cls_token", "max_tokens")}
    write_text(folder / "modules.json", to_json(modules))
    write_text(folder / "1_Pooling" / "config.json", to_json(pooling))
    length = {"max_seq_length": MAX_TOKENS, "do_lower_case": False}
    write_text(folder / "sentence_bert_config.json", to_json(length))


def _write_byte_vocabulary(
    folder: Path, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> int:
    """Write bytes and the merges that build words; return the number of tokens."""
    words = [first + word for word in CAPTION_WORDS.split() for first in ("", SPACE)]
    merges = list(
        dict.fromkeys((word[:end], word[end]) for word in words for end in range(1, len(word)))
    )
    tokens = [*before, *byte_letters(), *(left + right for left, right in merges), *after]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    write_text(folder / "vocab.json", to_json(vocabulary))
    write_text(folder / "merges.txt", "\n".join(lines) + "\n")
    return len(vocabulary)


def _write_tokenizer_config(folder: Path, config: dict[str, Any]) -> None:
    write_text(
        folder / "tokenizer_config.json", to_json({"model_max_length": MAX_TOKENS, **config})
    )


def _sentence_config(max_tokens: int = 64) -> dict[str, Any]:
    """A small text tower for the vocabulary of `_write_sentence_tokenizer`."""
    special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    size = len(_sentence_vocabulary())
    return {**SMALL, "vocab_size": size, "max_position_embeddings": max_tokens, **special}


def _write_sentence_tokenizer(folder: Path, max_tokens: int) -> None:
    """A small vocabulary with a fallback to bytes, as SigLIP 2 has it from Gemma."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary, merges = _sentence_vocabulary(), _sentence_merges()
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0 <eos>:0", special_tokens=[("<eos>", 1)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SENTENCE_TOKENS])
    special = {f"{token.strip('<>')}_token": token for token in SENTENCE_TOKENS}
    config = {"tokenizer_class": "GemmaTokenizer", "model_max_length": max_tokens, **special,
              "model_input_names": ["input_ids"], "padding_side": "right", "add_bos_token": False,
              "add_eos_token": True}  # fmt: skip
    write_text(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_text(folder / "special_tokens_map.json", to_json(special))
    write_text(folder / "tokenizer_config.json", to_json(config))


def _sentence_merges() -> list[tuple[str, str]]:
    """The merges that build each word, with the space before it, from its start."""
    words = [f"\u2581{word}" for word in WORDS.split()]
    merges = [(word[:end], word[end]) for word in words for end in range(1, len(word))]
    return list(dict.fromkeys(merges))


def _sentence_vocabulary() -> dict[str, int]:
    """Special tokens, bytes, letters, and the merges' tokens."""
    special = [*SENTENCE_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = ["\u2581", *map(chr, range(ord("a"), ord("z") + 1))]
    tokens = [*special, *letters, *(left + right for left, right in _sentence_merges())]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def _card(
    name: str, write: Callable[..., None], *sizes: Any, arrays: Any = (), frames: int = 32
) -> KnownCheckpoint:
    def write_sizes(folder: Path, seed: int) -> None:
        write(folder, seed, *sizes)

    return KnownCheckpoint(name, "", Sampling(frames), arrays, write=write_sizes)


TINY_VJEPA2: Mapping[str, Any] = {
    "crop_size": 32, "patch_size": 8, "frames_per_clip": 8, "hidden_size": 32, "mlp_ratio": 2,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_pooler_layers": 1,
    "pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1,
    "pred_num_mask_tokens": 2,
}  # fmt: skip
# 48 pixels, so that its embeddings of positions are resized, as in the published ones.
TINY_DINOV2 = {**SMALL, "image_size": 48, "patch_size": 8, "mlp_ratio": 2}
del TINY_DINOV2["intermediate_size"]
TINY_DINOV3 = {**SMALL_VISION, "num_register_tokens": 4}
EIGHT = {**SMALL_VISION, "num_frames": 8}
LSMDC = {"image_size": 224, "patch_size": 32, "width": 768, "layers": 12, "dim": 512}
REGISTERS = "Dinov2WithRegisters"
_SHIPPED = [item for item in known_checkpoints().values() if item.write]
_TINY = (
    _card("tiny-clip", write_clip, SMALL_VISION, 32, arrays=clip_arrays(32, 16, 32)),
    _card("tiny-siglip", write_siglip, SMALL_VISION, arrays=siglip_arrays(16, 32)),
    _card("tiny-videomae", write_videomae, EIGHT,
          arrays=videomae_arrays(4, 16, 32, finetuned=True), frames=8),
    _card("tiny-vjepa2", write_vjepa2, TINY_VJEPA2,
          arrays=vjepa2_arrays(4, 16, 32, finetuned=False), frames=8),
    _card("tiny-timesformer", write_timesformer, EIGHT,
          arrays=timesformer_arrays(8, 16, 32), frames=8),
    _card("tiny-dinov2", write_dino, TINY_DINOV2, arrays=dino_arrays(16, 32)),
    _card("tiny-dinov2-with-registers", write_dino, TINY_DINOV2, REGISTERS,
          arrays=dino_arrays(16, 32, 4)),
    _card("tiny-dinov3", write_dino, TINY_DINOV3, "DINOv3ViT", arrays=dino_arrays(16, 32, 4)),
)  # fmt: skip
_FULL_SIZE = (
    # What differs from the defaults of XCLIPVisionConfig, which are B/32 at 8 frames.
    _card("random-xclip", write_xclip, {"patch_size": 16, "num_frames": 32}, 512),
    _card("random-vivit", write_vivit, {}),
    _card("random-xclip-lsmdc", write_xclip_lsmdc, LSMDC),
    _card("random-clip", write_clip, {}, 512),
    _card("random-siglip", write_siglip, {}),
    _card("random-videomae", write_videomae, {}),
    _card("random-vjepa2", write_vjepa2, {}),
    _card("random-timesformer", write_timesformer, {}),
    _card("random-dinov2", write_dino, {"image_size": 518}),
)
CHECKPOINTS = {item.name: item for item in (*_SHIPPED, *_TINY, *_FULL_SIZE)}
TINY = tuple(name for name in CHECKPOINTS if name.startswith("tiny-"))


class Checkpoints(dict[str, Path]):
    """The folders of `CHECKPOINTS` by name, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = write_checkpoint(name, self.folder / name)
        return self[name]
