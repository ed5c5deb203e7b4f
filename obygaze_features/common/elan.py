"""ELAN's documents (EAF 3.0): tiers of timed annotations, and what hangs on each of these.

ELAN's tiers hold no two annotations at once: where spans overlap, the later ones are written to
further tiers of the same kind.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from xml.etree import ElementTree as Xml

from obygaze_features.errors import OutputExists

__all__ = ["Document", "Span", "Tier", "clean", "refuse_edited", "to_eaf"]

SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
STEREOTYPE = "Symbolic_Association"
#: Goes when ELAN saves the file: what follows is as we wrote it only if it has this sum.
MARK = "as obygaze wrote it:"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Span:
    """An annotation from `start` to `end`, in milliseconds.

    `beside` is what hangs on it, by name; `where` it is in the file that it was read from.
    """

    start: int
    end: int
    value: str
    beside: Mapping[str, str] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True)
class Tier:
    """Annotations of one kind; `kind` is ELAN's linguistic type."""

    name: str
    kind: str
    spans: Sequence[Span]
    annotator: str = ""
    participant: str = ""


@dataclass(frozen=True)
class Document:
    """A file of ELAN's: its tiers, the name of its film's file, and notes that ELAN keeps."""

    tiers: Sequence[Tier]
    media: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)


def to_eaf(document: Document) -> str:
    """The text of an ``.eaf`` file."""
    root = Xml.Element(
        "ANNOTATION_DOCUMENT",
        {
            "AUTHOR": f"obygaze {version('obygaze')}",
            "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
            "FORMAT": "3.0",
            "VERSION": "3.0",
            "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
            "xsi:noNamespaceSchemaLocation": SCHEMA,
        },
    )
    header = Xml.SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    if media := document.media:
        # ELAN looks beside its own file; where the film lies on this machine is nobody's business.
        kind = mimetypes.MimeTypes().guess_type(media)[0] or "video/*"
        places = {"MEDIA_URL": clean(media), "RELATIVE_MEDIA_URL": clean(f"./{media}")}
        Xml.SubElement(header, "MEDIA_DESCRIPTOR", {**places, "MIME_TYPE": kind})
    for name, text in document.notes.items():
        Xml.SubElement(header, "PROPERTY", NAME=clean(name)).text = clean(text)
    last = Xml.SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId")
    order = Xml.SubElement(root, "TIME_ORDER")
    numbers = count(1)
    ends: list[tuple[int, int, str]] = []
    for tier in document.tiers:
        for number, lane in enumerate(_lanes(tier.spans), start=1):
            name = clean(tier.name if number == 1 else f"{tier.name} ({number})")
            _add_tiers(root, tier, name, lane, numbers, ends)
    for value, _, slot in sorted(ends):
        Xml.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=str(value))
    last.text = str(next(numbers) - 1)
    kinds = dict.fromkeys(tier.kind for tier in document.tiers)
    for kind in kinds:
        plain = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": kind}
        Xml.SubElement(root, "LINGUISTIC_TYPE", plain | {"TIME_ALIGNABLE": "true"})
        hanging = {"TIME_ALIGNABLE": "false", "CONSTRAINTS": STEREOTYPE}
        beside = plain | {"LINGUISTIC_TYPE_ID": f"about a {kind}"}
        Xml.SubElement(root, "LINGUISTIC_TYPE", beside | hanging)
    says = "1-1 association with a parent annotation"
    Xml.SubElement(root, "CONSTRAINT", STEREOTYPE=STEREOTYPE, DESCRIPTION=says)
    Xml.indent(root)
    # What is read back would have a line feed in the place of a carriage return written as such.
    text = Xml.tostring(root, encoding="unicode").replace("\r", "&#13;")
    body = f"{text}\n"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} {_sum(body)} -->\n{body}'


def refuse_edited(paths: Iterable[Path]) -> None:
    """Raise `OutputExists` if an ``.eaf`` file among these is not as obygaze wrote it."""
    for path in paths:
        if path.suffix == ".eaf" and path.exists() and not _is_ours(path):
            raise OutputExists(
                f"{path} holds annotations that obygaze did not write, or that were edited since; "
                "it is left alone, also with --overwrite: choose a folder of its own"
            )


def _is_ours(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    head, _, body = text.partition("-->\n")
    return f"<!-- {MARK} {_sum(body)} " in head


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans in time, parted so that none overlaps another."""
    lanes: list[list[Span]] = []
    for one in sorted(spans, key=lambda one: (one.start, one.end)):
        free = next((lane for lane in lanes if lane[-1].end <= one.start), None)
        if free is None:
            lanes.append([one])
        else:
            free.append(one)
    return lanes


def _add_tiers(
    root: Xml.Element,
    tier: Tier,
    name: str,
    lane: Sequence[Span],
    numbers: Iterator[int],
    ends: list[tuple[int, int, str]],
) -> None:
    """The tier of the spans, and those that hang on it; their time slots go to `ends`."""
    people = {"ANNOTATOR": clean(tier.annotator), "PARTICIPANT": clean(tier.participant)}
    said = {key: text for key, text in people.items() if text}
    about = {"LINGUISTIC_TYPE_REF": tier.kind, "TIER_ID": name, **said}
    element = Xml.SubElement(root, "TIER", about)
    parents = []
    for one in lane:
        number = next(numbers)
        slots = f"ts{2 * number - 1}", f"ts{2 * number}"
        # Where one span ends as another begins, the end comes first.
        ends += [(one.start, 1, slots[0]), (one.end, 0, slots[1])]
        places = {"TIME_SLOT_REF1": slots[0], "TIME_SLOT_REF2": slots[1]}
        _annotate(element, "ALIGNABLE_ANNOTATION", one.value, ANNOTATION_ID=f"a{number}", **places)
        parents.append(f"a{number}")
    for what in dict.fromkeys(what for one in lane for what in one.beside):
        about = {"LINGUISTIC_TYPE_REF": f"about a {tier.kind}", "PARENT_REF": name}
        about |= {"TIER_ID": clean(f"{name}, {what}"), **said}
        hanging = Xml.SubElement(root, "TIER", about)
        for parent, one in zip(parents, lane, strict=True):
            if (value := one.beside.get(what)) is not None:
                to = {"ANNOTATION_ID": f"a{next(numbers)}", "ANNOTATION_REF": parent}
                _annotate(hanging, "REF_ANNOTATION", value, **to)


def _annotate(tier: Xml.Element, kind: str, value: str, **about: str) -> None:
    annotation = Xml.SubElement(Xml.SubElement(tier, "ANNOTATION"), kind, about)
    Xml.SubElement(annotation, "ANNOTATION_VALUE").text = clean(value)


def clean(text: str) -> str:
    """Without the characters that XML has no way of writing."""
    return _NOT_XML.sub("\ufffd", text)
