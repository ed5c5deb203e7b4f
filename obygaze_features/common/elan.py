"""ELAN's documents (EAF 3.0), written, or copied with further tiers; `elan_reader` reads them."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.common.elan_reader import (
    MILLISECONDS,
    Annotation,
    Document,
    Tier,
    milliseconds,
    parse_eaf,
    read_eaf,
)
from obygaze_features.common.package import obygaze_version
from obygaze_features.errors import ObygazeError, OutputExists

__all__ = [
    "Annotation", "Document", "Tier", "add_tiers", "clean", "milliseconds", "read_eaf",
    "refuse_edited", "to_eaf",
]  # fmt: skip

SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
STEREOTYPE = "Symbolic_Association"
#: ELAN drops this comment when it saves: the file is unchanged only if it has this checksum.
CHECKSUM_COMMENT = "as obygaze wrote it:"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile("[0-9]{1,15}")
#: The children of a document, in the schema's order.
ORDER = (
    "LICENSE", "HEADER", "TIME_ORDER", "TIER", "LINGUISTIC_TYPE", "LOCALE", "LANGUAGE",
    "CONSTRAINT", "CONTROLLED_VOCABULARY", "LEXICON_REF", "REF_LINK_SET", "EXTERNAL_REF",
)  # fmt: skip


class _Builder(Xml.TreeBuilder):
    """Builds a document with its comments and processing instructions.

    `outside` has the text of those before the root, and of those after it.
    """

    def __init__(self) -> None:
        super().__init__(insert_comments=True, insert_pis=True)
        self.outside: tuple[list[str], list[str]] = [], []
        self._depth, self._has_root = 0, False

    def start(self, tag: str, attrs: dict[str, str]) -> Xml.Element:
        self._depth, self._has_root = self._depth + 1, True
        return super().start(tag, attrs)

    def end(self, tag: str) -> Xml.Element:
        self._depth -= 1
        return super().end(tag)

    def comment(self, text: str | None) -> Xml.Element:
        return self._note(super().comment(text))

    def pi(self, target: str, text: str | None = None) -> Xml.Element:
        return self._note(super().pi(target, text))

    def _note(self, element: Xml.Element) -> Xml.Element:
        if not self._depth and CHECKSUM_COMMENT not in (element.text or ""):
            self.outside[self._has_root].append(Xml.tostring(element, encoding="unicode"))
        return element


def to_eaf(document: Document) -> str:
    """The text of an ``.eaf`` file.

    ELAN's tiers hold no two annotations at the same time: where annotations overlap, the later
    ones are written to further tiers of the same kind.
    """
    root = Xml.Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": f"obygaze {obygaze_version()}",
            "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
            "FORMAT": "3.0",
            "VERSION": "3.0",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
            "xsi:noNamespaceSchemaLocation": SCHEMA,
        },
    )
    header = Xml.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    if media := document.media:
        # Relative: ELAN finds the film beside its own file, and no path of this machine leaks.
        kind = mimetypes.MimeTypes().guess_type(media)[0] or "video/*"
        urls = {"MEDIA_URL": clean(media), "RELATIVE_MEDIA_URL": clean(f"./{media}")}
        Xml.SubElement(header, "MEDIA_DESCRIPTOR", {**urls, "MIME_TYPE": kind})
    for name, text in document.properties.items():
        Xml.SubElement(header, "PROPERTY", NAME=clean(name)).text = clean(text)
    last_id = Xml.SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId")
    time_order = Xml.SubElement(root, "TIME_ORDER")
    numbers = count(1)
    slots: list[tuple[int, int, str]] = []
    for tier in document.tiers:
        for number, group in enumerate(_without_overlaps(tier.annotations), start=1):
            name = clean(tier.name if number == 1 else f"{tier.name} ({number})")
            _add_tiers(root, tier, name, group, numbers, slots)
    for time, _, slot in sorted(slots):
        Xml.SubElement(time_order, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=str(time))
    last_id.text = str(next(numbers) - 1)
    root.extend(_types(document.tiers))
    return _with_checksum(root)


def add_tiers(path: Path, tiers: Sequence[Tier], error: type[ObygazeError]) -> str:
    """The text of an ``.eaf`` file with further tiers; all that it has stays as it is."""
    builder = _Builder()
    root = parse_eaf(path, error, builder)
    used = [int(number) for e in root.iter() for number in _NUMBER.findall(_id_of(e))]
    numbers = count(max(used, default=0) + 1)
    slots: list[tuple[int, int, str]] = []
    taken = {element.get("TIER_ID") for element in root.iter("TIER")}
    new = Xml.Element("new")
    for tier in tiers:
        name = clean(tier.name)
        while name in taken:
            name += " (new)"
        taken.add(name)
        for number, group in enumerate(_without_overlaps(tier.annotations), start=1):
            group_name = name if number == 1 else f"{name} ({number})"
            _add_tiers(new, tier, group_name, group, numbers, slots)
    _insert(root, list(new))
    types = {element.get("LINGUISTIC_TYPE_ID") for element in root.iter("LINGUISTIC_TYPE")}
    stereotypes = {element.get("STEREOTYPE") for element in root.iter("CONSTRAINT")}
    missing = [
        element
        for element in _types(tiers)
        if element.get("LINGUISTIC_TYPE_ID") not in types
        and element.get("STEREOTYPE") not in stereotypes
    ]
    _insert(root, missing)
    _add_slots(root, slots)
    for node in root.iter("PROPERTY"):
        if node.get("NAME") == "lastUsedAnnotationId":
            node.text = str(next(numbers) - 1)
    return _with_checksum(root, *builder.outside)


def _types(tiers: Sequence[Tier]) -> list[Xml.Element]:
    """The linguistic types of tiers and of those that depend on them, and their constraint."""
    elements = []
    for kind in dict.fromkeys(tier.kind for tier in tiers):
        plain = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": kind}
        elements.append(Xml.Element("LINGUISTIC_TYPE", plain | {"TIME_ALIGNABLE": "true"}))
        dependent = {"LINGUISTIC_TYPE_ID": f"about a {kind}"}
        dependent |= {"TIME_ALIGNABLE": "false", "CONSTRAINTS": STEREOTYPE}
        elements.append(Xml.Element("LINGUISTIC_TYPE", plain | dependent))
    description = "1-1 association with a parent annotation"
    elements.append(Xml.Element("CONSTRAINT", STEREOTYPE=STEREOTYPE, DESCRIPTION=description))
    return elements


def _insert(root: Xml.Element, elements: Sequence[Xml.Element]) -> None:
    """Put elements where ELAN's schema wants them: after the last of their own or earlier kind."""
    for element in elements:
        earlier = ORDER[: ORDER.index(element.tag) + 1]
        places = [place for place, child in enumerate(root) if child.tag in earlier]
        root.insert(max(places, default=-1) + 1, element)


