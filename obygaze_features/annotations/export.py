"""Export timelines as ELAN documents, and label schemes as ELAN templates.

In a file that ELAN makes from the template (``.etf``), the level is an annotation's text, and each
concept is an annotation in the dependent tier. `annotations import elan` reads such files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from obygaze_features.annotations.agreement import find_differences, find_pairs
from obygaze_features.annotations.importers.elan import (
    ABOUT,
    CLIP_KIND,
    DISCUSS_KIND,
    END,
    FILE,
    NAME,
    SCHEME,
    SEGMENT_KIND,
    TIMES,
    TITLE,
)
from obygaze_features.annotations.measures import distances_of
from obygaze_features.annotations.timelines import Film, Timelines
from obygaze_features.common.elan import (
    Annotation,
    Document,
    Tier,
    milliseconds,
    to_eaf,
    to_etf,
)
from obygaze_features.common.text import file_names
from obygaze_features.errors import AnnotationError
from obygaze_features.items.items import Item, format_seconds, safe_id
from obygaze_features.items.media import find_videos
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest


def elan_files(
    timelines: Timelines, manifest: Manifest | None = None, links: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return each film's ELAN document by file name; files are named after film titles.

    Documents have the same pick-lists as `elan_template`. If there is a manifest, its label sets
    become additional tiers, and one more tier marks the stretches where annotators differ. `links`
    maps each film to the path of its video (default: the media of the manifest's clips). Documents
    are made on access.
    """
    return _ElanFiles(timelines, manifest, links or {})


def link_videos(timelines: Timelines, videos: Path, folder: Path) -> dict[str, str]:
    """Find each film's video by id or title, and return its path relative to `folder`."""
    items = [Item(film, film=film, start=0.0, end=1.0) for film in timelines.by_film]
    files = find_videos(items, timelines.titles, videos)
    return {
        film: Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
        for film, path in files.items()
    }


class _ElanFiles(Mapping[str, str]):
    """The documents of `elan_files`, made on access to save memory."""

    def __init__(
        self, timelines: Timelines, manifest: Manifest | None, links: Mapping[str, str]
    ) -> None:
        names = file_names((timelines.titles[film] for film in timelines.by_film), ".eaf")
        self.film_of = dict(zip(names, timelines.by_film, strict=True))
        self.timelines, self.manifest, self.links = timelines, manifest, links
        self.sets: list[tuple[LabelSet, LabelScheme]] = []
        self.discuss: dict[str, list[Annotation]] = {}
        if manifest is not None:
            _require_clips(timelines, manifest)
            self.discuss = _differences(timelines, manifest)
            labels = manifest.label_names
            self.sets = [(manifest.labels(n), manifest.label_scheme(n)) for n in labels]

    def __len__(self) -> int:
        return len(self.film_of)

    def __iter__(self) -> Iterator[str]:
        return iter(self.film_of)

    def __getitem__(self, name: str) -> str:
        film = self.film_of[name]
        document = _document(self.timelines, film)
        items = [] if self.manifest is None else _clips_of(film, self.manifest)
        media = {item.media for item in items} or {document.media}
        if film in self.links:
            media = {self.links[film]}
        names = self.timelines.names
        tiers = [
            _clips_tier(names.get(labels.name, labels.name), labels, items, scheme)
            for labels, scheme in self.sets
        ]
        tiers.append(Tier(DISCUSS_KIND, DISCUSS_KIND, self.discuss.get(film, [])))
        document = Document(
            [*document.tiers, *(tier for tier in tiers if tier.annotations)],
            media.pop() if len(media) == 1 else "",
            {**document.properties, FILE: Path(name).stem},
            link=self.links.get(film, ""),
        )
        return to_eaf(document, _vocabularies(self.timelines.scheme))


