"""Extraction: each item is read once, for all backbones, into one store per backbone."""

from __future__ import annotations

from obygaze_features.extraction.extract import extract
from obygaze_features.extraction.job import Options
from obygaze_features.extraction.summary import Summary

__all__ = ["Options", "Summary", "extract"]
