"""Preprocessing against transformers' PIL processors and against plain arithmetic."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import obygaze_features as of

# The oracle needs pixels before they are normalised, which no backbone returns.
from obygaze_features.backbones.preprocess import (
    CLIP_TORCHVISION,
    read_preprocessing,
    resize_and_crop,
)
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import processed
from tests.kit.files import write
from tests.kit.models import CLIP_PIXELS, SMALL_VISION, tiny, write_dino

SHAPE = {"size": {"shortest_edge": 48}, "crop_size": {"height": 32, "width": 40}}
VIDEOMAE = tiny.video_processor(32) | SHAPE
VIVIT = VIDEOMAE | {
    "image_processor_type": "VivitImageProcessor",
    "rescale_factor": 1 / 127.5,
    "offset": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
SIGLIP = VIDEOMAE | {
    "image_processor_type": "SiglipImageProcessor",
    "do_center_crop": None,
    "size": {"height": 32, "width": 40},
    "crop_size": None,
    "resample": 3,
}
# Older than `image_processor_type`, with sizes that are bare numbers.
CLIP = {
    "feature_extractor_type": "CLIPFeatureExtractor",
    "size": 24,
    "crop_size": 24,
    "resample": 3,
    **CLIP_PIXELS,
}
BIT = tiny.video_processor(32) | {
    "image_processor_type": "BitImageProcessor",
    "size": {"shortest_edge": 36},
    "resample": 3,
}
PROCESSORS = {
    # The configuration, and the range of its values where that says more.
    "videomae": (VIDEOMAE, None),
    "siglip": (SIGLIP, None),
    "clip": (CLIP, None),
    "dinov2": (BIT, None),
    "vivit": (VIVIT, (-3, 1)),
    "vivit-no-offset": (VIVIT | {"offset": False}, (-1, 3)),
}
SIZES = [(120, 160), (161, 91), (48, 48), (30, 41), (360, 641), (20, 300)]
"""Landscape, portrait, as wanted, smaller than wanted, odd, and very wide."""
each_size = pytest.mark.parametrize("size", SIZES, ids=str)
RECORDED = np.load(Path(__file__).with_name("torchvision_processors.npz"))
"""Frames, and what transformers 5.23's processors that need torchvision give for them."""


def checkpoint(folder: Path, config=VIDEOMAE, **changes) -> Path:
    content = {key: value for key, value in (config | changes).items() if value is not None}
    write(folder / "preprocessor_config.json", json.dumps(content))
    return folder


def noise(count: int, height: int, width: int) -> torch.Tensor:
    random = np.random.default_rng(height * width)
    return torch.from_numpy(random.integers(0, 256, (count, height, width, 3), dtype=np.uint8))


def levels_apart(first: torch.Tensor, second: torch.Tensor) -> int:
    assert first.shape == second.shape
    return int((first.int() - second.int()).abs().max())


@pytest.mark.parametrize("kind", PROCESSORS)
@each_size
def test_pixels_equal_those_of_the_processor(tmp_path, size, kind):
    config, bounds = PROCESSORS[kind]
    folder = checkpoint(tmp_path, config)
    frames = noise(2, *size)
    black = torch.zeros_like(frames[:1])
    frames = torch.cat([frames, black, black + 255])
    rule = read_preprocessing(folder)
    assert rule.attributes()["mean"] == tuple(rule.mean)  # recorded
    if "vivit" not in kind:
        raw = processed(folder, frames.numpy(), do_rescale=False, do_normalize=False)
        assert levels_apart(resize_and_crop(frames, rule), raw) <= 1
    # One level of 255 is up to 0.018 after division by the smallest deviation.
    values = rule.apply(frames)
    torch.testing.assert_close(values, processed(folder, frames.numpy()), atol=0.02, rtol=0)
    if bounds:
        assert (values.min(), values.max()) == bounds


