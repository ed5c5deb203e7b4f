"""Runs that are interrupted, share work, or run out of time or memory, and runs after them."""

import json
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import BackboneError, StoreError

# Interrupts and disks that fail come at an exact moment.
from obygaze_features.extraction.forward import Batch
from obygaze_features.manifests import Items, Manifest
from obygaze_features.store import StoreWriter
from tests.extraction.test_extraction_broken import decoders_of, linux
from tests.kit.films import rows
from tests.kit.models import with_clip

BLOCKS = "obygaze_features.store.format.BLOCKS"


@pytest.mark.parametrize("blocks", [3, 1])
def test_an_interrupted_run_resumes_to_the_same_store(
    manifest, films, tiny, whole_store, tmp_path, monkeypatch, blocks
):
    """The finished batches of a block and the running batch are kept.

    A block of 96 rows has the features of three blocks of 32, from the same batches.
    """
    monkeypatch.setattr(BLOCKS, blocks)
    calls: list[int] = []

    def interrupted(pixels, present, names):
        calls.append(len(pixels))
        if len(calls) == 8:  # the probe, the four batches of the first block, two, and this
            raise KeyboardInterrupt
        return tiny.clip.encode(pixels, present, names)

    with pytest.raises(KeyboardInterrupt):
        of.extract(manifest, films, with_clip(tiny, encode=interrupted), tmp_path, batch=8)
    store = tmp_path / "tiny.zarr"
    assert (of.open_store(store).status == 1).sum() == 48
    entry = json.loads((tmp_path / "log.jsonl").read_text())
    assert (entry["done"], entry["failed"]) == (48, {})
    assert of.extract(manifest, films, tiny, tmp_path, limit=56, batch=8).clips == 8
    monkeypatch.setattr(BLOCKS, 2)  # a store keeps its own blocks
    options = [{"batch": 8, "part": f"{n}/2"} for n in (1, 2)]
    clips = [of.extract(manifest, films, tiny, tmp_path, **option).clips for option in options]
    assert clips == ([6, 8] if blocks == 3 else [14, 0])
    assert len(list((store / "blocks").iterdir())) == blocks
    left = of.open_store(store)
    right = of.open_store(whole_store)
    for name in left.arrays:
        np.testing.assert_array_equal(left.read(name), right.read(name))  # equal batches
    assert of.verify(store) == []


def test_batches_do_not_span_groups_of_32_rows(films, tiny, tmp_path, monkeypatch):
    """A block may be larger. One clip of the first group has no file."""
    sizes: list[int] = []

    def embed(pixels, present, names):
        sizes.append(len(pixels))
        return tiny.clip.encode(pixels, present, names)

    monkeypatch.setattr(BLOCKS, 1)
    items = [*rows(40)]
    items[5] = replace(items[5], media="absent.mp4")
    manifest = Manifest("made-up", Items.of(items))
    assert of.extract(manifest, films, with_clip(tiny, encode=embed), tmp_path, batch=8).done == 39
    assert sizes == [1, 8, 8, 8, 7, 8]  # first the store's probe


