"""The device: batches that do not fit, numbers that are none, and time that runs out."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.devices import (
    limit_gpu_memory,
    limit_gpu_share,
)
from obygaze_features.errors import BackboneError, ObygazeError, UsageError
from obygaze_features.extraction import extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import open_store, verify

MANIFEST = Manifest(
    "clips", Items.of([Item(f"clip-{row:02}", media=f"clip{row % 6}.mp4") for row in range(40)])
)


@pytest.mark.gate
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["cuda", "mps", "cpu"],
)
def test_a_batch_that_does_not_fit_is_halved_until_it_does(films, tiny, tmp_path, error):
    sizes = []

    def small(pixels, present, names):
        sizes.append(len(pixels))
        if len(pixels) > 3:
            raise error
        return tiny.embed_clips(pixels, present)

    summary = extract(MANIFEST, films, [replace(tiny, encode_clips=small)], tmp_path)
    assert summary.done == 40
    assert summary.batches == {"tiny": 2}
    assert sizes[:4] == [1, 8, 4, 2]  # first the store's probe
    assert set(sizes[4:]) == {2}
    extract(MANIFEST, films, [tiny], tmp_path / "large")
    small_store, large = (
        open_store(tmp_path / "tiny.zarr"),
        open_store(tmp_path / "large/tiny.zarr"),
    )
    np.testing.assert_allclose(
        small_store.read("native", missing="nan"),
        large.read("native", missing="nan"),
        rtol=1e-4,
        atol=1e-5,
    )


def test_one_clip_that_does_not_fit_ends_the_run_with_what_to_do(films, tiny, tmp_path):
    def never(pixels, present, names):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(
        BackboneError, match=r"one clip does not fit on cpu \(backbone tiny\); try --precision"
    ):
        extract(MANIFEST, films, [replace(tiny, encode_clips=never)], tmp_path)


def test_other_errors_are_not_taken_for_out_of_memory(films, tiny, tmp_path):
    def broken(pixels, present, names):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        extract(MANIFEST, films, [replace(tiny, encode_clips=broken)], tmp_path)


@pytest.mark.gate
def test_an_error_that_a_gpu_reports_late_says_how_to_find_it(films, tiny, tmp_path, monkeypatch):
    def broken(pixels, present, names):
        if len(pixels) > 1:  # not the store's probe
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile ...")
        return tiny.embed_clips(pixels, present)

    run = partial(extract, MANIFEST, films, [replace(tiny, encode_clips=broken)], tmp_path)
    with pytest.raises(BackboneError, match="CUDA_LAUNCH_BLOCKING=1") as caught:
        run()
    assert "(CUDA error: an illegal memory access was encountered)" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(RuntimeError, match=r"^CUDA error"):
        run()


@pytest.mark.gate
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 70000.0])
def test_a_feature_that_is_no_number_or_too_large_is_a_failure(films, tiny, tmp_path, value):
    """70,000 is a float32, and more than a float16 can hold."""

    def spoiled(pixels, present, names):
        out = {name: values.clone() for name, values in tiny.embed_clips(pixels, present).items()}
        out["frames"][0, 2, 3] = value  # of the first clip of each batch
        return out

    summary = extract(MANIFEST, films, [replace(tiny, encode_clips=spoiled)], tmp_path)
    assert list(summary.failed) == ["not_finite"]
    assert list(summary.failed["not_finite"]) == [f"clip-{row:02}" for row in range(0, 40, 8)]
    reason = "a value that float16 cannot hold" if value == 70000 else "NaN or infinity"
    assert summary.failed["not_finite"]["clip-00"] == f"frames has {reason}"
    assert np.isnan(open_store(tmp_path / "tiny.zarr").read("native", missing="nan")[0]).all()


@pytest.mark.gate
def test_when_the_time_is_up_what_is_done_is_kept(films, tiny, tmp_path):
    """Part of a block, too: the rest of its rows stay to do."""
    computed = []

    def slowly(pixels, present, names):
        computed.append(len(pixels))
        if len(computed) == 21:  # the store's probe, and twenty clips
            time.sleep(4)
        return tiny.embed_clips(pixels, present)

    slow = replace(tiny, encode_clips=slowly)
    summary = extract(MANIFEST, films, [slow], tmp_path, batch=1, max_hours=3.5 / 3600)
    assert summary.ended == "time"
    assert (summary.done, summary.left) == (20, 20)
    assert verify(tmp_path / "tiny.zarr") == []
    rest = extract(MANIFEST, films, [tiny], tmp_path)
    assert (rest.clips, rest.done, rest.left, rest.ended) == (20, 40, 0, "done")


def test_a_block_that_cannot_be_done_in_time_is_not_begun(films, tiny, tmp_path):
    summary = extract(MANIFEST, films, [tiny], tmp_path, max_hours=1e-9)
    assert (summary.done, summary.left, summary.ended) == (0, 40, "time")
    assert extract(MANIFEST, films, [tiny], tmp_path).done == 40


def test_enough_time_is_no_reason_to_stop(films, tiny, tmp_path):
    assert extract(MANIFEST, films, [tiny], tmp_path, max_hours=1).ended == "done"


def test_a_run_is_logged_beside_the_stores(films, tiny, tmp_path):
    second = replace(tiny, name="other")
    summary = extract(MANIFEST, films, [tiny, second], tmp_path, limit=10)
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry["event"] == "extracted"
    assert entry["devices"] == {"tiny": "cpu", "other": "cpu"}
    assert (entry["clips"], entry["frames"]) == (10, summary.frames)
    assert entry["bytes"]["tiny"] == 10 * sum(
        s.row_bytes for s in open_store(summary.stores[0]).specs
    )


@pytest.mark.parametrize("size", ["20", "x GB", "GB"])
def test_a_limit_that_is_no_size_is_refused(size):
    with pytest.raises(UsageError, match="such as 20GB"):
        limit_gpu_memory("cuda", size)


def test_a_limit_is_for_gpus():
    with pytest.raises(UsageError, match="needs a CUDA device"):
        limit_gpu_memory("cpu", "20GB")


@pytest.fixture
def gpu(monkeypatch) -> dict[int, float]:
    """What PyTorch's own functions would tell a driver: which share, by the number of a GPU."""
    shares: dict[int, float] = {}
    monkeypatch.setattr(
        torch._C,
        "_cuda_setMemoryFraction",
        lambda share, number: shares.update({number: share}),
        raising=False,
    )
    monkeypatch.setattr(torch.cuda.memory, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    properties = SimpleNamespace(total_memory=8 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return shares


@pytest.mark.parametrize(("device", "number"), [("cuda", 3), ("cuda:1", 1)])
def test_a_limit_holds_for_a_gpu_without_a_number_too(gpu, device, number):
    limit_gpu_memory(device, "2GB")
    assert gpu == {number: 0.25}
    limit_gpu_share(device, 0.5)
    assert gpu == {number: 0.5}


def test_a_limit_holds_for_every_gpu_of_a_run(gpu, films, tiny, tmp_path):
    gpus = [replace(tiny, device="cuda:0"), replace(tiny, name="second", device="cuda:1")]
    (tmp_path / "tiny.zarr").write_text("no store: the run ends before it computes")
    with pytest.raises(ObygazeError):
        extract(MANIFEST, films, gpus, tmp_path, max_gpu_memory="2GB")
    assert gpu == {0: 0.25, 1: 0.25}


def test_a_run_that_fails_is_logged_too(films, tiny, tmp_path):
    calls = []

    def breaks(pixels, present, names):
        calls.append(len(pixels))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return tiny.embed_clips(pixels, present)

    with pytest.raises(KeyboardInterrupt):
        extract(MANIFEST, films, [replace(tiny, encode_clips=breaks)], tmp_path)
    entry = json.loads((tmp_path / "log.jsonl").read_text())
    assert (entry["ended"], entry["done"], entry["left"]) == ("KeyboardInterrupt", 32, 8)


def test_features_that_lack_a_frame_are_a_failure_and_no_padding(films, tmp_path):
    lsmdc = load_backbone("tiny-xclip-lsmdc", "cpu", arrays=["frames"])

    def spoiled(pixels, present, names):
        frames = lsmdc.embed_clips(pixels, present)["frames"].clone()
        if len(frames) > 1:  # not the probe
            frames[0, 1] = float("nan")  # the second of the two frames that there are
        return {"frames": frames}

    clips = Manifest("two", Items.of([Item(f"clip{n}", media=f"clip{n}.mp4") for n in (4, 5)]))
    summary = extract(clips, films, [replace(lsmdc, encode_clips=spoiled)], tmp_path)
    assert summary.failed == {"not_finite": {"clip4": "some of its frames have no features"}}
