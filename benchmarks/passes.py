"""Passes over clips: the time saved by one pass, the time outside the network, and memory."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from benchmarks.memory import peak_mib
from benchmarks.result import Result, side_by_side
from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.backbones.sound import SoundPreprocessing, SoundSampling
from obygaze_features.extraction import Options, extract
from obygaze_features.extraction.decoder import Decoder, map_items
from obygaze_features.extraction.forward import Forward
from obygaze_features.extraction.reader import ItemReader, ReadItem, ask_decoder
from obygaze_features.items.media import MEDIA_SUFFIXES, MediaFolder
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.video.sound import decode_sound
from tests.kit.films import write_clip, write_sound
from tests.kit.models import write_checkpoint

FULL = "random-xclip"
"""The name of a network of the size of xclip-kinetics, with random weights."""
BESIDE_COPIES, REST = 0.3, 0.15
"""Limits for processors with and without AMX, which speeds up the peers more than our code."""


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of passes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield _three_in_one(folder)
        yield _beside_the_networks(folder)
        yield _not_the_network(folder)
        yield _memory(folder)
        yield _sound_alone(folder)
        yield _windows_ready(folder)
        yield _sound_beside(folder)


def _three_in_one(folder: Path) -> Result:
    """Run three backbones on 32 frames each, with small networks, to show the cost of decoding."""
    videos = folder / "three"
    manifest = _clips(videos, 24, seconds=20, width=1280, height=720)
    tiny = load_backbone("tiny-xclip", "cpu")
    backbones = [
        replace(
            tiny, name=name, sampling=Sampling(32),
            encode_clips=lambda pixels, present, names: tiny.embed_clips(
                pixels[:, ::4], present[:, ::4]
            ),
        )
        for name in ("first", "second", "third")
    ]  # fmt: skip
    extract(manifest, videos, backbones, folder / "before", limit=3)
    media = MediaFolder(videos)

    def decode(decoder: Decoder, item: Item) -> None:
        list(ask_decoder(decoder, "decode", media, item, [Sampling(32)]))

    begin = time.perf_counter()
    list(map_items(decode, list(manifest), "Decoding", Options(workers=1)))
    decoding = time.perf_counter() - begin
    begin = time.perf_counter()
    extract(manifest, videos, backbones, folder / "together", workers=1)
    together = time.perf_counter() - begin
    begin = time.perf_counter()
    for backbone in backbones:
        extract(manifest, videos, [backbone], folder / "apart", workers=1)
    saved = time.perf_counter() - begin - together
    return Result(
        "saved by one pass for three backbones (decoding twice)",
        saved, "s", 2 * decoding, 2 * decoding / saved, 1,
    )  # fmt: skip


def _beside_the_networks(folder: Path) -> Result:
    """Measure the steps from decoded frames to rows, for three backbones, one with other sampling.

    Frames and network outputs are prepared beforehand. The peer is the earlier implementation. It
    gathers the frames of each backbone, one clip at a time, and normalises with a copy per step.
    """
    videos = folder / "beside"
    (item,) = _clips(videos, 1, seconds=20, width=1280, height=720).items
    backbones = []
    for name, sampling in zip(
        _three(folder), (Sampling(32), Sampling(32), Sampling(12, 1.0)), strict=True
    ):
        tiny = load_backbone(name, "cpu")
        ready = {spec.name: torch.zeros(spec.shape) for spec in tiny.arrays}
        resizing = replace(tiny.preprocessing, shortest_edge=224, crop=(224, 224))
        backbones.append(
            replace(
                tiny, sampling=sampling, preprocessing=resizing,
                encode_clips=partial(_ready_outputs, ready),
            )
        )  # fmt: skip
    reader = ItemReader(videos, backbones)
    forwards = {backbone.name: Forward(backbone) for backbone in backbones}
    decoder = Decoder(60)
    media = MediaFolder(videos, MEDIA_SUFFIXES)
    samplings = [backbone.sampling for backbone in backbones]
    answers = []
    pictures = []
    for answer in ask_decoder(decoder, "decode", media, item, samplings):
        answers.append(answer)
        if "frames" in answer:
            pictures.append(decoder.pictures(answer["shape"]).copy())
    clip, *rest = answers
    numbers = np.concatenate([answer["frames"] for answer in rest])
    frames = torch.from_numpy(np.concatenate(pictures))
    parts = {part.shape: part for part in pictures}
    rows = [np.searchsorted(numbers, picked) for picked in clip["numbers"]]
    decoder.answers = lambda request: iter(answers)  # type: ignore[method-assign]  # decoded already
    decoder.pictures = lambda shape: parts[tuple(shape)]  # type: ignore[method-assign]
    one_at_a_time = threading.Lock()

    def read(_: int) -> Mapping[str, Any]:
        clip = reader.read(decoder, item, list(forwards))
        assert isinstance(clip, ReadItem)
        return clip.inputs

    def gather(_: int) -> list[Tensor]:
        with one_at_a_time:
            return [
                _resize_together(frames[picked], backbone)
                for backbone, picked in zip(backbones, rows, strict=True)
            ]

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:

        def ours() -> object:
            clips = list(pool.map(read, range(cores)))
            batches = []
            for name, forward in forwards.items():
                batches.append(forward.start([clip[name] for clip in clips]).rows())
            return batches

        def peer() -> object:
            clips = pool.map(gather, range(cores))
            return [
                _embed_with_copies(backbone, inputs)
                for backbone, inputs in zip(backbones, zip(*clips, strict=True), strict=True)
            ]

        name = (
            f"{cores} clips for three backbones, without decoding and networks (gathered, locked)"
        )
        try:
            return side_by_side(name, ours, peer, target=BESIDE_COPIES)
        finally:
            decoder.discard()


def _ready_outputs(
    rows: Mapping[str, Tensor], pixels: Tensor, present: Tensor, names: frozenset[str]
) -> dict[str, Tensor]:
    return {name: row.expand(len(pixels), *row.shape) for name, row in rows.items()}


def _resize_together(frames: Tensor, backbone: Backbone) -> Tensor:
    how = backbone.preprocessing
    width = how.crop[0] * frames.shape[2] // frames.shape[1]
    left = (width - how.crop[1]) // 2
    pixels = interpolate(
        frames.permute(0, 3, 1, 2), size=(how.crop[0], width), mode=how.filter, antialias=True
    )
    return pixels[..., left : left + how.crop[1]].contiguous()


def _embed_with_copies(backbone: Backbone, clips: Sequence[Tensor]) -> list[dict[str, Any]]:
    how = backbone.preprocessing
    stacked = clips[0].new_zeros(len(clips), backbone.sampling.frames, *clips[0].shape[1:])
    present = torch.zeros(stacked.shape[:2], dtype=torch.bool)
    for i, clip in enumerate(clips):
        stacked[i, : len(clip)] = clip
        present[i, : len(clip)] = True
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (how.mean, how.std))
    pixels = (stacked.float() * how.scale - how.offset - mean) / std
    pixels[~present] = 0
    outputs = backbone.embed_clips(pixels, present)
    return [
        {spec.name: outputs[spec.name].numpy()[i].astype(spec.dtype) for spec in backbone.arrays}
        for i in range(len(clips))
    ]


def _not_the_network(folder: Path) -> Result:
    """Compare the wall time of the whole pipeline with the forward pass alone."""
    count = 6
    manifest = _clips(folder / "full", 1 + count, seconds=10, width=1280, height=720)
    write_checkpoint(FULL, folder / FULL)
    backbone = load_backbone(str(folder / FULL), "cpu")
    extract(manifest, folder / "full", [backbone], folder / "full", limit=1)
    forward = Forward(backbone)
    clips = [torch.zeros(32, 3, 224, 224, dtype=torch.uint8) for _ in range(count)]
    begin = time.perf_counter()
    forward.start(clips).rows()
    alone = time.perf_counter() - begin
    summary = extract(manifest, folder / "full", [backbone], folder / "full")
    assert summary.clips == count
    share = (summary.seconds - alone) / summary.seconds
    return Result(
        f"{count} clips, full-size X-CLIP on CPU (forward alone); share of the rest",
        summary.seconds, "s", alone, share, REST,
    )  # fmt: skip


def _three(folder: Path) -> list[str]:
    """Return three small backbones; the last one is written into a new folder."""
    lsmdc = write_checkpoint("tiny-xclip-lsmdc", folder / "lsmdc")
    return ["tiny-xclip", "tiny-vivit", f"lsmdc={lsmdc}"]


def _memory(folder: Path) -> Result:
    """Return the peak memory of the extracting process and its decoders together."""
    peaks = []
    for count in (500, 50):
        videos = folder / f"clips{count}"
        _clips(videos, count, files=10, seconds=1, width=320, height=240).save(videos / "manifest")
        command = ["features", "extract", videos / "manifest", "--videos", videos, "-o", videos]
        for name in _three(videos):
            command += ["--backbone", name]
        words = [sys.executable, "-m", "obygaze_models.commands.main", *map(str, command)]
        peaks.append(peak_mib(words))
    return Result(
        "peak memory at 500 clips (at 50)", peaks[0], "MiB", peaks[1], peaks[0] / peaks[1], 1.10
    )


def _sound_alone(folder: Path) -> Result:
    """Decode a film in clips of ten seconds with seeks; the peer decodes it once and cuts."""
    seconds, rate, least = 300, 16_000, 50
    film = write_sound(folder / "sound.mp4", "aac", _noise(seconds), pictures=seconds)
    starts = range(0, seconds, 10)

    def ours() -> object:
        return [decode_sound(film, start, start + 10, [rate]) for start in starts]

    def peer() -> object:
        resampler, pieces = av.AudioResampler("flt", "mono", rate), []
        with av.open(film) as container:
            for frame in container.decode(audio=0):
                pieces += [part.to_ndarray()[0] for part in resampler.resample(frame)]
        sound = np.concatenate(pieces)
        return [sound[start * rate : (start + 10) * rate].copy() for start in starts]

    name = f"sound of {seconds} s in clips, on one core (av's plain loop); share of 1/{least}"
    timed = side_by_side(name, ours, peer, target=1, runs=3)
    return replace(timed, ratio=timed.value / (seconds / least))


def _windows_ready(folder: Path) -> Result:
    """Measure how many windows CLAP's preprocessing can decode and prepare per second."""
    seconds, cores, least = 120, 16, 200
    film = write_sound(folder / "windows.mp4", "aac", _noise(seconds))
    sampling = SoundSampling(48_000, 10, 10)
    settings = {"truncation": "rand_trunc", "frequency_min": 50}
    steps = SoundPreprocessing(sampling, settings)
    times = []
    for _ in range(4):
        begin = time.process_time()
        count = len(steps.inputs(decode_sound(film, None, None, [48_000]).samples[48_000]))
        times.append(time.process_time() - begin)
    value = cores * count / min(times)
    name = f"CLAP windows decoded and prepared by {cores} cores (at least)"
    return Result(name, value, "1/s", least, least / value, 1)


