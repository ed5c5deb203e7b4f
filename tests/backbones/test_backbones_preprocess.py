"""Preprocessing against transformers' PIL processors and against plain arithmetic."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import obygaze_features as of
from obygaze_features.backbones import preprocess
from obygaze_features.backbones.preprocess import normalise, read_preprocessing, resize_and_crop
from obygaze_features.backbones.random_checkpoints import video_processor
from obygaze_features.errors import BackboneError, UsageError
from tests.backbones.conftest import processed
from tests.kit.files import write
from tests.kit.models import SMALL_VISION, write_dino

SHAPE = {"size": {"shortest_edge": 48}, "crop_size": {"height": 32, "width": 40}}
VIDEOMAE = video_processor(32) | SHAPE
VIVIT = VIDEOMAE | {"image_processor_type": "VivitImageProcessor", "rescale_factor": 1 / 127.5,
                    "offset": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}  # fmt: skip
SIGLIP = VIDEOMAE | {"image_processor_type": "SiglipImageProcessor", "do_center_crop": None,
                     "size": {"height": 32, "width": 40}, "crop_size": None}  # fmt: skip
# Older than `image_processor_type`, with sizes that are bare numbers.
CLIP = {"feature_extractor_type": "CLIPFeatureExtractor", "do_center_crop": True, "size": 24,
        "do_normalize": True, "do_resize": True, "crop_size": 24, "resample": 3,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711]}  # fmt: skip
BIT = video_processor(32) | {"image_processor_type": "BitImageProcessor", "do_convert_rgb": True,
                             "size": {"shortest_edge": 36}, "resample": 3}  # fmt: skip
PROCESSORS = {
    # The configuration, and the range of its values where that says more.
    "videomae": (VIDEOMAE, None),
    "siglip": (SIGLIP | {"resample": 3}, None),
    "clip": (CLIP, None),
    "dinov2": (BIT, None),
    "vivit": (VIVIT, (-3, 1)),
    "vivit-no-offset": (VIVIT | {"offset": False}, (-1, 3)),
}
SIZES = [(120, 160), (161, 91), (48, 48), (30, 41), (360, 641), (20, 300)]
"""Landscape, portrait, as wanted, smaller than wanted, odd, and very wide."""
each_size = pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
RECORDED = np.load(Path(__file__).with_name("torchvision_processors.npz"))
"""Frames, and what transformers 5.23's processors that need torchvision give for them."""


def checkpoint(folder: Path, config=VIDEOMAE, **changes) -> Path:
    content = {key: value for key, value in (config | changes).items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))
    return folder


def noise(count: int, height: int, width: int) -> np.ndarray:
    random = np.random.default_rng(height * width)
    return random.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def levels_apart(first: torch.Tensor, second: torch.Tensor) -> int:
    assert first.shape == second.shape
    return int((first.int() - second.int()).abs().max())


@pytest.mark.parametrize("kind", PROCESSORS)
@each_size
def test_pixels_equal_those_of_the_processor(tmp_path, size, kind):
    config, bounds = PROCESSORS[kind]
    folder = checkpoint(tmp_path, config)
    frames = noise(2, *size)
    frames = np.concatenate([frames, np.stack([frames[0] * 0, frames[0] * 0 + 255])])
    rule = read_preprocessing(folder)
    assert rule.attributes()["mean"] == tuple(rule.mean)  # recorded
    if "vivit" not in kind:
        raw = processed(folder, frames, do_rescale=False, do_normalize=False)
        assert levels_apart(resize_and_crop(torch.from_numpy(frames), rule), raw) <= 1
    # One level of 255 is up to 0.018 after division by the smallest deviation.
    values = rule.apply(torch.from_numpy(frames))
    torch.testing.assert_close(values, processed(folder, frames), atol=0.02, rtol=0)
    if bounds:
        assert (values.min(), values.max()) == bounds


@pytest.mark.parametrize("number", [0, 1], ids=["landscape", "portrait"])
def test_recorded_processors_are_followed(tmp_path, number):
    """DINOv3's processor resizes floats instead of bytes: less than one level of 255 apart."""
    write_dino(tmp_path / "dinov3", 5, SMALL_VISION | {"image_size": 24}, "DINOv3ViT")
    rule = of.load_backbone(tmp_path / "dinov3", "cpu").clip.preprocessing
    assert (rule.shortest_edge, rule.crop, rule.filter) == (None, (24, 24), "bilinear")
    expected = torch.from_numpy(RECORDED[f"dinov3_{number}"]).float()
    values = rule.apply(torch.from_numpy(RECORDED[f"frames_{number}"]))
    torch.testing.assert_close(values, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "VideoMAE", "Vivit"])
