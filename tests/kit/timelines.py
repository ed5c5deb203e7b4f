"""The paper's worked example of two annotators and five clips, and ELAN's schema."""

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from xml.etree import ElementTree

from obygaze_features.annotations import Segment, Timelines
from obygaze_features.manifests import Item, Items, Manifest, obygaze_scheme

SCHEME = obygaze_scheme()
Span = tuple[float | str, ...]
CLIPS = [(0, 100), (100, 200), (200, 300), (300, 400), (400, 420)]
FIRST = [
    (85, 150, "HN", "Clothes"), (150, 215, "S", "Body"),
    (240, 262, "NS", "Look"), (262, 300, "NS", "Posture"),
]  # fmt: skip
SECOND = [
    (0, 15, "S", "Look"), (110, 130, "S", "Look"), (119, 190, "NS", "Activities"),
    (200, 300, "NS", "Look", "Clothes"), (390, 420, "HN", "Posture"),
]  # fmt: skip


def segments(annotator: str, spans: Sequence[Span], film: str = "film") -> list[Segment]:
    rows = []
    for start, end, level, *concepts in spans:
        names = SCHEME.in_order(SCHEME.concept(str(concept)) for concept in concepts)
        span = (float(start), float(end))
        rows.append(Segment(film, annotator, *span, str(level), names))
    return rows


def grid(clips: Sequence[tuple[float, float]] = CLIPS, film: str = "film") -> Manifest:
    items = []
    for number, (start, end) in enumerate(clips):
        span = {"start": float(start), "end": float(end)}
        items.append(Item(f"{film}-{number}", film=film, media=film, **span))
    return Manifest("grid", Items.of(items))


def worked() -> Timelines:
    return Timelines("worked", segments("one", FIRST) + segments("two", SECOND))


#: Rules of ELAN's schema: children in order | required attributes | optional attributes.
SCHEMA = """
ANNOTATION_DOCUMENT HEADER TIME_ORDER TIER LINGUISTIC_TYPE LANGUAGE CONSTRAINT \
  CONTROLLED_VOCABULARY | DATE AUTHOR VERSION FORMAT |
HEADER MEDIA_DESCRIPTOR PROPERTY | | MEDIA_FILE TIME_UNITS
MEDIA_DESCRIPTOR | MEDIA_URL MIME_TYPE | RELATIVE_MEDIA_URL TIME_ORIGIN EXTRACTED_FROM
PROPERTY | | NAME
TIME_ORDER TIME_SLOT | |
TIME_SLOT | TIME_SLOT_ID | TIME_VALUE
TIER ANNOTATION | TIER_ID LINGUISTIC_TYPE_REF | PARENT_REF PARTICIPANT ANNOTATOR
ANNOTATION ALIGNABLE_ANNOTATION REF_ANNOTATION | |
ALIGNABLE_ANNOTATION ANNOTATION_VALUE | ANNOTATION_ID TIME_SLOT_REF1 TIME_SLOT_REF2 | CVE_REF
REF_ANNOTATION ANNOTATION_VALUE | ANNOTATION_ID ANNOTATION_REF | PREVIOUS_ANNOTATION CVE_REF
ANNOTATION_VALUE | |
LINGUISTIC_TYPE | LINGUISTIC_TYPE_ID | TIME_ALIGNABLE CONSTRAINTS GRAPHIC_REFERENCES \
  CONTROLLED_VOCABULARY_REF
LANGUAGE | LANG_ID | LANG_DEF LANG_LABEL
CONTROLLED_VOCABULARY DESCRIPTION CV_ENTRY_ML | CV_ID | EXT_REF
DESCRIPTION | LANG_REF |
CV_ENTRY_ML CVE_VALUE | CVE_ID | EXT_REF
CVE_VALUE | LANG_REF | DESCRIPTION
CONSTRAINT | STEREOTYPE | DESCRIPTION
"""
ELEMENTS = {}
for line in SCHEMA.replace("\\\n", "").strip().splitlines():
    element, _, rules = line.partition(" ")
    ELEMENTS[element] = [part.split() for part in rules.split("|")]


#: Attributes that name another element, and the attribute that has its name.
REFERENCES = {
    "ANNOTATION_REF": "ANNOTATION_ID",
    "PARENT_REF": "TIER_ID",
    "LINGUISTIC_TYPE_REF": "LINGUISTIC_TYPE_ID",
    "CONSTRAINTS": "STEREOTYPE",
    "PREVIOUS_ANNOTATION": "ANNOTATION_ID",
    "CVE_REF": "CVE_ID",
    "LANG_REF": "LANG_ID",
    "CONTROLLED_VOCABULARY_REF": "CV_ID",
}


def check_schema(root: ElementTree.Element) -> None:
    """Check children, attributes, ids and references against ELAN's schema."""
    for element in root.iter():
        children, must, may = ELEMENTS[element.tag]
        places = [children.index(child.tag) for child in element]
        assert places == sorted(places)
        predicted = {name for name in element.attrib if not name.startswith("{")}
        assert set(must) <= predicted <= {*must, *may}
        assert element.tag != "ANNOTATION" or len(element) == 1
    assert root.attrib["FORMAT"] == "3.0"
    assert datetime.fromisoformat(root.attrib["DATE"]).tzinfo

    def all_of(attribute: str) -> list[str]:
        return [e.attrib[attribute] for e in root.iter() if attribute in e.attrib]

    ids = ("TIME_SLOT_ID", "ANNOTATION_ID", "STEREOTYPE", "CVE_ID")
    identifiers = [*chain(*map(all_of, ids))]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"[A-Za-z_][\w.-]*", clip) for clip in identifiers)
    slots = all_of("TIME_SLOT_REF1") + all_of("TIME_SLOT_REF2")
    assert sorted(slots) == sorted(all_of("TIME_SLOT_ID"))
    assert len(set(all_of("TIER_ID"))) == len(all_of("TIER_ID"))
    for reference, target in REFERENCES.items():
        assert set(all_of(reference)) <= set(all_of(target))
    values = [int(clip) for clip in all_of("TIME_VALUE")]
    assert values == sorted(values)
