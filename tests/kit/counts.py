"""The counts of long tests that the docs show, such as benchmarks/results/fuzz.json."""

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks/results"


def keep_counts(test: str, kind: str, **counts: int) -> None:
    """Save the counts for a type of input, with the date, during `make fuzz` and `make faults`."""
    if not os.environ.get("OBYGAZE_KEEP_COUNTS"):
        return
    path = RESULTS / f"{test}.json"
    lock = os.open(RESULTS, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of this run save their own counts
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[kind] = {"made": f"{datetime.now(UTC):%Y-%m-%d}", **counts}
    path.write_text(json.dumps(rows, indent=2) + "\n")
    os.close(lock)
