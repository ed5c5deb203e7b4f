"""Whole passes on a device: utilisation, reproducible bits, limited memory, and NVDEC."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from av.codec.hwaccel import HWAccel
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.gpu_device import LIMITS, Bench, beside, cosine_error, limited, make_input, none_of
from benchmarks.result import Result
from obygaze_features.backbones import Backbone
from obygaze_features.backbones.devices import free_memory, limit_gpu_share
from obygaze_features.common.text import first_line
from obygaze_features.errors import BackboneError
from obygaze_features.extraction import extract
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.forward import CLIPS_PER_BATCH
from obygaze_features.extraction.reader import ask_decoder
from obygaze_features.extraction.summary import Summary
from obygaze_features.items.media import MediaFolder
from obygaze_features.manifests import Item
from obygaze_features.store import Store, open_store

BUSY = {"float32": 0.90, "bfloat16": 0.85}
"""The minimum share of a pass that forward passes take (float32) or the device is busy (bfloat16).

The shares are targets only if decoding alone is faster than the forward passes alone."""
WORKERS = (15, 8, 4)
CLIPS_PER_WORKER = {
    ("scenes", "float32"): 12,
    ("scenes", "bfloat16"): 12,
    ("shots", "float32"): 16,
    ("shots", "bfloat16"): 64,
}
REPEAT = 16
"""The distance between clips of the same file. They have the same place in their batches."""
MEMORY_LIMITS = {"4GB": True, "2GB": True, "1200MB": False}
"""True if three backbones in float32 must fit. If False, a clear one-line error is enough."""
HELD_MIB = 256
"""The memory that libraries may keep after a run. The networks take four times as much."""
NVML_STEP_S = 0.05


def passes(bench: Bench) -> Iterator[Result]:
    """Measure how busy 1, 2 and 3 backbones keep the device, most informative settings first."""
    loaded = [bench.backbone(name) for name in bench.three]
    decoding_rate = cache(partial(_decoding_rate, bench, loaded))
    seconds_alone = cache(partial(_forward_seconds, bench, loaded))
    settings = {
        f"{kind}, {count} in {precision}, {workers} workers": (kind, count, precision, workers)
        for kind, count, precision, workers in _settings(bench)
    }
    for label in bench.parts(settings):
        kind, count, precision, workers = settings[label]
        clock, clips = _ForwardClock(bench), _clip_count(bench, kind, precision, workers)
        backbones = [
            clock.watch(backbone.with_changes(precision=precision)) for backbone in loaded[:count]
        ]
        with tempfile.TemporaryDirectory(dir=bench.folder) as output, _utilisation(bench) as busy:
            summary = _extract(bench, kind, clips, backbones, Path(output), workers=workers)
        rate, rate_alone = decoding_rate(kind, count, workers), 1 / seconds_alone(count, precision)
        decoding_allows = rate > rate_alone and not bench.small
        forward, span, starts = clock.seconds()
        speed = (clips - CLIPS_PER_BATCH) / starts  # the first batch was decoded before
        yield beside(f"{label}: clips a second (decoding alone)", speed, "1/s", rate)
        yield beside(f"{label}: clips a second (forward passes alone)", speed, "1/s", rate_alone)
        shares = ", ".join(f"{stage} {share:.0%}" for stage, share in summary.shares.items())
        print(f"  {label}: waited for {shares}", flush=True)
        share, by = forward / span, "events"
        if samples := [percent for when, percent in busy if clock.begin < when < clock.end]:
            share, by = sum(samples) / len(samples) / 100, "NVML"
        own = clips / rate_alone / span
        for name, value, goal in (
            ("forward passes' own time", own, "float32"),
            (f"device busy by {by}", share, "bfloat16"),
        ):
            least, is_goal = BUSY[goal], precision == goal and (count == 3 or goal == "bfloat16")
            target = 1 if is_goal and decoding_allows else None
            is_slower = is_goal and rate <= rate_alone
            note = ", not judged: decoding is slower" if is_slower else ""
            yield Result(f"{label}: {name} (least{note})", value, "", least, least / value, target)


def bits(bench: Bench) -> Iterator[Result]:
    """Compare two runs, fewer workers, clips of the same file, and the same pass on the CPU."""
    workers = 2 if bench.small else WORKERS[0]
    clips = (2 if bench.small else 4) * REPEAT
    backbones = [bench.backbone(name) for name in bench.three]
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        first, again, fewer, smaller, on_cpu = (Path(name) / str(number) for number in range(5))
        for output, number in ((first, workers), (again, workers), (fewer, max(1, workers // 4))):
            _extract(bench, "scenes", clips, backbones, output, workers=number)
        half = CLIPS_PER_BATCH // 2
        _extract(bench, "scenes", clips, backbones, smaller, workers=workers, batch=half)
        references = [bench.backbone(name, "cpu") for name in bench.three]
        _extract(bench, "scenes", 4, references, on_cpu, workers=workers)
        for name in bench.three:
            store, again_store, fewer_store, smaller_store, cpu_store = (
                open_store(output / f"{name}.zarr")
                for output in (first, again, fewer, smaller, on_cpu)
            )
            apart = _rows_apart(store, smaller_store)
            yield beside(f"{name}: rows apart in batches of {half} (of)", apart, "", clips)
            apart = _rows_apart(store, again_store)
            yield none_of(f"{name}: rows apart in a second run (of)", apart, clips)
            apart = _rows_apart(store, fewer_store)
            yield none_of(f"{name}: rows apart with fewer workers (of)", apart, clips)
            native = _native(store)
            apart = int((native[REPEAT:] != native[:-REPEAT]).any(1).sum())
            yield none_of(f"{name}: rows apart of the same file (of)", apart, clips - REPEAT)
            error = cosine_error(native[:4], _native(cpu_store))
            label = f"{name}: 1 - cosine to a pass on the CPU (limit)"
            yield limited(label, error, LIMITS["float32"])


def memory(bench: Bench) -> Iterator[Result]:
    """Measure three float32 backbones that may use little memory of a shared GPU."""
    clips, workers = (16, 2) if bench.small else (64, WORKERS[0])
    specs = [str(bench.checkpoint(name)) for name in bench.three]
    limits = list(MEMORY_LIMITS)
    for limit in bench.parts(limits if bench.is_gpu else limits[:1]):
        gc.collect()
        free_memory(bench.device)
        before = _allocated_mib(bench)
        options = {"max_gpu_memory": limit} if bench.is_gpu else {}
        good = 0
        if bench.is_gpu:
            torch.cuda.reset_peak_memory_stats(bench.device)
        try:
            with tempfile.TemporaryDirectory(dir=bench.folder) as output:
                summary = _extract(
                    bench, "scenes", clips, specs, Path(output), workers=workers, **options
                )
            good = summary.done
            print(f"  {limit}: clips in a batch: {summary.batches}")
        except BackboneError as problem:
            print(f"  {limit}: {problem}")
            good = 0 if MEMORY_LIMITS[limit] or "\n" in str(problem) else clips
        finally:
            if bench.is_gpu:
                limit_gpu_share(bench.device, 1.0)
        label = "clips done" if MEMORY_LIMITS[limit] else "clips done, or refused in one line"
        yield Result(f"{limit}: {label} (all)", good, "", clips, clips / max(good, 0.1), 1)
        if bench.is_gpu:
            reserved = torch.cuda.max_memory_reserved(bench.device) / 2**20
            allocated = torch.cuda.max_memory_allocated(bench.device) / 2**20
            yield beside(f"{limit}: most reserved (allocated)", reserved, "MiB", allocated)
        gc.collect()
        held = _allocated_mib(bench) - before
        yield limited(f"{limit}: held after the run (limit)", held, HELD_MIB, "MiB")


def nvdec(bench: Bench) -> Iterator[Result]:
    """Measure the GPU's own decoder through PyAV: pixels and speed. obygaze does not use it."""
    _, folder = bench.clips("scenes", 1)
    paths = [path for path in sorted(folder.glob("*.mp4")) if path.stem.isdigit()]
    gpu = bench.device.partition(":")[2] or "0"
    try:
        _, pictures = _decode(gpu, paths[0])
    except Exception as problem:  # any error from FFmpeg or the driver
        print(f"  NVDEC cannot be used here: {first_line(problem)}")
        return
    count, expected = _decode(None, paths[0])
    levels = max(
        int(np.abs(picture.astype(int) - by_cpu).max())
        for picture, by_cpu in zip(pictures, expected, strict=True)
    )
    yield beside("NVDEC: levels apart from the CPU's decoder (all)", levels, "", 255)
    opening, by_cpu = (_frames_a_second(decoder, paths[:1], most=1) for decoder in (gpu, None))
    yield beside("NVDEC: to open a film, and its first frame (CPU)", 1 / opening, "s", 1 / by_cpu)
    loaded = [bench.backbone(name, "cpu") for name in bench.three]
    ours = _decoding_rate(bench, loaded, "scenes", 3, WORKERS[0])
    ways = {f"{threads} at a time": threads for threads in (1, 4, 8, 16)}
    for way in bench.parts(ways):
        films = [paths[number % len(paths)] for number in range(ways[way])]  # one for each thread
        rate, cpu_rate = (_frames_a_second(decoder, films) for decoder in (gpu, None))
        yield beside(f"NVDEC: frames a second, {way} (all by the CPU)", rate, "1/s", cpu_rate)
        label = f"NVDEC: clips a second, {way} (ours, {WORKERS[0]} workers)"
        yield beside(label, rate / count, "1/s", ours)


