"""Checkpoints of random weights: real in form, small, and trained on nothing."""

from __future__ import annotations

from pathlib import Path

from obygaze_features.common.extras import need
from obygaze_features.common.files import SYNTHETIC, new_folder, to_json, write_text

__all__ = ["write_tiny_xclip"]


def write_tiny_xclip(folder: Path, *, seed: int = 0, overwrite: bool = False) -> None:
    """Write a small X-CLIP with random weights, in the layout of a published checkpoint.

    Parameters
    ----------
    folder
        Gets ``config.json``, ``preprocessor_config.json`` and ``model.safetensors``.
    seed
        The same seed gives the same weights.
    overwrite
        Replace an earlier checkpoint.
    """
    need("transformers", extra="extract")
    import torch
    from transformers import XCLIPConfig, XCLIPModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = XCLIPConfig(
        text_config=tower | {"vocab_size": 64, "num_attention_heads": 2},
        vision_config=tower
        | {
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "num_frames": 8,
            "mit_hidden_size": 32,
            "mit_intermediate_size": 64,
            "mit_num_attention_heads": 2,
        },
        projection_dim=32,
        prompt_num_attention_heads=2,
        synthetic="random weights, trained on nothing",
    )
    processor = {
        "image_processor_type": "VideoMAEImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": 32},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": 32, "width": 32},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = XCLIPModel(config)
    with new_folder(folder, overwrite=overwrite, marker=SYNTHETIC, discard=True) as new:
        write_text(new / SYNTHETIC, "Random weights by obygaze features make-weights.\n")
        model.save_pretrained(new)
        for path in new.iterdir():
            path.chmod(new.stat().st_mode & 0o666)  # safetensors writes files for their owner only
        write_text(new / "preprocessor_config.json", to_json(processor))
