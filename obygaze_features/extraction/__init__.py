"""Extraction: each item read once, for all backbones, into their stores."""

from __future__ import annotations

from obygaze_features.extraction.embedding import embed
from obygaze_features.extraction.pipeline import extract
from obygaze_features.extraction.plan import Wanted
from obygaze_features.extraction.summary import Summary

__all__ = ["Summary", "Wanted", "embed", "extract"]
