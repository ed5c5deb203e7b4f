"""Faulty clips, options and decoders: the good clips are still extracted."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.manifests import Item, Items, Manifest
from tests.extraction.ray_clusters import children
from tests.kit.files import touch, write
from tests.kit.films import clips, rows, write_clip


def put_garbage(path: Path) -> None:
    write_clip(path, "S", seconds=4)
    data = bytearray(path.read_bytes())
    middle = slice(len(data) // 3, 2 * len(data) // 3)
    data[middle] = np.random.default_rng(1).bytes(middle.stop - middle.start)
    path.write_bytes(data)


def rename_codec(path: Path) -> None:
    """Name an unknown codec in the sample description of an mp4 file."""
    write_clip(path, "S")
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz").replace(b"avcC", b"zzzC"))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty.mp4": (Path.touch, "empty.mp4 is empty"),
    "missing.mp4": (lambda path: None, "no file matches missing.*"),
    "words.mp4": (lambda path: path.write_bytes(b"no film " * 1000), "words.mp4 cannot be decoded"),
    "garbage.mkv": (put_garbage, "garbage.mkv is damaged: "),
    "nonsense.mp4": (put_garbage, "nonsense.mp4 cannot be decoded at frame"),
    "codec.mp4": (rename_codec, "codec.mp4 cannot be decoded: FFmpeg does not know its codec"),
    "fifo.mp4": (os.mkfifo, "fifo.mp4 is not a file"),
    "folder.mp4": (Path.mkdir, "no file matches folder.*"),
}


def test_broken_files_are_named_and_the_rest_extracted(tiny, tmp_path, monkeypatch):
    videos = tmp_path / "videos"
    videos.mkdir()
    for name, (make, _) in BROKEN.items():
        make(videos / name)
    good = ["one-frame.mp4", "good0.mp4", "good1.mkv", "good2.avi"]
    write_clip(videos / good[0], "S", seconds=1 / 24)
    for name in good[1:]:
        write_clip(videos / name, "S", seconds=1)
    monkeypatch.chdir(videos)  # reasons are the same wherever the folder is
    manifest = clips(*BROKEN, *good)
    summary = of.extract(manifest, Path(), tiny, tmp_path / "s", stall_timeout=900)
    assert {"missing", "folder"} == set(summary.failed["missing"])
    store = of.open_store(tmp_path / "s/tiny.zarr")
    assert store.failures.keys() == {Path(name).stem for name in BROKEN}
    for name, (_, reason) in BROKEN.items():
        assert reason in store.failures[Path(name).stem]
        assert str(tmp_path) not in store.failures[Path(name).stem]
    for name in good:
        assert np.isfinite(store[Path(name).stem]["native"]).all()
    assert store["one-frame"]["frame_index"].tolist() == [0] * 8


def decoders_of(process: int) -> list[int]:
    decoders = []
    for child in children(process):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if b"video.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                decoders.append(child)
    return decoders


def has_pictures(process: int) -> bool:
    """Return True if a decoder has written to its shared memory."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process}/fd").iterdir():
            if "frames" in str(entry.readlink()) and entry.stat().st_size:
                return True
    return False


@pytest.fixture
def send() -> Iterator[Callable[[int], Future[None]]]:
    """Send a signal to this process's first decoder, as soon as it has decoded something."""

    def watch(number: int) -> None:
        end = time.monotonic() + 300
        while not (at_work := [pid for pid in decoders_of(os.getpid()) if has_pictures(pid)]):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(at_work[0], number)

    with ThreadPoolExecutor(1) as threads:
        yield partial(threads.submit, watch)


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux has them")


@linux
def test_a_hanging_decoder_is_replaced(films, tiny, tmp_path, send):
    """The process is really stopped, like on a network drive that does not answer."""
    send(signal.SIGSTOP)
    summary = of.extract(rows(20), films, tiny, tmp_path, stall_timeout=1.5, workers=1)
    ((reason,),) = (reasons.values() for reasons in summary.failed.values())
    assert "was given up: decoding made no progress for 1.5 s" in reason
    assert summary.done == 19
    assert decoders_of(os.getpid()) == []
    again = of.extract(rows(20), films, tiny, tmp_path, retry_failed=True)
    assert (again.clips, again.done) == (1, 20)


