"""A model's predictions and moments film by film, for spreadsheets and for ELAN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obygaze_features.common.elan import Annotation, Document, Tier, milliseconds, to_eaf
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items
from obygaze_features.manifests.items import media_stem
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.fit import folder_name
from obygaze_models.saved.inference import Predictions

if TYPE_CHECKING:
    from obygaze_models.explain.moments import Moments


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
    clips = _by_clip(predictions, items)
    return tables_by_film([(clip.item.film, _row(clip, predictions.classes)) for clip in clips])


def tables_by_film(rows: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, str]:
    """The tables of rows, each with its film: file name -> text."""
    films: dict[str, list[Mapping[str, object]]] = {}
    for film, row in rows:
        films.setdefault(film, []).append(row)
    names = unique_names((film or NO_FILM for film in films), ".csv")
    texts = [BYTE_ORDER_MARK + format_rows(of_film) for of_film in films.values()]
    return dict(zip(names, texts, strict=True))


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


def _row(clip: ClipPrediction, classes: Sequence[str]) -> dict[str, object]:
    item, names = clip.item, [f"probability of {name}" for name in classes]
    return {
        "clip": item.id,
        "film": item.film,
        "file": item.media,
        "start": None if item.start is None else f"{item.start:.3f}",
        "end": None if item.end is None else f"{item.end:.3f}",
        "prediction": clip.predicted,
        **dict(zip(names, clip.probabilities, strict=True)),
        "seen in training": clip.seen,
    }


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