def _document(timelines: Timelines, film: str) -> Document:
    """Return a film's segments as a document with one tier per annotator."""
    details = timelines.films.get(film, Film())
    name_of = timelines.scheme.name_of
    tiers = []
    times: list[float] = [] if details.end is None else [details.end]
    for annotator, segments in timelines.by_film[film].items():
        written = timelines.names.get(annotator, annotator)
        notes = []
        for segment in segments:
            fields = {"concepts": segment.concepts, "comment": segment.comment}
            start, end = milliseconds(segment.start, segment.end)
            notes.append(Annotation(start, end, name_of[segment.level], fields))
            times += [segment.start, segment.end]
        tiers.append(Tier(written, SEGMENT_KIND, notes, written))
    properties = {
        TITLE: details.title,
        END: "" if details.end is None else format_seconds(details.end),
        TIMES: _format_exact_times(times),
        NAME: details.name or film,
        **{key: getattr(timelines, name) for name, key in ABOUT.items()},
        **_scheme_property(timelines.scheme),
    }
    properties = {name: text for name, text in properties.items() if text}
    return Document(tiers, details.name, properties)


def _differences(timelines: Timelines, manifest: Manifest) -> dict[str, list[Annotation]]:
    """Return annotations for the stretches of each film where annotators differ."""
    scheme, name_of = timelines.scheme, timelines.names
    notes: dict[str, list[Annotation]] = {}
    names = sorted({*timelines.annotators} & {*manifest.annotators})
    own = [name for name in names if manifest.label_scheme(name).codes == scheme.codes]
    pairs = find_pairs(manifest, own)[0] if len(own) > 1 else []
    for run in find_differences(pairs, manifest.items, distances_of(scheme)):
        if run["start"] is not None:
            sides = (run["a"], run["levels_a"]), (run["b"], run["levels_b"])
            texts = (
                f"{name_of.get(who, who)}: {', '.join(scheme.name_of[level] for level in levels)}"
                for who, levels in sides
            )
            note = Annotation(*milliseconds(run["start"], run["end"]), " / ".join(texts))
            notes.setdefault(safe_id(run["film"]), []).append(note)
    return notes


def _clips_tier(name: str, labels: LabelSet, items: Sequence[Item], scheme: LabelScheme) -> Tier:
    """Return a tier with the labels of a film's clips."""
    notes = []
    for item in items:
        assert item.start is not None
        assert item.end is not None
        if item.id in labels.level_of:
            fields = {"clip": item.id, "concepts": labels.concepts_of[item.id]}
            value = scheme.name_of[labels.level_of[item.id]]
            notes.append(Annotation(*milliseconds(item.start, item.end), value, fields))
    return Tier(f"{name}, clips", CLIP_KIND, notes)


def _format_exact_times(times: Sequence[float]) -> str:
    """Format times that are not whole milliseconds, unless two round to the same millisecond."""
    distinct = set(times)
    shared = Counter(round(time * 1000) for time in distinct)
    rounded = (time for time in distinct if round(time * 1000) / 1000 != time)
    return " ".join(format_seconds(t) for t in sorted(rounded) if shared[round(t * 1000)] == 1)


def _clips_of(film: str, manifest: Manifest) -> list[Item]:
    """Return the clips of a film that have a start and an end, ordered by time."""
    rows = manifest.items.spans_by_film.get(film)
    return [] if rows is None else [manifest.items[row] for row in rows.tolist()]


def _require_clips(timelines: Timelines, manifest: Manifest) -> None:
    if timelines.by_film.keys().isdisjoint(manifest.items.spans_by_film):
        raise AnnotationError(
            f"the manifest {manifest.name!r} has no clips with spans in any film of the timelines. "
            "Pass a manifest of the same films"
        )


def elan_template(scheme: LabelScheme) -> str:
    """Return an ELAN template with one annotator's tiers; more tiers can be added in ELAN."""
    return to_etf(_vocabularies(scheme), _scheme_property(scheme))


def _scheme_property(scheme: LabelScheme) -> dict[str, str]:
    return {SCHEME: json.dumps(scheme.to_json())}


def _vocabularies(scheme: LabelScheme) -> dict[str, dict[str, str]]:
    """Return pick-lists of a scheme's levels and concepts, with their meanings."""
    concepts = {c.name: "; ".join(filter(None, [c.about, *c.instances])) for c in scheme.concepts}
    return {"levels": {level.name: level.about for level in scheme.levels}, "concepts": concepts}