@pytest.mark.parametrize("number", [0, 1], ids=["landscape", "portrait"])
def test_recorded_processors_are_followed(tmp_path, number):
    """DINOv3's processor resizes floats instead of bytes: less than one level of 255 apart."""
    write_dino(tmp_path, 5, SMALL_VISION | {"image_size": 24}, "DINOv3ViT")
    rule = of.load_backbone(f"x={tmp_path}", "cpu").clip.preprocessing
    expected = torch.from_numpy(RECORDED[f"dinov3_{number}"]).float()
    values = rule.apply(torch.from_numpy(RECORDED[f"frames_{number}"]))
    torch.testing.assert_close(values, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "VideoMAE", "Vivit"])
def test_unstated_settings_are_the_processors_defaults(tmp_path, kind):
    name = f"{kind}ImageProcessor"
    rule = read_preprocessing(checkpoint(tmp_path, image_processor_type=name, resample=None))
    number = {"bilinear": 2, "bicubic": 3}[rule.filter]
    assert getattr(transformers, f"{name}Pil", getattr(transformers, name))().resample == number
    assert rule.offset == (kind == "Vivit")


def bilinear(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize like OpenCV's INTER_LINEAR: from the four nearest pixel centres at any reduction."""
    tables = []
    for side, size in zip(picture.shape, (height, width), strict=False):
        centre = (np.arange(size) + 0.5) * side / size - 0.5
        table = np.zeros((size, side))
        for step in (0, 1):
            pixel = np.floor(centre).astype(int) + step
            cells = (np.arange(size), pixel.clip(0, side - 1))
            np.add.at(table, cells, 1 - abs(centre - pixel))
        tables.append(table)
    resized = np.einsum("yi,xj,ijc->yxc", *tables, picture.astype(float), optimize=True)
    return np.rint(resized).astype(np.uint8)


@pytest.mark.parametrize("config", [VIDEOMAE, VIVIT], ids=["videomae", "vivit"])
@each_size
def test_author_preprocessing_squashes_before_the_processor(tmp_path, size, config):
    folder = checkpoint(tmp_path, config)
    frames = noise(1, *size)
    rule = read_preprocessing(folder, "author")
    switches = {"do_rescale": False, "do_normalize": False}
    if config is VIVIT:
        switches["offset"] = False
    squashed = bilinear(frames[0].numpy(), 224, 224)
    expected = processed(folder, squashed[None], **switches)
    assert levels_apart(resize_and_crop(frames, rule), expected) <= 1
    about = rule.attributes()
    assert (about["mode"], about["squash"]) == ("author", (224, 224))


@each_size
def test_the_clip_rule_equals_torchvision(size):
    """Resize(32, bicubic), CenterCrop(32), ToTensor, Normalize, as torchvision defines them."""
    rule = CLIP_TORCHVISION.at(32)
    assert rule.geometry != replace(rule, middle="down").geometry  # so no frames are shared
    frames = noise(1, *size)
    height, width = size
    short = 32
    long = int(32 * max(size) / min(size))
    new = (long, short) if height <= width else (short, long)
    resized = Image.fromarray(frames[0].numpy()).resize(new, Image.Resampling.BICUBIC)
    left, top = (round((side - 32) / 2.0) for side in resized.size)
    box = (left, top, left + 32, top + 32)
    cropped = np.asarray(resized.crop(box))
    expected = torch.from_numpy((cropped / 255 - CLIP["image_mean"]) / CLIP["image_std"])
    values = rule.apply(frames)[0].permute(1, 2, 0).double()
    torch.testing.assert_close(values, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"image_mean": None}, "image_mean"),
        ({"crop_size": 64}, "impossible sizes"),
        ({"image_std": [0, 0, 0]}, "impossible sizes, means, standard"),
        ({"size": {"shortest_edge": 2**31}}, "impossible sizes"),
        ({"resample": 5}, "unusable setting: 5"),
        ({"do_rescale": False}, "not resize, crop and rescale"),
    ],
)
def test_an_unknown_configuration_is_refused(tmp_path, changes, facts):
    with pytest.raises(BackboneError, match=facts):
        read_preprocessing(checkpoint(tmp_path, **changes))
    with pytest.raises(UsageError, match="use standard or author"):
        read_preprocessing(tmp_path, "authors")
