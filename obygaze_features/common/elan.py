"""Read and write ELAN documents (EAF 3.0) with tiers of timed annotations.

Files are not trusted: their size is limited, document type declarations are refused, and nothing
that they refer to is fetched. (pympi-ling is not used: it expands entities, mistakes frames for
milliseconds, and writes overlapping annotations to one tier, which ELAN does not allow.)
"""

from __future__ import annotations

import mimetypes
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.common.files import VIDEO_SUFFIXES
from obygaze_features.common.package import obygaze_version
from obygaze_features.common.text import format_size, format_time, sha256_of_text, shorten
from obygaze_features.errors import ObygazeError, OutputExists, translate

#: The maximum size of an ELAN file. A film with a thousand segments takes half a megabyte.
MAX_BYTES = 16 << 20
MAX_TIERS = 1000
MILLISECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
TEMPLATE = Path(__file__).with_name("template.etf")
STEREOTYPE = "Symbolic_Association"
#: ELAN drops this comment when it saves, so a file is only unchanged if it has this checksum.
CHECKSUM_COMMENT = "as obygaze wrote it:"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: The children of a document element, in the order of the schema.
ORDER = (
    "LICENSE", "HEADER", "TIME_ORDER", "TIER", "LINGUISTIC_TYPE", "LOCALE", "LANGUAGE",
    "CONSTRAINT", "CONTROLLED_VOCABULARY", "LEXICON_REF", "REF_LINK_SET", "EXTERNAL_REF",
)  # fmt: skip
Vocabularies = Mapping[str, Mapping[str, str]]
"""Pick-lists by name (levels, concepts), with the text and the meaning of each entry."""


