"""The description of a saved model: its task, its features, and the footage that it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_models.data.features import Features
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.data.tasks import Task

_CARD = Path(__file__).with_name("model_card.md")
Span = tuple[float, float]
WHOLE = (-np.inf, np.inf)
"""The span of a whole file."""
CLIP = "clip"
FILM = "film"
NO = "no"
"""The footage that a model has seen: the clip, another part of its film, or neither."""


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's description, as in ``model.json``.

    Parameters
    ----------
    model, estimator, options
        The name in the experiment, the estimator and its options.
    reads
        What the estimator reads: ``features``, ``frames`` or ``groups``.
    task, features
        The task that it learned, and the features that it needs.
    levels, senses
        The names of the levels, and how each concept is perceived.
    facts, cut
        The choices of the fit, and the probability that counts as one half.
    seen
        The start and end of each clip that was used in the fit, by file; None for a whole file. It
        is empty if whole groups were left out of the fit. All clips of `seen_groups` then count as
        seen.
    seen_groups
        The films, or other groups, of the clips that were used, by column.
    notes
        Warnings about the fit.
    warnings
        Warnings to show wherever the model is used.
    """

    model: str = ""
    estimator: str = ""
    options: dict[str, Any] = {}
    reads: str = "features"
    task: Task | None = None
    features: Features | None = None
    levels: dict[str, str] = {}
    senses: dict[str, str] = {}
    facts: dict[str, Any] = {}
    cut: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    seen: dict[str, list[Span | None]] = {}
    seen_groups: dict[str, list[str]] = {}
    notes: list[RunWarning] = []
    warnings: list[RunWarning] = []

    @property
    def learned(self) -> Task:
        """The task; raises `ExperimentError` if the description has none."""
        if self.task is None:
            raise ExperimentError(
                "the model has no description of its task. In Python, call its estimator"
            )
        return self.task

    @property
    def needs(self) -> Features:
        """The features; raises `ExperimentError` if the description has none."""
        if self.features is None:
            raise ExperimentError(
                "the model has no description of its features. In Python, call its estimator"
            )
        return self.features


def spans_of(items: Items, ids: Sequence[str]) -> dict[str, list[Span | None]]:
    """Return the start and end of clips by file, for `About.seen`; None without times."""
    spans = dict[str, list[Span | None]]()
    for clip in ids:
        file, span = _locate(items[items.row(clip)])
        spans.setdefault(file, []).append(span)
    return spans


def _locate(item: Item) -> tuple[str, Span | None]:
    """Return the file of a clip, and its start and end, or None if either is unknown.

    A clip without a file has the name of its film if its times are known, or else its own id.
    """
    file = media_stem(item.media)
    if item.start is None or item.end is None:
        return file or item.id, None
    return file or item.film or item.id, (item.start, item.end)


def seen_in_training(about: About, items: Items, ids: Sequence[str]) -> list[str]:
    """Return what a model has seen of each clip of a store: `CLIP`, `FILM` or `NO`."""
    spans_of_file = {}
    for file, spans in about.seen.items():
        # In whole microseconds, so that clips that only touch are not the same footage.
        if spans:
            spans_of_file[file] = np.round([span or WHOLE for span in spans], 6)
    in_group = dict[Any, bool]()
    for column, groups in about.seen_groups.items():
        cells = items.columns.get(column, items.films)
        in_group = pd.Series(cells, items.ids).isin(groups).to_dict()

    states = []
    for clip in ids:
        file, span = _locate(items[items.row(clip)])
        start, end = (round(time, 6) for time in span or WHOLE)
        starts, ends = spans_of_file.get(file, np.empty((0, 2))).T
        if ((starts < end) & (start < ends)).any():
            states.append(CLIP)
        elif in_group.get(clip):
            states.append(FILM if about.seen else CLIP)
        else:
            states.append(NO)
    return states


def model_card(name: str, about: About, manifest: Manifest, counts: Mapping[str, int]) -> str:
    """Return the text of a model card; `counts` are the numbers of clips by use."""
    return _CARD.read_text(encoding="utf-8").format(
        name=name,
        about=about,
        manifest=manifest,
        warnings="".join(f"\n**{warning}**\n" for warning in about.warnings),
        counts=counts,
    )
