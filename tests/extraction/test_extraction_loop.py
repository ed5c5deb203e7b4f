"""The loop of an extraction keeps its decoders or its device busy."""

import heapq
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import obygaze_features as of

# Decoding and a device are simulated, because their real times differ between machines.
from obygaze_features.extraction.forward import Batch, Forward
from tests.kit.films import rows
from tests.kit.models import with_clip

WORKERS = 15
BATCH = 8
READ = "obygaze_features.extraction.reader.ItemReader.read"


class Running(Batch):
    def rows(self):
        time.sleep(max(0.0, self.end - time.monotonic()))
        return Batch(self.count, self.arrays, None).rows()


def decoding_s(lengths):
    """Return the seconds for workers that take the next clip as soon as they are free."""
    free = [0.0] * WORKERS
    for seconds in lengths:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


@pytest.mark.night  # other work on the machine makes it late
@pytest.mark.parametrize(("clip_s", "batch_s"), [(0.14, 0.002), (0.04, 0.2)])
def test_clips_of_unequal_length_waste_no_time(films, tiny, tmp_path, monkeypatch, clip_s, batch_s):
    """As in films, some spans take ten times as long to decode as others."""
    manifest = rows(160)
    lengths = clip_s * np.random.default_rng(3).lognormal(0, 1, len(manifest))
    lengths[:WORKERS] = clip_s  # nothing can be hidden behind the wait for the first batch
    seconds = dict(zip(manifest.ids, lengths.tolist(), strict=True))
    inputs = {"tiny": torch.zeros(8, 3, 32, 32, dtype=torch.uint8)}
    sampled = {"tiny": tiny.clip.sampling.row([0] * 8, [0.0] * 8)}
    arrays = {spec.name: torch.zeros(BATCH, *spec.shape) for spec in tiny.arrays}
    empty = {"kind": "clip", "source": None, "failures": {}, "notes": set(), "frames": 8}

    def read(reader, decoder, item, names):
        time.sleep(seconds[item.id])
        return SimpleNamespace(**empty, inputs=dict(inputs), sampled=sampled)

    ends = [0.0]  # as a GPU, which computes batches in order while the loop goes on

    def encode(pixels, present, names):
        time.sleep(batch_s / 2)  # to upload and launch it, while the one before is computed
        ends.append(max(time.monotonic(), ends[-1]) + batch_s)
        return {name: values[: len(pixels)] for name, values in arrays.items()}

    def start(forward, kind, inputs):
        batch = started(forward, kind, inputs)
        return Running(batch.count, batch.arrays, ends[-1])

    started = Forward.start
    monkeypatch.setattr(Forward, "start", start)
    monkeypatch.setattr(READ, read)
    fake = with_clip(tiny, encode=encode)
    least = max(decoding_s(lengths), batch_s * len(manifest) / BATCH)

    def share(output):
        summary = of.extract(manifest, films, fake, output, workers=WORKERS, batch=BATCH)
        waited = sum(summary.shares[part] for part in ("decode", "device", "write"))
        return least / (waited * summary.seconds)

    # Other processes may delay a run, but none makes it faster.
    assert any(share(tmp_path / name) > 0.95 for name in "abc")
