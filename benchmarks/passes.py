"""Passes over clips: the time saved by one pass, the time outside the network, and memory."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from benchmarks.memory import peak_mib
from benchmarks.result import Result
from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.extraction import extract
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.reader import ask_decoder
from obygaze_features.items.media import MediaFolder
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.sampling import Sampling
from tests.kit.films import write_clip
from tests.kit.models import write_checkpoint

FULL = "random-xclip"
"""The name of a network of the size of xclip-kinetics, with random weights."""
REST = 0.15


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of passes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield _three_in_one(folder)
        yield _not_the_network(folder)
        yield _memory(folder)


def _three_in_one(folder: Path) -> Result:
    """Run three backbones on 32 frames each, with small networks, to show the cost of decoding."""
    videos = folder / "three"
    manifest = _clips(videos, 24, seconds=20, width=1280, height=720)
    tiny = load_backbone("tiny-xclip", "cpu")
    assert isinstance(tiny.clip, FrameReader)
    embed = tiny.clip.encode

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> Mapping[str, Tensor]:
        return embed(pixels[:, ::4], present[:, ::4], names)

    backbones = [
        replace(tiny, name=name, clip=replace(tiny.clip, sampling=Sampling(32), encode=encode))
        for name in ("first", "second", "third")
    ]
    extract(manifest, videos, backbones, folder / "before", limit=3)
    media = MediaFolder(videos)

    def decode(decoder: Decoder, item: Item) -> None:
        list(ask_decoder(decoder, "decode", media, item, [Sampling(32)]))

    begin = time.perf_counter()
    with Decoders(1, 60) as decoders:
        list(decoders.map(decode, manifest, ahead=1))
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


def _not_the_network(folder: Path) -> Result:
    """Compare the wall time of a run with that of the forward passes inside it."""
    count = 6
    manifest = _clips(folder / "full", 1 + count, seconds=10, width=1280, height=720)
    write_checkpoint(FULL, folder / FULL)
    backbone = load_backbone(str(folder / FULL), "cpu")
    assert isinstance(backbone.clip, FrameReader)
    embed = backbone.clip.encode
    passes: list[float] = []

    def encode(pixels: Tensor, present: Tensor, names: frozenset[str]) -> Mapping[str, Tensor]:
        begin = time.perf_counter()
        arrays = embed(pixels, present, names)
        passes.append(time.perf_counter() - begin)
        return arrays

    timed = replace(backbone, clip=replace(backbone.clip, encode=encode))
    extract(manifest, folder / "full", [timed], folder / "full", limit=1)
    passes.clear()
    summary = extract(manifest, folder / "full", [timed], folder / "full")
    assert summary.clips == count
    share = (summary.seconds - sum(passes)) / summary.seconds
    return Result(
        f"{count} clips, full-size X-CLIP on CPU (forward passes in it); share of the rest",
        summary.seconds, "s", sum(passes), share, REST,
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
