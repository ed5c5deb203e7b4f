"""A device and its computation: equality with the CPU, speed and memory."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Conv3d
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import interpolate
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.result import Result
from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import arithmetic, free_memory
from obygaze_features.backbones.preprocess import (
    normalise,
    resize_and_crop,
)
from obygaze_features.backbones.sound import SoundSampling
from obygaze_features.extraction.forward import CLIPS_PER_BATCH, Forward
from tests.kit.models import CHECKPOINTS, TINY, write_checkpoint

if TYPE_CHECKING:
    from obygaze_features.manifests import Manifest

LIMITS = {"float32": 1e-4, "tf32": 1e-4, "bfloat16": 1e-3}
"""The maximum of 1 - cosine to the CPU's float32, by number format."""
SPREAD_LIMITS = {"float32": 0.01, "tf32": 0.05, "bfloat16": 0.25}
"""The maximum distance to the CPU's float32, as a share of the distance between clips."""
SLOWER = 0.03
"""The share by which the default batch may be slower than the largest batch."""
FRAMES = 44
"""The number of frames that three backbones use of a 45 s clip: 32 spread out, 12 at 1 fps."""
SOUND_WINDOWS = 4
"""The number of windows of sound in a clip."""


@dataclass(frozen=True)
class Film:
    """The size of the synthetic films of one kind, and the number of files."""

    height: int
    width: int
    seconds: float
    files: int = 8


@dataclass(frozen=True)
class Bench:
    """A device, with networks and films for tests, which are kept in `folder`.

    Except for the first, no part of a section begins after the `deadline` (monotonic clock).
    """

    device: str
    folder: Path
    small: bool = False
    deadline: float = math.inf

    def parts(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the names until the time is up; print the names that are left out."""
        left = list(names)
        while left:
            yield left.pop(0)
            if left and time.monotonic() > self.deadline:
                print(f"  the time is over; left out: {'; '.join(left)}", flush=True)
                return

    @property
    def is_gpu(self) -> bool:
        """True if the device has events, pinned memory and a memory limit."""
        return self.device.startswith("cuda")

    @property
    def three(self) -> list[str]:
        """The paper's three backbones."""
        return [f"{self.size}-{name}" for name in ("xclip", "vivit", "xclip-lsmdc")]

    @property
    def families(self) -> list[str]:
        """A backbone of every family, with the paper's three first."""
        sized = [(name, name.replace("tiny", self.size, 1)) for name in TINY]
        return [name if name in CHECKPOINTS else tiny for tiny, name in sized]

    @property
    def films(self) -> dict[str, Film]:
        """The films by kind: scenes (slow to decode), shots (fast), and clips sampled at a rate."""
        if self.small:
            return {
                "scenes": Film(144, 176, 3, files=2),
                "shots": Film(128, 144, 2, files=2),
                "long": Film(128, 144, 12, files=1),
            }
        return {
            "scenes": Film(720, 1280, 44),
            "shots": Film(360, 640, 3),
            "long": Film(360, 640, 180),
        }

    def checkpoint(self, name: str) -> Path:
        """Return a checkpoint with random weights, which is written on first use."""
        folder = self.folder / name
        return folder if folder.exists() else write_checkpoint(name, folder)

    def backbone(self, name: str, device: str | None = None, **options: Any) -> Backbone:
        """Return a backbone with random weights, by default on the device."""
        return load_backbone(self.checkpoint(name), device or self.device, **options)

    def clips(self, kind: str, count: int) -> tuple[Manifest, Path]:
        """Return clips of one kind, generated on first use; several may be the same file."""
        from obygaze_features.manifests import Item, Items, Manifest

        film, folder = self.films[kind], self.folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{number}.mp4" for number in range(film.files)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # FFmpeg releases the GIL
            list(pool.map(partial(_write_film, film), paths))
        items = [Item(f"clip-{row:04}", media=paths[row % film.files].name) for row in range(count)]
        return Manifest(kind, Items.of(items)), folder

    def processes(self, count: int) -> Executor:
        """Start separate processes that use the device at the same time."""
        return ProcessPoolExecutor(count, get_context("spawn"))

    def seconds(self, compute: Callable[[], object], runs: int = 5) -> float:
        """Return the time of an action on the device: the median of some runs, by events."""
        times = []
        warm_ups, runs = (1, 1) if self.small else (2, runs)
        for run in range(-warm_ups, runs):
            if self.is_gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                compute()
                end.record()
                end.synchronize()
                elapsed = float(begin.elapsed_time(end)) / 1e3
            else:
                start = time.perf_counter()
                compute()
                elapsed = time.perf_counter() - start
            if run >= 0:
                times.append(elapsed)
        return statistics.median(times)

    def wall_seconds(self, compute: Callable[[], object], *, wait: bool = True) -> float:
        """Return the wall-clock time of an action or, without waiting, the time to start it."""
        times = []
        for _ in range(2 if self.small else 6):
            self.wait()
            start = time.perf_counter()
            compute()
            if wait:
                self.wait()
            times.append(time.perf_counter() - start)
        self.wait()
        return statistics.median(times[1:])

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def noise(self, count: int, height: int = 720, width: int = 1280) -> Tensor:
        """Return frames of noise, the hardest pictures, on the CPU."""
        if self.small:
            height, width = height // 5, width // 5
        generator = torch.Generator().manual_seed(height)
        size = (count, height, width, 3)
        return torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)

    @property
    def size(self) -> str:
        """The prefix of checkpoint names: for tiny networks, or for the published sizes."""
        return "tiny" if self.small else "random"


