"""The thesaurus of a scheme: levels and concepts, with their sources."""

from __future__ import annotations

from obygaze_features.common.package import reference_json
from obygaze_features.manifests.labels import LabelScheme


def thesaurus_rows(scheme: LabelScheme) -> list[dict[str, str]]:
    """Return a row for each definition, instance and example, and for the sources.

    Schemes with concepts of the paper also get its sub-constructs, and notes on its levels.
    """
    shipped = reference_json("scheme-obygaze.json")
    sources = {concept.source for concept in scheme.concepts}
    rows = [(level.name, "level", level.about) for level in scheme.levels]
    if "paper" in sources:
        for kind, entries in (
            ("note", shipped["notes"]),
            ("sub-construct", shipped["sub_constructs"]["entries"]),
        ):
            rows += [(entry["name"], kind, entry["line"]) for entry in entries]
    for concept in scheme.concepts:
        kinds = {
            "concept": [concept.about],
            "instance": concept.instances,
            "example": concept.examples,
            "in MObyGaze": concept.further,
        }
        for kind, texts in kinds.items():
            rows += [(concept.name, kind, text) for text in texts]
    for name, text in shipped["sources"].items():
        if name in sources:
            rows.append((name, "source", text))
    return [{"name": name, "kind": kind, "text": text} for name, kind, text in rows]
