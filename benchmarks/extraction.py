"""Extraction: what decoding costs, and what whole passes over clips do."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import decoding, passes
from benchmarks.result import Result


def measure() -> Iterator[Result]:
    """What is promised of extraction."""
    yield from decoding.measure()
    yield from passes.measure()
