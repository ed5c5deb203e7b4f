"""Annotators' timelines: free segments, their projection onto clips, merging and agreement."""

from obygaze_features.annotations.importers import csv_table, elan, mobygaze
from obygaze_features.annotations.project import project
from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import Film, Segment, Timelines

__all__ = ["Film", "Remark", "Segment", "Timelines"]

# They make timelines or take them, and so import `timelines`.
for name, importer in {"csv": csv_table, "elan": elan, "mobygaze": mobygaze}.items():
    setattr(Timelines, f"from_{name}", staticmethod(importer.import_timelines))
Timelines.project = project