@dataclass(frozen=True)
class Annotation:
    """An annotation from `start` to `end`, in milliseconds.

    `details` are the texts in dependent tiers, by tier name; several texts in a tier are a tuple.
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
    """A tier of annotations; `kind` is its linguistic type in ELAN."""

    name: str
    kind: str
    annotations: Sequence[Annotation]
    annotator: str = ""
    participant: str = ""


@dataclass(frozen=True)
class Document:
    """An ELAN file: its tiers, the name of its media file, and the properties in its header.

    `link` is the path from the document to the media file; without it, the media file is expected
    next to the document. `pick_lists` are the entries that a file offers for each kind of tier.
    """

    tiers: Sequence[Tier]
    media: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    pick_lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    link: str = ""


def read_eaf(
    path: Path, error: type[ObygazeError]
) -> tuple[Document, list[tuple[str, str]], list[str]]:
    """Read an ``.eaf`` file; raise `error` if it is not valid.

    Also returns the annotations that are left out, as (location, problem), and remarks on external
    references and time shifts, which are ignored. Texts in dependent tiers, at any depth, become
    details of the annotation that has times.
    """
    root = parse_eaf(path, error)
    header = root.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise error(f"{path} has times in {shorten(units)}; save it again with ELAN")
    times = {
        slot.get("TIME_SLOT_ID", ""): int(value)
        for slot in root.iter("TIME_SLOT")
        if MILLISECONDS.fullmatch(value := slot.get("TIME_VALUE", ""))
    }
    elements = {element.get("TIER_ID", ""): element for element in root.findall("TIER")}
    if len(elements) > MAX_TIERS:
        raise error(f"{path} has {len(elements):,} tiers; at most {MAX_TIERS:,} are supported")
    parents = {name: element.get("PARENT_REF", "") for name, element in elements.items()}
    top = _roots({name: parent for name, parent in parents.items() if parent in elements})
    notes = root.iter("REF_ANNOTATION")
    referred = _roots({n.get("ANNOTATION_ID", ""): n.get("ANNOTATION_REF", "") for n in notes})
    left_out: list[tuple[str, str]] = []
    annotations: dict[str, dict[str, Annotation]] = {}
    for name, element in elements.items():
        if top.get(name, name) == name:
            annotations[name] = _timed_annotations(element, times, left_out)
    for name, element in elements.items():
        if (parent := top.get(name, name)) != name:
            _add_details(annotations[parent], element, parent, times, referred, left_out)
    tiers = [
        Tier(
            name,
            elements[name].get("LINGUISTIC_TYPE_REF", ""),
            list(by_id.values()),
            elements[name].get("ANNOTATOR", "").strip(),
            elements[name].get("PARTICIPANT", "").strip(),
        )
        for name, by_id in annotations.items()
    ]
    properties = {node.get("NAME", ""): node.text or "" for node in root.iter("PROPERTY")}
    pick_lists = {kind: [*filter(None, entries)] for kind, entries in _entries(root).items()}
    document = Document(tiers, properties=properties, pick_lists=pick_lists)
    return document, left_out, list(_ignored_requests(root))


def parse_eaf(path: Path, error: type[ObygazeError]) -> Xml.Element:
    """Return the root of an ``.eaf`` file, without comments; raise `error` for any other file."""
    with translate(error, path, "cannot be read: {}", foreign=OSError), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise error(f"{path} is larger than {format_size(MAX_BYTES)}, too large for an ELAN file")
    with translate(error, path, "is not UTF-8: {}", foreign=UnicodeDecodeError):
        text = data.decode("utf-8-sig")
    # Check before parsing, because a document type could define entities or name other files.
    if "<!DOCTYPE" in text:
        raise error(f"{path} declares a document type (<!DOCTYPE), which ELAN files never do")
    with translate(error, path, "is not XML, or is cut short ({})", foreign=Xml.ParseError):
        root = Xml.fromstring(text)  # noqa: S314 - without a document type no entities
    if root.tag != "ANNOTATION_DOCUMENT":
        raise error(f"{path} is not an ELAN file (root element {shorten(root.tag)})")
    return root


def _timed_annotations(
    tier: Xml.Element, times: Mapping[str, int], left_out: list[tuple[str, str]]
) -> dict[str, Annotation]:
    """Return the annotations of a tier that have times, by id."""
    annotations = {}
    for note in tier.iter("REF_ANNOTATION"):
        left_out.append((_location(tier, note), "does not refer to an annotation"))
    for note in tier.iter("ALIGNABLE_ANNOTATION"):
        start, end = (times.get(note.get(f"TIME_SLOT_REF{side}", "")) for side in (1, 2))
        identifier, location = note.get("ANNOTATION_ID", ""), _location(tier, note)
        if start is None or end is None:
            left_out.append((location, "has no times"))
        else:
            location += f" (at {format_time(start / 1000)})"
            annotations[identifier] = Annotation(start, end, _value(note), {}, location)
    return annotations


def _add_details(
    annotations: dict[str, Annotation],
    tier: Xml.Element,
    parent: str,
    times: Mapping[str, int],
    referred: Mapping[str, str],
    left_out: list[tuple[str, str]],
) -> None:
    """Add the texts of a dependent tier to its annotations."""
    detail = tier.get("TIER_ID", "").removeprefix(f"{parent}, ")
    texts: dict[str, list[str]] = {}
    parts = list(tier.iter("ALIGNABLE_ANNOTATION"))
    ids = sorted(annotations, key=lambda i: annotations[i].start) if parts else []
    starts = [annotations[i].start for i in ids]
    for note in (*tier.iter("REF_ANNOTATION"), *parts):
        if note.tag == "REF_ANNOTATION":
            target = referred[note.get("ANNOTATION_ID", "")]
        else:  # part of an annotation, related to it only by its times
            start = times.get(note.get("TIME_SLOT_REF1", ""), -1)
            index = bisect_right(starts, start) - 1
            inside = index >= 0 and start < annotations[ids[index]].end
            target = ids[index] if inside else ""
        if target in annotations:
            texts.setdefault(target, []).append(_value(note))
        elif _value(note).strip():
            problem = f"does not refer to an annotation of {shorten(parent)} with times"
            left_out.append((_location(tier, note), problem))
    for target, values in texts.items():
        text = values[0] if len(values) == 1 else tuple(values)
        details = {**annotations[target].details, detail: text}
        annotations[target] = replace(annotations[target], details=details)


def _roots(parents: Mapping[str, str]) -> dict[str, str]:
    """Map each name to its topmost parent; names in a cycle map to one of its members."""
    roots: dict[str, str] = {}
    for name in parents:
        path: list[str] = []
        while name in parents and name not in roots:
            roots[name] = name  # provisional, but final in a cycle
            path.append(name)
            name = parents[name]
        for child in path:
            roots[child] = roots.get(name, name)
    return roots


def _location(tier: Xml.Element, note: Xml.Element) -> str:
    return f"tier {shorten(tier.get('TIER_ID', ''))}, annotation {note.get('ANNOTATION_ID', '')}"


def _value(note: Xml.Element) -> str:
    return note.findtext("ANNOTATION_VALUE") or ""


def _ignored_requests(root: Xml.Element) -> Iterator[str]:
    """Yield a remark on each external reference and each time shift, which are ignored."""
    for node in root.iter("EXTERNAL_REF"):
        address = shorten(node.get("VALUE", ""))
        yield f"refers to {address}, which is not fetched; annotations are read as they are"
    for node in root.iter("MEDIA_DESCRIPTOR"):
        if node.get("TIME_ORIGIN", "0") not in ("", "0"):
            yield (
                f"its film is shifted by {shorten(node.get('TIME_ORIGIN', ''))} milliseconds "
                "(TIME_ORIGIN); times are read as ELAN shows them"
            )


def to_eaf(document: Document, vocabularies: Vocabularies | None = None) -> str:
    """Return the text of an ``.eaf`` file with the tier types and pick-lists of the template.

    In ELAN, annotations in a tier cannot overlap. If they do, the later ones are written to further
    tiers of the same kind.
    """
    root = fill_template(vocabularies or {})
    for tier in root.findall("TIER"):
        root.remove(tier)
    root.set("AUTHOR", f"obygaze {obygaze_version()}")
    root.set("DATE", datetime.now(UTC).isoformat(timespec="seconds"))
    [header] = root.findall("HEADER")
    media = re.split(r"[\\/]", document.media)[-1]
    link = document.link or f"./{media}"
    if Path(media).suffix.lower() in VIDEO_SUFFIXES:  # otherwise it is the name of a film
        # The link is relative, so that ELAN finds the film next to the document, and no local path
        # leaks. It is not quoted (no %20), because ELAN takes it for a path and does not decode it.
        kind = mimetypes.MimeTypes().guess_type(media)[0] or "video/*"
        urls = {"MEDIA_URL": clean(media), "RELATIVE_MEDIA_URL": clean(link)}
        Xml.SubElement(header, "MEDIA_DESCRIPTOR", {**urls, "MIME_TYPE": kind})
    _add_properties(header, document.properties)
    Xml.SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId")
    return _with_tiers(root, document.tiers)


def _with_tiers(root: Xml.Element, tiers: Sequence[Tier]) -> str:
    """Add tiers to a document without tiers, with their types and times, and return its text."""
    types = {element.get("LINGUISTIC_TYPE_ID") for element in root.iter("LINGUISTIC_TYPE")}
    entries = _entries(root)
    levels = entries.get("segment", {})  # of the template's tiers
    kinds = {tier.kind for tier in tiers if levels.keys() & {n.value for n in tier.annotations}}
    entries |= dict.fromkeys(kinds - types, levels)
    writer = _TierWriter(entries)
    for tier in tiers:
        writer.add(tier)
    _insert(root, writer.elements)
    needed = {element.get("LINGUISTIC_TYPE_REF") for element in writer.elements}
    missing = [
        element
        for element in _types(tiers, entries)
        if element.get("LINGUISTIC_TYPE_ID") in needed - types
    ]
    _insert(root, missing)
    _add_slots(root, writer.slots)
    for node in root.iter("PROPERTY"):
        if node.get("NAME") == "lastUsedAnnotationId":
            node.text = str(next(writer.numbers) - 1)
    return with_checksum(root)


class _TierWriter:
    """A writer of XML elements for tiers, with unique names and ids.

    Parameters
    ----------
    entries
        For each tier type with a pick-list, the ids of its entries by text.
    """

    def __init__(self, entries: Mapping[str, Mapping[str, str]]) -> None:
        self.numbers = count(1)
        self.names = set[str]()
        self.entries = entries
        self.elements: list[Xml.Element] = []
        #: The time of each time slot, whether it is a start, and its name.
        self.slots: list[tuple[int, int, str]] = []

    def add(self, tier: Tier) -> None:
        """Add a tier and its dependent tiers, and further tiers if annotations overlap."""
        name = clean(tier.name)
        while name in self.names:
            name += " (new)"
        self.names.add(name)
        for number, group in enumerate(_without_overlaps(tier.annotations), start=1):
            group_name = name if number == 1 else f"{name} ({number})"
            self._add_group(tier, group_name, group)

    def _add_group(self, tier: Tier, name: str, annotations: Sequence[Annotation]) -> None:
        """Add a tier of annotations that do not overlap, and its dependent tiers.

        A dependent tier gets the type of the same name, if it exists, and an annotation per text.
        """
        people = {"ANNOTATOR": clean(tier.annotator), "PARTICIPANT": clean(tier.participant)}
        people = {key: text for key, text in people.items() if text}
        element = self._add_tier({"LINGUISTIC_TYPE_REF": tier.kind, "TIER_ID": name, **people})
        parents = []
        for annotation in annotations:
            number = next(self.numbers)
            start, end = f"ts{2 * number - 1}", f"ts{2 * number}"
            # If one annotation ends when another begins, the end comes first.
            self.slots += [(annotation.start, 1, start), (annotation.end, 0, end)]
            times = {"TIME_SLOT_REF1": start, "TIME_SLOT_REF2": end}
            parents.append(self._annotate(element, number, annotation.value, times))
        details = (key for note in annotations for key, texts in note.details.items() if texts)
        for detail in dict.fromkeys(details):
            kind = detail if detail in self.entries else f"about a {tier.kind}"
            attributes = {"LINGUISTIC_TYPE_REF": kind, "PARENT_REF": name}
            attributes |= {"TIER_ID": clean(f"{name}, {detail}"), **people}
            dependent = self._add_tier(attributes)
            for parent, annotation in zip(parents, annotations, strict=True):
                texts = annotation.details.get(detail) or ()
                attributes = {"ANNOTATION_REF": parent}
                for text in (texts,) if isinstance(texts, str) else texts:
                    previous = self._annotate(dependent, next(self.numbers), text, attributes)
                    attributes = {"ANNOTATION_REF": parent, "PREVIOUS_ANNOTATION": previous}

    def _add_tier(self, attributes: dict[str, str]) -> Xml.Element:
        self.elements.append(Xml.Element("TIER", attributes))
        return self.elements[-1]

    def _annotate(
        self, tier: Xml.Element, number: int, value: str, attributes: dict[str, str]
    ) -> str:
        """Add an annotation to a tier element, and return its id."""
        kind = "REF_ANNOTATION" if "ANNOTATION_REF" in attributes else "ALIGNABLE_ANNOTATION"
        attributes = {"ANNOTATION_ID": f"a{number}", **attributes}
        if entry := self.entries.get(tier.attrib["LINGUISTIC_TYPE_REF"], {}).get(clean(value)):
            attributes["CVE_REF"] = entry
        annotation = Xml.SubElement(Xml.SubElement(tier, "ANNOTATION"), kind, attributes)
        Xml.SubElement(annotation, "ANNOTATION_VALUE").text = clean(value)
        return f"a{number}"


def _entries(root: Xml.Element) -> dict[str, dict[str, str]]:
    """Return pick-list entry ids by text, for each type that is dependent or has a pick-list."""
    lists = {
        vocabulary.get("CV_ID"): {
            e.findtext("CVE_VALUE", ""): e.get("CVE_ID", "") for e in vocabulary
        }
        for vocabulary in root.iter("CONTROLLED_VOCABULARY")
    }
    return {
        kind.get("LINGUISTIC_TYPE_ID", ""): lists.get(kind.get("CONTROLLED_VOCABULARY_REF"), {})
        for kind in root.iter("LINGUISTIC_TYPE")
        if kind.attrib.keys() & {"CONSTRAINTS", "CONTROLLED_VOCABULARY_REF"}
    }


def _types(tiers: Sequence[Tier], with_levels: Collection[str]) -> list[Xml.Element]:
    """Return type elements for tiers and dependent tiers; types in `with_levels` offer levels."""
    elements = []
    for kind in dict.fromkeys(tier.kind for tier in tiers):
        plain = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": kind}
        offers = {"CONTROLLED_VOCABULARY_REF": "levels"} if kind in with_levels else {}
        elements.append(Xml.Element("LINGUISTIC_TYPE", plain | offers | {"TIME_ALIGNABLE": "true"}))
        dependent = {"LINGUISTIC_TYPE_ID": f"about a {kind}"}
        dependent |= {"TIME_ALIGNABLE": "false", "CONSTRAINTS": STEREOTYPE}
        elements.append(Xml.Element("LINGUISTIC_TYPE", plain | dependent))
    return elements


def _insert(root: Xml.Element, elements: Sequence[Xml.Element]) -> None:
    """Insert elements in the order of ELAN's schema: after those of the same or earlier kinds."""
    for element in elements:
        earlier = ORDER[: ORDER.index(element.tag) + 1]
        positions = [position for position, child in enumerate(root) if child.tag in earlier]
        root.insert(max(positions, default=-1) + 1, element)


