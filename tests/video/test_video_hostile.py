"""Files that ask for more memory or time than any film needs, and long films that do not."""

import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import av
import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.extraction.decoder import Decoder
from obygaze_features.sampling import SoundSampling
from obygaze_features.video import sound
from obygaze_features.video.index import index_file, open_media
from obygaze_features.video.worker import Memory, Worker
from tests.kit.films import write, write_sound

CLAP = SoundSampling(48_000, window=10, stride=10)
NOISE = np.random.default_rng(3).integers(-20_000, 20_000, 48_000) / 32_768


@pytest.fixture
def decoder():
    process = Decoder(stall_timeout=60)
    yield process
    process.discard()


def hear(decoder: Decoder, path: Path, *samplings: SoundSampling, start=None, end=None):
    request = {"task": "hear", "path": str(path), "start": start, "end": end}
    rules = [asdict(sampling) for sampling in samplings]
    return next(decoder.answers({**request, "samplings": rules}))


def peak_mib(decoder: Decoder) -> float:
    """Return the peak memory of the process, including shared memory."""
    assert decoder._process is not None
    status = Path(f"/proc/{decoder._process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def write_wav(path: Path, rate: int, samples: np.ndarray, listed: int | None = None) -> Path:
    """Write a WAV file of any rate, with any number of bytes in its header."""
    data = (samples * 32_767).astype("<i2").tobytes()
    size = len(data) if listed is None else listed
    fmt = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate % 2**32, 2, 16)
    parts = (b"RIFF", struct.pack("<I", min(36 + size, 2**32 - 1)), b"WAVEfmt ", fmt, b"data")
    path.write_bytes(b"".join([*parts, struct.pack("<I", size), data]))
    return path


def write_gap(path: Path, hours: float) -> Path:
    """Write four packets, with `hours` between the second and the third."""
    write_sound(path, "pcm_s16le", NOISE[:4096], later=[(0.04, 3600 * hours)])
    return path


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.night
@needs_linux
def test_hostile_sound_is_refused_in_little_memory(tmp_path, decoder):
    """One of these files asked for 59.6 GiB."""
    write_wav(tmp_path / "good.wav", 48_000, NOISE)
    lines = "ffconcat version 1.0\nfile good.wav\nduration 1000000\nfile good.wav\n"
    (tmp_path / "list.mp4").write_text(lines)
    slow, fast = (write_wav(tmp_path / f"{r}.wav", r, NOISE) for r in (7, 100_000_007))
    film = write_sound(tmp_path / "film.wav", "pcm_s16le", NOISE)
    for path, end, reason in (
        (tmp_path / "list.mp4", None, "a list of other files"),
        (slow, None, "with 7 samples per second; only 1,000 to 1,000,000"),
        (fast, None, "with 100,000,007 samples per second"),
        (write_gap(tmp_path / "gap.mkv", 20), None, "more than 1 hour"),
        (film, 10**9, "more than 1 hour"),
    ):
        answer = hear(decoder, path, CLAP, end=end)
        assert reason in answer["error"], answer
        assert "\n" not in answer["error"]
    assert hear(decoder, film, CLAP)["samples"] == 48_000
    assert peak_mib(decoder) < 300
    assert "error" not in hear(decoder, write_gap(tmp_path / "silent.mkv", 0.99), CLAP)
    assert peak_mib(decoder) < 1000  # an hour of silence


@pytest.mark.parametrize(("start", "end"), [(None, None), (0.5, None), (0.25, 1.5)])
def test_a_header_with_a_wrong_length_changes_nothing(tmp_path, start, end):
    signal = np.tile(NOISE, 2)
    right = write_wav(tmp_path / "right.wav", 48_000, signal)
    wrong = write_wav(tmp_path / "wrong.wav", 48_000, signal, listed=2**31)
    heard = [sound.decode_sound(path, start, end, 16_000)[0] for path in (right, wrong)]
    np.testing.assert_array_equal(*heard)