class _ForwardClock:
    """The times of the forward passes of a run, by events, or by the clock on a CPU."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._spans: list[tuple[Any, Any]] = []
        self.begin, self.end = float("inf"), 0.0

    def watch(self, backbone: Backbone) -> Backbone:
        """Return the backbone with its forward passes recorded."""
        encode = backbone.encode_clips

        def encode_and_note(pixels: Tensor, present: Tensor, names: frozenset[str]) -> Any:
            if len(pixels) == 1:  # the store's probe
                return encode(pixels, present, names)
            self.begin = min(self.begin, time.perf_counter())
            begin = self._now()
            outputs = encode(pixels, present, names)
            self._spans.append((begin, self._now()))
            self.end = time.perf_counter()
            return outputs

        return backbone.with_changes(encode_clips=encode_and_note)

    def seconds(self) -> tuple[float, float, float]:
        """Return the seconds in forward passes, until the last one ends, and until it starts."""
        if self._bench.is_gpu:
            torch.cuda.synchronize(self._bench.device)
        total = sum(self._elapsed(begin, end) for begin, end in self._spans)
        (first, _), (last, end) = self._spans[0], self._spans[-1]
        return total, self._elapsed(first, end), self._elapsed(first, last)

    def _now(self) -> Any:
        if not self._bench.is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _elapsed(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end) / 1e3 if self._bench.is_gpu else end - begin)


def _settings(bench: Bench) -> Sequence[tuple[str, int, str, int]]:
    """Return the films, number of backbones, number format and number of workers."""
    if bench.small:
        return [("scenes", 3, "float32", 2), ("shots", 1, "bfloat16", 2)]
    first = [
        ("scenes", 3, "float32", WORKERS[0]),
        ("shots", 3, "float32", WORKERS[0]),
        ("shots", 3, "bfloat16", WORKERS[0]),
        ("shots", 1, "bfloat16", WORKERS[0]),
    ]
    workers = [("scenes", 3, "bfloat16", count) for count in WORKERS]
    counts = [("scenes", count, precision, WORKERS[0]) for count in (1, 2) for precision in BUSY]
    return [*first, *workers, *counts]


def _clip_count(bench: Bench, kind: str, precision: str, workers: int) -> int:
    return 16 if bench.small else CLIPS_PER_WORKER[kind, precision] * workers


def _extract(
    bench: Bench,
    kind: str,
    clips: int,
    backbones: Sequence[str | Backbone],
    output: Path,
    **options: Any,
) -> Summary:
    manifest, folder = bench.clips(kind, clips)
    summary = extract(manifest, folder, backbones, output, device=bench.device, **options)
    assert summary.done == clips, summary.failed
    return summary


def _decoding_rate(
    bench: Bench, backbones: Sequence[Backbone], kind: str, count: int, workers: int
) -> float:
    """Return the clips per second that decoders alone deliver for the first backbones."""
    manifest, folder = bench.clips(kind, _clip_count(bench, kind, "bfloat16", workers) // 2)
    media = MediaFolder(folder.resolve())
    samplings = [backbone.sampling for backbone in backbones[:count]]

    def decode(decoder: Decoder, item: Item) -> None:
        list(ask_decoder(decoder, "decode", media, item, samplings))

    with Decoders(workers, 60) as decoders:
        times = [time.perf_counter() for _ in decoders.map(decode, manifest, ahead=workers)]
    return (len(times) - workers) / (times[-1] - times[workers - 1])


def _forward_seconds(
    bench: Bench, backbones: Sequence[Backbone], count: int, precision: str
) -> float:
    """Return the time of the forward passes alone for a clip and the first backbones."""
    total = 0.0
    for backbone in backbones[:count]:
        batch = [part.to(bench.device) for part in make_input(backbone, CLIPS_PER_BATCH)]
        forward = backbone.with_changes(precision=precision).embed_clips
        total += bench.seconds(partial(forward, *batch)) / CLIPS_PER_BATCH
    return total


def _rows_apart(*stores: Store) -> int:
    """Return the number of rows of two stores that differ in any bit."""
    apart: set[int] = set()
    for spec in stores[0].specs:
        first, second = (
            np.ascontiguousarray(store.read(spec.name)).view(np.uint8).reshape(len(store.ids), -1)
            for store in stores
        )
        apart.update(np.flatnonzero((first != second).any(1)).tolist())
    return len(apart)


def _native(store: Store) -> Tensor:
    return torch.from_numpy(np.array(store.read("native", missing="nan")))


def _allocated_mib(bench: Bench) -> float:
    return float(torch.cuda.memory_allocated(bench.device) / 2**20) if bench.is_gpu else 0.0


@contextlib.contextmanager
def _utilisation(bench: Bench) -> Iterator[list[tuple[float, int]]]:
    """Record the GPU's utilisation by NVML in percent, with times; empty without NVML."""
    samples: list[tuple[float, int]] = []
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(bench.device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
    except Exception as problem:  # no pynvml, no GPU, or only a part of a GPU
        if bench.is_gpu:
            print(f"  no figures from NVML: {first_line(problem)}")
        yield samples
        return
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(NVML_STEP_S):
            samples.append((time.perf_counter(), pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def _frames_a_second(gpu: str | None, paths: Sequence[Path], most: int | None = None) -> float:
    """Return frames per second; frames from a GPU stay on it."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(paths)) as pool:  # FFmpeg releases the GIL
        decode = partial(_decode, gpu, every=None, most=most)
        frames = sum(count for count, _ in pool.map(decode, paths))
    return frames / (time.perf_counter() - begin)


def _decode(
    gpu: str | None, path: Path, *, every: int | None = 100, most: int | None = None
) -> tuple[int, list[NDArray[Any]]]:
    """Decode on a GPU or the CPU; return the number of frames, and some of the pictures."""
    count, pictures = 0, []
    hardware = None
    if gpu:  # frames that are not needed stay on the GPU
        options: dict[str, Any] = {"allow_software_fallback": False, "is_hw_owned": not every}
        hardware = HWAccel("cuda", gpu, **options)
    with av.open(path, hwaccel=hardware) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for frame in islice(container.decode(stream), most):
            if every and count % every == 0:
                pictures.append(frame.to_ndarray(format="rgb24"))
            count += 1
    return count, pictures
