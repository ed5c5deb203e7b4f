"""The thesaurus of a scheme: sub-constructs, levels and concepts, with their sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from obygaze_features.common.package import reference_json
from obygaze_features.common.printer import fill
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.manifests.labels import Concept, LabelScheme

WIDTH = 96
COLUMNS = ("kind", "of", "text", "source")
_PARTS = {"instances": "instance", "examples": "example", "further": "instance"}


def sources() -> dict[str, str]:
    """Return the full reference of each source by its short name."""
    texts: dict[str, str] = reference_json("scheme-obygaze.json")["sources"]
    return texts


def thesaurus_json(scheme: LabelScheme, concepts: Sequence[Concept]) -> dict[str, Any]:
    """Return the thesaurus as JSON, with sub-constructs and levels if all concepts are included."""
    rest = {"sub_constructs": dict(scheme.sub_constructs), "levels": to_builtins(scheme.levels)}
    entries = {"concepts": to_builtins(concepts), "sources": sources()}
    return entries if len(concepts) < len(scheme.concepts) else rest | entries


def thesaurus_csv(scheme: LabelScheme, concepts: Sequence[Concept]) -> str:
    """Return a CSV table for annotation guidelines, with one row per text."""
    rows: list[tuple[str, str, str, str]] = []
    if len(concepts) == len(scheme.concepts):
        rows += [("sub-construct", n, line, "paper") for n, line in scheme.sub_constructs.items()]
        source = "paper" if scheme.sub_constructs else scheme.name
        rows += [("level", level.name, level.about, source) for level in scheme.levels]
    for concept in concepts:
        rows.append(("concept", concept.name, concept.about, concept.source))
        for part, kind in _PARTS.items():
            source = "mobygaze" if part == "further" else concept.source
            rows += [(kind, concept.name, text, source) for text in getattr(concept, part)]
    columns = zip(*rows, strict=True)
    return format_spreadsheet(dict(zip(COLUMNS, columns, strict=True)))


def describe_thesaurus(scheme: LabelScheme, concepts: Sequence[Concept]) -> str:
    """Return the thesaurus as text."""
    parts = []
    if len(concepts) == len(scheme.concepts):
        lines = (f"  {name}: {line}" for name, line in scheme.sub_constructs.items())
        if scheme.sub_constructs:
            parts.append("\n".join(["Sub-constructs (parts of what is annotated)", *lines]))
        lines = (f"  {x.name} ({x.code}){x.about and f': {x.about}'}" for x in scheme.levels)
        parts.append("\n".join(["Levels", *lines]))
    parts += ["\n".join(_concept_lines(concept)) for concept in concepts]
    used = {concept.source for concept in concepts} | {
        "mobygaze" for concept in concepts if concept.further
    }
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
