"""A model's predictions for ELAN: a document for each file, with a tier of what it says."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.elan import Annotation, Document, Tier, to_eaf
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Items
from obygaze_features.manifests.items import media_stem
from obygaze_models.exports import NO_FILM, SaidOfClip, clips_of, unique_names
from obygaze_models.scoring import Predictions

__all__ = ["elan_files"]


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
    return {
        name: to_eaf(_document(clips, found))
        for name, clips in zip(unique_names(wanted, ".eaf"), files.values(), strict=True)
    }


def _document(clips: Sequence[SaidOfClip], found: Predictions) -> Document:
    """All clips are of one file."""
    title = f"{found.about['estimator']}: {found.about['task']}"
    spans = [_span(one, found.about["classes"]) for one in clips]
    warnings = {f"warning {place}": str(one) for place, one in enumerate(found.warnings, start=1)}
    return Document([Tier(title, "prediction", spans)], clips[0].item.media, warnings)


def _span(one: SaidOfClip, classes: Sequence[str]) -> Annotation:
    assert one.item.start is not None
    assert one.item.end is not None
    start = round(one.item.start * 1000)
    end = max(round(one.item.end * 1000), start + 1)
    beside = {"clip": one.item.id}
    # Of two classes one probability says all.
    for place in range(1 if len(classes) == 2 else 0, len(classes)):
        beside[f"probability of {classes[place]}"] = f"{one.probabilities[place]:.3f}"
    if one.seen != "no":
        beside["seen in training"] = one.seen
    return Annotation(start, end, one.said, beside)
