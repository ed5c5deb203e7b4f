"""The limits of the conclusions from a page: alarms about void or leaked scores, and cautions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.text import join_some
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.experiments.tables import Run
from obygaze_models.report.sources import Labels

LEAK = "leak"


@dataclass(frozen=True)
class Caution:
    """A caution, and where it applies."""

    text: str
    where: str = ""


def alarms(runs: Sequence[Run]) -> list[str]:
    """Return the warnings of void or leaked scores, as the runs recorded them."""
    warnings = [warning for run in runs for warning in run.warnings]
    return list(dict.fromkeys(str(warning) for warning in warnings if _is_grave(warning)))


def cautions(labels: Labels, runs: Sequence[Run]) -> list[Caution]:
    """Return the runs' other warnings, and the remarks in annotators' label sets."""
    by_text: dict[str, list[str]] = {}
    for run in runs:
        for warning in run.warnings:
            if not _is_grave(warning):
                by_text.setdefault(warning.text, []).append(run.experiment.name)
    found = [Caution(text, join_some(names)) for text, names in by_text.items()]
    return [*found, *_remarks(labels)]


def _is_grave(warning: RunWarning) -> bool:
    return warning.voids_scores or warning.code == LEAK


def _remarks(labels: Labels) -> Iterator[Caution]:
    """Yield the import's remarks that annotators' label sets contain."""
    entries: dict[str, Mapping[str, Any]] = {}
    for own in labels.annotators.values():
        timelines = own.about.get("timelines")
        if isinstance(timelines, Mapping):
            entries |= {str(entry): entry for entry in timelines.get("remarks", ())}
    titles = {clip.film: clip.title for clip in labels.clips}
    places: dict[str, list[str]] = {}
    for entry in entries.values():
        title = titles.get(entry["film"], entry["film"])
        same = places.setdefault(str(entry["what"]), [])
        same.append(f"{title}, {entry['annotator']}")
    for what, where in places.items():
        yield Caution(what, join_some(where))
