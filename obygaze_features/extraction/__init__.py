"""Feature extraction. Each item is read once for all backbones, which fill one store each."""

from __future__ import annotations

from obygaze_features.extraction.extract import extract
from obygaze_features.extraction.job import Options
from obygaze_features.extraction.summary import Summary

__all__ = ["Options", "Summary", "extract"]
