"""The paper reproduced from full-size stores of made-up features, against what was promised."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.result import Result
from obygaze_models.reproduce.reproduce import reproduce
from tests.kit.authors import make_dataset

SECONDS, MEGABYTES = 90, 5


def measure() -> Iterator[Result]:
    """All tables and figures, from the authors' labels and splits."""
    authors = os.environ.get("OBYGAZE_TEST_DATA")
    if not authors:
        sys.exit("Error: set OBYGAZE_TEST_DATA to the folder of the authors' files")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = make_dataset(folder, Path(authors), widths=(512, 768, 512))
        begin = time.perf_counter()
        done = reproduce("all", dataset.manifest, dataset.stores, folder / "all")
        took = time.perf_counter() - begin
        yield Result("all tables, figures, page (limit)", took, "s", SECONDS, took / SECONDS, 1)
        assert done.report is not None
        size = done.report.stat().st_size / 1e6
        yield Result("the page of all runs (limit)", size, "MB", MEGABYTES, size / MEGABYTES, 1)
