"""ELAN documents of predictions and moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from obygaze_features.common.elan import (
    Annotation,
    Document,
    Tier,
    Vocabularies,
    milliseconds,
    to_eaf,
)
from obygaze_features.common.text import file_names
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_models.data.warnings import RunWarning

if TYPE_CHECKING:
    from obygaze_models.explain.moments import Moments

NO_FILM = "no-film"


@dataclass(frozen=True)
class Row:
    """A prediction or a moment.

    Parameters
    ----------
    film, media, title
        The film, the media file, and the film's title if known.
    cells
        The cells of the row in a table, by column.
    tier, note
        The tier and annotation in ELAN. The annotation is None if the row has no start and end in
        the film.
    reasons
        The concepts' contributions to a prediction, largest first.
    """

    film: str
    media: str
    cells: Mapping[str, Any]
    tier: str
    note: Annotation | None
    title: str = ""
    reasons: tuple[str, ...] = ()


def annotate(
    start: float | None, end: float | None, value: str, details: Mapping[str, str]
) -> Annotation | None:
    """Return an annotation from start to end, or None if either is unknown."""
    if start is None or end is None:
        return None
    return Annotation(*milliseconds(start, end), value, details)


def moment_files(moments: Moments) -> dict[str, str]:
    """Return the text of an ELAN document for each film, by file name.

    Moments in clips without a position in a film are left out. Raise `ExperimentError` if no
    moment has a position in a film.
    """
    rows = []
    for moment in moments.moments:
        if not moment.axis.clip:
            film, seen = moment.axis.film, "" if moment.seen == "no" else moment.seen
            details = {"mean probability": f"{moment.score:.3f}", "clips": ", ".join(moment.clips)}
            details |= {"seen in training": seen} if seen else {}
            note = annotate(moment.start, moment.end, "moment", details)
            title = moments.titles.get(film, "")
            rows.append(Row(film, moments.media.get(film, ""), {}, moments.title, note, title))
    if not rows:
        raise ExperimentError(
            "no moment has a position in a film. Pass a manifest with times: --manifest FOLDER"
            if moments.moments
            else "there are no moments. Try a lower --threshold"
        )
    return elan_documents(rows, "moment", moments.warnings)


def elan_documents(
    rows: Sequence[Row],
    kind: str,
    warnings: Sequence[RunWarning] = (),
    vocabularies: Vocabularies | None = None,
) -> dict[str, str]:
    """Return a document per media file: its text by its name.

    Parameters
    ----------
    rows
        The rows. Rows without a note are left out.
    kind
        The linguistic type of the tiers.
    warnings
        Warnings to write into each document.
    vocabularies
        The pick-lists to write into the files, so that annotators can add tiers.
    """
    divided = _divided_files(rows)
    tiers_of: dict[tuple[str, str], dict[str, list[Annotation]]] = {}
    for row in rows:
        if row.note is not None:
            film = "" if row.media in divided else row.film
            tiers = tiers_of.setdefault((film, row.media), {})
            tiers.setdefault(row.tier, []).append(row.note)
    if not tiers_of:
        raise ExperimentError(
            f"none of the {len({row.cells['clip'] for row in rows}):,} clips has start and end "
            "times in its film, which ELAN needs. Use -o to write a table instead"
        )
    titles = {"": "", **{row.film: row.title for row in rows}}
    properties = {f"warning {number}": str(text) for number, text in enumerate(warnings, start=1)}
    films = [film for film, _ in tiers_of]
    stems = [
        titles[film] or film
        if film and films.count(film) == 1
        else media_stem(media) or film or NO_FILM
        for film, media in tiers_of
    ]
    documents = {}
    for name, ((_, media), tiers) in zip(file_names(stems, ".eaf"), tiers_of.items(), strict=True):
        named = [Tier(tier, kind, notes) for tier, notes in tiers.items()]
        documents[name] = to_eaf(Document(named, media, properties), vocabularies)
    return documents


def _divided_files(rows: Sequence[Row]) -> set[str]:
    """Return the files that several films divide: no clips of different films overlap.

    If they overlap, the films have files of the same name in folders of their own.
    """
    clips_of: dict[str, set[tuple[int, int, str]]] = {}
    for row in rows:
        if row.note is not None and row.media:
            clips = clips_of.setdefault(row.media, set())
            clips.add((row.note.start, row.note.end, row.film))

    divided = set()
    for media, clips in clips_of.items():
        pairs = [(a, b) for a, b in pairwise(sorted(clips)) if a[2] != b[2]]
        if pairs and all(a[1] <= b[0] for a, b in pairs):
            divided.add(media)
    return divided
