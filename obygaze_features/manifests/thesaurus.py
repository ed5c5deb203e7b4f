"""The thesaurus of a scheme: levels and concepts, with their sources."""

from __future__ import annotations

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.labels import LabelScheme


def thesaurus_rows(scheme: LabelScheme) -> list[dict[str, str]]:
    """Return a row for each definition, instance and example, and for the sources."""
    rows: list[tuple[str, str, str]] = []
    for level in scheme.levels:
        rows.append((level.name, "level", level.about))
    sources = {concept.source for concept in scheme.concepts}
    for concept in scheme.concepts:
        rows.append((concept.name, "concept", concept.about))
        rows += [(concept.name, "instance", text) for text in concept.instances]
        rows += [(concept.name, "example", text) for text in concept.examples]
        rows += [(concept.name, "in MObyGaze", text) for text in concept.further]
    for name, text in reference_json("scheme-obygaze.json")["sources"].items():
        if name in sources:
            rows.append((name, "source", text))
    return [dict(zip(("name", "kind", "text"), row, strict=True)) for row in rows]