def _add_slots(root: Xml.Element, slots: Sequence[tuple[int, int, str]]) -> None:
    """Add time slots in order; those without a time stay behind the one that they follow."""
    order = root.find("TIME_ORDER")
    if order is None:
        order = Xml.Element("TIME_ORDER")
        _insert(root, [order])
    keyed: list[tuple[int, int, Xml.Element]] = []
    time = 0
    for slot in order:
        value = slot.get("TIME_VALUE", "")
        time = int(value) if MILLISECONDS.fullmatch(value) else time
        keyed.append((time, -1, slot))
    for time, side, name in slots:
        slot = Xml.Element("TIME_SLOT", TIME_SLOT_ID=name, TIME_VALUE=str(time))
        keyed.append((time, side, slot))
    order[:] = [slot for _, _, slot in sorted(keyed, key=lambda entry: entry[:2])]


def _id_of(element: Xml.Element) -> str:
    return element.get("ANNOTATION_ID") or element.get("TIME_SLOT_ID") or ""


def _with_checksum(root: Xml.Element, before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
    """The text of a document, with the checksum by which we know what nobody edited."""
    mixed = [
        (value, value.text, [note.tail for note in value])
        for value in root.iter("ANNOTATION_VALUE")
    ]
    Xml.indent(root)
    for value, start, tails in mixed:  # a comment in a value parts its text
        value.text = start
        for note, tail in zip(value, tails, strict=True):
            note.tail = tail
    # A reader would turn a carriage return written as such into a line feed.
    text = "\n".join([*before, Xml.tostring(root, encoding="unicode"), *after])
    body = text.replace("\r", "&#13;") + "\n"
    comment = f"<!-- {CHECKSUM_COMMENT} {_sha256(body)} -->"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{comment}\n{body}'


def refuse_edited(paths: Iterable[Path]) -> None:
    """Raise `OutputExists` if an ``.eaf`` file among these is not as obygaze wrote it."""
    for path in paths:
        if path.suffix == ".eaf" and path.exists() and not _is_unchanged(path):
            raise OutputExists(
                f"{path} holds annotations that obygaze did not write, or that were edited since; "
                "it is never replaced, not even with --overwrite: choose another folder"
            )


def clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def _is_unchanged(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    head, _, body = text.partition("-->\n")
    return f"<!-- {CHECKSUM_COMMENT} {_sha256(body)} " in head


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _without_overlaps(annotations: Sequence[Annotation]) -> list[list[Annotation]]:
    """Annotations in time, in as few groups as keep them from overlapping."""
    groups: list[list[Annotation]] = []
    for annotation in sorted(annotations, key=lambda a: (a.start, a.end)):
        free = next((group for group in groups if group[-1].end <= annotation.start), None)
        if free is None:
            groups.append([annotation])
        else:
            free.append(annotation)
    return groups


def _add_tiers(
    root: Xml.Element,
    tier: Tier,
    name: str,
    annotations: Sequence[Annotation],
    numbers: Iterator[int],
    slots: list[tuple[int, int, str]],
) -> None:
    """The tier of the annotations, and those that depend on it; `slots` gets the time slots."""
    people = {"ANNOTATOR": clean(tier.annotator), "PARTICIPANT": clean(tier.participant)}
    people = {key: text for key, text in people.items() if text}
    attributes = {"LINGUISTIC_TYPE_REF": tier.kind, "TIER_ID": name, **people}
    element = Xml.SubElement(root, "TIER", attributes)
    parents = []
    for annotation in annotations:
        number = next(numbers)
        start, end = f"ts{2 * number - 1}", f"ts{2 * number}"
        # Where one annotation ends as another begins, the end comes first.
        slots += [(annotation.start, 1, start), (annotation.end, 0, end)]
        attributes = {"ANNOTATION_ID": f"a{number}"}
        attributes |= {"TIME_SLOT_REF1": start, "TIME_SLOT_REF2": end}
        _add_annotation(element, "ALIGNABLE_ANNOTATION", annotation.value, attributes)
        parents.append(f"a{number}")
    for detail in dict.fromkeys(key for annotation in annotations for key in annotation.details):
        attributes = {"LINGUISTIC_TYPE_REF": f"about a {tier.kind}", "PARENT_REF": name}
        attributes |= {"TIER_ID": clean(f"{name}, {detail}"), **people}
        dependent = Xml.SubElement(root, "TIER", attributes)
        for parent, annotation in zip(parents, annotations, strict=True):
            if (value := annotation.details.get(detail)) is not None:
                attributes = {"ANNOTATION_ID": f"a{next(numbers)}", "ANNOTATION_REF": parent}
                _add_annotation(dependent, "REF_ANNOTATION", value, attributes)


def _add_annotation(tier: Xml.Element, kind: str, value: str, attributes: dict[str, str]) -> None:
    annotation = Xml.SubElement(Xml.SubElement(tier, "ANNOTATION"), kind, attributes)
    Xml.SubElement(annotation, "ANNOTATION_VALUE").text = clean(value)
