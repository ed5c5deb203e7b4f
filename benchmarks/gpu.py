"""Clips a second of one, two and three backbones on a GPU, beside decoding alone.

``python -m benchmarks.gpu`` prints each figure as soon as it is measured, for machines that are
available only for minutes. With OBYGAZE_BENCH_SMALL=1, networks and clips are tiny, and a CPU is
enough.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.result import Result
from obygaze_features.backbones import Backbone, load_backbone
from obygaze_features.backbones.devices import choose_device, default_workers, describe_device
from obygaze_features.extraction import extract
from obygaze_features.extraction.decoder import Decoder, Decoders
from obygaze_features.extraction.reader import ItemReader
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.models import write_checkpoint

SMALL = "OBYGAZE_BENCH_SMALL"
PRECISIONS = ("float32", "tf32", "bfloat16")
NETWORKS = ("xclip", "vivit", "xclip-lsmdc")
"""The paper's three backbones."""


@dataclass(frozen=True)
class Size:
    """The networks, their films (pixels, median seconds), and the number of clips in a pass."""

    networks: str
    height: int
    width: int
    seconds: float
    films: int
    clips: int


FULL = Size("random", 720, 1280, 44, films=8, clips=192)
TINY = Size("tiny", 72, 128, 0.5, films=1, clips=2)


def measure() -> Iterator[Result]:
    """Measure passes over clips if there is a GPU."""
    is_small = os.environ.get(SMALL) == "1"
    if not torch.cuda.is_available() and not is_small:
        print(f"no GPU: nothing is measured (set {SMALL}=1 to try the benchmark on a CPU)")
        return
    device = choose_device(None)
    print(f"{describe_device(device)}, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        yield from passes(Path(folder), device, TINY if is_small else FULL)


def passes(folder: Path, device: str, size: Size) -> Iterator[Result]:
    """Measure passes of one, two and three backbones in each number format."""
    manifest = draw_clips(folder / "films", size)
    backbones = []
    for name in NETWORKS:
        path = write_checkpoint(f"{size.networks}-{name}", folder / name)
        backbones.append(load_backbone(f"{name}={path}", device))

    for count in range(1, len(backbones) + 1):
        used = backbones[:count]
        decoding = decoding_rate(manifest, folder / "films", used)
        for precision in PRECISIONS:
            chosen = [backbone.with_changes(precision=precision) for backbone in used]
            output = folder / f"{precision}-{count}"
            summary = extract(manifest, folder / "films", chosen, output)
            seconds = summary.seconds * (1 - summary.shares["start"])
            speed = summary.clips / seconds
            names = ", ".join(NETWORKS[:count])
            label = f"{names} in {precision}: clips a second (decoding alone)"
            yield Result(label, speed, "1/s", decoding, speed / decoding, None)


def draw_clips(folder: Path, size: Size) -> Manifest:
    """Draw films, and return clips of them; several clips may be of the same film."""
    from benchmarks.decoding import draw_film
    from tests.kit.films import write_pictures

    # Spans of films differ about as much in length.
    lengths = 24 * size.seconds * np.random.default_rng(0).lognormal(0, 0.8, size.films)

    def draw(number: int) -> None:
        pictures = draw_film(round(lengths[number]), size.height, size.width, seed=number)
        options = {"preset": "veryfast"}
        write_pictures(folder / f"{number}.mp4", pictures, gop=250, b_frames=3, options=options)

    folder.mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, range(size.films)))
    items = []
    for number in range(size.clips):
        items.append(Item(f"clip-{number:04}", media=f"{number % size.films}.mp4"))
    return Manifest("drawn", Items.of(items))


def decoding_rate(manifest: Manifest, films: Path, backbones: Sequence[Backbone]) -> float:
    """Return the clips a second that are read and resized for backbones, in any order."""
    reader = ItemReader(films, backbones)
    names = [backbone.name for backbone in backbones]

    def read(decoder: Decoder, item: Item) -> None:
        reader.read(decoder, item, names)

    with Decoders(default_workers(backbones[0].device), 600) as decoders:
        begin = time.monotonic()
        for _ in decoders.map(read, manifest.items, ahead=len(manifest)):
            pass
        return len(manifest) / (time.monotonic() - begin)


if __name__ == "__main__":
    for result in measure():
        print(f"  {'  '.join(result.cells())}", flush=True)