def _add_slots(root: Xml.Element, slots: Sequence[tuple[int, int, str]]) -> None:
    """Add time slots in order of time."""
    [order] = root.findall("TIME_ORDER")
    for time, _, name in sorted(slots, key=lambda slot: slot[:2]):
        Xml.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=name, TIME_VALUE=str(time))


def with_checksum(root: Xml.Element) -> str:
    """Return a document's text with a checksum, which later shows if the file was edited."""
    Xml.indent(root)
    # A reader would turn a literal carriage return into a line feed.
    body = Xml.tostring(root, encoding="unicode").replace("\r", "&#13;") + "\n"
    comment = f"<!-- {CHECKSUM_COMMENT} {sha256_of_text(body)} -->"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{comment}\n{body}'


def to_etf(vocabularies: Vocabularies, properties: Mapping[str, str]) -> str:
    """Return the text of a template with these pick-lists; new ELAN files get `properties`."""
    root = fill_template(vocabularies)
    [header] = root.findall("HEADER")
    _add_properties(header, properties)
    return with_checksum(root)


def _add_properties(header: Xml.Element, properties: Mapping[str, str]) -> None:
    for name, text in properties.items():
        Xml.SubElement(header, "PROPERTY", NAME=clean(name)).text = clean(text)


def fill_template(vocabularies: Vocabularies) -> Xml.Element:
    """Return obygaze's template with these pick-lists; tiers without a list accept any text."""
    root = parse_eaf(TEMPLATE, ObygazeError)
    for vocabulary in root.findall("CONTROLLED_VOCABULARY"):
        name = vocabulary.attrib["CV_ID"]
        for number, (value, about) in enumerate(vocabularies.get(name, {}).items()):
            entry = Xml.SubElement(vocabulary, "CV_ENTRY_ML", CVE_ID=f"{name}-{number}")
            attributes = {"DESCRIPTION": clean(about), "LANG_REF": "und"}
            Xml.SubElement(entry, "CVE_VALUE", attributes).text = clean(value)
        if not vocabularies.get(name):
            root.remove(vocabulary)
            for kind in root.findall(f"LINGUISTIC_TYPE[@CONTROLLED_VOCABULARY_REF='{name}']"):
                del kind.attrib["CONTROLLED_VOCABULARY_REF"]
    return root


def refuse_edited(paths: Iterable[Path]) -> None:
    """Raise `OutputExists` if any of the ``.eaf`` files was edited after obygaze wrote it."""
    for path in paths:
        if path.suffix == ".eaf" and path.exists() and not _is_unchanged(path):
            raise OutputExists(
                f"{path} has annotations that obygaze did not write, or that were edited later. "
                "It is never replaced, even with --overwrite. Choose another folder"
            )


def clean(text: str) -> str:
    """Replace characters that XML does not allow."""
    return _NOT_XML.sub("\ufffd", text)


def _is_unchanged(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    head, _, body = text.partition("-->\n")
    return f"<!-- {CHECKSUM_COMMENT} {sha256_of_text(body)} " in head


def _without_overlaps(annotations: Sequence[Annotation]) -> list[list[Annotation]]:
    """Divide annotations, in order, into as few groups without overlaps as possible."""
    groups: list[list[Annotation]] = []
    for annotation in sorted(annotations, key=lambda a: (a.start, a.end)):
        free = next((group for group in groups if group[-1].end <= annotation.start), None)
        if free is None:
            groups.append([annotation])
        else:
            free.append(annotation)
    return groups
