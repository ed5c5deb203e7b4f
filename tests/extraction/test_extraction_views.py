"""From a decoder's answers to batches: shared views, repeated answers, and memory."""

from dataclasses import replace

import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.extraction import reader as reading
from obygaze_features.extraction.decoder import Decoder
from obygaze_features.extraction.reader import ItemReader
from obygaze_features.store import format as store_format
from tests.kit.decoding import decode_frames
from tests.kit.films import rows
from tests.kit.models import with_clip


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


@pytest.mark.parametrize("cut", [1, pytest.param(3, marks=pytest.mark.night)])
def test_a_clip_whose_decoder_dies_is_read_once(films, tiny, decoder, monkeypatch, cut):
    """The answers before the death come again, and may be of a file that has changed."""
    item = list(rows(6))[5]
    once = ItemReader(films, [tiny]).read(decoder, item, ["tiny"])
    whole = []
    for answer in reading.ask_decoder(
        decoder, "decode", ItemReader(films, [tiny])._folders["clip"], item, [tiny.clip.sampling]
    ):
        pictures = decoder.pictures(answer["shape"]).copy() if "frames" in answer else None
        whole.append((answer, pictures))

    def answers(*_):
        for answer, pictures in [*whole[:cut], (whole[0][0], None), *whole[1:]]:
            monkeypatch.setattr(decoder, "pictures", lambda shape, now=pictures: now)
            yield dict(answer)

    monkeypatch.setattr(reading, "ask_decoder", answers)
    again = ItemReader(films, [tiny]).read(decoder, item, ["tiny"])
    assert torch.equal(again.inputs["tiny"], once.inputs["tiny"])
    assert (again.frames, again.notes, again.source) == (once.frames, once.notes, once.source)


@pytest.mark.night
def test_a_batch_waits_for_the_running_one_before_it_is_halved(films, tiny, tmp_path):
    def compute(pixels, present, names):
        sizes.append(len(pixels))
        if len(sizes) == 3:  # the probe, the first batch, the second
            raise torch.OutOfMemoryError("CUDA out of memory")
        return tiny.clip.encode(pixels, present, names)

    sizes: list[int] = []
    summary = of.extract(rows(24), films, with_clip(tiny, encode=compute), tmp_path, batch=8)
    assert (summary.done, summary.batches) == (24, {"tiny": 8})
    assert sizes == [1, 8, 8, 8, 8]


@pytest.mark.night
def test_blocks_with_tokens_are_small(films, weights, tmp_path, monkeypatch):
    monkeypatch.setattr(store_format, "BLOCKS", 1)
    for name, arrays, size in (("plain", ["native"], 64), ("all", ["native", "tokens"], 32)):
        options = {"device": "cpu", "arrays": arrays, "limit": 1}
        extracted = of.extract(rows(40), films, f"tiny={weights}", tmp_path / name, **options)
        (store,) = extracted.stores
        assert of.open_store(store).block_rows == size