def machine(bench: Bench) -> Iterator[Result]:
    """Measure the upper limits: copies to the device, and matrix products."""
    for label, size in (("720p", (720, 1280)), ("1080p", (1080, 1920))):
        frames = bench.noise(FRAMES, *size)
        pinned = frames.pin_memory() if bench.is_gpu else frames
        rates = [
            frames.nbytes / 1e9 / bench.seconds(partial(source.to, bench.device))
            for source in (frames, pinned)
        ]
        name = f"upload of {FRAMES} frames of {label}"
        yield beside(f"{name}, from pageable memory (pinned)", rates[0], "GB/s", rates[1])
    exact = _product_rate(bench, "float32")
    for precision in LIMITS:
        rate = _product_rate(bench, precision)
        yield beside(f"product of matrices, {precision} (float32)", rate, "TFLOP/s", exact)


def parity(bench: Bench) -> Iterator[Result]:
    """Compare every family in every number format with float32 on the CPU."""
    for name in bench.parts(bench.families):
        reference = bench.backbone(name, "cpu")
        pixels, present = make_input(reference, 2)
        present[-1, present[-1].nonzero()[-3:]] = False  # the second clip is shorter
        pixels[~present] = 0
        expected = reference.embed_clips(pixels, present)
        backbone = bench.backbone(name)
        for precision, limit in LIMITS.items():
            outputs = backbone.with_changes(precision=precision).embed_clips(
                pixels.to(bench.device), present.to(bench.device)
            )
            error = max(cosine_error(outputs[key], expected[key]) for key in expected)
            label = f"{name}, {precision}"
            yield limited(f"{label}: 1 - cosine to the CPU (limit)", error, limit)
            # With random weights, all clips have similar features, which inflates cosines.
            native = expected["native"]
            distance = (outputs["native"].cpu() - native).norm().item()
            spread = (native - native.mean(0)).norm().item()
            title = f"{label}: distance to the CPU (between clips)"
            yield Result(title, distance, "", spread, distance / spread, SPREAD_LIMITS[precision])


def batches(bench: Bench) -> Iterator[Result]:
    """Measure clips per second, operations per second and peak memory, by batch size."""
    counts = (1, CLIPS_PER_BATCH) if bench.small else (1, 2, 4, CLIPS_PER_BATCH, 16, 32)
    largest = counts[-1]
    ceilings = {precision: _product_rate(bench, precision) for precision in LIMITS}
    for name in bench.parts(bench.three):
        exact = bench.backbone(name)
        tera, clips = _operations(exact) / 1e12, make_input(exact, largest)
        for precision, ceiling in ceilings.items():
            backbone = exact.with_changes(precision=precision)
            rates, peaks, reserved = {}, {}, {}
            for count in counts:
                batch = [part[:count].to(bench.device) for part in clips]
                rates[count], peaks[count], reserved[count] = _measure(bench, backbone, batch)
            for count, rate in rates.items():
                label, peak = f"{name}, {precision}, batch {count}", peaks[count]
                is_default = count == CLIPS_PER_BATCH and not bench.small
                yield Result(
                    f"{label}: clips a second (batch {largest})", rate, "1/s", rates[largest],
                    rates[largest] / rate, 1 / (1 - SLOWER) if is_default else None,
                )  # fmt: skip
                yield beside(f"{label} (product of matrices)", rate * tera, "TFLOP/s", ceiling)
                yield beside(f"{label}: peak (batch {largest})", peak, "GiB", peaks[largest])
                name_reserved = f"{label}: most reserved (peak)"
                yield beside(name_reserved, reserved[count], "GiB", peak)


