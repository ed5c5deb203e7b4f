"""Every kind of film: its frames against their drawn numbers, its index, its spans."""

import hashlib

import numpy as np
import pytest

from obygaze_features.errors import VideoError
from obygaze_features.sampling import Sampling, uniform_indices
from obygaze_features.video.index import fingerprint, index_file
from tests.kit.decoding import decode_frames
from tests.kit.films import KINDS, everything, numbers, upright, write

IN_ORDER = {name for name in KINDS if name.endswith((".avi", ".ts", ".flv", ".mpg"))}
IN_ORDER |= {"vp8.webm"}


@pytest.mark.parametrize("name", KINDS)
def test_every_frame_has_its_number(tmp_path, name):
    path = write(tmp_path / name)
    rotation = KINDS[name].get("rotation", 0)
    oracle = upright(everything(path), rotation)
    ticks = []
    index = index_file(path, tick=lambda: ticks.append(1))
    assert len(index) == 72
    assert len(ticks) >= 72  # every packet is a heartbeat
    # Only files whose packets have enough information are decoded in pieces.
    assert (index.why_slow is not None) == (name in IN_ORDER)
    frames = decode_frames(path, range(72), index=index)
    assert numbers(frames.rgb, rotation) == frames.indices.tolist() == list(range(72))
    assert (frames.rgb == oracle).all()

    gaps = np.ones(71)
    if "variable" in name:
        gaps += np.arange(71) % 3
    times_shown = np.cumsum([0, *gaps]) / 24
    assert index.times[0] == pytest.approx(0, abs=0.001)
    np.testing.assert_allclose(index.times, times_shown, atol=0.0011)
    end = index.times[-1] + 1 / 24
    assert index.seconds == pytest.approx(end, abs=0.09)
    for count in (1, 8, 100):
        requested = uniform_indices(72, count)
        frames = decode_frames(path, requested)  # each of them once
        assert frames.indices.tolist() == sorted({*requested.tolist()})
        assert (frames.times == index.times[frames.indices]).all()
        assert (frames.rgb == oracle[frames.indices]).all()


def test_only_needed_pieces_are_read_and_a_changed_film_refused(tmp_path):
    """A film may be damaged outside the part that is read."""
    path = write(tmp_path / "x264.mp4", seconds=15)
    ticks = []
    index = index_file(path)
    decode_frames(path, [350], index=index, tick=lambda: ticks.append(1))
    assert len(ticks) <= 12
    write(path, rate=30)
    with pytest.raises(VideoError, match=r"x264.mp4 does not match its index"):
        decode_frames(path, [5, 60], index=index)


def by_the_clock(times: list[float], frames: int, rate: float) -> list[int]:
    """Return the first frame at or after each tick; sample evenly if there are too many."""
    times = [time - times[0] + 1e-6 for time in times]
    count = 1 + int(times[-1] * rate)
    picked = []
    for tick in range(count):
        first = next(i for i, time in enumerate(times) if time >= tick / rate)
        if first not in picked:
            picked.append(first)
    if len(picked) <= frames:
        return picked
    last = len(picked) - 1
    return [picked[i * last // (frames - 1)] for i in range(frames)]


@pytest.mark.parametrize("seed", range(40))
def test_sampling_by_rate_follows_the_clock(seed):
    dice = np.random.default_rng(seed)
    n = int(dice.integers(1, 400))
    fps = float(dice.choice([10, 23.976, 24, 25, 29.97, 60]))
    steps = dice.choice([1, 1, 2, 5], n) if seed % 2 else np.ones(n)
    times = np.cumsum(steps) / fps + float(dice.uniform(0, 100))
    frames = int(dice.integers(2, 20))
    rate = float(dice.choice([0.5, 1, 2, 3]))
    picked = Sampling(frames, rate=rate).pick(times)
    assert picked.tolist() == by_the_clock(times.tolist(), frames, rate)
    assert len(picked) <= frames
    assert (np.diff(picked) > 0).all()
    # Stores keep these words; if they changed, an extraction could not be resumed.
    assert Sampling(8).words == "uniform, frame int(i * n / 8)"
    assert Sampling(8, rate=0.5).words.startswith("0.5 a second, of these at most 8 evenly")


@pytest.mark.parametrize("name", ["x264.mp4", "variable.mkv", "x265-open.mp4", "mpeg4.avi"])
def test_a_span_has_the_frames_shown_in_it(tmp_path, name):
    path = write(tmp_path / name)
    index = index_file(path)
    for start, end in [(None, None), (0, 1), (1, 2), (0.51, 2.04), (1.5, 4.2), (1.5, None)]:
        low = -1 if start is None else start
        high = 99 if end is None else end
        inside = (index.times >= low - 1e-6) & (index.times < high - 1e-6)
        span = index.span(path, start, end)
        assert list(span) == np.flatnonzero(inside).tolist()
        requested = span.start + uniform_indices(len(span), 5)
        frames = decode_frames(path, requested, index=index)
        assert numbers(frames.rgb) == sorted({*requested.tolist()})
    for start, end in ((7, 9), (7, None), (1.01, 1.02), (None, 99.0)):
        with pytest.raises(VideoError, match=rf"{name}: the clip's span .* exceeds the film"):
            index.span(path, start, end)


def test_fingerprints_distinguish_films(tmp_path):
    path = write(tmp_path / "x264.mp4")
    data = path.read_bytes()
    head = hashlib.sha256(data[: 1 << 20]).hexdigest()
    expected = f"bytes={len(data)} seconds=3.000 frames=72 head={head}"
    assert fingerprint(path, index_file(path)) == expected
    assert fingerprint(path) == f"bytes={len(data)} head={head}"
    path.write_bytes(bytes(1 << 20) + b"more")
    head = hashlib.sha256(bytes(1 << 20)).hexdigest()
    assert fingerprint(path).endswith(f" head={head}")
