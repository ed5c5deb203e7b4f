"""V-JEPA 2, pretrained and fine-tuned, against transformers' own processor and forward."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import VJEPA2ForVideoClassification, VJEPA2Model

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures
from tests.tiny_models import TINY_VJEPA2, write_vjepa2

ALL = ["native", "max", "mean", "frames", "tokens"]
SIZES = TINY_VJEPA2 | {"hidden_size": 48, "num_attention_heads": 4}
SHAPES = {"8x32": (8, 2, 32), "6x24": (6, 2, 24), "9x32": (9, 3, 32)}
RECORDED = np.load(Path(__file__).with_name("torchvision_processors.npz"))
"""Frames, and what transformers 5.23's processors that need torchvision make of them."""


def shuffle_norms(folder: Path) -> None:
    """Give layer norms other numbers than the ones and zeros with which they begin."""
    path = folder / "model.safetensors"
    tensors, random = load_file(path), torch.Generator().manual_seed(3)
    for name in [name for name in tensors if "norm" in name]:
        tensors[name] = torch.randn(tensors[name].shape, generator=random)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("tuned", [True, False], ids=["finetuned", "pretrained"])
@pytest.mark.parametrize(("frames", "depth", "side"), SHAPES.values(), ids=SHAPES)
def test_features_are_those_of_transformers(tmp_path, frames, depth, side, tuned):
    sizes = SIZES | {"frames_per_clip": frames, "tubelet_size": depth, "crop_size": side}
    write_vjepa2(tmp_path, 5, sizes, finetuned=tuned)
    shuffle_norms(tmp_path)
    backbone = load_backbone(f"v={tmp_path}", "cpu", arrays=ALL)
    assert backbone.sampling.frames == frames
    pixels = pictures(2, frames, 3, side, side)
    ours = backbone.embed_clips(pixels, all_present(pixels))
    if tuned:
        model = VJEPA2ForVideoClassification.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            tokens, logits = model.vjepa2.get_vision_features(pixels), model(pixels).logits
            # The classifier is the judge of what its features are.
            ours_logits = model.classifier(ours["native"].clone())
        torch.testing.assert_close(ours_logits, logits, atol=1e-4, rtol=0)
        assert not torch.allclose(ours["native"], ours["mean"], atol=0.01)
    else:
        model = VJEPA2Model.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            tokens = model.get_vision_features(pixels)
        torch.testing.assert_close(ours["native"], tokens.mean(1), atol=1e-4, rtol=0)
    steps, patches = frames // depth, (side // 8) ** 2
    assert tokens.shape == (2, steps * patches, 48)
    expected = {
        "max": tokens.max(1).values,
        "mean": tokens.mean(1),
        "frames": torch.stack(
            [tokens[:, patches * i : patches * (i + 1)].mean(1) for i in range(steps)], 1
        ),
        "tokens": tokens,
    }
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)


@pytest.mark.parametrize("number", [0, 1], ids=["landscape", "portrait"])
def test_frames_are_prepared_as_its_processor_does_it(tmp_path, number):
    write_vjepa2(tmp_path, 5, SIZES | {"crop_size": 24})
    path = tmp_path / "video_preprocessor_config.json"
    # Its processor does not read this size; the recorded one was given it too.
    path.write_text(json.dumps(json.loads(path.read_text()) | {"size": {"shortest_edge": 40}}))
    preprocessing = load_backbone(f"v={tmp_path}", "cpu").preprocessing
    assert (preprocessing.shortest_edge, preprocessing.crop, preprocessing.filter) == (
        27,
        (24, 24),
        "bilinear",
    )
    frames = torch.from_numpy(RECORDED[f"frames_{number}"])
    expected = torch.from_numpy(RECORDED[f"vjepa2_{number}"]).float()
    ours = normalise(resize_and_crop(frames, preprocessing), preprocessing)
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0)


def test_the_trunk_of_a_classifier_alone_gives_the_mean(tmp_path):
    write_vjepa2(tmp_path / "original", 5, SIZES, finetuned=True)
    original = VJEPA2ForVideoClassification.from_pretrained(tmp_path / "original")
    original.vjepa2.save_pretrained(tmp_path / "trunk")
    name = "video_preprocessor_config.json"
    (tmp_path / "trunk" / name).write_bytes((tmp_path / "original" / name).read_bytes())
    pixels = pictures(1, 8, 3, 32, 32)
    trunk, classifier = (
        load_backbone(f"v={tmp_path / name}", "cpu").embed_clips(pixels, all_present(pixels))
        for name in ("trunk", "original")
    )
    torch.testing.assert_close(trunk["native"], classifier["mean"], atol=0, rtol=0)


def test_its_processor_may_be_in_the_file_for_images(copy):
    folder = copy("tiny-vjepa2")
    before = load_backbone(str(folder), "cpu").preprocessing
    (folder / "video_preprocessor_config.json").rename(folder / "preprocessor_config.json")
    assert load_backbone(str(folder), "cpu").preprocessing == before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"frames_per_clip": 7}, r"frames_per_clip must be a multiple .* 2 frames \(got 7\)"),
        ({"crop_size": 40}, r"video_preprocessor_config.json crops to 32x32, .* takes 40x40"),
        ({"hidden_size": 64}, r"does not fit its config.json: \d+ weights of VJEPA2Model"),
        ({"num_hidden_layers": 3}, r"lacks \d+ weights of VJEPA2Model, such as encoder.layer.2"),
    ],
    ids=["frames", "size", "width", "depth"],
)
def test_a_configuration_that_does_not_fit_is_one_line(copy, changes, reason):
    path = copy("tiny-vjepa2") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BackboneError, match=reason) as caught:
        load_backbone(str(path.parent), "cpu")
    assert "\n" not in str(caught.value)
