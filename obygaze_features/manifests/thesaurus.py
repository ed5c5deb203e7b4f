"""The thesaurus of a scheme: sub-constructs, levels and concepts, with their sources."""

from __future__ import annotations

from obygaze_features.common.package import reference_json
from obygaze_features.common.printer import fill
from obygaze_features.manifests.labels import Concept, LabelScheme

WIDTH = 96


def describe_thesaurus(scheme: LabelScheme) -> str:
    """Return the thesaurus as text."""
    parts = []
    if scheme.sub_constructs:
        lines = [f"  {name}: {text}" for name, text in scheme.sub_constructs.items()]
        parts.append(["Sub-constructs (parts of what is annotated)", *lines])

    lines = [f"  {level.name} ({level.code}){_after_colon(level.about)}" for level in scheme.levels]
    parts.append(["Levels", *lines])
    parts += map(_concept_lines, scheme.concepts)

    used = {concept.source for concept in scheme.concepts}
    if any(concept.further for concept in scheme.concepts):
        used.add("mobygaze")
    references = reference_json("scheme-obygaze.json")["sources"]
    lines = [f"  {name}: {text}" for name, text in references.items() if name in used]
    if lines:
        parts.append(["Sources (texts are paraphrased)", *lines])
    return "\n\n".join(map("\n".join, parts))


def _concept_lines(concept: Concept) -> list[str]:
    first = concept.name + _after_colon(concept.about)
    origin = "; ".join(filter(None, (concept.source, concept.sense)))
    if origin:
        first += f" ({origin})"
    lines = [first, *(f"  - {text}" for text in concept.instances)]
    for intro, texts in (("for example", concept.examples), ("MObyGaze adds", concept.further)):
        if texts:
            line = f"{intro}: {'; '.join(texts)}"
            lines.append(fill(line, WIDTH, initial_indent="  ", subsequent_indent="    "))
    return lines


def _after_colon(text: str) -> str:
    if not text:
        return ""
    return f": {text}"
