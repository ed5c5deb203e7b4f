"""Files that ask for more memory or time than any film needs."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.manifests import Item, Items
from tests.kit.files import write
from tests.kit.films import write_sound

NOISE = np.random.default_rng(3).integers(-20_000, 20_000, 48_000) / 32_768


def write_wav(path: Path, rate: int) -> None:
    """Write a WAV file of any rate."""
    data = (NOISE * 32_767).astype("<i2").tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    size = struct.pack("<I", 36 + len(data))
    head = b"RIFF" + size + b"WAVEfmt " + form + b"data"
    path.write_bytes(head + struct.pack("<I", len(data)) + data)


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_hostile_sound_is_refused(tmp_path):
    """One of these files asked for 59.6 GiB."""
    write_wav(tmp_path / "good.wav", 48_000)
    lines = ("file good.wav", "duration 1000000", "file good.wav")
    write(tmp_path / "list.mp4", "ffconcat version 1.0", *lines)
    write_wav(tmp_path / "slow.wav", 7)
    write_wav(tmp_path / "fast.wav", 100_000_007)
    # Twenty hours lie between its second and third packet.
    later = [(0.04, 72_000)]
    write_sound(tmp_path / "gap.mkv", "pcm_s16le", NOISE[:4096], later=later)
    reasons = {
        "list": "a list of other files",
        "slow": "with 7 samples per second; only 1,000 to 1,000,000",
        "fast": "with 100,000,007 samples per second",
        "gap": "more than 1 hour",
        "long": "more than 1 hour",
    }
    items = [Item(name, media=f"{name}.*") for name in ("list", "slow", "fast", "gap", "good")]
    items.append(Item("long", media="good.wav", start=0.0, end=1e9))
    manifest = of.Manifest("hostile", Items.of(items))
    summary = of.extract(manifest, tmp_path, "tiny-clap", tmp_path / "s")
    assert summary.done == 1
    failed = summary.failed["unreadable"]
    assert failed.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in failed[name]


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


def test_pictures_and_sound_of_a_film_have_one_fingerprint(tmp_path):
    """Numbering frames of a transport stream needs a decoder; sound needs no numbers."""
    write_sound(tmp_path / "film.ts", "aac", NOISE, pictures=4)
    film = of.Manifest("one", Items.of([Item("film", media="film.ts")]))
    stores = of.extract(film, tmp_path, ["tiny-xclip", "tiny-clap"], tmp_path / "s").stores
    seen, heard = (of.open_store(store).rows_table["source"] for store in stores)
    assert seen == heard
