"""Runs benchmarks, prints their tables and keeps the figures in results/NAME.json."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.result import Result
from obygaze_features.common.files import to_json, write_text
from obygaze_features.common.tables import align

#: Modules of this folder; each later room adds its own.
BENCHMARKS = (
    "manifests",
    "annotations",
    "captions",
    "store",
    "search",
    "travel",
    "remote",
    "extraction",
    "gpu",
    "zoo",
    "intervals",
    "sequences",
    "reproduction",
    "rehearsal",
    "association",
    "scale",
)
HEADER = ("what (peer)", "ours", "peer", "ratio", "target", "holds")
RESULTS = Path(__file__).with_name("results")


def main(names: list[str]) -> None:
    """Run the named benchmarks, or all."""
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        sys.exit(f"Error: no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    missed: list[str] = []
    for name in names or BENCHMARKS:
        results: list[Result] = list(importlib.import_module(f"benchmarks.{name}").measure())
        if not results:
            continue
        print(f"\n{name}: {datetime.now(UTC):%Y-%m-%d}, {_machine()}\n")
        print(align(HEADER, map(_row, results)))
        found = [{**asdict(result), "holds": result.holds} for result in results]
        write_text(RESULTS / f"{name}.json", to_json(found))
        print(f"\nresults -> {RESULTS / name}.json")
        missed += [result.name for result in results if not result.holds]
    if missed:
        sys.exit(f"Error: {len(missed)} targets do not hold, such as: {missed[0]}")


def _row(result: Result) -> list[str]:
    return [
        result.name,
        f"{result.value:.3g} {result.unit}",
        f"{result.peer:.3g} {result.unit}",
        f"{result.ratio:.3f}",
        "" if result.target is None else f"<= {result.target:.3g}",
        "yes" if result.holds else "NO",
    ]


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main(sys.argv[1:])
