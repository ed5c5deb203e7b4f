"""Other loads of a device: sound, long clips at a rate, and two runs at the same time."""

from __future__ import annotations

import tempfile
import time
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_device import LIMITS, SOUND_WINDOWS, Bench, beside, make_input
from benchmarks.gpu_passes import WORKERS
from benchmarks.result import Result
from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import limit_gpu_share
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.extraction import Summary, extract
from obygaze_features.extraction.forward import CLIPS_PER_BATCH
from obygaze_features.manifests import Item, Items, Manifest

EXTRACTORS = 4
"""The number of threads that make spectrograms at once."""


def sound(bench: Bench) -> Iterator[Result]:
    """Measure networks for sound, in windows per second: extractor, forward and whole passes."""
    for name in bench.parts([f"{bench.size}-clap", f"{bench.size}-ast"]):
        backbone = bench.backbone(name)
        alone, several = (_extractor_rate(backbone, threads) for threads in (1, EXTRACTORS))
        label = f"{name}: windows a second by the extractor, {EXTRACTORS} threads (one)"
        yield beside(label, several, "1/s", alone)
        windows, present = make_input(backbone, CLIPS_PER_BATCH)
        batch, count = (windows.to(bench.device), present), CLIPS_PER_BATCH * SOUND_WINDOWS
        rates = {}
        for precision in LIMITS:
            forward = backbone.with_changes(precision=precision).embed_clips
            rates[precision] = count / bench.seconds(partial(forward, *batch))
            label = f"{name}, {precision}: windows a second by the network (extractor, one thread)"
            yield beside(label, rates[precision], "1/s", alone)
            begun = bench.wall_seconds(partial(forward, *batch), wait=False)
            label = f"{name}, {precision}: to enqueue {CLIPS_PER_BATCH} clips (forward)"
            yield beside(label, 1e3 * begun, "ms", 1e3 * count / rates[precision])
        clips = 2 * CLIPS_PER_BATCH if bench.small else 64
        manifest, folder = _recordings(bench, backbone, clips)
        summary = _extract(bench, manifest, folder, backbone)
        seconds = summary.seconds * (1 - summary.shares["start"])
        rate = clips * SOUND_WINDOWS / seconds
        yield beside(f"{name}: windows a second of a pass (network)", rate, "1/s", rates["float32"])
        label = f"{name}: the extractor's share of a pass, if one thread did it (all)"
        yield beside(label, clips * SOUND_WINDOWS / alone / seconds, "", 1)


def long(bench: Bench) -> Iterator[Result]:
    """Measure clips at a rate, with many frames."""
    rate, clips = ("12 fps", 2) if bench.small else ("2 fps", 16)
    frames = round(float(rate.split()[0]) * bench.films["long"].seconds)
    manifest, folder = bench.clips("long", clips)
    for limit in bench.parts(["all", "2GB"] if bench.is_gpu else ["all"]):
        label = f"clips of {frames} frames, {limit} of the memory"
        backbone, options = bench.backbone(f"{bench.size}-clip"), {}
        if bench.is_gpu:
            torch.cuda.reset_peak_memory_stats(bench.device)
            options = {} if limit == "all" else {"max_gpu_memory": limit}
        try:
            summary = _extract(
                bench, manifest, folder, backbone, sampling=rate, frames=3600, **options
            )
        finally:
            if bench.is_gpu:
                limit_gpu_share(bench.device, 1.0)
        done = summary.done
        yield Result(f"{label}: done (all)", done, "", clips, clips / max(done, 0.1), 1)
        speed = summary.frames_a_second
        yield beside(f"{label}: frames a second (clips)", speed, "1/s", summary.clips_a_second)
        if bench.is_gpu:
            peak = torch.cuda.max_memory_allocated(bench.device) / 2**30
            yield beside(f"{label}: peak of the memory (GPU's)", peak, "GiB", _memory(bench))


def _memory(bench: Bench) -> float:
    return float(torch.cuda.get_device_properties(bench.device).total_memory) / 2**30


def together(bench: Bench) -> Iterator[Result]:
    """Measure two runs on one device at the same time, each with half of the decoders."""
    workers = 2 if bench.small else WORKERS[0]
    for precision in bench.parts(["bfloat16", "float32"]):
        with bench.processes(1) as pool:
            one = pool.submit(_pass, bench, precision, workers).result()
        with bench.processes(2) as pool:
            runs = [pool.submit(_pass, bench, precision, workers // 2) for _ in range(2)]
            both = sum(run.result() for run in runs)
        yield beside(
            f"two runs in {precision}: clips a second together (one run)", both, "1/s", one
        )


def _pass(bench: Bench, precision: str, workers: int) -> float:
    """Return clips per second of a separate process, without its startup."""
    backbone = bench.backbone(bench.three[0], precision=precision)
    manifest, folder = bench.clips("shots", CLIPS_PER_BATCH if bench.small else 480)
    summary = _extract(bench, manifest, folder, backbone, workers=workers)
    return summary.clips / (summary.seconds * (1 - summary.shares["start"]))


def _extract(
    bench: Bench, manifest: Manifest, folder: Path, backbone: Backbone, **options: Any
) -> Summary:
    options = {"workers": 2 if bench.small else WORKERS[0], "device": bench.device, **options}
    with tempfile.TemporaryDirectory(dir=bench.folder) as output:
        return extract(manifest, folder, backbone, output, **options)


def _extractor_rate(backbone: Backbone, threads: int) -> float:
    """Return the windows per second that are converted to network input on the CPU."""
    sampling = backbone.sampling
    assert isinstance(sampling, SoundSampling)
    noise = np.random.default_rng(0).normal(0, 0.1, round(sampling.window * sampling.rate))
    repeats = SOUND_WINDOWS * threads
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        sounds = [noise.astype(np.float32)] * repeats
        list(pool.map(backbone.preprocessing.inputs, sounds))
    return repeats / (time.perf_counter() - begin)


def _recordings(bench: Bench, backbone: Backbone, count: int) -> tuple[Manifest, Path]:
    """Return clips of noise with a few windows each; several are the same file."""
    folder, sampling = bench.folder / "recordings" / backbone.name, backbone.sampling
    assert isinstance(sampling, SoundSampling)
    folder.mkdir(parents=True, exist_ok=True)
    samples = round(SOUND_WINDOWS * sampling.window * sampling.rate)
    files = 2 if bench.small else 8
    for number in range(files):
        noise = np.random.default_rng(number).normal(0, 3000, samples).clip(-32768, 32767)
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, sampling.rate, 0, "NONE", "not compressed"))
            file.writeframes(noise.astype("<i2").tobytes())
    items = [Item(f"clip-{row:04}", media=f"{row % files}.wav") for row in range(count)]
    return Manifest("recordings", Items.of(items)), folder
