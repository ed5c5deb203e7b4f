"""Reads ELAN's documents, as files that somebody sent.

There is a bound on their size, a document type is refused with all that it could define, and
nothing that they refer to is fetched.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.common.elan import Document, Span, Tier
from obygaze_features.common.text import shorten, size
from obygaze_features.errors import ObygazeError

__all__ = ["LARGEST", "Reading", "read_eaf", "read_text"]

#: A film of a thousand segments takes half a megabyte.
LARGEST = 16 << 20
MOST_TIERS = 1000
_MILLISECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """A document, and what was odd in the file: (where, what) left out, and what was kept."""

    document: Document
    left_out: Sequence[tuple[str, str]] = ()
    kept: Sequence[str] = ()


def read_eaf(path: Path, error: type[ObygazeError]) -> Reading:
    """Read an ``.eaf`` file; `error` is raised if it is none.

    What hangs on an annotation, at any depth, is brought to the one that has times; several
    texts of a tier are joined by commas.
    """
    root = _parse(path, error)
    header = root.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise error(f"{path} has its times in {shorten(units)}; save it again with ELAN")
    slots = {
        slot.get("TIME_SLOT_ID", ""): int(value)
        for slot in root.iter("TIME_SLOT")
        if _MILLISECONDS.fullmatch(value := slot.get("TIME_VALUE", ""))
    }
    elements = {element.get("TIER_ID", ""): element for element in root.findall("TIER")}
    if len(elements) > MOST_TIERS:
        raise error(f"{path} has {len(elements):,} tiers; that is no film's annotations")
    above = {name: element.get("PARENT_REF", "") for name, element in elements.items()}
    top = _ends({name: parent for name, parent in above.items() if parent in elements})
    refers = _ends(
        {
            note.get("ANNOTATION_ID", ""): note.get("ANNOTATION_REF", "")
            for note in root.iter("REF_ANNOTATION")
        }
    )
    left_out: list[tuple[str, str]] = []
    spans: dict[str, dict[str, Span]] = {}
    for name, element in elements.items():
        if top.get(name, name) == name:
            spans[name] = _spans(element, slots, left_out)
    for name, element in elements.items():
        if (parent := top.get(name, name)) != name:
            _hang(spans[parent], element, parent, slots, refers, left_out)
    tiers = [
        Tier(
            name,
            elements[name].get("LINGUISTIC_TYPE_REF", ""),
            list(found.values()),
            elements[name].get("ANNOTATOR", "").strip(),
            elements[name].get("PARTICIPANT", "").strip(),
        )
        for name, found in spans.items()
    ]
    notes = {one.get("NAME", ""): one.text or "" for one in root.iter("PROPERTY")}
    return Reading(Document(tiers, notes=notes), left_out, list(_remarks(root)))


def read_text(path: Path, error: type[ObygazeError], *, exported: bool = False) -> str:
    """The text of a file of ELAN's that is not too large, without a byte order mark.

    What is `exported` may be UTF-16, as ELAN asks for the encoding then.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from None
    if len(data) > LARGEST:
        raise error(f"{path} is larger than {size(LARGEST)}; that is no film's annotations")
    if not data.strip():
        raise error(f"{path} is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        if not exported:
            raise error(f"{path} is UTF-16; ELAN writes UTF-8, save it again as such")
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        again = "; export it again with the encoding UTF-8" if exported else ""
        what = f"not UTF-8 (byte {data[problem.start]:#04x})"
        raise error(f"{path}, line {line}: {what}{again}") from None


def _parse(path: Path, error: type[ObygazeError]) -> Xml.Element:
    text = read_text(path, error)
    # Before the parser sees it: a document type could define entities, or name other files.
    if "<!DOCTYPE" in text:
        raise error(f"{path} declares a document type (<!DOCTYPE), which ELAN's files do not have")
    try:
        root = Xml.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except Xml.ParseError as problem:
        raise error(f"{path} is not XML, or is cut short ({problem})") from None
    if root.tag != "ANNOTATION_DOCUMENT":
        raise error(f"{path} is XML of another kind ({shorten(root.tag)}); an .eaf file is meant")
    return root


def _spans(
    tier: Xml.Element, slots: Mapping[str, int], left_out: list[tuple[str, str]]
) -> dict[str, Span]:
    """Annotation id -> span."""
    found = {}
    for note in tier.iter("REF_ANNOTATION"):
        left_out.append((_where(tier, note), "hangs on no annotation"))
    for note in tier.iter("ALIGNABLE_ANNOTATION"):
        start, end = (slots.get(note.get(f"TIME_SLOT_REF{side}", "")) for side in (1, 2))
        identifier, where = note.get("ANNOTATION_ID", ""), _where(tier, note)
        if start is None or end is None:
            left_out.append((where, "has no times"))
        else:
            found[identifier] = Span(start, end, _value(note), {}, where)
    return found


def _hang(
    spans: dict[str, Span],
    tier: Xml.Element,
    parent: str,
    slots: Mapping[str, int],
    refers: Mapping[str, str],
    left_out: list[tuple[str, str]],
) -> None:
    """Give the spans what a tier below theirs says of them."""
    name = tier.get("TIER_ID", "")
    what = name.removeprefix(f"{parent}, ")
    texts: dict[str, list[str]] = {}
    parts = list(tier.iter("ALIGNABLE_ANNOTATION"))
    in_time = sorted(spans, key=lambda one: spans[one].start) if parts else []
    starts = [spans[one].start for one in in_time]
    for note in (*tier.iter("REF_ANNOTATION"), *parts):
        if note.tag == "REF_ANNOTATION":
            above = refers[note.get("ANNOTATION_ID", "")]
        else:  # a part of the one above, which it names by its times only
            start = slots.get(note.get("TIME_SLOT_REF1", ""), -1)
            place = bisect_right(starts, start) - 1
            above = in_time[place] if place >= 0 and start < spans[in_time[place]].end else ""
        if above in spans:
            texts.setdefault(above, []).append(_value(note))
        elif _value(note).strip():
            left_out.append(
                (_where(tier, note), f"hangs on no annotation of {shorten(parent)} that has times")
            )
    for one, said in texts.items():
        beside = {**spans[one].beside, what: ", ".join(said)}
        spans[one] = replace(spans[one], beside=beside)


def _ends(above: Mapping[str, str]) -> dict[str, str]:
    """Where each name leads to, from one to the next; a ring leads to one of its own."""
    ends: dict[str, str] = {}
    for name in above:
        path: list[str] = []
        while name in above and name not in ends:
            ends[name] = name  # until it is known better, and for good where this is a ring
            path.append(name)
            name = above[name]
        for one in path:
            ends[one] = ends.get(name, name)
    return ends


def _where(tier: Xml.Element, note: Xml.Element) -> str:
    return f"tier {shorten(tier.get('TIER_ID', ''))}, annotation {note.get('ANNOTATION_ID', '')}"


def _value(note: Xml.Element) -> str:
    return note.findtext("ANNOTATION_VALUE") or ""


def _remarks(root: Xml.Element) -> Iterator[str]:
    for one in root.iter("EXTERNAL_REF"):
        place = shorten(one.get("VALUE", ""))
        yield f"refers to {place}, which is not fetched; annotations are taken at their own words"
    for one in root.iter("MEDIA_DESCRIPTOR"):
        if one.get("TIME_ORIGIN", "0") not in ("", "0"):
            yield (
                f"its film is shifted by {shorten(one.get('TIME_ORIGIN', ''))} milliseconds "
                "(TIME_ORIGIN); times are taken as ELAN shows them"
            )
