"""Extraction: the cost of decoding, and of whole passes over clips."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import decoding, passes
from benchmarks.result import Result


def measure() -> Iterator[Result]:
    """Measure the promised speed of extraction."""
    yield from decoding.measure()
    yield from passes.measure()
