"""The scale benchmark runs at tiny sizes, where its figures mean nothing."""

import math

import pytest

from benchmarks import scale
from tests.kit.floats import close


@pytest.mark.gate
def test_every_cost_is_measured(monkeypatch):
    monkeypatch.setenv(scale.SMALL, "1")
    results = {result.name: result for result in scale.measure()}
    assert all(math.isfinite(result.ratio) for result in results.values())
    for work in scale.WORKS:
        exponent = results[f"{work.name}: exponent (linear)"]
        assert exponent.target == work.exponent
        assert any(name.startswith(f"{work.name}, ") for name in results)


def test_superlinear_costs_are_reported(monkeypatch):
    """One cost grows with the square of the size, another is linear as promised."""
    monkeypatch.setenv(scale.SMALL, "1")
    for power, holds in ((1, True), (2, False)):
        work = scale.Work(
            "rows", "clips", (), lambda folder, size: (folder / "n").write_text(str(size)),
            lambda inputs, output, power=power: float((inputs / "n").read_text()) ** power,
        )  # fmt: skip
        monkeypatch.setattr(scale, "WORKS", (work,))
        exponent = next(r for r in scale.measure("rows") if "exponent" in r.name)
        assert exponent.value == close(power)
        assert exponent.holds == holds
