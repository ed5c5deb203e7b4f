"""How many processes of a Ray cluster do what, and what each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obygaze_features.errors import UsageError

__all__ = ["SMALLEST", "Plan", "planned"]

SMALLEST = 0.001
"""The smallest part of a CPU or GPU that a process may take."""


@dataclass(frozen=True)
class Plan:
    """How many processes compute, how many read, what each that computes takes, and on what."""

    forwards: int
    workers: int
    cpus: float
    gpus: float
    device: str

    def __str__(self) -> str:
        return (
            f"{self.forwards} x ({self.cpus:g} CPU, {self.gpus:g} GPU) to compute and "
            f"{self.workers} x 1 CPU to read"
        )


def planned(
    there: Mapping[str, float],
    *,
    forwards: int | None,
    workers: int | None,
    cpus: float,
    gpus: float | None,
    device: str | None,
) -> Plan:
    """Decide what is left open by the ``CPU`` and ``GPU`` that there are."""
    if gpus is None:
        wants = bool(there["GPU"]) if device is None else device.startswith("cuda")
        gpus = float(wants)
    if gpus % 1 if gpus > 1 else 0 < gpus < SMALLEST:
        raise UsageError(f"--ray-gpus is a part of a GPU, such as 0.5, or whole ones, not {gpus:g}")
    if forwards is None:
        forwards = max(1, _fitting(int(there["GPU"]), gpus))
    workers = workers or max(1, int(there["CPU"] - forwards * cpus))
    return Plan(forwards, workers, cpus, gpus, device or ("cuda" if gpus else "cpu"))


def _fitting(there: int, each: float) -> int:
    """How many there are GPUs for; nobody takes parts of two."""
    if not each:
        return 1
    # Rounded: a tenth fits ten times.
    return there * int(1 / each + 1e-9) if each < 1 else there // int(each)
