"""The thesaurus of a scheme: sub-constructs, levels and concepts, with their sources."""

from __future__ import annotations

from collections.abc import Iterator

from obygaze_features.common.package import reference_json
from obygaze_features.common.printer import fill
from obygaze_features.manifests.labels import Concept, LabelScheme

WIDTH = 96


def sources() -> dict[str, str]:
    """Return the full reference of each source by its short name."""
    texts: dict[str, str] = reference_json("scheme-obygaze.json")["sources"]
    return texts


def describe_thesaurus(scheme: LabelScheme) -> str:
    """Return the thesaurus as text."""
    parts = []
    if scheme.sub_constructs:
        lines = [f"  {name}: {line}" for name, line in scheme.sub_constructs.items()]
        parts.append("\n".join(["Sub-constructs (parts of what is annotated)", *lines]))

    lines = [f"  {x.name} ({x.code}){x.about and f': {x.about}'}" for x in scheme.levels]
    parts.append("\n".join(["Levels", *lines]))
    parts += ["\n".join(_concept_lines(concept)) for concept in scheme.concepts]

    used = {concept.source for concept in scheme.concepts}
    if any(concept.further for concept in scheme.concepts):
        used.add("mobygaze")
    names = [f"  {name}: {text}" for name, text in sources().items() if name in used]
    parts += ["\n".join(["Sources (texts are paraphrased)", *names])] if names else []
    return "\n\n".join(parts)


def _concept_lines(concept: Concept) -> Iterator[str]:
    origin = "; ".join(filter(None, (concept.source, concept.sense)))
    yield f"{concept.name}{concept.about and f': {concept.about}'}{origin and f' ({origin})'}"
    yield from (f"  - {text}" for text in concept.instances)
    for intro, texts in (("for example", concept.examples), ("MObyGaze adds", concept.further)):
        if texts:
            line = f"{intro}: {'; '.join(texts)}"
            yield fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ")
