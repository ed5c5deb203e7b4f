"""A model's predictions for ELAN: a document (EAF 3.0) for each file, with a tier of what it says.

ELAN's tiers hold no two annotations at once: where clips overlap, the later ones go to further
tiers of the same kind.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from xml.etree import ElementTree as Xml

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Items
from obygaze_features.manifests.items import media_stem
from obygaze_models.exports import NO_FILM, SaidOfClip, clips_of, unique_names
from obygaze_models.scoring import Predictions

__all__ = ["elan_files"]

SCHEMA = "http://www.mpi.nl/tools/elan/EAFv3.0.xsd"
SAID, BESIDE = "prediction", "about a prediction"
"""The two types of tier: aligned in time, and an annotation for each of the tier above."""
STEREOTYPE = "Symbolic_Association"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Span = tuple[int, int]


def elan_files(found: Predictions, items: Items) -> dict[str, str]:
    """An ELAN document for each film's file: file name -> text.

    Only clips with a start and an end have a place in time; `ExperimentError` if none has.
    """
    files: dict[tuple[str, str], list[SaidOfClip]] = {}
    for one in clips_of(found, items):
        if one.item.start is not None:
            files.setdefault((one.item.film, one.item.media), []).append(one)
    if not files:
        raise ExperimentError(
            f"none of the {len(found.ids):,} clips has a start and an end in its film, so ELAN "
            "has no place for them; --csv writes them for spreadsheets"
        )
    films = [film for film, _ in files]
    wanted = [
        film if film and films.count(film) == 1 else media_stem(media) or film or NO_FILM
        for film, media in files
    ]
    title = f"{found.about['estimator']}: {found.about['task']}"
    return {
        name: _document(clips, title, found)
        for name, clips in zip(unique_names(wanted, ".eaf"), files.values(), strict=True)
    }


def _document(clips: Sequence[SaidOfClip], title: str, found: Predictions) -> str:
    """All clips are of one file."""
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
    if media := clips[0].item.media:
        # ELAN looks beside its own file; where the film lies on this machine is nobody's business.
        kind = mimetypes.MimeTypes().guess_type(media)[0] or "video/*"
        places = {"MEDIA_URL": _clean(media), "RELATIVE_MEDIA_URL": _clean(f"./{media}")}
        Xml.SubElement(header, "MEDIA_DESCRIPTOR", {**places, "MIME_TYPE": kind})
    for place, caution in enumerate(found.cautions, start=1):
        Xml.SubElement(header, "PROPERTY", NAME=f"caution {place}").text = _clean(caution)
    last = Xml.SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId")
    order = Xml.SubElement(root, "TIME_ORDER")
    numbers = count(1)
    ends: list[tuple[int, int, str]] = []
    for lane, placed in enumerate(_lanes(clips), start=1):
        name = _clean(title if lane == 1 else f"{title} ({lane})")
        _add_tiers(root, name, found.about["classes"], placed, numbers, ends)
    for value, _, slot in sorted(ends):
        Xml.SubElement(order, "TIME_SLOT", TIME_SLOT_ID=slot, TIME_VALUE=str(value))
    last.text = str(next(numbers) - 1)
    plain = {"GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": SAID, "TIME_ALIGNABLE": "true"}
    hanging = {"LINGUISTIC_TYPE_ID": BESIDE, "TIME_ALIGNABLE": "false", "CONSTRAINTS": STEREOTYPE}
    Xml.SubElement(root, "LINGUISTIC_TYPE", plain)
    Xml.SubElement(root, "LINGUISTIC_TYPE", plain | hanging)
    says = "1-1 association with a parent annotation"
    Xml.SubElement(root, "CONSTRAINT", STEREOTYPE=STEREOTYPE, DESCRIPTION=says)
    Xml.indent(root)
    text = Xml.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _lanes(clips: Sequence[SaidOfClip]) -> list[list[tuple[Span, SaidOfClip]]]:
    """Clips with their milliseconds, in time, parted so that none overlaps another."""
    lanes: list[list[tuple[Span, SaidOfClip]]] = []
    for span, one in sorted(((_span(one), one) for one in clips), key=lambda pair: pair[0]):
        free = next((lane for lane in lanes if lane[-1][0][1] <= span[0]), None)
        if free is None:
            lanes.append([(span, one)])
        else:
            free.append((span, one))
    return lanes


def _span(one: SaidOfClip) -> Span:
    assert one.item.start is not None
    assert one.item.end is not None
    start = round(one.item.start * 1000)
    return start, max(round(one.item.end * 1000), start + 1)


def _add_tiers(
    root: Xml.Element,
    name: str,
    classes: Sequence[str],
    placed: Sequence[tuple[Span, SaidOfClip]],
    numbers: Iterator[int],
    ends: list[tuple[int, int, str]],
) -> None:
    """The tier of what is said, and those that hang on it; their time slots go to `ends`."""
    tier = Xml.SubElement(root, "TIER", LINGUISTIC_TYPE_REF=SAID, TIER_ID=name)
    parents = []
    for (start, end), one in placed:
        number = next(numbers)
        slots = f"ts{2 * number - 1}", f"ts{2 * number}"
        # Where one clip ends as another begins, the end comes first.
        ends += [(start, 1, slots[0]), (end, 0, slots[1])]
        _annotate(
            tier,
            "ALIGNABLE_ANNOTATION",
            one.said,
            ANNOTATION_ID=f"a{number}",
            TIME_SLOT_REF1=slots[0],
            TIME_SLOT_REF2=slots[1],
        )
        parents.append(f"a{number}")
    attached: dict[str, list[str | None]] = {"clip": [one.item.id for _, one in placed]}
    # Of two classes one probability says all.
    for place in range(1 if len(classes) == 2 else 0, len(classes)):
        attached[f"probability of {classes[place]}"] = [
            f"{one.probabilities[place]:.3f}" for _, one in placed
        ]
    if any(one.seen != "no" for _, one in placed):
        attached["seen in training"] = [one.seen if one.seen != "no" else None for _, one in placed]
    for what, values in attached.items():
        tier = Xml.SubElement(
            root,
            "TIER",
            LINGUISTIC_TYPE_REF=BESIDE,
            PARENT_REF=name,
            TIER_ID=_clean(f"{name}, {what}"),
        )
        for parent, value in zip(parents, values, strict=True):
            if value is not None:
                _annotate(
                    tier,
                    "REF_ANNOTATION",
                    value,
                    ANNOTATION_ID=f"a{next(numbers)}",
                    ANNOTATION_REF=parent,
                )


def _annotate(tier: Xml.Element, kind: str, value: str, **about: str) -> None:
    annotation = Xml.SubElement(Xml.SubElement(tier, "ANNOTATION"), kind, about)
    Xml.SubElement(annotation, "ANNOTATION_VALUE").text = _clean(value)


def _clean(text: str) -> str:
    """Without the characters that XML has no way of writing."""
    return _NOT_XML.sub("\ufffd", text)
