"""The scale benchmark runs at tiny sizes, where its figures mean nothing."""

import math

import pytest

from benchmarks import scale


@pytest.mark.night
def test_every_cost_is_measured(monkeypatch):
    monkeypatch.setenv(scale.SMALL, "1")
    results = list(scale.measure())
    limits = [result for result in results if result.name.endswith("(limit)")]
    assert [limit.peer for limit in limits] == [5, 5, 5]  # seconds for 100,000 rows
    assert len(results) == len(scale.WORKS) + len(limits)
    assert all(math.isfinite(result.ratio) for result in results)
