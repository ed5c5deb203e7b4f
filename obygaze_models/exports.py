"""A model's predictions film by film, for spreadsheets and for ELAN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from obygaze_features.common.elan import Annotation, Document, Tier, to_eaf
from obygaze_features.common.tables import escape_formula, format_table
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.items import media_stem
from obygaze_models.experiments.experiment import folder_name
from obygaze_models.inference import Predictions

__all__ = ["elan_files", "film_tables", "unique_names"]

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
    files: dict[tuple[str, str], list[ClipPrediction]] = {}
    for clip in _by_clip(predictions, items):
        if clip.item.start is not None:
            files.setdefault((clip.item.film, clip.item.media), []).append(clip)
    if not files:
        raise ExperimentError(
            f"none of the {len(predictions.ids):,} clips has a start and an end in its film, so "
            "ELAN has no place for them; --csv writes them for spreadsheets"
        )
    films = [film for film, _ in files]
    stems = [
        film if film and films.count(film) == 1 else media_stem(media) or film or NO_FILM
        for film, media in files
    ]
    return {
        name: to_eaf(_document(clips, predictions))
        for name, clips in zip(unique_names(stems, ".eaf"), files.values(), strict=True)
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
        "clip": [escape_formula(clip.item.id) for clip in clips],
        "film": [escape_formula(clip.item.film) for clip in clips],
        "file": [escape_formula(clip.item.media) for clip in clips],
        "start": [_seconds(clip.item.start) for clip in clips],
        "end": [_seconds(clip.item.end) for clip in clips],
        "said": [escape_formula(clip.predicted) for clip in clips],
    }
    for code, name in enumerate(classes):
        columns[f"probability of {name}"] = [f"{clip.probabilities[code]:.6f}" for clip in clips]
    columns["seen in training"] = [clip.seen for clip in clips]
    return format_table(columns)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _document(clips: Sequence[ClipPrediction], predictions: Predictions) -> Document:
    """The document of a media file, which all the clips are of."""
    title = f"{predictions.about['estimator']}: {predictions.about['task']}"
    spans = [_annotation(clip, predictions.classes) for clip in clips]
    warnings = {
        f"warning {number}": str(warning)
        for number, warning in enumerate(predictions.warnings, start=1)
    }
    return Document([Tier(title, "prediction", spans)], clips[0].item.media, warnings)


def _annotation(clip: ClipPrediction, classes: Sequence[str]) -> Annotation:
    assert clip.item.start is not None
    assert clip.item.end is not None
    start = round(clip.item.start * 1000)
    end = max(round(clip.item.end * 1000), start + 1)
    values = {"clip": clip.item.id}
    # Of two classes the second's probability is enough.
    for code in range(1 if len(classes) == 2 else 0, len(classes)):
        values[f"probability of {classes[code]}"] = f"{clip.probabilities[code]:.3f}"
    if clip.seen != "no":
        values["seen in training"] = clip.seen
    return Annotation(start, end, clip.predicted, values)
