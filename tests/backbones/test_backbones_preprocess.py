"""Preprocessing against transformers' own PIL processors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor

from obygaze_features.errors import BackboneError
from obygaze_features.preprocess import normalise, read_preprocessing, resize_and_crop

CONFIG = {
    "image_processor_type": "VideoMAEImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 48},
    "resample": 2,
    "do_center_crop": True,
    "crop_size": {"height": 32, "width": 40},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def a_checkpoint(folder: Path, **changes) -> Path:
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder


def theirs(checkpoint: Path, frames: np.ndarray, **kwargs) -> torch.Tensor:
    processor = AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    return processor(list(frames), return_tensors="pt", **kwargs)["pixel_values"][0]


@pytest.mark.parametrize("resample", [2, 3], ids=["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "size", [(120, 160), (161, 91), (48, 48), (30, 41), (360, 641)], ids=lambda s: f"{s[0]}x{s[1]}"
)
def test_pixels_are_those_of_the_processor(tmp_path, size, resample):
    checkpoint = a_checkpoint(tmp_path, resample=resample)
    frames = np.random.default_rng(0).integers(0, 256, (3, *size, 3), dtype=np.uint8)
    how = read_preprocessing(checkpoint)

    pixels = resize_and_crop(torch.from_numpy(frames), how)
    expected = theirs(checkpoint, frames, do_rescale=False, do_normalize=False)
    assert pixels.shape == (3, 3, 32, 40)
    assert (pixels.int() - expected.int()).abs().max() <= 1
    numbers = theirs(checkpoint, frames)
    torch.testing.assert_close(normalise(pixels, how), numbers.float(), atol=0.02, rtol=0)


def test_normalising_alone_is_exact(tmp_path):
    checkpoint = a_checkpoint(tmp_path, size={"shortest_edge": 32}, crop_size=32)
    frames = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    how = read_preprocessing(checkpoint)
    ours = normalise(resize_and_crop(torch.from_numpy(frames), how), how)
    expected = theirs(checkpoint, frames).float()
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


def test_an_old_configuration_means_the_same(tmp_path):
    new = read_preprocessing(a_checkpoint(tmp_path, crop_size=48))
    old = a_checkpoint(tmp_path, size=48, crop_size=None, rescale_factor=None, do_rescale=None)
    assert read_preprocessing(old) == new


def test_what_is_recorded_is_what_was_read(tmp_path):
    how = read_preprocessing(a_checkpoint(tmp_path))
    assert how.attributes()["mean"] == (0.485, 0.456, 0.406)
    assert replace(how, mean=(0.5, 0.5, 0.5)).attributes() != how.attributes()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"image_mean": None}, "image_mean"),
        ({"do_center_crop": False}, "do_center_crop off"),
        ({"crop_size": 64}, "crops to 64x64"),
        ({"resample": 5}, "no usable value for 5"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(tmp_path, changes, named):
    with pytest.raises(BackboneError, match=named):
        read_preprocessing(a_checkpoint(tmp_path, **changes))
