"""Run benchmarks, print their tables and save the figures in results/NAME.json."""

from __future__ import annotations

import importlib
import sys

from benchmarks.result import Results

#: Modules in this folder, in the order in which they run.
BENCHMARKS = (
    "manifests",
    "store",
    "search",
    "remote",
    "extraction",
    "gpu",
    "zoo",
    "intervals",
    "cross_validation",
    "leaks",
    "reproduction",
    "scale",
)


def main(names: list[str]) -> None:
    """Run the named benchmarks, or all."""
    if unknown := sorted(set(names) - set(BENCHMARKS)):
        sys.exit(f"Error: no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    missed: list[str] = []
    for name in names or BENCHMARKS:
        results = Results.of_today(
            name, tuple(importlib.import_module(f"benchmarks.{name}").measure())
        )
        if not results.rows:
            continue
        print(f"\n{results}\n\nresults -> benchmarks/results/{name}.json")
        results.save()
        missed += [row.name for row in results if not row.holds]
    print("Write the tables into the docs with: python -m docs.measured --write")
    if missed:
        sys.exit(f"Error: missed targets: {len(missed)}, such as {missed[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