def test_unstated_settings_are_the_processors_defaults(tmp_path, kind):
    name = f"{kind}ImageProcessor"
    rule = read_preprocessing(checkpoint(tmp_path, image_processor_type=name, resample=None))
    number = {"bilinear": 2, "bicubic": 3}[rule.filter]
    assert getattr(transformers, f"{name}Pil", getattr(transformers, name))().resample == number


def test_older_settings_mean_the_same(tmp_path):
    assert read_preprocessing(checkpoint(tmp_path, VIVIT, offset=None)).offset == 1
    assert read_preprocessing(checkpoint(tmp_path)).offset == 0
    new = read_preprocessing(checkpoint(tmp_path, crop_size=48))
    old = checkpoint(tmp_path, size=48, crop_size=None, rescale_factor=None, do_rescale=None)
    assert read_preprocessing(old) == new


def bilinear(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize like OpenCV's INTER_LINEAR: from the four nearest pixel centres at any reduction."""
    tables = []
    for side, size in zip(picture.shape, (height, width), strict=False):
        centre = (np.arange(size) + 0.5) * side / size - 0.5
        table = np.zeros((size, side))
        for step in (0, 1):
            pixel = np.floor(centre).astype(int) + step
            np.add.at(table, (np.arange(size), pixel.clip(0, side - 1)), 1 - abs(centre - pixel))
        tables.append(table)
    return np.rint(
        np.einsum("yi,xj,ijc->yxc", *tables, picture.astype(float), optimize=True)
    ).astype(np.uint8)


@pytest.mark.parametrize("config", [VIDEOMAE, VIVIT], ids=["videomae", "vivit"])
@each_size
def test_author_preprocessing_squashes_before_the_processor(tmp_path, size, config):
    folder = checkpoint(tmp_path, config)
    frames = noise(1, *size)
    rule = read_preprocessing(folder, "author")
    ours = resize_and_crop(torch.from_numpy(frames), rule)
    switches = {"do_rescale": False, "do_normalize": False}
    if config is VIVIT:
        switches["offset"] = False
    expected = processed(folder, bilinear(frames[0], 224, 224)[None], **switches)
    assert levels_apart(ours, expected) <= 1
    if size[0] != size[1]:
        plain = resize_and_crop(torch.from_numpy(frames), read_preprocessing(folder))
        assert levels_apart(ours, plain) > 20
    assert (rule.attributes()["mode"], rule.attributes()["squash"]) == ("author", (224, 224))


@each_size
def test_the_clip_rule_equals_torchvision(size):
    """Resize(32, bicubic), CenterCrop(32), ToTensor, Normalize, as torchvision defines them."""
    rule = preprocess.CLIP_TORCHVISION.at(32)
    frames = noise(1, *size)
    height, width = size
    short = 32
    long = int(32 * max(size) / min(size))
    new = (long, short) if height <= width else (short, long)
    resized = Image.fromarray(frames[0]).resize(new, Image.Resampling.BICUBIC)
    left, top = (round((side - 32) / 2.0) for side in resized.size)
    cropped = np.asarray(resized.crop((left, top, left + 32, top + 32)))
    pixels = resize_and_crop(torch.from_numpy(frames), rule)
    assert levels_apart(pixels[0], torch.from_numpy(cropped.copy()).permute(2, 0, 1)) <= 1
    expected = torch.from_numpy((cropped / 255 - CLIP["image_mean"]) / CLIP["image_std"])
    values = normalise(pixels, rule)[0].permute(1, 2, 0).double()
    torch.testing.assert_close(values, expected, atol=0.02, rtol=0)


@pytest.mark.parametrize(("changes", "facts"), [
    ({"image_mean": None}, "image_mean"),
    ({"crop_size": 64}, "impossible sizes"),
    ({"image_mean": ["x", "x", "x"]}, "impossible sizes, means"),
    ({"image_std": [0, 0, 0]}, "impossible sizes, means or factors"),
    ({"size": {"shortest_edge": 2**31}}, "impossible sizes"),
    ({"resample": 5}, "unusable setting: 5"),
    ({"do_rescale": False}, "not resize, crop and rescale"),
    ({"size": {"height": 48, "width": 48}}, "not resize, crop and rescale"),
])  # fmt: skip
def test_an_unknown_configuration_is_refused(tmp_path, changes, facts):
    with pytest.raises(BackboneError, match=facts):
        read_preprocessing(checkpoint(tmp_path, **changes))
    with pytest.raises(UsageError, match="use standard or author"):
        read_preprocessing(tmp_path, "authors")


def test_the_files_of_weights_are_in_the_record(tmp_path):
    file = write(tmp_path / "net.onnx", "numbers")
    own = of.Backbone.from_torch(torch.nn.Flatten(), frames=2, size=4)
    about = of.load_backbone(replace(own, weights=(file,)), "cpu").about
    assert about["weights_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(BackboneError, match=r"must be a tuple of files .gone is not"):
        replace(own, weights=("gone",))
