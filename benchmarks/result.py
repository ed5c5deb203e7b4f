"""A line of a benchmark, the files that store lines, and a fair way to time two actions."""

from __future__ import annotations

import gc
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.printer import align

__all__ = ["Result", "Results", "side_by_side"]

RESULTS = Path(__file__).with_name("results")
HEADER = ("what (peer)", "ours", "peer", "ratio", "at most")


@dataclass(frozen=True)
class Result:
    """A measurement, compared with a peer or a limit.

    `ratio` is usually our value divided by the peer's. It must be at most `target`, if there is
    one.
    """

    name: str
    value: float
    unit: str
    peer: float
    ratio: float
    target: float | None

    @property
    def holds(self) -> bool:
        """True if the target is met; a share below 0 was measured wrongly."""
        return self.target is None or 0 <= self.ratio <= self.target

    def cells(self) -> list[str]:
        """Return the cells of the printed row."""
        target = ""
        if self.target is not None:
            target = f"{self.target:.3g}" if self.holds else f"{self.target:.3g}: MISSED"
        return [
            self.name,
            f"{self.value:.3g} {self.unit}",
            f"{self.peer:.3g} {self.unit}",
            f"{self.ratio:.3f}",
            target,
        ]


@dataclass(frozen=True)
class Results:
    """The lines of a benchmark, with date and machine, stored in results/NAME.json."""

    name: str
    made: str
    machine: str
    rows: tuple[Result, ...]

    @classmethod
    def of_today(cls, name: str, rows: tuple[Result, ...]) -> Results:
        """Return the results of a run that ends now on this machine."""
        system = f"{platform.system()}, Python {platform.python_version()}"
        machine = f"{os.cpu_count()} cores, {system}"
        return cls(name, f"{datetime.now(UTC):%Y-%m-%d}", machine, rows)

    @classmethod
    def load(cls, name: str) -> Results:
        """Read the results of the last run."""
        record = json.loads((RESULTS / f"{name}.json").read_text())
        rows = tuple(
            Result(**{key: value for key, value in row.items() if key != "holds"})
            for row in record["rows"]
        )
        return cls(name, record["made"], record["machine"], rows)

    def save(self) -> None:
        """Replace the results of the previous run."""
        rows = [{**asdict(row), "holds": row.holds} for row in self.rows]
        record = {"made": self.made, "machine": self.machine, "rows": rows}
        write_text(RESULTS / f"{self.name}.json", to_json(record))

    def __iter__(self) -> Iterator[Result]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Result:
        return next(row for row in self.rows if row.name == name)

    def __str__(self) -> str:
        cells = zip(*map(Result.cells, self.rows), strict=True)
        table = align(dict(zip(HEADER, cells, strict=True)), left=HEADER[:1])
        return f"{self.name}: {self.made}, {self.machine}\n\n{table}"


def side_by_side(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    target: float | None,
    runs: int = 5,
) -> Result:
    """Time both actions in turn, several times, and compare the best times.

    Taking turns evens out noise, and noise only ever adds time, so the best time is used.
    """
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        for side, function in enumerate((ours, peer)):
            gc.collect()
            begin = time.perf_counter()
            kept = function()
            best[side] = min(best[side], time.perf_counter() - begin)
            del kept  # freeing the result is not part of the measured work
    return Result(name, best[0], "s", best[1], best[0] / best[1], target)
