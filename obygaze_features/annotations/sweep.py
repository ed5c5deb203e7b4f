"""What the threshold makes of the labels: the merged levels and concepts at several thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_features.annotations.merge import merge
from obygaze_features.annotations.projection import project
from obygaze_features.annotations.remarks import Remark
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.tables import format_table
from obygaze_features.manifests.manifest import Manifest

__all__ = ["AtThreshold", "sweep", "sweep_csv"]


@dataclass(frozen=True)
class AtThreshold:
    """The merged labels at one threshold: clips by level, and marks of concepts in all."""

    threshold: float
    levels: dict[str, int]
    marks: int

    @property
    def clips(self) -> int:
        """How many clips have labels."""
        return sum(self.levels.values())

    @property
    def shares(self) -> dict[str, float]:
        """Level -> its share of the clips."""
        return {level: count / self.clips for level, count in self.levels.items()}

    @property
    def concepts_per_clip(self) -> float:
        """How many concepts a clip has, in the mean over all clips."""
        return self.marks / self.clips

    def to_json(self) -> dict[str, Any]:
        """Counts, shares and concepts per clip."""
        return {
            "threshold": self.threshold,
            "clips": self.clips,
            "levels": self.levels,
            "shares": self.shares,
            "concepts_per_clip": self.concepts_per_clip,
        }


def sweep(
    timelines: Timelines, grid: Manifest, thresholds: Iterable[float]
) -> tuple[list[AtThreshold], list[Remark]]:
    """Project and merge at each threshold, in ascending order; also what was odd about it."""
    found: list[AtThreshold] = []
    remarks: list[Remark] = []
    for threshold in sorted(set(thresholds)):
        projected = project(timelines, grid, threshold=threshold)
        merged = merge(projected.label_sets, projected.grid)
        counts = Counter(merged.labels.levels)
        levels = {code: counts[code] for code in grid.scheme.codes}
        found.append(AtThreshold(threshold, levels, sum(map(len, merged.labels.concepts))))
        # Neither depends on the threshold.
        remarks = [*projected.remarks, *merged.remarks]
    return found, remarks


def sweep_csv(found: Sequence[AtThreshold]) -> str:
    """The sweep as a table: a row a threshold."""
    levels = list(found[0].levels)
    return format_table(
        {
            "threshold": [f"{one.threshold:g}" for one in found],
            "clips": [str(one.clips) for one in found],
            **{level: [str(one.levels[level]) for one in found] for level in levels},
            **{f"{level}_share": [f"{one.shares[level]:.6f}" for one in found] for level in levels},
            "concepts_per_clip": [f"{one.concepts_per_clip:.6f}" for one in found],
        }
    )
