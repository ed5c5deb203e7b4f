"""The scale benchmark runs at tiny sizes, where its figures mean nothing."""

import math
from importlib.util import find_spec

import pytest

from benchmarks import scale, scale_inputs
from tests.kit.floats import close


@pytest.mark.gate
def test_every_cost_is_measured_at_three_sizes(monkeypatch):
    monkeypatch.setenv(scale.SMALL, "1")
    monkeypatch.setattr(scale_inputs, "SEGMENTS", 20)
    if find_spec("faiss") is None:  # make bench installs it
        without = [work for work in scale.WORKS if "FAISS" not in work.beside]
        monkeypatch.setattr(scale, "WORKS", without)
    results = list(scale.measure())
    assert all(math.isfinite(result.ratio) for result in results)
    curves = {result.name: result.curve for result in results if result.curve}
    for work in scale.WORKS:
        name = next(name for name in curves if name.startswith(f"{work.name}, "))
        sizes, seconds, mib = zip(*curves[name], strict=True)
        assert sizes == tuple(sorted({*sizes}))
        assert len(sizes) == 3
        assert min(seconds) > 0
        assert min(mib) > 10
        promised = {r.name: r.target for r in results if r.name.startswith(f"{work.name}: ")}
        assert promised[f"{work.name}: exponent (linear)"] == work.exponent
        assert work.memory in promised.values()


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
