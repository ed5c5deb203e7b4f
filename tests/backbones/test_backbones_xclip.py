"""X-CLIP against transformers' own processor and forward."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, XCLIPModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.backbones.tiny import write_xclip
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures

ALL = ["native", "max", "mean", "frames", "frames_temporal", "tokens"]
SHAPES = {"p32-8": (32, 8), "p16-16": (16, 16), "p16-32": (16, 32), "p14-8": (14, 8)}


@pytest.mark.parametrize(("patch", "frames"), SHAPES.values(), ids=SHAPES)
def test_from_frames_to_features_as_transformers_does_it(tmp_path, patch, frames):
    vision = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "image_size": 4 * patch,
        "patch_size": patch,
        "num_frames": frames,
        "mit_hidden_size": 32,
        "mit_intermediate_size": 64,
        "mit_num_attention_heads": 2,
    }
    write_xclip(tmp_path, 5, vision, 32)
    backbone = load_backbone(f"x={tmp_path}", "cpu", arrays=ALL)
    # Of the wanted size already, so that no resizing stands between the two.
    clip = np.random.default_rng(frames).integers(
        0, 256, (frames, 4 * patch, 4 * patch, 3), dtype=np.uint8
    )
    pixels = normalise(
        resize_and_crop(torch.from_numpy(clip), backbone.preprocessing), backbone.preprocessing
    )[None]
    ours = backbone.embed_clips(pixels, all_present(pixels))

    processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    theirs = processor(list(clip), return_tensors="pt")["pixel_values"].float()
    model = XCLIPModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        native = model.get_video_features(theirs)
        seen = model.vision_model(theirs.flatten(0, 1))
        each = model.visual_projection(seen.pooler_output)[None]
        mixed = model.mit(each)[0]
    native = native if isinstance(native, torch.Tensor) else native.pooler_output
    expected = {
        "native": native,
        "max": each.max(1).values,
        "mean": each.mean(1),
        "frames": each,
        "frames_temporal": mixed,
        "tokens": seen.last_hidden_state.reshape(1, frames * 17, 48),
    }
    assert list(ours) == ALL
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)
    # By X-CLIP's definition the clip embedding is the mean of the mixed frames.
    torch.testing.assert_close(ours["frames_temporal"].mean(1), native, atol=1e-4, rtol=0)


@pytest.mark.parametrize("count", [4, 16])
def test_another_number_of_frames_is_refused(checkpoints, count):
    backbone = load_backbone(str(checkpoints["tiny-xclip"]), "cpu")
    pixels = pictures(1, count, 3, 32, 32)
    with pytest.raises(AssertionError, match=f"{count} frames"):
        backbone.embed_clips(pixels, all_present(pixels))


def test_the_temporal_transformer_is_left_out_where_nobody_wants_it(checkpoints, monkeypatch):
    from transformers.models.x_clip import modeling_x_clip

    mixed = []
    original = modeling_x_clip.XCLIPMultiframeIntegrationTransformer.forward
    monkeypatch.setattr(
        modeling_x_clip.XCLIPMultiframeIntegrationTransformer,
        "forward",
        lambda *args, **kwargs: (mixed.append(1), original(*args, **kwargs))[1],
    )
    pixels = pictures(1, 8, 3, 32, 32)
    for arrays, runs in (["max", "frames"], 0), (["native"], 1):
        backbone = load_backbone(str(checkpoints["tiny-xclip"]), "cpu", arrays=arrays)
        assert list(backbone.embed_clips(pixels, all_present(pixels))) == arrays
        assert len(mixed) == runs


def test_a_network_for_other_pictures_than_its_processor_makes_is_refused(copy):
    folder = copy("tiny-xclip")
    path = folder / "preprocessor_config.json"
    config = json.loads(path.read_text()) | {"crop_size": {"height": 16, "width": 16}}
    path.write_text(json.dumps(config))
    with pytest.raises(BackboneError, match=r"crops to 16x16, .* takes 32x32"):
        load_backbone(str(folder), "cpu")
