"""What lands in a store, against transformers' own way from the same pictures.

The frames are taken by number from all frames decoded in order; they are brought to the network's
size once, for resizing is held against the processors elsewhere, and differs by a level in 255.
From there on the processor and the model of transformers say what must be in the store.
"""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, VivitModel, XCLIPModel

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.extraction import extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import open_store
from tests.kit.models import write_checkpoint

NAMES = ("clip3", "clip5")
CLIPS = Manifest("clips", Items.of([Item(name, media=f"{name}.mp4") for name in NAMES]))


def pictures(path: Path, count: int) -> np.ndarray:
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack([frames[int(i * len(frames) / count)] for i in range(count)])


def of_xclip(model: XCLIPModel, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    batch, frames = pixels.shape[:2]
    out = model.get_video_features(pixels)
    vision = model.vision_model(pixels.flatten(0, 1))
    tokens = model.visual_projection(vision.pooler_output).view(batch, frames, -1)
    return {
        "native": out if isinstance(out, torch.Tensor) else out.pooler_output,
        "frames": tokens,
        "frames_temporal": model.mit(tokens).last_hidden_state,
        "max": tokens.amax(1),
        "mean": tokens.mean(1),
        "tokens": vision.last_hidden_state.flatten(0, 1)[None],
    }


def of_vivit(model: VivitModel, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    tokens = model(pixels).last_hidden_state
    moments = model.config.num_frames // model.config.tubelet_size[0]
    return {
        "native": tokens[:, 0],
        "cls": tokens[:, 0],
        "max": tokens.amax(1),
        "mean": tokens.mean(1),
        "frames": tokens[:, 1:].view(1, moments, -1, tokens.shape[-1]).mean(2),
        "tokens": tokens,
    }


@pytest.mark.parametrize(
    ("name", "model", "expected"),
    [("tiny-xclip", XCLIPModel, of_xclip), ("tiny-vivit", VivitModel, of_vivit)],
)
def test_a_store_holds_what_transformers_computes(films, tmp_path, name, model, expected):
    write_checkpoint(name, tmp_path / "weights")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "weights", backend="pil")
    more = {"add_pooling_layer": False} if model is VivitModel else {}
    network = model.from_pretrained(tmp_path / "weights", **more).eval()
    plain = load_backbone(f"{name}={tmp_path / 'weights'}", "cpu")
    arrays = [*(spec.name for spec in plain.arrays), "tokens"]
    backbone = load_backbone(f"{name}={tmp_path / 'weights'}", "cpu", arrays=arrays)
    extract(CLIPS, films, [backbone], tmp_path)
    store = open_store(tmp_path / f"{name}.zarr")
    for clip in NAMES:
        rgb = pictures(films / f"{clip}.mp4", backbone.sampling.frames)
        small = resize_and_crop(torch.from_numpy(rgb), backbone.preprocessing)
        images = list(small.permute(0, 2, 3, 1).numpy())
        inputs = processor(images, do_resize=False, do_center_crop=False, return_tensors="pt")
        pixels = inputs["pixel_values"].float()
        pixels = pixels if pixels.dim() == 5 else pixels[None]
        with torch.no_grad():
            reference = {key: value[0].numpy() for key, value in expected(network, pixels).items()}
        frames = normalise(small, backbone.preprocessing)[None]
        outputs = backbone.embed_clips(frames, torch.ones(frames.shape[:2], dtype=torch.bool))
        ours = {array: values[0].numpy() for array, values in outputs.items()}
        row = store[clip]
        assert set(reference) == set(arrays)
        for array, value in reference.items():
            np.testing.assert_allclose(ours[array], value, atol=1e-4, err_msg=array)
            # What is stored is that, rounded once.
            np.testing.assert_array_equal(row[array], ours[array].astype(row[array].dtype))


@pytest.mark.parametrize("name", ["tiny-vjepa2", "tiny-timesformer", "tiny-dinov2", "tiny-dinov3"])
def test_a_clip_of_fewer_frames_repeats_them(films, tmp_path, name):
    """clip0 has five frames, and each of these backbones takes more."""
    backbone = load_backbone(str(write_checkpoint(name, tmp_path / name)), "cpu")
    extract(
        Manifest("short", Items.of([Item("a", media="clip0.mp4")])), films, [backbone], tmp_path
    )
    store = open_store(tmp_path / f"{name}.zarr")
    count, how = backbone.sampling.frames, backbone.preprocessing
    assert store.read("frame_index")[0].tolist() == [i * 5 // count for i in range(count)]
    frames = torch.from_numpy(pictures(films / "clip0.mp4", count))
    pixels = normalise(resize_and_crop(frames, how), how)[None]
    expected = backbone.embed_clips(pixels, torch.ones(1, count, dtype=torch.bool))
    for spec in backbone.arrays:
        values = store.read(spec.name)[0]
        np.testing.assert_allclose(values, expected[spec.name][0], atol=2e-3, err_msg=spec.name)