def _sound_beside(folder: Path) -> Result:
    """Compare X-CLIP with and without a tiny network for sound, to show the cost of sound."""
    videos, count = folder / "beside-sound", 2
    videos.mkdir()
    for number in range(count):
        write_sound(videos / f"clip{number}.mp4", "aac", _noise(10), pictures=10)
    items = [Item(f"clip-{row}", media=f"clip{row}.mp4") for row in range(count)]
    manifest = Manifest("clips", Items.of(items))
    if not (folder / FULL).exists():
        write_checkpoint(FULL, folder / FULL)
    write_checkpoint("tiny-clap", folder / "tiny-clap")
    sees, hears = (load_backbone(str(folder / name), "cpu") for name in (FULL, "tiny-clap"))
    runs = itertools.count()

    def fill(*backbones: Backbone) -> object:
        return extract(manifest, videos, backbones, folder / f"run{next(runs)}")

    name = f"{count} clips of 10 s, full-size X-CLIP on CPU, with sound (without)"
    return side_by_side(name, partial(fill, sees, hears), partial(fill, sees), target=1.1, runs=2)


def _noise(seconds: int) -> NDArray[Any]:
    return np.random.default_rng(0).normal(0, 0.1, (48_000 * seconds, 2))


def _clips(
    folder: Path, count: int, *, seconds: float, width: int, height: int, files: int | None = None
) -> Manifest:
    """Return clips, several of which may be the same file."""
    folder.mkdir()
    files = files or min(count, 3)
    for number in range(files):
        write_clip(
            folder / f"clip{number}.mp4", "S",
            seed=number, seconds=seconds, width=width, height=height,
        )  # fmt: skip
    items = [Item(f"clip-{row:03}", media=f"clip{row % files}.mp4") for row in range(count)]
    return Manifest("clips", Items.of(items))