def stages(bench: Bench) -> Iterator[Result]:
    """Measure each step of a batch other than its forward pass separately."""
    frames = bench.noise(FRAMES)
    for name in bench.parts(bench.three):
        backbone = bench.backbone(name)
        pixels, present = (part.to(bench.device) for part in make_input(backbone, CLIPS_PER_BATCH))
        resized = torch.zeros(pixels.shape, dtype=torch.uint8, device=bench.device)
        outputs = backbone.embed_clips(pixels, present)
        clip = resized[0].cpu()
        if bench.is_gpu:
            clip = clip.pin_memory()
        forwards = {
            precision: bench.seconds(
                partial(
                    backbone.with_changes(precision=precision).embed_clips, pixels, present
                )
            )
            for precision in LIMITS
        }  # fmt: skip
        steps: dict[str, Callable[[], object]] = {
            f"resize {FRAMES} frames on one core": partial(
                resize_and_crop, frames, backbone.preprocessing
            ),
            "upload": partial(clip.to, bench.device, non_blocking=True),
            "normalise": partial(normalise, resized, backbone.preprocessing),
            "download": partial(_download, outputs),
        }
        for step, compute in steps.items():
            is_per_clip = step not in ("normalise", "download")
            seconds = bench.seconds(compute) * (CLIPS_PER_BATCH if is_per_clip else 1)
            label = f"{name}, {CLIPS_PER_BATCH} clips: {step} (forward, bfloat16)"
            yield beside(label, 1e3 * seconds, "ms", 1e3 * forwards["bfloat16"])
        whole = bench.seconds(partial(Forward(backbone), list(resized.cpu())))
        label = f"{name}, {CLIPS_PER_BATCH} clips: from bytes to rows, float32 (forward)"
        yield beside(label, 1e3 * whole, "ms", 1e3 * forwards["float32"])
        tokens = bench.backbone(name, arrays=["native", "tokens"])
        seconds = bench.seconds(partial(Forward(tokens), list(resized.cpu())))
        label = f"{name}, {CLIPS_PER_BATCH} clips: the same with tokens (without)"
        yield beside(label, 1e3 * seconds, "ms", 1e3 * whole)
        for precision, seconds in forwards.items():
            label = f"{name}, {CLIPS_PER_BATCH} clips: forward, {precision} (float32)"
            yield beside(label, 1e3 * seconds, "ms", 1e3 * forwards["float32"])
            forward = partial(
                backbone.with_changes(precision=precision).embed_clips, pixels, present
            )
            begun = bench.wall_seconds(forward, wait=False)
            label = f"{name}, {CLIPS_PER_BATCH} clips: to enqueue it, {precision} (forward)"
            yield beside(label, 1e3 * begun, "ms", 1e3 * seconds)
            if bench.is_gpu:
                print(f"  {name}, {precision}: attention by {_attention(forward)}", flush=True)
            if convolutions := [m for m in backbone.module.modules() if isinstance(m, Conv3d)]:
                clips = pixels.transpose(1, 2)
                with torch.inference_mode(), arithmetic(bench.device, precision):
                    product = bench.seconds(partial(convolutions[0], clips))
                    cudnn = bench.seconds(partial(Conv3d.forward, convolutions[0], clips))
                label = f"{name}, {CLIPS_PER_BATCH} clips: tubelets, {precision} (convolution)"
                yield beside(label, 1e3 * product, "ms", 1e3 * cudnn)


