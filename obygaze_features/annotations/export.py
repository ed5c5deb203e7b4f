"""Timelines as files that other programs open: ELAN's documents, and tables for spreadsheets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from obygaze_features.annotations.cells import concept_cell, guarded
from obygaze_features.annotations.elan import clips_tier, document_of
from obygaze_features.annotations.grids import clips_by_film
from obygaze_features.annotations.timelines import Timelines, decimal
from obygaze_features.common.elan import to_eaf
from obygaze_features.common.tables import format_table
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests.items import Item
from obygaze_features.manifests.manifest import Manifest

__all__ = ["elan_files", "tables"]

MARK = "\ufeff"
"""Without it Excel takes UTF-8 for the local encoding."""


def elan_files(timelines: Timelines, manifest: Manifest | None = None) -> dict[str, str]:
    """A document of ELAN's for each film: file name -> text.

    A manifest's label sets become further tiers: what was projected onto its clips and merged.
    """
    if manifest is None:
        return {f"{film}.eaf": to_eaf(document_of(timelines, film)) for film in timelines.by_film}
    clips = _clips(timelines, manifest)
    sets = [manifest.labels(name) for name in manifest.label_names]
    files = {}
    for film in timelines.by_film:
        items = clips.get(film, [])
        document = document_of(timelines, film, next((one.media for one in items), ""))
        tiers = [clips_tier(one, items, manifest.label_scheme(one.name)) for one in sets]
        with_clips = [*document.tiers, *(tier for tier in tiers if tier.spans)]
        files[f"{film}.eaf"] = to_eaf(replace(document, tiers=with_clips))
    return files


def tables(timelines: Timelines, manifest: Manifest | None = None) -> dict[str, str]:
    """Tables for spreadsheets: file name -> text.

    ``segments.csv`` and ``films.csv`` are what ``annotations import csv`` reads; a manifest's
    label sets stand side by side in ``clips.csv``. A text that a spreadsheet would compute gets
    an apostrophe before it.
    """
    every, films = timelines.segments, timelines.films
    names = {level.code: level.name for level in timelines.scheme.levels}
    called = {film: guarded(one.name) for film, one in films.items() if one.name}
    made: dict[str, dict[str, Sequence[str]]] = {
        "segments.csv": {
            "film": [called.get(one.film, one.film) for one in every],
            "annotator": [one.annotator for one in every],
            "start": [decimal(one.start) for one in every],
            "end": [decimal(one.end) for one in every],
            "level": [names[one.level] for one in every],
            "concepts": [guarded(concept_cell(one.concepts)) for one in every],
            "comment": [guarded(one.comment) for one in every],
        },
        "films.csv": {
            "film": [called.get(film, film) for film in films],
            "title": [guarded(one.title) for one in films.values()],
            "end": ["" if one.end is None else decimal(one.end) for one in films.values()],
        },
    }
    if manifest is not None:
        made["clips.csv"] = _side_by_side(_clips(timelines, manifest), manifest)
    return {name: MARK + format_table(columns) for name, columns in made.items()}


def _side_by_side(
    clips: Mapping[str, Sequence[Item]], manifest: Manifest
) -> dict[str, Sequence[str]]:
    items = [one for of_film in clips.values() for one in of_film]
    films = [film for film, of_film in clips.items() for _ in of_film]
    columns: dict[str, Sequence[str]] = {
        "film": films,
        "clip": [one.id for one in items],
        "start": [decimal(one.start or 0) for one in items],
        "end": [decimal(one.end or 0) for one in items],
    }
    for name in manifest.label_names:
        names = {level.code: level.name for level in manifest.label_scheme(name).levels}
        labels = manifest.labels(name)
        levels, concepts = labels.level_of, labels.concepts_of
        columns[name] = [names[levels[one.id]] if one.id in levels else "" for one in items]
        columns[f"{name}, concepts"] = [
            guarded(concept_cell(concepts.get(one.id, ()))) for one in items
        ]
    return columns


def _clips(timelines: Timelines, manifest: Manifest) -> dict[str, list[Item]]:
    """The clips of each film that have a start and an end, in time."""
    rows = clips_by_film(manifest.items)
    clips = {
        film: [manifest.items[row] for row in rows[film].tolist()]
        for film in timelines.by_film
        if film in rows
    }
    if not clips:
        raise AnnotationError(
            f"the manifest {manifest.name!r} has no clips with a start and an end in these films"
        )
    return clips
