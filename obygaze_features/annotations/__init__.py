"""Annotators' timelines, and how to project them onto clips, merge them and compare them."""

from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import Film, Segment, Timelines

__all__ = ["Film", "Remark", "Segment", "Timelines"]
