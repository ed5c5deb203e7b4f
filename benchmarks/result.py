"""One line of a benchmark, and the fair way of timing two things."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Result", "side_by_side"]


@dataclass(frozen=True)
class Result:
    """What was measured, beside a peer or a limit.

    `ratio` is ours over the peer's; it must be at most `target`, where there is one. `curve` has
    sizes, each with its CPU seconds and MiB.
    """

    name: str
    value: float
    unit: str
    peer: float
    ratio: float
    target: float | None
    curve: tuple[tuple[int, float, float], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the target is met."""
        return self.target is None or self.ratio <= self.target


def side_by_side(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    target: float | None,
    runs: int = 5,
) -> Result:
    """Time both in turn, several times, and compare the best of each.

    In turn, because these machines are noisy; the best, because noise only ever adds.
    """
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        for side, function in enumerate((ours, peer)):
            gc.collect()
            begin = time.perf_counter()
            kept = function()
            best[side] = min(best[side], time.perf_counter() - begin)
            del kept  # freeing what was made is not part of making it
    return Result(name, best[0], "s", best[1], best[0] / best[1], target)
