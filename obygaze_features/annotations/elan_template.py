"""A template for ELAN (``.etf``): tiers for levels, concepts and comments, with their vocabularies.

A file that ELAN makes from it is read by `annotations import elan`: the level is the annotation's
text, each concept an annotation in the dependent tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as Xml

from obygaze_features.annotations.importers.elan import SEGMENT_KIND
from obygaze_features.common.elan import SCHEMA, STEREOTYPE
from obygaze_features.common.package import obygaze_version
from obygaze_features.manifests.labels import LabelScheme

SUBDIVISION = "Symbolic_Subdivision"
LANGUAGE = {
    "LANG_DEF": "http://cdb.iso.org/lg/CDB-00130975-001",
    "LANG_ID": "und",
    "LANG_LABEL": "undetermined (und)",
}
CONSTRAINTS = {
    SUBDIVISION: "Symbolic subdivision of a parent annotation. Annotations refering to the same "
    "parent are ordered",
    STEREOTYPE: "1-1 association with a parent annotation",
}


def elan_template(scheme: LabelScheme, annotator: str = "annotator1") -> str:
    """The text of a template with an annotator's tiers; in ELAN, more can be added alike."""
    root = Xml.Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": f"obygaze {obygaze_version()}",
            "DATE": "2024-01-01T00:00:00+00:00",  # the same scheme, the same file
            "FORMAT": "3.0",
            "VERSION": "3.0",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
            "xsi:noNamespaceSchemaLocation": SCHEMA,
        },
    )
    Xml.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    Xml.SubElement(root, "TIME_ORDER")
    # No ANNOTATOR: who renames the tier, renames the annotator.
    parent = {"LINGUISTIC_TYPE_REF": SEGMENT_KIND, "TIER_ID": annotator}
    Xml.SubElement(root, "TIER", parent)
    for part in ("concepts", "comment"):
        dependent = {"LINGUISTIC_TYPE_REF": part, "PARENT_REF": annotator}
        Xml.SubElement(root, "TIER", dependent | {"TIER_ID": f"{annotator}, {part}"})
    plain = {"GRAPHIC_REFERENCES": "false"}
    for kind, attributes in {
        SEGMENT_KIND: {"CONTROLLED_VOCABULARY_REF": "levels", "TIME_ALIGNABLE": "true"},
        "concepts": {
            "CONSTRAINTS": SUBDIVISION,
            "CONTROLLED_VOCABULARY_REF": "concepts",
            "TIME_ALIGNABLE": "false",
        },
        "comment": {"CONSTRAINTS": STEREOTYPE, "TIME_ALIGNABLE": "false"},
    }.items():
        Xml.SubElement(root, "LINGUISTIC_TYPE", plain | attributes | {"LINGUISTIC_TYPE_ID": kind})
    Xml.SubElement(root, "LANGUAGE", LANGUAGE)
    for stereotype, description in CONSTRAINTS.items():
        Xml.SubElement(root, "CONSTRAINT", STEREOTYPE=stereotype, DESCRIPTION=description)
    _add_vocabulary(root, "levels", {level.name: level.about for level in scheme.levels})
    lines = {c.name: "; ".join(filter(None, (c.about, *c.instances))) for c in scheme.concepts}
    _add_vocabulary(root, "concepts", lines)
    Xml.indent(root)
    body = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _add_vocabulary(root: Xml.Element, name: str, entries: Mapping[str, str]) -> None:
    """A controlled vocabulary: value -> the description that ELAN shows beside it."""
    vocabulary = Xml.SubElement(root, "CONTROLLED_VOCABULARY", CV_ID=name)
    language = LANGUAGE["LANG_ID"]
    Xml.SubElement(vocabulary, "DESCRIPTION", LANG_REF=language)
    for number, (value, description) in enumerate(entries.items()):
        entry = Xml.SubElement(vocabulary, "CV_ENTRY_ML", CVE_ID=f"{name}-{number}")
        attributes = {"DESCRIPTION": description, "LANG_REF": language}
        Xml.SubElement(entry, "CVE_VALUE", attributes).text = value
