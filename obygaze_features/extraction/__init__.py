"""Extraction: each clip decoded once, for all backbones, into their stores."""

from __future__ import annotations

from obygaze_features.extraction.pipeline import Summary, extract

__all__ = ["Summary", "extract"]