def test_a_block_that_cannot_be_written_ends_the_run(manifest, films, tiny, tmp_path, monkeypatch):
    """The block after it is computed by then, and kept."""
    write_rows = StoreWriter.write_rows

    def fail(writer, outcomes):
        if 0 in outcomes:
            raise StoreError("the disk is full")
        return write_rows(writer, outcomes)

    monkeypatch.setattr(StoreWriter, "write_rows", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        of.extract(manifest, films, tiny, tmp_path)
    store = of.open_store(tmp_path / "tiny.zarr")
    assert store.status.nonzero()[0].tolist() == [*range(32, 64)]


@pytest.mark.parametrize(("times", "done"), [(1, 16), (9, 8)])
def test_an_interrupted_wait_keeps_its_batch(films, tiny, tmp_path, monkeypatch, times, done):
    """Earlier batches are kept even if the wait never ends."""
    waits: list[int] = []
    original = Batch.rows

    def wait(batch):
        waits.append(batch.count)
        if 3 <= len(waits) < 3 + times:  # the probe, the first batch, the second
            raise KeyboardInterrupt
        return original(batch)

    monkeypatch.setattr(Batch, "rows", wait)
    with pytest.raises(KeyboardInterrupt):
        of.extract(rows(24), films, tiny, tmp_path, batch=8)
    assert (of.open_store(tmp_path / "tiny.zarr").status == 1).sum() == done


def test_a_batch_that_does_not_fit_is_halved_until_it_does(films, tiny, whole_store, tmp_path):
    sizes: list[int] = []
    left: list[weakref.ref[torch.Tensor]] = []

    def small(pixels, present, names):
        assert [tensor for tensor in left if tensor() is not None] == []
        sizes.append(len(pixels))
        if len(pixels) > 3:
            activations = torch.zeros(len(pixels))
            left.extend([weakref.ref(activations), weakref.ref(pixels)])
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return tiny.clip.encode(pixels, present, names)

    summary = of.extract(rows(18), films, with_clip(tiny, encode=small), tmp_path, batch=8)
    assert (summary.done, summary.batches) == (18, {"tiny": 2})
    assert sizes == [1, 8, 4, *[2] * 9]  # first the store's probe
    values = of.open_store(tmp_path / "tiny.zarr").read("native")
    expected = of.open_store(whole_store).read("native", ids=rows(18).ids)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def test_an_item_that_does_not_fit_is_one_line(films, tiny, tmp_path):
    def fail(pixels, present, names):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(BackboneError, match="the probe of tiny does not fit on cpu") as caught:
        of.extract(rows(8), films, with_clip(tiny, encode=fail), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_nan_feature_is_a_failure(films, tiny, tmp_path):
    """70,000 fits a float32, but not a float16."""
    unfit = torch.tensor([torch.nan, torch.inf, 70_000.0])

    def spoiled(pixels, present, names):
        out = dict(tiny.clip.encode(pixels, present, names))
        out["frames"] = out["frames"].clone()
        if len(pixels) > 1:
            out["frames"][:3, 2, 3] = unfit
        return out

    summary = of.extract(rows(8), films, with_clip(tiny, encode=spoiled), tmp_path, batch=8)
    infinite = "frames has a value that cannot be stored as float16"
    assert summary.failed == {"not_finite": dict.fromkeys(rows(3).ids, infinite)}


@linux
@pytest.mark.night
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "Interrupted."),
        (signal.SIGTERM, 143, "Terminated."),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_a_signal_stops_the_run_and_its_decoders(films, weights, tmp_path, number, code, word):
    rows(2000).save(tmp_path / "manifest")
    command = [sys.executable, "-m", "obygaze_models.commands.main"]
    command += ["features", "extract", tmp_path / "manifest"]
    command += ["--videos", films, "-o", tmp_path, "--device", "cpu", "--workers", "1"]
    command += ["--backbone", f"tiny={weights}"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        # Background processes of a shell ignore Ctrl-C, and their children inherit this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not (tmp_path / "tiny.zarr/blocks/000000.json").exists() and process.poll() is None:
            time.sleep(0.01)
        decoders = decoders_of(process.pid)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=900)
    assert decoders
    assert process.returncode == code
    end = time.monotonic() + (300 if number == signal.SIGKILL else 0)
    while any(Path(f"/proc/{left}").exists() for left in decoders):
        assert time.monotonic() < end
        time.sleep(0.01)
    store = of.open_store(tmp_path / "tiny.zarr")
    assert 32 <= (store.status == 1).sum() < len(store)  # it did not go on
    if word:
        assert list(store.path.rglob("*.partial")) == []
        assert stderr.splitlines()[-1] == word
        assert "Traceback" not in stderr


def test_rows_that_another_run_lost_give_exit_code_3(command, library, monkeypatch):
    """As on a disk without locks."""
    write_rows = StoreWriter.write_rows

    def lose(writer, outcomes):
        write_rows(writer, outcomes)
        (writer.store.path / "blocks/000000.json").unlink()

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "write_rows", lose)
        assert "2 items still to do" in command("--limit", 2, code=3).stderr
    command(code=0)
