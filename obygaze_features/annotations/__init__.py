"""Annotators' timelines: free segments, their projection onto clips, merging and agreement."""

from obygaze_features.annotations.issues import Issue
from obygaze_features.annotations.timelines import Film, Segment, Timelines

__all__ = ["Film", "Issue", "Segment", "Timelines"]