def _attention(compute: Callable[[], object]) -> str:
    """Return the names of the attention kernels from the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        compute()
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    found = sorted(
        n for n in names if any(part in n.lower() for part in ("attention", "fmha", "flash"))
    )
    return ", ".join(name[:60] for name in found) or "no kernel of that name"


def make_input(backbone: Backbone, count: int) -> tuple[Tensor, Tensor]:
    """Return clips on the CPU, and which of their frames or windows are present."""
    return (make_sounds if backbone.hears else make_pictures)(backbone, count)


def make_sounds(backbone: Backbone, count: int) -> tuple[Tensor, Tensor]:
    """Return clips of a few windows that differ like sounds: rising or falling tones, with noise.

    For pure noise, features differ less between clips than between number formats.
    """
    sampling, generator = backbone.sampling, torch.Generator().manual_seed(0)
    assert isinstance(sampling, SoundSampling)
    time = torch.arange(round(SOUND_WINDOWS * sampling.window * sampling.rate)) / sampling.rate
    sounds = []
    for clip in range(count):
        first, last = sampling.rate / 100 * 8 ** torch.rand(2, generator=generator)
        turns = first * time + (last - first) * time**2 / (2 * time[-1])
        noise = torch.randn(len(time), generator=generator) / 200
        sounds.append(torch.sin(2 * math.pi * turns) * (clip + 1) / (4 * count) + noise)
    windows = torch.stack([backbone.preprocessing.inputs(sound.numpy()) for sound in sounds])
    clips = windows.new_zeros(count, sampling.frames, *windows.shape[2:])
    clips[:, :SOUND_WINDOWS] = windows
    return clips, (torch.arange(sampling.frames) < SOUND_WINDOWS).repeat(count, 1)


def make_pictures(backbone: Backbone, count: int) -> tuple[Tensor, Tensor]:
    """Return clips that differ from each other like films, in large patches."""
    generator = torch.Generator().manual_seed(0)
    frames, size = backbone.sampling.frames, backbone.preprocessing.crop
    coarse = torch.rand(count * frames, 3, 7, 7, generator=generator)
    scenes = torch.rand(count, 1, 3, 7, 7, generator=generator).expand(-1, frames, -1, -1, -1)
    mixed = (scenes.reshape(coarse.shape) * 3 + coarse) * 64
    pixels = interpolate(mixed, size=size, mode="bilinear").to(torch.uint8)
    clips = normalise(pixels.view(count, frames, 3, *size), backbone.preprocessing)
    return clips, torch.ones(count, frames, dtype=torch.bool)


def cosine_error(values: Tensor, expected: Tensor) -> float:
    """Return 1 - the least cosine of all rows of `expected`, or 2 if `values` has a NaN."""
    pair = [part.cpu().double().reshape(-1, part.shape[-1]) for part in (values, expected)]
    is_present = ~pair[1].isnan().any(1)
    cosines = torch.cosine_similarity(*(part[is_present] for part in pair))
    return float((1 - cosines).nan_to_num(2).max())


def beside(name: str, value: float, unit: str, peer: float) -> Result:
    """Return a line without a target."""
    return Result(name, value, unit, peer, value / peer if peer else 0.0, None)


def limited(name: str, value: float, limit: float, unit: str = "") -> Result:
    """Return a line whose value must not exceed a limit."""
    return Result(name, value, unit, limit, value / limit, 1)


def none_of(name: str, value: int, count: int) -> Result:
    """Return a line that counts events that must not occur."""
    return Result(name, value, "", count, value / count, 0)


def _write_film(film: Film, path: Path) -> None:
    if path.exists():
        return
    from benchmarks.decoding import draw_film
    from tests.kit.films import write_pictures

    part = path.with_suffix(".part.mp4")
    pictures = draw_film(round(24 * film.seconds), film.height, film.width, seed=int(path.stem))
    write_pictures(part, pictures, gop=250, b_frames=3, options={"preset": "veryfast"})
    part.replace(path)


def _product_rate(bench: Bench, precision: str) -> float:
    size = 256 if bench.small else 8192
    matrix = torch.randn(size, size, device=bench.device)
    if precision == "bfloat16":
        matrix = matrix.bfloat16()  # autocast would convert it each time
    with arithmetic(bench.device, precision):
        seconds = bench.seconds(lambda: matrix @ matrix)
    return 2 * size**3 / 1e12 / seconds


def _operations(backbone: Backbone) -> int:
    """Return the floating-point operations per clip."""
    pixels, present = (part.to(backbone.device) for part in make_input(backbone, 1))
    # Not every fused attention kernel is counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        backbone.embed_clips(pixels, present)
    return int(counter.get_total_flops())


def _download(outputs: Mapping[str, Tensor]) -> None:
    for output in outputs.values():
        output.cpu()


def _measure(
    bench: Bench, backbone: Backbone, batch: Sequence[Tensor]
) -> tuple[float, float, float]:
    """Return clips per second, and the peak GiB of tensors and of reserved memory on a GPU."""
    if bench.is_gpu:
        free_memory(bench.device)
        torch.cuda.reset_peak_memory_stats(bench.device)
    rate = len(batch[0]) / bench.seconds(partial(backbone.embed_clips, *batch), 3)
    if not bench.is_gpu:
        return rate, 0.0, 0.0
    allocated = torch.cuda.max_memory_allocated(bench.device)
    return rate, allocated / 2**30, torch.cuda.max_memory_reserved(bench.device) / 2**30
