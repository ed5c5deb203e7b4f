"""Annotators' timelines: free segments, their projection onto clips, merging and agreement."""

from obygaze_features.annotations.timelines import Film, Remark, Segment, Timelines

__all__ = ["Film", "Remark", "Segment", "Timelines"]
