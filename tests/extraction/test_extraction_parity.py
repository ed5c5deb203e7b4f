"""What is put into a store: which frames, and transformers' own numbers for these.

Frames are taken by number from all frames decoded in order, and brought to the network's size once:
resizing is compared with the processors elsewhere, and differs by a level in 255. From there on the
processor and the model of transformers say what must be in the store.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoImageProcessor, VivitModel, XCLIPModel

import obygaze_features as of
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import diff, finalise, verify
from tests.kit.films import clips, everything, store_files, write_clip
from tests.kit.models import write_checkpoint


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
    [
        ("tiny-xclip", XCLIPModel, of_xclip),
        pytest.param("tiny-vivit", VivitModel, of_vivit, marks=pytest.mark.gate),
    ],
)
def test_a_store_holds_what_transformers_computes(films, tmp_path, name, model, expected):
    folder = write_checkpoint(name, tmp_path / "weights")
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    more = {"add_pooling_layer": False} if model is VivitModel else {}
    network = model.from_pretrained(folder, **more).eval()
    plain = of.load_backbone(f"{name}={folder}", "cpu")
    arrays = [*(spec.name for spec in plain.arrays), "tokens"]
    backbone = of.load_backbone(f"{name}={folder}", "cpu", arrays=arrays)
    of.extract(clips("clip3.mp4", "clip5.mp4"), films, backbone, tmp_path)
    store, count = of.open_store(tmp_path / f"{name}.zarr"), backbone.sampling.frames
    for clip in ("clip3", "clip5"):
        oracle, row = everything(films / f"{clip}.mp4"), store[clip]
        numbers = [int(i * len(oracle) / count) for i in range(count)]
        assert row["frame_index"].tolist() == numbers
        np.testing.assert_allclose(row["frame_time"], np.array(numbers) / 24, atol=1e-3)
        small = resize_and_crop(torch.from_numpy(oracle[numbers]), backbone.preprocessing)
        images = list(small.permute(0, 2, 3, 1).numpy())
        inputs = processor(images, do_resize=False, do_center_crop=False, return_tensors="pt")
        pixels = inputs["pixel_values"].float()
        with torch.no_grad():
            reference = expected(network, pixels if pixels.dim() == 5 else pixels[None])
        frames = normalise(small, backbone.preprocessing)[None]
        ours = backbone.embed_clips(frames, torch.ones(frames.shape[:2], dtype=torch.bool))
        assert set(reference) == set(arrays)
        for array, value in reference.items():
            np.testing.assert_allclose(ours[array][0], value[0], atol=1e-4, err_msg=array)
            # What is stored is that, rounded once.
            rounded = ours[array][0].numpy().astype(row[array].dtype)
            np.testing.assert_array_equal(row[array], rounded)


@pytest.mark.night
@pytest.mark.parametrize("name", ["tiny-vjepa2", "tiny-timesformer", "tiny-dinov2", "tiny-dinov3"])
def test_a_clip_of_fewer_frames_repeats_them(films, tmp_path, name):
    """clip0 has five frames, and each of these backbones takes more."""
    backbone = of.load_backbone(write_checkpoint(name, tmp_path / name), "cpu")
    of.extract(clips("clip0.mp4"), films, backbone, tmp_path)
    store = of.open_store(tmp_path / f"{name}.zarr")
    count, how = backbone.sampling.frames, backbone.preprocessing
    numbers = [i * 5 // count for i in range(count)]
    assert store.read("frame_index")[0].tolist() == numbers
    frames = torch.from_numpy(everything(films / "clip0.mp4")[numbers])
    pixels = normalise(resize_and_crop(frames, how), how)[None]
    expected = backbone.embed_clips(pixels, torch.ones(1, count, dtype=torch.bool))
    for spec in backbone.arrays:
        values = store.read(spec.name)[0]
        np.testing.assert_allclose(values, expected[spec.name][0], atol=2e-3, err_msg=spec.name)


def test_frames_after_the_end_are_no_numbers(films, tmp_path):
    """Looked at once a second, a clip of 1.7 s has two frames; the other ten are no numbers."""
    lsmdc = of.load_backbone("tiny-xclip-lsmdc", "cpu")
    of.extract(clips("clip5.mp4"), films, lsmdc, tmp_path)
    store = of.open_store(tmp_path / "tiny-xclip-lsmdc.zarr")
    row = store["clip5"]
    assert row["frame_index"].tolist() == [0, 24] + [-1] * 10
    for name in ("frame_time", "frames", "frames_temporal"):
        there = np.isfinite(row[name]).reshape(12, -1)
        assert there.all(1).tolist() == there.any(1).tolist() == [True] * 2 + [False] * 10
    assert np.isfinite(row["native"]).all()
    np.testing.assert_allclose(row["max"], row["frames"][:2].max(axis=0), atol=1e-3)
    assert verify(store.path) == []
    shutil.copytree(store.path, tmp_path / "open.zarr")
    finalise(store.path, compress=True)
    difference = diff(of.open_store(tmp_path / "open.zarr"), of.open_store(store.path))
    assert {(each.equal, each.least) for each in difference.rows.values()} == {(1, 1.0)}
    np.testing.assert_array_equal(of.open_store(store.path)["clip5"]["frames"], row["frames"])
    assert verify(store.path) == []

    def spoiled(pixels, present, names):
        arrays = {name: values.clone() for name, values in embed(pixels, present).items()}
        if len(pixels) > 1:  # not the probe
            arrays["frames"][0, 1] = float("nan")  # the second of the two frames that there are
        return arrays

    embed = lsmdc.embed_clips
    two = clips("clip4.mp4", "clip5.mp4")
    lacking = replace(lsmdc, encode_clips=spoiled)
    summary = of.extract(two, films, lacking, tmp_path / "lacking")
    assert summary.failed == {"not_finite": {"clip4": "some of its frames have no features"}}


def test_spans_of_a_film_are_read_by_their_numbers(tiny, tmp_path):
    """The frames are those that the same span cut out would give."""
    write_clip(tmp_path / "film.mkv", "S", seconds=10)
    spans = [(0.0, 2.0), (3.5, 4.0), (9.0, 10.9), (12.0, 13.0)]
    items = [
        Item(f"span-{row}", media="film.mkv", start=start, end=end)
        for row, (start, end) in enumerate(spans)
    ]
    of.extract(Manifest("spans", Items.of(items)), tmp_path, tiny, tmp_path / "s")
    store = of.open_store(tmp_path / "s/tiny.zarr")
    assert store.status.tolist() == [1, 1, 1, 3]
    assert "12 s to 13 s" in store.failures["span-3"]
    for item in items[:3]:
        first, last = round(item.start * 24), min(240, round(item.end * 24))
        numbers = [first + int(i * (last - first) / 8) for i in range(8)]
        assert store[item.id]["frame_index"].tolist() == numbers
        np.testing.assert_allclose(store[item.id]["frame_time"], np.array(numbers) / 24, atol=2e-3)


def test_several_backbones_share_one_decoding(films, tiny, whole_store, tmp_path):
    """Two that look at the same frames cost no more decoding than one."""
    second = replace(tiny, name="other")
    half = replace(tiny, name="half", sampling=Sampling(4), encode_clips=lambda *_: {}, arrays=())
    items = clips("clip1.mp4", "clip2.mp4")
    summary = of.extract(items, films, [tiny, second, half], tmp_path)
    assert summary.frames == 8 + 8
    first, other = (store_files(tmp_path / f"{name}.zarr") for name in ("tiny", "other"))
    shards = {name for name in first if "/c/" in name}
    assert {name: first[name] for name in shards} == {name: other[name] for name in shards}
    alone = of.open_store(whole_store).read("frames", ["clip-01", "clip-02"])
    np.testing.assert_allclose(of.open_store(summary.stores[1]).read("frames"), alone, atol=2e-3)
    halves = of.open_store(tmp_path / "half.zarr")["clip2"]["frame_index"]
    assert halves.tolist() == [int(i * 19 / 4) for i in range(4)]
