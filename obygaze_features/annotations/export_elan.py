"""Export timelines as ELAN documents, and label schemes as ELAN templates.

In a file that ELAN makes from the template (``.etf``), the level is an annotation's text, and each
concept is an annotation in a dependent tier. `annotations import elan` reads such files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from obygaze_features.annotations.importers.elan import (
    ABOUT,
    END,
    FILE,
    NAME,
    SCHEME,
    SEGMENT_KIND,
    TIMES,
    TITLE,
)
from obygaze_features.annotations.timelines import Timelines
from obygaze_features.common.elan import (
    Annotation,
    Document,
    Tier,
    Vocabularies,
    milliseconds,
    to_eaf,
    to_etf,
)
from obygaze_features.common.names import file_names
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests.labels import LabelScheme


def elan_files(timelines: Timelines) -> dict[str, str]:
    """Return each film's ELAN document by file name; files are named after film titles.

    Documents have the same pick-lists as `elan_template`, and link to the video that was annotated.
    """
    vocabularies = _vocabularies(timelines.scheme)
    names = file_names(map(timelines.titles.__getitem__, timelines.by_film), ".eaf")
    files = {}
    for name, film in zip(names, timelines.by_film, strict=True):
        tiers, times = _tiers(timelines, film)
        about = timelines.films[film]
        properties = {
            TITLE: about.title,
            NAME: about.name or film,
            FILE: Path(name).stem,
            SCHEME: json.dumps(timelines.scheme.to_json()),
        }
        if about.end is not None:
            properties[END] = format_seconds(about.end)
            times.append(about.end)
        properties[TIMES] = _format_exact_times(times)
        for attribute, key in ABOUT.items():
            properties[key] = getattr(timelines, attribute)
        properties = {key: text for key, text in properties.items() if text}
        # The times are those of the video that was annotated.
        document = Document(tiers, about.media or about.name, properties)
        files[name] = to_eaf(document, vocabularies)
    return files


def _tiers(timelines: Timelines, film: str) -> tuple[list[Tier], list[float]]:
    """Return a tier of each annotator's segments in a film, and all times."""
    tiers = []
    times = []
    for annotator, segments in timelines.by_film[film].items():
        notes = []
        for segment in segments:
            fields = {"concepts": segment.concepts, "comment": segment.comment}
            level = timelines.scheme.name_of[segment.level]
            notes.append(Annotation(*milliseconds(segment.start, segment.end), level, fields))
            times += [segment.start, segment.end]
        name = timelines.names.get(annotator, annotator)
        tiers.append(Tier(name, SEGMENT_KIND, notes, name))
    return tiers, times


def _format_exact_times(times: Sequence[float]) -> str:
    """Format times that are not whole milliseconds, unless two round to the same millisecond."""
    distinct = sorted(set(times))
    shared = Counter(round(time * 1000) for time in distinct)
    exact = []
    for time in distinct:
        whole = round(time * 1000)
        if whole / 1000 != time and shared[whole] == 1:
            exact.append(format_seconds(time))
    return " ".join(exact)


def elan_template(scheme: LabelScheme) -> str:
    """Return an ELAN template with one annotator's tiers; more tiers can be added in ELAN."""
    return to_etf(_vocabularies(scheme), {SCHEME: json.dumps(scheme.to_json())})


def _vocabularies(scheme: LabelScheme) -> Vocabularies:
    """Return pick-lists of a scheme's levels and concepts, with their meanings."""
    levels = {level.name: level.about for level in scheme.levels}
    concepts = {}
    for concept in scheme.concepts:
        texts = filter(None, [concept.about, *concept.instances])
        concepts[concept.name] = "; ".join(texts)
    return {"levels": levels, "concepts": concepts}
