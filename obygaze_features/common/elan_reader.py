"""ELAN's documents (EAF 3.0) as data, and read: tiers of timed annotations, and their details.

Read as files that somebody sent: their size is bounded, a document type is refused with all that
it could define, and nothing that they refer to is fetched. (pympi-ling expands entities, takes
frames for milliseconds and writes overlapping annotations to one tier, which ELAN does not allow.)
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.common.text import format_size, shorten
from obygaze_features.errors import ObygazeError, translate

#: A film of a thousand segments takes half a megabyte.
MAX_BYTES = 16 << 20
MAX_TIERS = 1000
MILLISECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True)
class Annotation:
    """An annotation from `start` to `end`, in milliseconds.

    `details` are the texts of dependent tiers, by their names; `location` is where it is in the
    file that it was read from.
    """

    start: int
    end: int
    value: str
    details: Mapping[str, str] = field(default_factory=dict)
    location: str = ""


def milliseconds(start: float, end: float) -> tuple[int, int]:
    """A span of seconds in ELAN's times, where it lasts at least one millisecond."""
    first = round(start * 1000)
    return first, max(round(end * 1000), first + 1)


@dataclass(frozen=True)
class Tier:
    """Annotations of one kind; `kind` is ELAN's linguistic type."""

    name: str
    kind: str
    annotations: Sequence[Annotation]
    annotator: str = ""
    participant: str = ""


@dataclass(frozen=True)
class Document:
    """A file of ELAN's: its tiers, the name of its film's file, and the header's properties."""

    tiers: Sequence[Tier]
    media: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


def read_eaf(
    path: Path, error: type[ObygazeError]
) -> tuple[Document, list[tuple[str, str]], list[str]]:
    """Read an ``.eaf`` file; any other raises `error`.

    Also gives what is left out (location, problem), and what the file asks for and is not done.
    The texts of dependent tiers, at any depth, become details of the annotation that has times;
    several texts of a tier are joined by commas.
    """
    root = parse_eaf(path, error)
    header = root.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise error(f"{path} has its times in {shorten(units)}; save it again with ELAN")
    times = {
        slot.get("TIME_SLOT_ID", ""): int(value)
        for slot in root.iter("TIME_SLOT")
        if MILLISECONDS.fullmatch(value := slot.get("TIME_VALUE", ""))
    }
    elements = {element.get("TIER_ID", ""): element for element in root.findall("TIER")}
    if len(elements) > MAX_TIERS:
        raise error(f"{path} has {len(elements):,} tiers; at most {MAX_TIERS:,} are read")
    parents = {name: element.get("PARENT_REF", "") for name, element in elements.items()}
    top = _roots({name: parent for name, parent in parents.items() if parent in elements})
    referred = _roots(
        {
            note.get("ANNOTATION_ID", ""): note.get("ANNOTATION_REF", "")
            for note in root.iter("REF_ANNOTATION")
        }
    )
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
    return Document(tiers, properties=properties), left_out, list(_ignored_requests(root))


def parse_eaf(
    path: Path, error: type[ObygazeError], builder: Xml.TreeBuilder | None = None
) -> Xml.Element:
    """The root of an ``.eaf`` file; any other file raises `error`.

    Without a `builder` comments and processing instructions are left out.
    """
    with translate(error, path, "cannot be read: {}", foreign=OSError), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise error(f"{path} is larger than {format_size(MAX_BYTES)}; ELAN's files are smaller")
    if not data.strip():
        raise error(f"{path} is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise error(f"{path} is UTF-16; ELAN writes UTF-8, save it again as such")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(f"{path}, line {line}: not UTF-8 (byte {data[problem.start]:#04x})") from None
    # Before the parser sees it: a document type could define entities, or name other files.
    if "<!DOCTYPE" in text:
        raise error(f"{path} declares a document type (<!DOCTYPE), which ELAN's files do not have")
    with translate(error, path, "is not XML, or is cut short ({})", foreign=Xml.ParseError):
        parser = Xml.XMLParser(target=builder)  # noqa: S314 - without a document type no entities
        root: Xml.Element = Xml.fromstring(text, parser)  # noqa: S314
    if root.tag != "ANNOTATION_DOCUMENT":
        raise error(f"{path} is not an ELAN file (root element {shorten(root.tag)})")
    return root


def _timed_annotations(
    tier: Xml.Element, times: Mapping[str, int], left_out: list[tuple[str, str]]
) -> dict[str, Annotation]:
    """Annotation id -> annotation, of a tier that has times."""
    annotations = {}
    for note in tier.iter("REF_ANNOTATION"):
        left_out.append((_location(tier, note), "refers to no annotation"))
    for note in tier.iter("ALIGNABLE_ANNOTATION"):
        start, end = (times.get(note.get(f"TIME_SLOT_REF{side}", "")) for side in (1, 2))
        identifier, location = note.get("ANNOTATION_ID", ""), _location(tier, note)
        if start is None or end is None:
            left_out.append((location, "has no times"))
        else:
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
    """Give the annotations the texts of a tier that depends on theirs."""
    detail = tier.get("TIER_ID", "").removeprefix(f"{parent}, ")
    texts: dict[str, list[str]] = {}
    parts = list(tier.iter("ALIGNABLE_ANNOTATION"))
    ids = sorted(annotations, key=lambda i: annotations[i].start) if parts else []
    starts = [annotations[i].start for i in ids]
    for note in (*tier.iter("REF_ANNOTATION"), *parts):
        if note.tag == "REF_ANNOTATION":
            target = referred[note.get("ANNOTATION_ID", "")]
        else:  # a part of an annotation, related to it by its times only
            start = times.get(note.get("TIME_SLOT_REF1", ""), -1)
            index = bisect_right(starts, start) - 1
            inside = index >= 0 and start < annotations[ids[index]].end
            target = ids[index] if inside else ""
        if target in annotations:
            texts.setdefault(target, []).append(_value(note))
        elif _value(note).strip():
            problem = f"refers to no annotation of {shorten(parent)} that has times"
            left_out.append((_location(tier, note), problem))
    for target, values in texts.items():
        details = {**annotations[target].details, detail: ", ".join(values)}
        annotations[target] = replace(annotations[target], details=details)


def _roots(parents: Mapping[str, str]) -> dict[str, str]:
    """Where each name leads to, from parent to parent; a ring leads to one of its members."""
    roots: dict[str, str] = {}
    for name in parents:
        path: list[str] = []
        while name in parents and name not in roots:
            roots[name] = name  # provisional; final if this is a ring
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
    """What the file asks for and is not done."""
    for node in root.iter("EXTERNAL_REF"):
        address = shorten(node.get("VALUE", ""))
        yield f"refers to {address}, which is not fetched; annotations are read as they are"
    for node in root.iter("MEDIA_DESCRIPTOR"):
        if node.get("TIME_ORIGIN", "0") not in ("", "0"):
            yield (
                f"its film is shifted by {shorten(node.get('TIME_ORIGIN', ''))} milliseconds "
                "(TIME_ORIGIN); times are read as ELAN shows them"
            )
