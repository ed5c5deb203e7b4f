"""A model's predictions and moments film by film, for spreadsheets and for ELAN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obygaze_features.common.elan import Annotation, Document, Tier, milliseconds, to_eaf
from obygaze_features.common.tables import format_spreadsheet
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.items import media_stem
from obygaze_models.experiments.experiment import folder_name
from obygaze_models.inference import Predictions
from obygaze_models.warnings import RunWarning

if TYPE_CHECKING:
    from obygaze_models.explain.moments import Moments

__all__ = ["elan_files", "film_tables", "moment_files", "unique_names"]

_Notes = dict[tuple[str, str], list[Annotation]]
"""The annotations of each film and media file."""

NO_FILM = "no-film"
BYTE_ORDER_MARK = "\ufeff"
"""Without it Excel takes UTF-8 for the local encoding."""


@dataclass(frozen=True)
class ClipPrediction:
    """The prediction for a clip."""

    item: Item
    predicted: str
    probabilities: tuple[float, ...]
    seen: str


def film_tables(predictions: Predictions, items: Items) -> dict[str, str]:
    """A table a film for spreadsheets: file name -> text.

    A text that a spreadsheet would compute gets an apostrophe before it; numbers stay as they are.
    """
    films: dict[str, list[ClipPrediction]] = {}
    for clip in _by_clip(predictions, items):
        films.setdefault(clip.item.film, []).append(clip)
    names = unique_names((film or NO_FILM for film in films), ".csv")
    return {
        name: BYTE_ORDER_MARK + _table(clips, predictions.classes)
        for name, clips in zip(names, films.values(), strict=True)
    }


def elan_files(predictions: Predictions, items: Items) -> dict[str, str]:
    """An ELAN document for each media file: file name -> text.

    `ExperimentError` if no clip has a start and an end; clips without them are left out.
    """
    notes: _Notes = {}
    for clip in _by_clip(predictions, items):
        if clip.item.start is not None:
            note = _annotation(clip, predictions.classes)
            notes.setdefault((clip.item.film, clip.item.media), []).append(note)
    if not notes:
        raise ExperimentError(
            f"none of the {len(predictions.ids):,} clips has a start and an end in its film, so "
            "ELAN has no place for them; --csv writes them for spreadsheets"
        )
    title = f"{predictions.about['estimator']}: {predictions.about['task']}"
    return _documents(notes, title, "prediction", predictions.warnings)


def moment_files(moments: Moments) -> dict[str, str]:
    """An ELAN document for each film: file name -> text.

    `ExperimentError` if there is no moment in a film; those within clips are left out.
    """
    notes: _Notes = {}
    for moment in moments.moments:
        if not moment.axis.clip:
            values = {
                "mean probability": f"{moment.score:.3f}",
                "clips": ", ".join(moment.clips),
                "seen in training": "" if moment.seen == "no" else moment.seen,
            }
            values = {name: text for name, text in values.items() if text}
            note = Annotation(*milliseconds(moment.start, moment.end), "moment", values)
            film = moment.axis.film
            notes.setdefault((film, moments.media.get(film, "")), []).append(note)
    if not notes:
        raise ExperimentError(
            "ELAN has no place for moments within clips; give the clips a start and an end: "
            "--manifest FOLDER"
            if moments.moments
            else "there are no moments to write for ELAN; try a lower --threshold"
        )
    return _documents(notes, moments.title, "moment", moments.warnings)


def _documents(
    notes: _Notes, title: str, kind: str, warnings: Sequence[RunWarning]
) -> dict[str, str]:
    films = [film for film, _ in notes]
    stems = [
        film if film and films.count(film) == 1 else media_stem(media) or film or NO_FILM
        for film, media in notes
    ]
    properties = {f"warning {number}": str(text) for number, text in enumerate(warnings, start=1)}
    return {
        name: to_eaf(Document([Tier(title, kind, of_file)], media, properties))
        for name, ((_, media), of_file) in zip(
            unique_names(stems, ".eaf"), notes.items(), strict=True
        )
    }


def unique_names(texts: Iterable[str], suffix: str) -> list[str]:
    """A file name for each, safe on any file system, and unique also where case is ignored."""
    used: set[str] = set()
    names = []
    for text in texts:
        stem = name = folder_name(text)[:100].strip(".") or "-"
        number = 1
        while name.casefold() in used:
            number += 1
            name = f"{stem}-{number}"
        used.add(name.casefold())
        names.append(name + suffix)
    return names


def _by_clip(predictions: Predictions, items: Items) -> list[ClipPrediction]:
    """Each clip's prediction, in the items' order."""
    rows = sorted(
        zip(
            map(items.row, predictions.ids),
            predictions.predicted,
            predictions.probabilities.tolist(),
            predictions.seen,
            strict=True,
        )
    )
    return [
        ClipPrediction(items[row], predicted, tuple(probabilities), seen)
        for row, predicted, probabilities, seen in rows
    ]


def _table(clips: Sequence[ClipPrediction], classes: Sequence[str]) -> str:
    columns: dict[str, Sequence[str]] = {
        "clip": [clip.item.id for clip in clips],
        "film": [clip.item.film for clip in clips],
        "file": [clip.item.media for clip in clips],
        "start": [_seconds(clip.item.start) for clip in clips],
        "end": [_seconds(clip.item.end) for clip in clips],
        "said": [clip.predicted for clip in clips],
    }
    for code, name in enumerate(classes):
        columns[f"probability of {name}"] = [f"{clip.probabilities[code]:.6f}" for clip in clips]
    columns["seen in training"] = [clip.seen for clip in clips]
    return format_spreadsheet(columns)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _annotation(clip: ClipPrediction, classes: Sequence[str]) -> Annotation:
    assert clip.item.start is not None
    assert clip.item.end is not None
    values = {"clip": clip.item.id}
    # Of two classes the second's probability is enough.
    for code in range(1 if len(classes) == 2 else 0, len(classes)):
        values[f"probability of {classes[code]}"] = f"{clip.probabilities[code]:.3f}"
    if clip.seen != "no":
        values["seen in training"] = clip.seen
    return Annotation(*milliseconds(clip.item.start, clip.item.end), clip.predicted, values)
