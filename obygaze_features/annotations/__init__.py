"""Annotators' timelines: free segments, their projection onto clips, merging and agreement."""

from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import Film, Segment, Timelines

__all__ = ["Film", "Remark", "Segment", "Timelines"]