def test_playlists_of_other_files_are_not_read(tmp_path):
    write(tmp_path / "x264.ts", seconds=1)
    image = tmp_path / "p%03d.png"
    for path in (image, tmp_path / "p000.png"):
        path.write_bytes(b"not a picture")
    texts = {
        "list.mp4": "ffconcat version 1.0\nfile x264.ts\n",
        "film.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:9,\nx264.ts\n#EXT-X-ENDLIST\n",
        "session.mp4": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
        "m=audio 5004 RTP/AVP 0\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for path in (*(tmp_path / name for name in texts), image):
        with pytest.raises(VideoError, match="a list of other files"):
            index_file(path)
    with open_media(tmp_path / "x264.ts") as container:
        assert container.format.name == "mpegts"


@pytest.mark.night
@needs_linux
def test_a_worker_limits_its_own_memory():
    """The limit is 4 GiB, which OBYGAZE_MAX_PIXELS changes."""
    code = (
        "from obygaze_features.video.worker import limit_memory; import numpy as np, sys;"
        "limit = limit_memory(); np.empty(limit - 2**28, 'u1'); print(limit);"
        "np.empty(limit + 2**28, 'u1')"
    )
    for pixels, limit in (("", 2**30 + 3_200_000_000), ("1000", 2**30 + 32_000)):
        env = {"PYTHONPATH": ":".join(sys.path), "OBYGAZE_MAX_PIXELS": pixels}
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (result.stdout.strip(), "MemoryError" in result.stderr) == (str(limit), True)


@needs_linux
@pytest.mark.night
@pytest.mark.parametrize("name", ["x264.mp4", "mpeg4.avi"])
def test_pictures_beyond_the_memory_limit_are_not_damaged(tmp_path, name):
    write(tmp_path / name, seconds=0.25, width=1920, height=1080)
    request = {"task": "decode", "path": str(tmp_path / name), "start": None, "end": None}
    request |= {"samplings": [{"frames": 4}]}
    code = (
        "from obygaze_features.video import worker; import sys, tempfile;"
        "worker.MEMORY_BYTES, worker.MEMORY_BYTES_PER_PIXEL = int(sys.argv[1]), 0;"
        "file = tempfile.TemporaryFile(); memory = worker.Memory(file.fileno());"
        "answers = worker.Worker(memory, lambda: None); worker.limit_memory();"
        f"print(*answers.answers({request!r}))"
    )
    for limit, is_enough in ((2**24, False), (2**28, True)):
        result = subprocess.run(
            [sys.executable, "-c", code, str(limit)],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        output = result.stdout + result.stderr
        assert ("'shape': (4, 1080, 1920, 3)" in output) == is_enough
        assert ("emory" in output, "damaged" in output) == (not is_enough, False), output


def test_hearing_a_film_decodes_none_of_its_pictures(tmp_path):
    """Numbering frames of a transport stream needs a decoder; sound needs no numbers."""
    path = write_sound(tmp_path / "film.ts", "aac", NOISE, pictures=4)
    with av.open(path) as container:
        pictures = sum(packet.size > 0 for packet in container.demux(video=0))
    film = {"path": str(path), "start": None, "end": None}
    sampling = {"rate": 16_000, "window": 1, "stride": 1}
    hearing = film | {"task": "hear", "samplings": [sampling]}
    packets = []
    with tempfile.TemporaryFile() as file:
        worker = Worker(Memory(file.fileno()), lambda: packets.append(1))
        heard = next(worker.answers(hearing))
        assert pictures <= len(packets) < 1.7 * pictures
        decoding = film | {"task": "decode", "samplings": [{"frames": 4}]}
        seen = next(worker.answers(decoding))
        packets.clear()
        again = next(worker.answers(hearing))
    assert heard["source"] == seen["source"] == again["source"]
    assert len(packets) < pictures