@linux
def test_a_dead_decoder_loses_no_clip(films, tiny, tmp_path, send):
    sent = send(signal.SIGKILL)
    summary = of.extract(rows(20), films, tiny, tmp_path)
    sent.result()
    assert (summary.done, summary.failed) == (20, {})


def test_a_file_that_kills_two_decoders_fails(films, tiny, tmp_path, monkeypatch):
    """A decoder dies at every request."""
    fake = tmp_path / "fake"
    touch(fake / "obygaze_features", "__init__.py", "video/__init__.py")
    write(
        fake / "obygaze_features/video/worker.py",
        "import os, socket, sys",
        "channel = socket.socket(fileno=int(sys.argv[1]))",
        "channel.sendall(b'ready\\n')",
        "channel.recv(1)",
        "os.kill(os.getpid(), 9)",
    )
    monkeypatch.setattr(sys, "path", [str(fake), *sys.path])
    failed = of.extract(rows(1), films, tiny, tmp_path).failed["unreadable"]
    assert [*failed.values()] == ["clip0.mp4 cannot be decoded: the decoder died (SIGKILL)"]


def test_no_clip_fails_when_decoders_cannot_start(films, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VideoError, match=r"could not start a decoding process \(exit code 1\)"):
        of.extract(rows(20), films, tiny, tmp_path)
    assert not of.open_store(tmp_path / "tiny.zarr").status.any()


ONE = rows(1)
TEXT = Manifest("text", Items.of([Item("text", kind="text", text="a photo")]))
MIXED = Manifest("mixed", Items.of([*ONE, *TEXT]))

#: A mistake: manifest, change to the backbone, options; the error and its facts.
SLIPS = {
    "option": (ONE, None, {"limits": 2}, UsageError, "option 'limits'; did you mean limit"),
    "number": (ONE, None, {"batch": 0}, UsageError, "batch must be above 0 .got 0"),
    "ray": (ONE, None, {"ray": "auto"}, UsageError, "pass backbones by name"),
    "track": (ONE, None, {"audio_track": 2}, UsageError, "needs an audio backbone"),
    "store": (ONE, None, {"arrays": ["other:max"]}, UsageError, "unknown store other.* from tiny"),
    "rate": (ONE, None, {"sampling": "2"}, UsageError, "such as '2 fps'.* .got 2"),
    "rate of clips": (ONE, None, {"sampling": "2 fps"}, UsageError, "takes whole clips"),
    "rate of sound": (ONE, lambda tiny: "tiny-clap", {"sampling": "2 fps"}, UsageError, "of sound"),
    "none": (ONE, lambda tiny: [], {}, UsageError, "no backbones; pass at least one"),
    "one name": (ONE, lambda tiny: [tiny, tiny], {}, UsageError, "two backbones .* 'tiny'"),
    "texts": (ONE, lambda tiny: "words", {}, UsageError, "words is for images or texts"),
    "kinds": (MIXED, None, {}, UsageError, "text is of kind 'text'"),
    "folder": (clips("other.mp4"), None, {}, VideoError, "has no files of .* .missing: 1."),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_user_errors_are_refused_before_anything_is_written(films, tiny, tmp_path, slip):
    manifest, change, options, error, facts = SLIPS[slip]
    with pytest.raises(error, match=facts) as caught:
        of.extract(manifest, films, change(tiny) if change else tiny, tmp_path, **options)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_limited_number_of_items_waits(films, tmp_path):
    """Eight per decoder, besides the one that it reads and the one that is embedded."""
    read = []
    waiting = []

    class Slow(torch.nn.Module):
        def forward(self, pixels):
            waiting.append(len(read) - len(waiting))
            time.sleep(0.1)
            return pixels.mean((2, 3))

    def shrink(frame):
        read.append(1)
        return frame[:, ::40, ::40]

    slow = of.Backbone.from_torch(Slow(), frames=1, transform=shrink)
    of.extract(rows(30), films, slow, tmp_path, workers=1, batch=1)
    assert 8 < max(waiting) <= 12
