"""Engines: where the work of an extraction is done, one file each."""

from __future__ import annotations

from collections.abc import Callable

from obygaze_features.extraction.engines.job import Job

__all__ = ["Engine", "Job"]

Engine = Callable[[Job], None]
"""Does what a job asks for, and notes in it what came of it."""
