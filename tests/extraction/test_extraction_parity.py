"""What is put into a store: which frames, and what the network makes of these.

Frames are taken by number from all frames decoded in order; the network and its preprocessing are
compared with those of transformers elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones.preprocess import normalise, resize_and_crop
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import verify
from tests.kit.films import clips, everything, store_files, write_clip
from tests.kit.models import write_checkpoint


@pytest.mark.parametrize(
    "name",
    [
        "tiny-xclip",
        pytest.param("tiny-vivit", marks=pytest.mark.gate),
        *(pytest.param(f"tiny-{name}", marks=pytest.mark.night) for name in (
            "vjepa2", "timesformer", "dinov2", "dinov3")),
    ],
)  # fmt: skip
def test_a_store_holds_what_its_frames_give(films, tmp_path, name):
    """clip0 has five frames, and each of these backbones takes more."""
    weights = write_checkpoint(name, tmp_path / name)
    names = [spec.name for spec in of.load_backbone(weights, "cpu").arrays]
    backbone = of.load_backbone(weights, "cpu", arrays=[*names, "tokens"])
    of.extract(clips("clip0.mp4", "clip5.mp4"), films, backbone, tmp_path)
    store = of.open_store(tmp_path / f"{name}.zarr")
    count, how = backbone.sampling.frames, backbone.preprocessing
    for clip in ("clip0", "clip5"):
        oracle, row = everything(films / f"{clip}.mp4"), store[clip]
        numbers = [int(i * len(oracle) / count) for i in range(count)]
        assert row["frame_index"].tolist() == numbers
        np.testing.assert_allclose(row["frame_time"], np.array(numbers) / 24, atol=1e-3)
        frames = torch.from_numpy(oracle[numbers])
        pixels = normalise(resize_and_crop(frames, how), how)[None]
        expected = backbone.embed_clips(pixels, torch.ones(1, count, dtype=torch.bool))
        for array, values in expected.items():
            np.testing.assert_allclose(row[array], values[0], atol=2e-3, err_msg=array)


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
