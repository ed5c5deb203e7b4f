"""Preprocessing against transformers' own PIL processors, and against arithmetic written out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn.functional import interpolate
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoImageProcessor, VivitImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from obygaze_features.backbones import preprocess
from obygaze_features.backbones.preprocess import (
    CLIP_TORCHVISION,
    Preprocessing,
    normalise,
    read_preprocessing,
    resize_and_crop,
)
from obygaze_features.errors import BackboneError, UsageError

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
VIVIT = {
    "image_processor_type": "VivitImageProcessor",
    "rescale_factor": 1 / 127.5,
    "offset": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
SIGLIP = {
    "image_processor_type": "SiglipImageProcessor",
    "size": {"height": 32, "width": 40},
    "do_center_crop": None,
    "crop_size": None,
}
SIZES = [(120, 160), (161, 91), (48, 48), (30, 41), (360, 641), (20, 300)]
"""Landscape, portrait, as wanted, smaller than wanted, odd, and very wide."""
each_size = pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")


def a_checkpoint(folder: Path, **changes) -> Path:
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder


def noise(count: int, height: int, width: int) -> np.ndarray:
    random = np.random.default_rng(height * width)
    return random.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def theirs(checkpoint: Path, frames: np.ndarray, **kwargs) -> torch.Tensor:
    processor = AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    return processor(list(frames), return_tensors="pt", **kwargs)["pixel_values"][0]


def theirs_of_each(checkpoint: Path, frames: np.ndarray, **kwargs) -> torch.Tensor:
    """Of processors of pictures, which give one each."""
    processor = AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    return processor(list(frames), return_tensors="pt", **kwargs)["pixel_values"]


def levels_apart(one: torch.Tensor, other: torch.Tensor) -> int:
    assert one.shape == other.shape
    return int((one.int() - other.int()).abs().max())


@pytest.mark.parametrize("resample", [2, 3], ids=["bilinear", "bicubic"])
@each_size
def test_pixels_are_those_of_the_processor(tmp_path, size, resample):
    checkpoint = a_checkpoint(tmp_path, resample=resample)
    frames = noise(3, *size)
    how = read_preprocessing(checkpoint)

    pixels = resize_and_crop(torch.from_numpy(frames), how)
    expected = theirs(checkpoint, frames, do_rescale=False, do_normalize=False)
    assert pixels.shape == (3, 3, 32, 40)
    assert levels_apart(pixels, expected) <= 1
    numbers = theirs(checkpoint, frames)
    torch.testing.assert_close(normalise(pixels, how), numbers.float(), atol=0.02, rtol=0)


@pytest.mark.parametrize("resample", [2, 3], ids=["bilinear", "bicubic"])
@each_size
def test_where_both_sides_are_given_nothing_is_cropped(tmp_path, size, resample):
    checkpoint = a_checkpoint(tmp_path, **SIGLIP, resample=resample)
    frames = noise(3, *size)
    how = read_preprocessing(checkpoint)
    assert (how.shortest_edge, how.crop) == (None, (32, 40))
    pixels = resize_and_crop(torch.from_numpy(frames), how)
    expected = theirs_of_each(checkpoint, frames, do_rescale=False, do_normalize=False)
    assert levels_apart(pixels, expected) <= 1
    numbers = theirs_of_each(checkpoint, frames).float()
    torch.testing.assert_close(normalise(pixels, how), numbers, atol=0.02, rtol=0)


@each_size
def test_clips_published_configuration_is_followed(tmp_path, size):
    """Older than ``image_processor_type``, with sizes that are bare numbers."""
    published = {
        "crop_size": 24,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": 3,
        "size": 24,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(published))
    frames = noise(2, *size)
    how = read_preprocessing(tmp_path)
    ours = normalise(resize_and_crop(torch.from_numpy(frames), how), how)
    expected = CLIPImageProcessorPil.from_pretrained(tmp_path)(list(frames), return_tensors="pt")
    # A level in 255 is up to 0.0150 after dividing by the smallest deviation.
    torch.testing.assert_close(ours, expected["pixel_values"].float(), atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "VideoMAE", "Vivit"])
def test_a_filter_that_is_not_stated_is_the_processors_own(tmp_path, kind):
    name = f"{kind}ImageProcessor"
    how = read_preprocessing(a_checkpoint(tmp_path, image_processor_type=name, resample=None))
    number = {"bilinear": 2, "bicubic": 3}[how.filter]
    assert getattr(transformers, f"{name}Pil", getattr(transformers, name))().resample == number


@pytest.mark.parametrize("changes", [{}, {"do_normalize": False}, {"offset": False}], ids=str)
@each_size
def test_vivits_processor_is_followed_switch_by_switch(tmp_path, size, changes):
    checkpoint = a_checkpoint(tmp_path, **VIVIT | changes)
    frames = noise(2, *size)
    black_and_white = np.stack([frames[0] * 0, frames[0] * 0 + 255])
    frames = np.concatenate([frames, black_and_white])
    how = read_preprocessing(checkpoint)
    ours = normalise(resize_and_crop(torch.from_numpy(frames), how), how)
    processor = VivitImageProcessor.from_pretrained(checkpoint)
    expected = processor(list(frames), return_tensors="pt")["pixel_values"][0].float()
    torch.testing.assert_close(ours, expected, atol=0.02, rtol=0)
    lowest, highest = {"do_normalize": (-1, 1), "offset": (-1, 3)}.get("".join(changes), (-3, 1))
    assert (ours.min(), ours.max()) == (lowest, highest)


def test_an_offset_that_is_not_stated_is_on_for_vivit_alone(tmp_path):
    assert read_preprocessing(a_checkpoint(tmp_path, **VIVIT | {"offset": None})).offset == 1
    assert read_preprocessing(a_checkpoint(tmp_path)).offset == 0


@each_size
@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["standard", "author"])
def test_devices_that_resize_no_bytes_get_the_same(tmp_path, monkeypatch, size, kind, mode):
    how = replace(read_preprocessing(a_checkpoint(tmp_path), mode), filter=kind)
    frames = torch.from_numpy(noise(11, *size))
    here = resize_and_crop(frames, how)
    # The way of a GPU, taken on the CPU.
    use_floats(monkeypatch)
    there = resize_and_crop(frames, how)
    assert there.dtype == torch.uint8
    assert levels_apart(there, here) <= 1


def resize_together(frames: torch.Tensor, how: Preprocessing) -> torch.Tensor:
    """All frames in one call of torch, and the crop."""
    pixels = frames.permute(0, 3, 1, 2)
    if how.squash:
        pixels = interpolate(pixels, size=how.squash, mode="bilinear", align_corners=False)
    height, width = pixels.shape[-2:]
    short, long = (
        how.shortest_edge,
        int(how.shortest_edge * max(height, width) / min(height, width)),
    )
    size = (short, long) if height <= width else (long, short)
    if size != (height, width):
        pixels = interpolate(pixels, size=size, mode=how.filter, antialias=True)
    top, left = ((size[side] - how.crop[side]) // 2 for side in (0, 1))
    return pixels[..., top : top + how.crop[0], left : left + how.crop[1]]


@each_size
@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["standard", "author"])
def test_frame_by_frame_gives_the_same_bits(tmp_path, monkeypatch, size, kind, mode):
    how = replace(read_preprocessing(a_checkpoint(tmp_path), mode), filter=kind)
    frames, rows = torch.from_numpy(noise(11, *size)), [0, 3, 3, 4, 10, 7, 1, 2, 9]
    pixels = resize_and_crop(frames, how, rows)
    assert torch.equal(pixels, resize_together(frames[rows], how))
    assert pixels.is_contiguous()
    use_floats(monkeypatch)
    floats = resize_and_crop(frames, how, rows)
    assert torch.equal(floats, resize_and_crop(frames[rows], how))
    assert levels_apart(floats, pixels) <= 1


def use_floats(monkeypatch) -> None:
    """Resize on the CPU as on a GPU."""
    monkeypatch.setattr(preprocess, "BYTE_RESIZING_DEVICES", frozenset())
    monkeypatch.setattr(preprocess, "FLOAT_RESIZING_DEVICES", frozenset({"cpu"}))


def test_tensorfloat32_cannot_reach_a_gpus_resizing(tmp_path, monkeypatch):
    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.add(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    names: set[str] = set()
    use_floats(monkeypatch)
    with Calls():
        resize_and_crop(
            torch.from_numpy(noise(2, 120, 160)), read_preprocessing(a_checkpoint(tmp_path))
        )
    assert "_upsample_bilinear2d_aa" in names
    assert not {name for name in names if re.search("mm|mv|dot|conv|linear$|einsum", name)}


def test_a_large_reduction_is_left_to_the_cpu(tmp_path, monkeypatch):
    """A GPU has no room for the weights of its filter."""
    how, brought = read_preprocessing(a_checkpoint(tmp_path)), []
    monkeypatch.setattr(preprocess, "FLOAT_RESIZING_DEVICES", frozenset({"meta"}))
    monkeypatch.setattr(
        torch.Tensor, "cpu",
        lambda self: brought.append(self.shape) or torch.zeros(self.shape, dtype=self.dtype),
    )  # fmt: skip
    for edge, count in ((48 * 32, 0), (48 * 32 + 1, 1)):
        frames = torch.empty(1, edge, edge, 3, dtype=torch.uint8, device="meta")
        assert resize_and_crop(frames, how).shape == (1, 3, 32, 40)
        assert len(brought) == count


def test_normalising_has_the_bits_of_the_formula(tmp_path):
    how = read_preprocessing(a_checkpoint(tmp_path, **VIVIT | {"image_std": [0.3, 0.4, 0.5]}))
    pixels = torch.arange(256, dtype=torch.uint8).repeat(2, 5, 3, 1)[..., None]
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (how.mean, how.std))
    expected = (pixels.float() * how.scale - how.offset - mean) / std
    for _ in range(2):
        assert torch.equal(normalise(pixels, how), expected)


def bilinear(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """As OpenCV's INTER_LINEAR: the four nearest pixels' centres, whatever the reduction."""
    rows = (np.arange(height) + 0.5) * picture.shape[0] / height - 0.5
    columns = (np.arange(width) + 0.5) * picture.shape[1] / width - 0.5
    out = np.empty((height, width, 3))
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            value = 0.0
            for i in (int(np.floor(row)), int(np.floor(row)) + 1):
                for j in (int(np.floor(column)), int(np.floor(column)) + 1):
                    weight = (1 - abs(row - i)) * (1 - abs(column - j))
                    inside = (
                        min(max(i, 0), picture.shape[0] - 1),
                        min(max(j, 0), picture.shape[1] - 1),
                    )
                    value = value + weight * picture[inside].astype(float)
            out[y, x] = value
    return np.rint(out).astype(np.uint8)


@pytest.mark.parametrize("changes", [{}, VIVIT], ids=["videomae", "vivit"])
@each_size
def test_the_authors_squash_first_and_then_follow_the_processor(
    tmp_path, monkeypatch, size, changes
):
    monkeypatch.setattr(preprocess, "AUTHOR_SQUASH", (24, 24))  # the oracle is slow
    checkpoint = a_checkpoint(tmp_path, **changes)
    frames = noise(1, *size)
    how = read_preprocessing(checkpoint, "author")
    ours = resize_and_crop(torch.from_numpy(frames), how)
    squashed = bilinear(frames[0], 24, 24)
    processor = (VivitImageProcessor if changes else AutoImageProcessor).from_pretrained(
        checkpoint, **({} if changes else {"backend": "pil"})
    )
    raw = {"do_rescale": False, "do_normalize": False} | ({"offset": False} if changes else {})
    expected = processor([squashed], return_tensors="pt", **raw)["pixel_values"][0]
    assert levels_apart(ours, expected) <= 1
    if size[0] != size[1]:
        plain = resize_and_crop(torch.from_numpy(frames), read_preprocessing(checkpoint))
        assert levels_apart(ours, plain) > 20


def test_the_authors_size_is_recorded(tmp_path):
    how = read_preprocessing(a_checkpoint(tmp_path), "author")
    assert (how.attributes()["mode"], how.attributes()["squash"]) == ("author", (224, 224))
    assert read_preprocessing(a_checkpoint(tmp_path)).squash is None
    with pytest.raises(UsageError, match=r"'authors'; use standard or author"):
        read_preprocessing(tmp_path, "authors")


@each_size
def test_clips_own_rule_is_torchvisions(size):
    """Resize(32, bicubic), CenterCrop(32), ToTensor, Normalize, as torchvision defines them."""
    how = CLIP_TORCHVISION.at(32)
    frames = noise(1, *size)
    picture = Image.fromarray(frames[0])
    height, width = size
    if height <= width:
        resized = picture.resize((int(32 * width / height), 32), Image.Resampling.BICUBIC)
    else:
        resized = picture.resize((32, int(32 * height / width)), Image.Resampling.BICUBIC)
    left, top = (round((side - 32) / 2.0) for side in resized.size)
    cropped = np.asarray(resized.crop((left, top, left + 32, top + 32)))
    pixels = resize_and_crop(torch.from_numpy(frames), how)
    assert levels_apart(pixels[0], torch.from_numpy(cropped.copy()).permute(2, 0, 1)) <= 1
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    expected = (cropped / 255 - mean) / std
    torch.testing.assert_close(
        normalise(pixels, how)[0].permute(1, 2, 0).double(),
        torch.from_numpy(expected),
        atol=0.02,
        rtol=0,
    )


def test_normalising_alone_is_exact(tmp_path):
    checkpoint = a_checkpoint(tmp_path, size={"shortest_edge": 32}, crop_size=32)
    frames = noise(2, 32, 32)
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
        ({"size": {"height": 48, "width": 48}}, "scales to 48x48 and then crops"),
        ({"size": {"longest_edge": 48}}, "shortest_edge"),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(tmp_path, changes, named):
    with pytest.raises(BackboneError, match=named):
        read_preprocessing(a_checkpoint(tmp_path, **changes))
