"""The scale benchmark runs at tiny sizes, where its figures mean nothing."""

import math

import pytest

from benchmarks import scale


@pytest.mark.night
def test_every_cost_is_measured(monkeypatch):
    monkeypatch.setenv(scale.SMALL, "1")
    results = list(scale.measure())
    assert len(results) == len(scale.WORKS)
    assert all(math.isfinite(result.ratio) for result in results)
