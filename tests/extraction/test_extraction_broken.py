"""A folder with all that can be wrong with videos: the good ones are extracted all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.extraction import Wanted, extract
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import open_store
from obygaze_features.video.synthetic import write_clip


def truncated_header(path: Path) -> None:
    write_clip(path, "S")
    path.write_bytes(path.read_bytes()[:40])


def garbage_in_the_middle(path: Path) -> None:
    write_clip(path, "S", seconds=4)
    data = bytearray(path.read_bytes())
    middle = slice(len(data) // 3, 2 * len(data) // 3)
    data[middle] = np.random.default_rng(1).bytes(middle.stop - middle.start)
    path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    write_clip(path, "S", seconds=4)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def audio_only(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(16000))


def zero_duration(path: Path) -> None:
    """A video stream without a single frame."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        container.start_encoding()


def unknown_codec(path: Path) -> None:
    """An mp4 whose sample description names a codec that nobody has."""
    write_clip(path, "S")
    data = path.read_bytes()
    assert data.count(b"avc1") >= 1
    path.write_bytes(data.replace(b"avc1", b"zzzz").replace(b"avcC", b"zzzC"))


def changing_size(path: Path) -> None:
    """Two MPEG transport streams of two sizes, one after the other."""
    for number, width in enumerate((160, 320)):
        write_clip(path.with_suffix(f".{number}.ts"), "S", width=width, height=width * 3 // 4)
    parts = [path.with_suffix(f".{number}.ts") for number in (0, 1)]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    for part in parts:
        part.unlink()


def unreadable(path: Path) -> None:
    write_clip(path, "S")
    path.chmod(0)


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty.mp4": (Path.touch, "empty.mp4 is empty"),
    "missing.mp4": (lambda path: None, "no video missing.*"),
    "header.mp4": (truncated_header, "header.mp4 cannot be decoded"),
    "garbage.mkv": (garbage_in_the_middle, "garbage.mkv is damaged: "),
    "nonsense.mp4": (garbage_in_the_middle, "nonsense.mp4 cannot be decoded at frame"),
    "noise.avi": (garbage_in_the_middle, "noise.avi cannot be decoded"),
    "half.mkv": (cut_in_half, "half.mkv is damaged: File ended prematurely"),
    "audio.mp4": (audio_only, "audio.mp4 has no video, only audio"),
    "zero.mkv": (zero_duration, "zero.mkv ends before its first frame"),
    "codec.mp4": (unknown_codec, "codec.mp4"),
    "size.ts": (changing_size, "size.ts changes its picture size"),
    "forbidden.mp4": (unreadable, "Permission denied"),
    "fifo.mp4": (os.mkfifo, "fifo.mp4 is not a file"),
    "folder.mp4": (Path.mkdir, "no video folder.*"),
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs")
def test_every_broken_file_is_named_and_every_other_one_extracted(tiny, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    for name, (make, _) in BROKEN.items():
        make(videos / name)
    write_clip(videos / "one-frame.mp4", "S", seconds=1 / 24)
    good = ["one-frame.mp4"]
    for number, suffix in enumerate(["mp4", "mkv", "avi"]):
        write_clip(videos / f"good{number}.{suffix}", "S", seconds=1)
        good.append(f"good{number}.{suffix}")
    names = [name for pair in zip(BROKEN, good * 3, strict=False) for name in pair][: 2 * 4]
    names += [name for name in BROKEN if name not in names]
    manifest = Manifest(
        "a bad day", Items.of([Item(Path(name).stem, media=name) for name in names])
    )
    begin = time.monotonic()
    summary = extract(manifest, videos, [tiny], tmp_path, patience=20)
    assert time.monotonic() - begin < 15
    reasons = {one: why for kind in summary.failed.values() for one, why in kind.items()}
    if os.geteuid() == 0:  # whom nothing is forbidden
        assert reasons.pop("forbidden", "Permission denied")
    for name in BROKEN:
        if name == "forbidden.mp4" and os.geteuid() == 0:
            continue
        assert BROKEN[name][1] in reasons.pop(Path(name).stem)
    assert reasons == {}
    store = open_store(tmp_path / "tiny.zarr")
    for name in good:
        assert np.isfinite(store[Path(name).stem]["native"]).all()
    assert store["one-frame"]["frame_index"].tolist() == [0] * 8


def decoders_of(process: int) -> list[int]:
    """The decoding processes that a process has started."""
    told = subprocess.run(
        ["ps", "-o", "pid,args", "--ppid", str(process)], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in told.stdout.splitlines() if "video.worker" in line]


@pytest.fixture
def meddling() -> Iterator[Callable[[Callable[[int], None], int], threading.Thread]]:
    """Do something to each of the first decoders of this process, as soon as there is one."""
    threads = []

    def begin(what: Callable[[int], None], times: int) -> None:
        def watch() -> None:
            seen: set[int] = set()
            end = time.monotonic() + 30
            while len(seen) < times and time.monotonic() < end:
                for one in decoders_of(os.getpid()):
                    if one not in seen:
                        seen.add(one)
                        what(one)
                time.sleep(0.01)

        threads.append(threading.Thread(target=watch))
        threads[-1].start()

    yield begin
    for thread in threads:
        thread.join()


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux has them")
MANIFEST = Manifest(
    "clips", Items.of([Item(f"clip-{row:02}", media=f"clip{row % 6}.mp4") for row in range(20)])
)


@linux
def test_a_decoder_that_hangs_is_given_up_and_the_run_goes_on(films, tiny, tmp_path, meddling):
    """It is stopped for real, as on a network drive that does not answer."""
    meddling(lambda process: os.kill(process, signal.SIGSTOP), 1)
    summary = extract(MANIFEST, films, [tiny], tmp_path, patience=1.5, workers=1)
    (reasons,) = summary.failed.values()
    (why,) = reasons.values()
    assert "was given up: decoding made no headway for 1.5 s" in why
    assert summary.done == 19
    assert decoders_of(os.getpid()) == []
    again = extract(MANIFEST, films, [tiny], tmp_path, wanted=Wanted(failed=True))
    assert (again.clips, again.done) == (1, 20)


@linux
def test_a_decoder_that_dies_is_replaced_and_no_clip_is_lost(films, tiny, tmp_path, meddling):
    meddling(lambda process: os.kill(process, signal.SIGKILL), 1)
    summary = extract(MANIFEST, films, [tiny], tmp_path)
    assert (summary.done, summary.failed) == (20, {})


@linux
def test_a_file_over_which_decoders_die_is_named(films, tiny, tmp_path, meddling):
    """The first two are killed, so the first clip fails; the third does the others."""
    meddling(lambda process: os.kill(process, signal.SIGKILL), 2)
    summary = extract(MANIFEST, films, [tiny], tmp_path, workers=1)
    assert summary.done >= 19
    for why in summary.failed.get("unreadable", {}).values():
        assert "the decoder died over it (SIGKILL)" in why
