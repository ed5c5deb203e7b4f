"""CLIP and SigLIP against transformers' own processor and forward, a frame at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, CLIPModel, SiglipModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures
from tests.tiny_models import write_clip, write_siglip

ALL = ["native", "max", "mean", "frames", "tokens"]
FRAMES = 32


def vision(patch: int, side: int) -> dict[str, int]:
    return {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "image_size": side,
        "patch_size": patch,
    }


def embedding(found):
    """A tensor up to transformers 4, and more than that from 5 on."""
    return found if isinstance(found, torch.Tensor) else found.pooler_output


def check(folder, model_class, side: int) -> None:
    """Everything that can be kept, from pictures of the wanted size and of another one."""
    backbone = load_backbone(f"x={folder}", "cpu", arrays=ALL)
    assert backbone.sampling.frames == FRAMES
    random = np.random.default_rng(side)
    model = model_class.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    for height, width in ((side, side), (2 * side, 3 * side)):
        clip = random.integers(0, 256, (FRAMES, height, width, 3), dtype=np.uint8)
        how = backbone.preprocessing
        pixels = normalise(resize_and_crop(torch.from_numpy(clip), how), how)
        theirs = processor(list(clip), return_tensors="pt")["pixel_values"].float()
        if height == side:  # no resizing stands between the two
            torch.testing.assert_close(pixels, theirs, atol=1e-5, rtol=0)
        else:
            torch.testing.assert_close(pixels, theirs, atol=0.02, rtol=0)
            pixels = theirs
        ours = backbone.embed_clips(pixels[None], all_present(pixels[None]))
        with torch.no_grad():
            each = embedding(model.get_image_features(theirs))
            tokens = model.vision_model(theirs).last_hidden_state.flatten(0, 1)
        expected = {
            "native": each.mean(0),
            "max": each.max(0).values,
            "mean": each.mean(0),
            "frames": each,
            "tokens": tokens,
        }
        assert list(ours) == ALL
        for name, values in expected.items():
            torch.testing.assert_close(ours[name][0], values, atol=1e-4, rtol=0, msg=name)


@pytest.mark.parametrize(("patch", "side", "dim"), [(16, 48, 32), (14, 70, 64), (32, 64, 24)])
def test_clip_sees_each_frame_as_transformers_does(tmp_path, patch, side, dim):
    write_clip(tmp_path, 5, vision(patch, side), dim)
    check(tmp_path, CLIPModel, side)


@pytest.mark.parametrize(("patch", "side"), [(16, 48), (14, 69), (8, 32)])
def test_siglip_sees_each_frame_as_transformers_does(tmp_path, patch, side):
    """At 69 pixels some are left over beside the patches, as in So400m/14 at 384."""
    write_siglip(tmp_path, 5, vision(patch, side))
    check(tmp_path, SiglipModel, side)


def test_siglip_2_states_another_filter_and_is_followed(tmp_path):
    write_siglip(tmp_path, 5, vision(8, 32))
    path = tmp_path / "preprocessor_config.json"
    config = json.loads(path.read_text()) | {"resample": 2, "do_convert_rgb": None}
    path.write_text(json.dumps(config))
    check(tmp_path, SiglipModel, 32)
    assert load_backbone(f"x={tmp_path}", "cpu").preprocessing.filter == "bilinear"


def test_siglip_frames_are_squeezed_and_clip_frames_are_cropped(checkpoints):
    """A wide picture, white but for black ends: SigLIP sees them, and CLIP does not."""
    wide = torch.full((1, 40, 160, 3), 255, dtype=torch.uint8)
    wide[:, :, :40] = wide[:, :, 120:] = 0
    edges = {}
    for name in ("tiny-clip", "tiny-siglip"):
        backbone = load_backbone(str(checkpoints[name]), "cpu")
        edges[name] = resize_and_crop(wide, backbone.preprocessing)[0, 0, 16, [0, 16, 31]].tolist()
    assert edges == {"tiny-clip": [255, 255, 255], "tiny-siglip": [0, 255, 0]}


@pytest.mark.parametrize("name", ["tiny-clip", "tiny-siglip", "tiny-dinov2", "tiny-dinov3"])
def test_a_frame_token_is_of_its_frame_alone(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu", arrays=["frames"])
    pixels = pictures(1, FRAMES, 3, 32, 32)
    changed = pixels.clone()
    changed[:, 7] += 1
    there = all_present(pixels)
    moved = (
        backbone.embed_clips(changed, there)["frames"]
        - backbone.embed_clips(pixels, there)["frames"]
    )
    assert (moved.abs().amax(-1)[0] > 1e-4).nonzero().flatten().tolist() == [7]


def test_a_siglip_without_a_head_is_refused(copy):
    folder = copy("tiny-siglip")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"]["vision_use_head"] = False
    path.write_text(json.dumps(config))
    with pytest.raises(BackboneError, match="has no pooling head"):
        load_backbone(str(folder), "cpu")
