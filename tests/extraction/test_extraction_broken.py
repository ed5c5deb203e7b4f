"""A folder with all that can be wrong with videos: the good ones are extracted all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.extraction import extract
from obygaze_features.extraction.decode_pool import Decoder
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
    "codec.mp4": (unknown_codec, "codec.mp4 cannot be decoded: FFmpeg does not know its codec"),
    "size.ts": (changing_size, "size.ts changes its picture size"),
    "fifo.mp4": (os.mkfifo, "fifo.mp4 is not a file"),
    "folder.mp4": (Path.mkdir, "no video folder.*"),
}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs")
def test_broken_files_are_named_and_the_others_extracted(tiny, tmp_path):
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
    summary = extract(manifest, videos, [tiny], tmp_path, stall_timeout=900)
    assert time.monotonic() - begin < 800  # none was waited for
    reasons = {entry: reason for kind in summary.failed.values() for entry, reason in kind.items()}
    for name in BROKEN:
        assert BROKEN[name][1] in reasons.pop(Path(name).stem)
    assert reasons == {}
    store = open_store(tmp_path / "tiny.zarr")
    for name in good:
        assert np.isfinite(store[Path(name).stem]["native"]).all()
    assert store["one-frame"]["frame_index"].tolist() == [0] * 8


if hasattr(os, "geteuid") and os.geteuid() != 0:  # to root nothing is forbidden
    BROKEN["forbidden.mp4"] = (unreadable, "forbidden.mp4 may not be read; check its permissions")


def decoders_of(process: int) -> list[int]:
    """The decoding processes that a process has started."""
    children = []
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            children += [int(entry) for entry in thread.read_text().split()]
    return [entry for entry in children if b"video.worker" in command_of(entry)]


def has_pictures(process: int) -> bool:
    """Whether a decoder has put anything into the memory that it shares."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            if "frames" in str(entry.readlink()) and entry.stat().st_size:
                return True
    return False


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def meddling() -> Iterator[Callable[[Callable[[int], None], int], threading.Thread]]:
    """Do something to each of the first decoders of this process, as soon as it is at work."""
    threads = []

    def begin(action: Callable[[int], None], times: int) -> None:
        def watch() -> None:
            seen: set[int] = set()
            end = time.monotonic() + 300
            while len(seen) < times and time.monotonic() < end:
                for entry in decoders_of(os.getpid()):
                    if entry not in seen and has_pictures(entry):
                        seen.add(entry)
                        action(entry)
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


@pytest.mark.gate
@linux
def test_a_decoder_that_hangs_is_given_up(films, tiny, tmp_path, meddling):
    """It is stopped for real, as on a network drive that does not answer."""
    meddling(lambda process: os.kill(process, signal.SIGSTOP), 1)
    summary = extract(MANIFEST, films, [tiny], tmp_path, stall_timeout=1.5, workers=1)
    (reasons,) = summary.failed.values()
    (reason,) = reasons.values()
    assert "was given up: decoding made no progress for 1.5 s" in reason
    assert summary.done == 19
    assert decoders_of(os.getpid()) == []
    again = extract(MANIFEST, films, [tiny], tmp_path, retry_failed=True)
    assert (again.clips, again.done) == (1, 20)


@pytest.mark.gate
@linux
def test_a_decoder_that_dies_is_replaced_and_no_clip_is_lost(films, tiny, tmp_path, meddling):
    meddling(lambda process: os.kill(process, signal.SIGKILL), 1)
    summary = extract(MANIFEST, films, [tiny], tmp_path)
    assert (summary.done, summary.failed) == (20, {})


def test_a_decoder_that_dies_over_a_file_twice_gives_it_up(films, monkeypatch, tmp_path):
    """A decoder in the place of ours that dies over every question."""
    script = tmp_path / "obygaze_features/video/worker.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import os, socket, sys\n"
        "channel = socket.socket(fileno=int(sys.argv[1]))\n"
        "channel.sendall(b'ready\\n')\n"
        "channel.recv(1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    for folder in ("obygaze_features", "obygaze_features/video"):
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    decoder = Decoder(stall_timeout=10)
    answer = decoder.ask({"path": "a.mp4"})
    decoder.discard()
    assert answer["error"] == "a.mp4 cannot be decoded: the decoder died over it (SIGKILL)"


def test_where_no_decoder_can_start_no_clip_is_blamed(films, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VideoError, match=r"the processes that decode cannot start \(exit code 1\)"):
        extract(MANIFEST, films, [tiny], tmp_path)
    assert not open_store(tmp_path / "tiny.zarr").status.any()


def test_an_unreadable_folder_costs_only_its_film(films, tiny, tmp_path):
    """What cannot be listed is named: here a name too long for any file system."""
    videos = tmp_path / "videos"
    (videos / "tt1").mkdir(parents=True)
    (videos / "tt1/clip1.mp4").symlink_to(films / "clip1.mp4")
    (videos / "tt2").symlink_to(videos / "tt2")  # leads nowhere
    items = [Item(f"{film}-1", film=film, media="clip1.mp4") for film in ("tt1", "tt2")]
    summary = extract(Manifest("two", Items.of(items)), videos, [tiny], tmp_path)
    assert summary.done == 1
    assert list(summary.failed["missing"]) == ["tt2-1"]
