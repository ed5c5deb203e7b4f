"""Read and write ELAN documents (EAF 3.0) with tiers of timed annotations.

Files are not trusted: their size is limited, document type declarations are refused, and nothing
that they refer to is fetched. (pympi-ling is not used: it expands entities, mistakes frames for
milliseconds, and writes overlapping annotations to one tier, which ELAN does not allow.)
An ELAN file is never replaced, because people edit it.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.common.files import VIDEO_SUFFIXES
from obygaze_features.common.formatting import format_size, shorten
from obygaze_features.common.names import as_list
from obygaze_features.common.package import obygaze_version
from obygaze_features.errors import ObygazeError, translate

#: The maximum size of an ELAN file. A film with a thousand segments takes half a megabyte.
MAX_BYTES = 16 << 20
#: The maximum number of annotations between one in a dependent tier and the one with times.
MAX_DEPTH = 8
#: The types of tiers that the template has.
TYPES = ("segment", "concepts", "comment")
MILLISECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
#: The time in a media file at which a document's times begin: up to eleven days.
TIME_ORIGIN = re.compile(r"-?[0-9]{1,9}", re.ASCII)
TEMPLATE = Path(__file__).with_name("template.etf")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Vocabularies = Mapping[str, Mapping[str, str]]
"""Pick-lists by name (levels, concepts), with the text and the meaning of each entry."""


@dataclass(frozen=True)
class Annotation:
    """An annotation from `start` to `end`, in milliseconds.

    `details` are the texts in dependent tiers, by tier name: one text, or several for one tier.
    `location` says where in its file the annotation was found.
    """

    start: int
    end: int
    value: str
    details: Mapping[str, Sequence[str]] = field(default_factory=dict)
    location: str = ""


def milliseconds(start: float, end: float) -> tuple[int, int]:
    """Convert a span from seconds to milliseconds; make it at least one millisecond long."""
    first = round(start * 1000)
    return first, max(round(end * 1000), first + 1)


@dataclass(frozen=True)
class Tier:
    """A tier of annotations; `tier_type` is its linguistic type in ELAN."""

    name: str
    tier_type: str
    annotations: Sequence[Annotation]
    annotator: str = ""


@dataclass(frozen=True)
class Document:
    """An ELAN file: its tiers, the name of its video, and the properties in its header.

    Annotations have the times of the video; in the file, they are `origin` milliseconds earlier.
    `pick_lists` has the texts to choose from in ELAN, by the name of the list.
    """

    tiers: Sequence[Tier]
    media: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    origin: int = 0
    pick_lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_eaf(path: Path, error: type[ObygazeError]) -> tuple[Document, list[tuple[str, str]]]:
    """Read an ``.eaf`` file; raise `error` if it is not valid.

    Also returns the annotations that are left out, as (location, problem). Texts in dependent
    tiers become details of the annotation that has times.
    """
    root = parse_eaf(path, error)
    origin_of: dict[str, str] = {}
    for link in root.iter("MEDIA_DESCRIPTOR"):
        origin_of.setdefault(_video_name(link.get("MEDIA_URL", "")), link.get("TIME_ORIGIN", "0"))
    media = next(filter(None, origin_of), "")
    text = origin_of.get(media, "0")
    if not TIME_ORIGIN.fullmatch(text):
        raise error(f"{path}: TIME_ORIGIN {shorten(text)} is not a time; save the file in ELAN")
    origin = int(text)
    times = _times(root, origin)
    tiers = []
    left_out = []
    details_of: dict[str, dict[str, list[str]]] = {}
    for element in root.iterfind("TIER"):
        annotations = []
        for note in element.iter("ALIGNABLE_ANNOTATION"):
            start = times.get(note.get("TIME_SLOT_REF1"))
            end = times.get(note.get("TIME_SLOT_REF2"))
            where = _location(element, note)
            if start is None or end is None:
                left_out.append((where, "has no times"))
                continue
            details = details_of.setdefault(note.get("ANNOTATION_ID", ""), {})
            annotations.append(Annotation(start, end, _value(note), details, where))
        if annotations:
            tier_type = element.get("LINGUISTIC_TYPE_REF", "")
            who = element.get("ANNOTATOR", "").strip()
            tiers.append(Tier(element.get("TIER_ID", ""), tier_type, annotations, who))

    left_out += _add_details(root, details_of)
    properties = {node.get("NAME", ""): node.text or "" for node in root.iter("PROPERTY")}
    pick_lists = {}
    for vocabulary in root.iterfind("CONTROLLED_VOCABULARY"):
        # In files of ELAN 4.6 and older, the text is in the entry itself.
        entries = vocabulary.findall("CV_ENTRY_ML") or vocabulary.findall("CV_ENTRY")
        texts = [entry.findtext("CVE_VALUE", entry.text) or "" for entry in entries]
        pick_lists[vocabulary.get("CV_ID", "")] = texts
    return Document(tiers, media, properties, origin, pick_lists), left_out


def _video_name(address: str) -> str:
    """Return the last part of a path, or "" if that does not name a video."""
    name = re.split(r"[\\/]", address)[-1]
    if Path(name).suffix.lower() in VIDEO_SUFFIXES:
        return name
    return ""


def _add_details(
    root: Xml.Element,
    details_of: Mapping[str, dict[str, list[str]]],
) -> list[tuple[str, str]]:
    """Add the texts in dependent tiers; return those that belong to no annotation with times."""
    notes = root.iter("REF_ANNOTATION")
    parents = {note.get("ANNOTATION_ID"): note.get("ANNOTATION_REF", "") for note in notes}
    left_out = []
    for element in root.iterfind("TIER"):
        name = element.get("TIER_ID", "").removeprefix(f"{element.get('PARENT_REF')}, ")
        for note in element.iter("REF_ANNOTATION"):
            target = note.get("ANNOTATION_REF", "")
            for _ in range(MAX_DEPTH):
                target = parents.get(target, target)
            if target in details_of:
                details_of[target].setdefault(name, []).append(_value(note))
            elif _value(note).strip():
                left_out.append((_location(element, note), "belongs to no annotation with times"))
    return left_out


def parse_eaf(path: Path, error: type[ObygazeError]) -> Xml.Element:
    """Return the root of an ``.eaf`` file, without comments; raise `error` for any other file."""
    with translate(error, path, "cannot be read: {}", foreign=OSError), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise error(f"{path} is larger than {format_size(MAX_BYTES)}; pass a smaller ELAN file")
    with translate(error, path, "is not UTF-8 ({}); save it in ELAN", foreign=UnicodeDecodeError):
        text = data.decode("utf-8-sig")
    # Check before parsing, because a document type could define entities or name other files.
    if "<!DOCTYPE" in text:
        raise error(f"{path} declares a document type (<!DOCTYPE); save it again in ELAN")
    with translate(error, path, "is damaged or not XML ({}); replace it", foreign=Xml.ParseError):
        root = Xml.fromstring(text)  # noqa: S314 - entities need a document type
    units = {header.get("TIME_UNITS", "milliseconds") for header in root.iter("HEADER")}
    if root.tag != "ANNOTATION_DOCUMENT" or units - {"milliseconds"}:
        raise error(f"{path} is not an ELAN file with times in milliseconds; save it again in ELAN")
    return root


def _times(root: Xml.Element, origin: int) -> dict[str | None, int]:
    """Return the time in the film of each time slot that has one; 0 for times before the film."""
    times = {}
    for slot in root.iter("TIME_SLOT"):
        value = slot.get("TIME_VALUE", "")
        if MILLISECONDS.fullmatch(value):
            times[slot.get("TIME_SLOT_ID")] = max(0, int(value) + origin)
    return times


def _location(tier: Xml.Element, note: Xml.Element) -> str:
    return f"tier {shorten(tier.get('TIER_ID', ''))}, annotation {note.get('ANNOTATION_ID', '')}"


def _value(note: Xml.Element) -> str:
    return note.findtext("ANNOTATION_VALUE") or ""


def to_eaf(document: Document, vocabularies: Vocabularies | None = None) -> str:
    """Return the text of an ``.eaf`` file with the template's tier types and these pick-lists.

    ELAN allows no overlaps in a tier, so overlapping annotations go to further tiers of the same
    kind.
    """
    vocabularies = vocabularies or {}
    root = _fill_template(vocabularies, document.properties)
    root.set("AUTHOR", "obygaze " + obygaze_version())
    root.set("DATE", datetime.now(UTC).isoformat(timespec="seconds"))
    header, order = root[:2]
    media = _video_name(document.media)
    if media:  # otherwise it is the name of a film
        # The link is relative, so that ELAN finds the film next to the document, and no local path
        # leaks. It is not quoted (no %20), because ELAN takes it for a path and does not decode it.
        mime_type = mimetypes.MimeTypes().guess_type(media)[0] or "video/*"
        link = Xml.Element("MEDIA_DESCRIPTOR", MEDIA_URL=media, RELATIVE_MEDIA_URL=f"./{media}")
        link.set("MIME_TYPE", mime_type)
        header.insert(0, link)

    writer = _TierWriter(vocabularies)
    types = {}
    for tier in document.tiers:
        writer.add(tier)
        if tier.tier_type not in TYPES:
            types[tier.tier_type] = Xml.Element(
                "LINGUISTIC_TYPE",
                TIME_ALIGNABLE="true",
                GRAPHIC_REFERENCES="false",
                LINGUISTIC_TYPE_ID=tier.tier_type,
            )
    for time, _, name in sorted(writer.slots, key=lambda slot: slot[:2]):
        Xml.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=name, TIME_VALUE=str(time))
    last = Xml.SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId")
    last.text = str(next(writer.numbers) - 1)

    for tier_of_template in root.findall("TIER"):
        root.remove(tier_of_template)
    after_types = 2 + len(TYPES)
    root[after_types:after_types] = types.values()
    root[2:2] = writer.tiers
    return _to_text(root)


class _TierWriter:
    """A writer of XML elements for tiers, with unique names and ids."""

    def __init__(self, vocabularies: Vocabularies) -> None:
        self.numbers = count(1)
        self.names = set[str]()
        self.tiers: list[Xml.Element] = []
        #: For each tier type with a pick-list, the ids of its entries by text.
        self.entries: dict[str, dict[str, str]] = {}
        for tier_type, name in (("segment", "levels"), ("concepts", "concepts")):
            texts = enumerate(vocabularies.get(name, ()))
            self.entries[tier_type] = {text: f"{name}-{number}" for number, text in texts}
        #: The time of each time slot, whether it is a start, and its name.
        self.slots: list[tuple[int, int, str]] = []

    def add(self, tier: Tier) -> None:
        """Add a tier and its dependent tiers, and further tiers if annotations overlap."""
        for group in _without_overlaps(tier.annotations):
            name = clean(tier.name)
            number = 1
            while name in self.names:
                number += 1
                name = clean(f"{tier.name} ({number})")
            self.names.add(name)
            self._add_group(tier, name, group)

    def _add_group(self, tier: Tier, name: str, annotations: Sequence[Annotation]) -> None:
        """Add a tier of annotations that do not overlap, and its dependent tiers."""
        people = {}
        if tier.annotator:
            people["ANNOTATOR"] = tier.annotator
        element = Xml.Element(
            "TIER", {"LINGUISTIC_TYPE_REF": tier.tier_type, "TIER_ID": name, **people}
        )
        self.tiers.append(element)
        parents = []
        for annotation in annotations:
            number = next(self.numbers)
            start = f"ts{2 * number - 1}"
            end = f"ts{2 * number}"
            # If one annotation ends when another begins, the end comes first.
            self.slots += [(annotation.start, 1, start), (annotation.end, 0, end)]
            times = {"TIME_SLOT_REF1": start, "TIME_SLOT_REF2": end}
            parents.append(self._annotate(element, number, annotation.value, times))

        details = [key for note in annotations for key, texts in note.details.items() if texts]
        for detail in dict.fromkeys(details):
            tier_type = detail if detail in TYPES else "comment"
            about = {"LINGUISTIC_TYPE_REF": tier_type, "PARENT_REF": name, **people}
            dependent = Xml.Element("TIER", about, TIER_ID=f"{name}, {detail}")
            self.tiers.append(dependent)
            for parent, annotation in zip(parents, annotations, strict=True):
                texts = annotation.details.get(detail) or ()
                attributes = {"ANNOTATION_REF": parent}
                for text in as_list(texts):
                    previous = self._annotate(dependent, next(self.numbers), text, attributes)
                    attributes = {"ANNOTATION_REF": parent, "PREVIOUS_ANNOTATION": previous}

    def _annotate(
        self,
        tier: Xml.Element,
        number: int,
        value: str,
        attributes: dict[str, str],
    ) -> str:
        """Add an annotation to a tier element, and return its id."""
        element_name = (
            "REF_ANNOTATION" if "ANNOTATION_REF" in attributes else "ALIGNABLE_ANNOTATION"
        )
        attributes = {"ANNOTATION_ID": f"a{number}", **attributes}
        entry = self.entries.get(tier.attrib["LINGUISTIC_TYPE_REF"], {}).get(value)
        if entry:
            attributes["CVE_REF"] = entry
        annotation = Xml.SubElement(Xml.SubElement(tier, "ANNOTATION"), element_name, attributes)
        Xml.SubElement(annotation, "ANNOTATION_VALUE").text = value
        return f"a{number}"


def to_etf(vocabularies: Vocabularies, properties: Mapping[str, str]) -> str:
    """Return the text of a template with these pick-lists; new ELAN files get `properties`."""
    return _to_text(_fill_template(vocabularies, properties))


def _fill_template(vocabularies: Vocabularies, properties: Mapping[str, str]) -> Xml.Element:
    """Return obygaze's template with these pick-lists; tiers without a list accept any text."""
    root = parse_eaf(TEMPLATE, ObygazeError)
    for name, text in properties.items():
        Xml.SubElement(root[0], "PROPERTY", NAME=name).text = text
    for vocabulary in root.findall("CONTROLLED_VOCABULARY"):
        name = vocabulary.attrib["CV_ID"]
        for number, (value, about) in enumerate(vocabularies.get(name, {}).items()):
            entry = Xml.SubElement(vocabulary, "CV_ENTRY_ML", CVE_ID=f"{name}-{number}")
            choice = Xml.SubElement(entry, "CVE_VALUE", DESCRIPTION=about, LANG_REF="und")
            choice.text = value
        if not vocabularies.get(name):
            root.remove(vocabulary)
            for tier_type in root.findall(f"LINGUISTIC_TYPE[@CONTROLLED_VOCABULARY_REF='{name}']"):
                del tier_type.attrib["CONTROLLED_VOCABULARY_REF"]
    return root


def _to_text(root: Xml.Element) -> str:
    Xml.indent(root)
    # A reader would turn a literal carriage return into a line feed.
    body = clean(Xml.tostring(root, encoding="unicode")).replace("\r", "&#13;")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def clean(text: str) -> str:
    """Replace characters that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)


def _without_overlaps(annotations: Sequence[Annotation]) -> list[list[Annotation]]:
    """Divide annotations, in order, into as few groups without overlaps as possible."""
    groups: list[list[Annotation]] = []
    for annotation in sorted(annotations, key=lambda a: (a.start, a.end)):
        for group in groups:
            if group[-1].end <= annotation.start:
                group.append(annotation)
                break
        else:
            groups.append([annotation])
    return groups
