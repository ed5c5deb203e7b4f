"""ViViT against transformers' own processor and forward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import VivitForVideoClassification, VivitImageProcessor

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.backbones.tiny import write_vivit
from tests.backbones.conftest import all_present

ALL = ["native", "cls", "max", "mean", "frames", "tokens"]
SHAPES = {"32x16": (32, 2, 16), "8x8": (8, 2, 8), "16x4": (16, 4, 8)}


@pytest.mark.parametrize(("frames", "depth", "patch"), SHAPES.values(), ids=SHAPES)
def test_from_frames_to_features_as_transformers_does_it(tmp_path, frames, depth, patch):
    sizes = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "image_size": 3 * patch,
        "tubelet_size": [depth, patch, patch],
        "num_frames": frames,
    }
    write_vivit(tmp_path, 5, sizes)
    backbone = load_backbone(f"v={tmp_path}", "cpu", arrays=ALL)
    edge = backbone.preprocessing.shortest_edge
    clip = np.random.default_rng(1).integers(0, 256, (frames, edge, edge, 3), dtype=np.uint8)
    pixels = normalise(
        resize_and_crop(torch.from_numpy(clip), backbone.preprocessing), backbone.preprocessing
    )[None]
    ours = backbone.embed_clips(pixels, all_present(pixels))

    processor = VivitImageProcessor.from_pretrained(tmp_path)
    theirs = processor(list(clip), return_tensors="pt")["pixel_values"].float()
    # The classifier that was saved, of which the features are the last thing before its head.
    model = VivitForVideoClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        tokens = model.vivit(theirs).last_hidden_state
        logits = model(theirs).logits
    steps = frames // depth
    assert tokens.shape == (1, 1 + steps * 9, 48)
    expected = {
        "native": tokens[:, 0],
        "cls": tokens[:, 0],
        "max": tokens.max(1).values,
        "mean": tokens.mean(1),
        "frames": torch.stack(
            [tokens[:, 1 + 9 * step : 10 + 9 * step].mean(1) for step in range(steps)], 1
        ),
        "tokens": tokens,
    }
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)
    with torch.no_grad():
        ours_logits = model.classifier(ours["native"].clone())
    torch.testing.assert_close(ours_logits, logits, atol=1e-4, rtol=0)
