"""ELAN documents of predictions and moments: new files, or copies of annotators' files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obygaze_features.annotations.importers.elan import TITLE, film_name
from obygaze_features.common.elan import (
    Annotation,
    Document,
    Tier,
    Vocabularies,
    add_tiers,
    milliseconds,
    read_eaf,
    to_eaf,
)
from obygaze_features.common.text import file_names, join_some
from obygaze_features.errors import ExperimentError
from obygaze_features.items.films import without_year
from obygaze_features.items.items import media_stem, safe_id
from obygaze_models.data.warnings import RunWarning

if TYPE_CHECKING:
    from obygaze_models.explain.moments import Moments

NO_FILM = "no-film"
Place = tuple[str, str]
"""A film and one of its media files."""


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
    called
        The key of the predicted class.
    sureness
        The probability of the predicted class.
    """

    film: str
    media: str
    cells: Mapping[str, Any]
    tier: str
    note: Annotation | None
    title: str = ""
    reasons: tuple[str, ...] = ()
    called: str = ""
    sureness: float = 0.0


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
    return elan_documents(rows, "moment", moments.warnings)[0]


def elan_documents(
    rows: Sequence[Row],
    kind: str,
    warnings: Sequence[RunWarning] = (),
    annotations: Path | None = None,
    vocabularies: Vocabularies | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Return a document per media file (text by name), and the films without annotators' files.

    Parameters
    ----------
    rows
        The rows. Rows without a note are left out.
    kind
        The linguistic type of the tiers.
    warnings
        Warnings to write into each document.
    annotations
        A folder with the annotators' ``.eaf`` files, optionally in a subfolder per annotator. Each
        file records its film, or is named after a film, title or media file. All files of a film
        are copied, and the models' tiers are added to the copies.
    vocabularies
        The pick-lists to write into new files, so that annotators can add tiers.
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
            "times in its film, which ELAN needs. Use --csv to write tables instead"
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
    new = {
        key: [Tier(name, kind, notes) for name, notes in tiers.items()]
        for key, tiers in tiers_of.items()
    }
    copied = _places_by_file(annotations, titles, new)
    files = {
        path.relative_to(annotations or "").as_posix(): add_tiers(
            path, [tier for key in keys for tier in new[key]], ExperimentError
        )
        for path, keys in copied.items()
    }
    placed = {key for keys in copied.values() for key in keys}
    left = {p: stem for p, stem in zip(new, stems, strict=True) if p not in placed}
    names = file_names([*(Path(name).stem for name in files), *left.values()], ".eaf")
    for key, name in zip(left, names[len(files) :], strict=True):
        files[name] = to_eaf(Document(new[key], key[1], properties), vocabularies)
    return files, [titles[film] or film for film, _ in left]


def _divided_files(rows: Sequence[Row]) -> set[str]:
    """Return the files that several films divide: their spans do not overlap.

    If they overlap, the films have files of the same name in folders of their own.
    """
    ranges: dict[str, dict[str, tuple[int, int]]] = {}
    for row in rows:
        if row.note is not None and row.media:
            films = ranges.setdefault(row.media, {})
            start, end = films.get(row.film, (row.note.start, row.note.end))
            films[row.film] = min(start, row.note.start), max(end, row.note.end)

    divided = set()
    for media, films in ranges.items():
        spans = sorted(films.values())
        if len(spans) > 1 and all(a[1] <= b[0] for a, b in pairwise(spans)):
            divided.add(media)
    return divided


def _places_by_file(
    folder: Path | None, titles: Mapping[str, str], places: Iterable[Place]
) -> dict[Path, list[Place]]:
    """Map each ``.eaf`` file in a folder and its subfolders to its films and media files.

    A file belongs to the film that it records, or otherwise to the film that it is named after.
    """
    by_name: dict[str, list[Place]] = {}
    for film, media in places:
        names = film, media_stem(media), titles[film], without_year(titles[film])
        for key in {_key(name) for name in names if name}:
            by_name.setdefault(key, []).append((film, media))
    claims: dict[Path, tuple[str, list[Place]]] = {}
    for path in sorted(folder.rglob("*.eaf")) if folder else ():
        document = read_eaf(path, ExperimentError)[0]
        stem, own = _key(path.stem), _key(film_name(document, path.stem))
        keys = [stem] if own == stem else [own, stem, _key(document.properties.get(TITLE, ""))]
        key = next((key for key in keys if key in by_name), "")
        matches = by_name.get(key, [])
        exact = [match for match in matches if _key(match[0]) == key]
        claims[path] = "" if own == stem else own, exact or matches
    if folder and not claims:
        raise ExperimentError(f"{folder} has no .eaf files. Pass a folder that contains some")
    files = {}
    for path, (own, matches) in claims.items():
        films = {film for film, _ in matches}
        rivals = {name for name, of_name in claims.values() if films & {f for f, _ in of_name}}
        owners = ({*map(_key, films)} & rivals or rivals) - {""}
        if len(films) > 1 or len(owners) > 1:
            raise ExperimentError(
                f"{path}: several films match this file ({join_some(sorted(films | owners))}). "
                "Name each file after its film's id: FILM.eaf"
            )
        if matches and own in {"", *owners}:
            files[path] = matches
    return files


def _key(name: str) -> str:
    return safe_id(name).casefold()
