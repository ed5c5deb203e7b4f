"""What to cite: the data of the runs first, then the task and the software."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.package import reference_json
from obygaze_models.report.glossary import LEVELS
from obygaze_models.report.runs import ReportRun


def citation(runs: Sequence[ReportRun]) -> str:
    """Each source once; the paper of ObyGaze's task only where its levels are what is learned."""
    records = [run.record for run in runs]
    sources = [
        record.manifest.citation or f"{record.manifest.name}, whose manifest has no citation"
        for record in records
    ]
    if any(record.manifest.levels.keys() == LEVELS.keys() for record in records):
        sources.append(reference_json("sources.json")["obygaze12"]["citation"])
    sources += [f"obygaze {record.versions['obygaze']}" for record in records]
    return "; ".join(dict.fromkeys(source.rstrip(". ") for source in sources))
