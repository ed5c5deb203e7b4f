"""Which frames are taken: the rules as they are written, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from obygaze_features.backbones.sampling import Sampling, uniform_indices


@pytest.mark.parametrize(("n", "count"), [(1, 8), (5, 8), (8, 8), (3000, 32), (7, 3)])
def test_sampling_follows_the_papers_rule(n, count):
    assert uniform_indices(n, count).tolist() == [int(i * n / count) for i in range(count)]
    assert Sampling(count).pick(np.arange(n) / 24).tolist() == uniform_indices(n, count).tolist()


def by_the_clock(times: list[float], frames: int, rate: float) -> list[int]:
    """The first frame at or after each tick; of too many, evenly, with both ends."""
    picked: list[int] = []
    tick = 0
    while tick / rate <= times[-1] - times[0] + 1e-6:
        first = next(i for i, t in enumerate(times) if t - times[0] >= tick / rate - 1e-6)
        if first not in picked:
            picked.append(first)
        tick += 1
    if len(picked) <= frames:
        return picked
    return [picked[int(i * (len(picked) - 1) / (frames - 1))] for i in range(frames)]


@pytest.mark.parametrize("seed", range(40))
def test_sampling_by_rate_follows_the_clock(seed):
    dice = np.random.default_rng(seed)
    n, fps = int(dice.integers(1, 400)), float(dice.choice([10, 23.976, 24, 25, 29.97, 60]))
    steps = dice.choice([1, 1, 2, 5], n) if seed % 2 else np.ones(n)
    times = np.cumsum(steps) / fps + float(dice.uniform(0, 100))
    frames, rate = int(dice.integers(2, 20)), float(dice.choice([0.5, 1, 2, 3]))
    picked = Sampling(frames, rate=rate).pick(times)
    assert picked.tolist() == by_the_clock(times.tolist(), frames, rate)
    assert len(picked) <= frames
    assert (np.diff(picked) > 0).all()


def test_a_clip_shorter_than_a_tick_gives_its_first_frame():
    assert Sampling(12, rate=1).pick(np.arange(5) / 24).tolist() == [0]


def test_a_rule_says_itself_in_words():
    """Stores keep the words: with others an extraction would not be resumed."""
    assert Sampling(8).words == "uniform, frame int(i * n / 8)"
    assert Sampling(8, rate=0.5).words == "0.5 a second, of these at most 8 evenly, ends included"
