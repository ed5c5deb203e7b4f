"""What timelines hold: films by annotators, in segments and in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from obygaze_features.annotations.cells import clock
from obygaze_features.annotations.timelines import Segment, Timelines
from obygaze_features.common.tables import align

__all__ = ["describe", "in_lines"]

SHOWN = 40


def describe(timelines: Timelines) -> dict[str, Any]:
    """Facts of timelines, of each film and of each annotator in it; times are in seconds."""
    remarks = Counter((one.film, one.annotator) for one in timelines.remarks)
    return {
        "name": timelines.name,
        "source": timelines.source,
        "licence": timelines.licence,
        "segments": len(timelines.segments),
        "annotators": timelines.annotators,
        "levels": list(timelines.scheme.codes),
        "films": {
            film: {
                "title": about.title,
                "end": about.end,
                "annotators": {
                    annotator: {
                        "segments": len(segments),
                        "levels": {
                            code: _covered(one for one in segments if one.level == code)
                            for code in timelines.scheme.codes
                        },
                        "covered": _covered(segments),
                        "remarks": remarks[film, annotator],
                    }
                    for annotator, segments in timelines.by_film.get(film, {}).items()
                },
            }
            for film, about in timelines.films.items()
        },
        "remarks": [vars(one) for one in timelines.remarks],
    }


def in_lines(facts: dict[str, Any]) -> str:
    """The same for people: a row a film and annotator."""
    rows = [
        [
            film,
            annotator,
            f"{one['segments']:,}",
            *map(clock, one["levels"].values()),
            clock(one["covered"]),
            "" if about["end"] is None else f"{one['covered'] / about['end']:.0%}",
            str(one["remarks"] or ""),
        ]
        for film, about in facts["films"].items()
        for annotator, one in about["annotators"].items()
    ]
    header = ["film", "annotator", "segments", *facts["levels"], "covered", "of film", "remarks"]
    lines = [align(header, rows[:SHOWN], left=2)]
    if (more := len(rows) - SHOWN) > 0:
        lines.append(f"and {more:,} more; --json has all")
    return "\n".join(lines)


def _covered(segments: Iterable[Segment]) -> float:
    """How long at least one of them lasts; where two overlap, the time counts once."""
    total = reached = 0.0
    for one in sorted(segments, key=lambda one: one.start):
        total += max(0.0, one.end - max(one.start, reached))
        reached = max(reached, one.end)
    return round(total, 6)
