"""TimeSformer against transformers' own processor and forward."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, TimesformerForVideoClassification

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present
from tests.tiny_models import write_timesformer

ALL = ["native", "cls", "max", "mean", "frames", "tokens"]
SHAPES = {"8x16": (8, 16), "5x8": (5, 8)}
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 48,
    "patch_size": 16,
    "num_frames": 8,
}


@pytest.mark.parametrize("attention", ["divided_space_time", "joint_space_time"])
@pytest.mark.parametrize(("frames", "patch"), SHAPES.values(), ids=SHAPES)
def test_from_frames_to_features_as_transformers_does_it(tmp_path, frames, patch, attention):
    side = 3 * patch
    sizes = SIZES | {"num_frames": frames, "image_size": side, "patch_size": patch}
    write_timesformer(tmp_path, 5, sizes | {"attention_type": attention})
    backbone = load_backbone(f"t={tmp_path}", "cpu", arrays=ALL)
    preprocessing = backbone.preprocessing
    assert (backbone.sampling.frames, preprocessing.crop, preprocessing.mean) == (
        frames,
        (side, side),
        (0.5,) * 3,
    )
    processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    random = np.random.default_rng(1)
    large = random.integers(0, 256, (frames, 61, 90, 3), dtype=np.uint8)
    torch.testing.assert_close(
        normalise(resize_and_crop(torch.from_numpy(large), preprocessing), preprocessing)[None],
        processor(list(large), return_tensors="pt")["pixel_values"].float(),
        atol=0.02, rtol=0,
    )  # fmt: skip

    clip = random.integers(0, 256, (frames, side, side, 3), dtype=np.uint8)
    pixels = normalise(resize_and_crop(torch.from_numpy(clip), preprocessing), preprocessing)[None]
    ours = backbone.embed_clips(pixels, all_present(pixels))
    reference = processor(list(clip), return_tensors="pt")["pixel_values"].float()
    model = TimesformerForVideoClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        tokens, logits = model.timesformer(reference).last_hidden_state, model(reference).logits
        ours_logits = model.classifier(ours["native"].clone())
    torch.testing.assert_close(ours_logits, logits, atol=1e-4, rtol=0)
    assert tokens.shape == (1, 1 + 9 * frames, 48)
    # Token 1 + frames * p + t is patch p of frame t.
    by_frame = [tokens[:, 1 + frame :: frames] for frame in range(frames)]
    expected = {
        "native": tokens[:, 0],
        "cls": tokens[:, 0],
        "max": tokens.max(1).values,
        "mean": tokens.mean(1),
        "frames": torch.stack([patches.mean(1) for patches in by_frame], 1),
        "tokens": torch.cat([tokens[:, :1], *by_frame], 1),
    }
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)


def test_a_frame_token_is_of_its_frame_most(checkpoints):
    """That of another order of tokens would be a mean over places instead."""
    backbone = load_backbone(str(checkpoints["tiny-timesformer"]), "cpu", arrays=["frames"])
    pixels = torch.zeros(1, 8, 3, 32, 32)
    for frame in (0, 3, 7):
        changed = pixels.clone()
        changed[:, frame] = 2
        moved = (
            backbone.embed_clips(changed, all_present(pixels))["frames"]
            - backbone.embed_clips(pixels, all_present(pixels))["frames"]
        )
        assert moved.norm(dim=-1).argmax() == frame


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention_type": "space_only"}, r"config.json: attention_type must be divided_space_t"),
        ({"image_size": 36}, r"preprocessor_config.json crops to 32x32, .* takes 36x36"),
        ({"num_frames": 4}, r"not fit its config.json: 1 weights .* such as embeddings.time_embed"),
        ({"num_hidden_layers": 3}, r"lacks \d+ weights of TimesformerModel, such as encoder"),
    ],
    ids=["attention", "size", "frames", "depth"],
)
def test_a_configuration_that_does_not_fit_is_one_line(copy, changes, reason):
    path = copy("tiny-timesformer") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BackboneError, match=reason) as caught:
        load_backbone(str(path.parent), "cpu")
    assert "\n" not in str(caught.value)
