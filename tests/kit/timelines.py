"""The paper's worked case: two annotators, five clips."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.annotations import Segment, Timelines
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme

SCHEME = obygaze_scheme()
Span = tuple[float | str, ...]
CLIPS = [(0, 100), (100, 200), (200, 300), (300, 400), (400, 420)]
FIRST = [
    (85, 150, "HN", "Clothes"),
    (150, 215, "S", "Body"),
    (240, 262, "NS", "Look"),
    (262, 300, "NS", "Posture"),
]
SECOND = [
    (0, 15, "S", "Look"),
    (110, 130, "S", "Look"),
    (119, 190, "NS", "Activities"),
    (200, 300, "NS", "Look", "Clothes"),
    (390, 420, "HN", "Posture"),
]


def segments(annotator: str, spans: Sequence[Span], film: str = "film") -> list[Segment]:
    """Segments of one annotator, concepts by any of their names."""
    rows = []
    for start, end, level, *concepts in spans:
        names = SCHEME.in_order(map(SCHEME.concept, map(str, concepts)))
        rows.append(Segment(film, annotator, float(start), float(end), str(level), names))
    return rows


def grid(clips: Sequence[tuple[float, float]] = CLIPS, film: str = "film") -> Manifest:
    """A manifest of spans of one film."""
    items = [
        Item(f"{film}-{number}", film=film, media=film, start=float(start), end=float(end))
        for number, (start, end) in enumerate(clips)
    ]
    return Manifest("grid", Items.of(items))


def worked() -> Timelines:
    """Both annotators' timelines."""
    return Timelines.of("worked", segments("one", FIRST) + segments("two", SECOND))


def said(labels: LabelSet) -> list[tuple[str, set[str]]]:
    """Each clip's level and concepts, in the order of the clips."""
    return list(zip(labels.levels, map(set, labels.concepts), strict=True))
