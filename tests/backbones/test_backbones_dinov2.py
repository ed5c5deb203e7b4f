"""DINOv2 and DINOv3 against transformers' own processors and forward, a frame at a time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoImageProcessor,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersModel,
    DINOv3ViTModel,
)

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import all_present, pictures
from tests.tiny_models import SMALL_VISION, write_dino

ALL = ["native", "max", "mean", "frames", "tokens"]
FRAMES = 32
KINDS = {
    "Dinov2": (Dinov2Model, 0),
    "Dinov2WithRegisters": (Dinov2WithRegistersModel, 4),
    "DINOv3ViT": (DINOv3ViTModel, 4),
}
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 48,
    "patch_size": 14,
}
RECORDED = np.load(Path(__file__).with_name("torchvision_processors.npz"))
"""Frames, and what transformers 5.23's processors that need torchvision make of them."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_frame_is_seen_as_transformers_does_it(tmp_path, kind):
    """Its input, of 32 pixels, is not what it was trained with: 48."""
    model_class, registers = KINDS[kind]
    sizes = SIZES | ({"num_register_tokens": registers} if registers else {})
    write_dino(tmp_path, 5, sizes, kind)
    backbone = load_backbone(f"d={tmp_path}", "cpu", arrays=ALL)
    assert (backbone.sampling.frames, backbone.preprocessing.crop) == (FRAMES, (32, 32))
    model = model_class.from_pretrained(tmp_path).eval()
    pixels = pictures(2, FRAMES, 3, 32, 32)
    ours = backbone.embed_clips(pixels, all_present(pixels))
    with torch.no_grad():
        output = model(pixels.flatten(0, 1))
    tokens = output.last_hidden_state
    assert tokens.shape == (2 * FRAMES, 1 + registers + 4, 48)
    torch.testing.assert_close(output.pooler_output, tokens[:, 0])
    embeddings = tokens[:, 0].unflatten(0, (2, FRAMES))
    expected = {
        "native": embeddings.mean(1),
        "max": embeddings.max(1).values,
        "mean": embeddings.mean(1),
        "frames": embeddings,
        "tokens": tokens.unflatten(0, (2, FRAMES)).flatten(1, 2),
    }
    assert list(ours) == ALL
    for name, values in expected.items():
        torch.testing.assert_close(ours[name], values, atol=1e-4, rtol=0, msg=name)
    assert [spec.shape for spec in backbone.arrays] == [tuple(ours[name].shape[1:]) for name in ALL]
    images = backbone.embed_images(pixels[0])
    torch.testing.assert_close(images, embeddings[0], atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["Dinov2", "Dinov2WithRegisters"])
@pytest.mark.parametrize("size", [(60, 83), (91, 60), (32, 32)], ids=str)
def test_dinov2s_processor_is_followed(tmp_path, kind, size):
    write_dino(tmp_path, 5, SIZES, kind)
    preprocessing = load_backbone(f"d={tmp_path}", "cpu").preprocessing
    assert (preprocessing.shortest_edge, preprocessing.filter) == (36, "bicubic")
    frames = np.random.default_rng(1).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    expected = processor(list(frames), return_tensors="pt")["pixel_values"].float()
    ours = normalise(resize_and_crop(torch.from_numpy(frames), preprocessing), preprocessing)
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("number", [0, 1], ids=["landscape", "portrait"])
def test_dinov3s_processor_is_followed(tmp_path, number):
    """It resizes numbers and not bytes, which is less than a level in 255 apart."""
    write_dino(tmp_path, 5, SMALL_VISION | {"image_size": 24}, "DINOv3ViT")
    preprocessing = load_backbone(f"d={tmp_path}", "cpu").preprocessing
    assert (preprocessing.shortest_edge, preprocessing.crop, preprocessing.filter) == (
        None,
        (24, 24),
        "bilinear",
    )
    frames = torch.from_numpy(RECORDED[f"frames_{number}"])
    expected = torch.from_numpy(RECORDED[f"dinov3_{number}"]).float()
    ours = normalise(resize_and_crop(frames, preprocessing), preprocessing)
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0)


def test_the_trunk_of_a_classifier_is_read(checkpoints, tmp_path):
    """Such as dinov2-base-imagenet1k-1-layer, which has the same trunk."""
    folder = checkpoints["tiny-dinov2"]
    model = Dinov2ForImageClassification.from_pretrained(folder)
    model.save_pretrained(tmp_path)
    name = "preprocessor_config.json"
    (tmp_path / name).write_bytes((folder / name).read_bytes())
    pixels = pictures(2, 3, 32, 32)
    ours, expected = (
        load_backbone(f"d={path}", "cpu").embed_images(pixels) for path in (tmp_path, folder)
    )
    torch.testing.assert_close(ours, expected, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["tiny-dinov2", "tiny-dinov2-with-registers", "tiny-dinov3"])
def test_texts_are_refused_in_one_line(checkpoints, name):
    backbone = load_backbone(str(checkpoints[name]), "cpu")
    for read in (
        lambda: backbone.embed_texts(["a photo"]),
        lambda: backbone.for_images_and_texts(texts=True),
    ):
        with pytest.raises(UsageError, match=r"reads no texts, only images; .* features backbones"):
            read()
    assert [spec.name for spec in backbone.for_images_and_texts().arrays] == ["native"]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("tiny-dinov2", {"hidden_size": 64}, r"does not fit its config.json: \d+ weights of Dinov"),
        ("tiny-dinov3", {"num_hidden_layers": 3}, r"lacks \d+ weights of DINOv3ViTModel, such as"),
        ("tiny-dinov2", {"model_type": "dinov2_with_registers"}, r"lacks 1 weights .*register_t"),
        ("tiny-dinov2", {"model_type": "dinov4"}, r"unknown model_type 'dinov4'; .* dinov3_vit$"),
    ],
    ids=["width", "depth", "registers", "unknown"],
)
def test_a_configuration_that_does_not_fit_is_one_line(copy, name, changes, reason):
    path = copy(name) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BackboneError, match=reason) as caught:
        load_backbone(str(path.parent), "cpu")
    assert "\n" not in str(caught.value)
