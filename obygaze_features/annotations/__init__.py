"""Import annotators' timelines, project them onto clips, and merge and compare the labels."""

from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import Film, Segment, Timelines

__all__ = ["Film", "Remark", "Segment", "Timelines"]
