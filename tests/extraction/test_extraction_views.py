"""From a decoder's answers to batches: shared views, repeated answers, and memory."""

from dataclasses import replace

import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.extraction.decoder import Decoder
from obygaze_features.extraction.reader import ItemReader
from obygaze_features.store import format as store_format
from tests.kit.decoding import decode_frames
from tests.kit.films import rows


@pytest.fixture
def decoder():
    process = Decoder(stall_timeout=60)
    yield process
    process.discard()


def test_backbones_that_differ_only_in_scaling_share_a_view(films, tiny, decoder):
    rule = tiny.clip.preprocessing

    def changed(name, steps):
        return replace(tiny, name=name, clip=replace(tiny.clip, preprocessing=steps))

    backbones = [
        replace(tiny, name="first"),
        changed("scaled", replace(rule, mean=(0.0, 0.0, 0.0))),
        changed("sharper", replace(rule, filter="bicubic")),
    ]
    item = next(iter(rows(6)))
    names = [backbone.name for backbone in backbones]
    read = ItemReader(films, backbones).read(decoder, item, names)
    assert read.inputs["first"] is read.inputs["scaled"]
    frames = decode_frames(films / item.media, range(5)).rgb
    numbers = read.sampled["first"]["frame_index"]
    assert read.frames == len(set(numbers.tolist()))
    for backbone in backbones:
        expected = resize_and_crop(torch.from_numpy(frames[numbers]), backbone.clip.preprocessing)
        assert torch.equal(read.inputs[backbone.name], expected)


@pytest.mark.night
def test_blocks_with_tokens_are_small(films, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(store_format, "BLOCKS", 1)
    for name, arrays, size in (("plain", ["native"], 64), ("all", ["native", "tokens"], 32)):
        options = {"device": "cpu", "arrays": arrays, "limit": 1}
        extracted = of.extract(rows(40), films, f"tiny={weights}", tmp_path / name, **options)
        (store,) = extracted.stores
        assert of.open_store(store).block_rows == size
