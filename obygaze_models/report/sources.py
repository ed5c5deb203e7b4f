"""The sources of a page: labelled clips with each annotator's labels, and runs on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features import Manifest, Timelines
from obygaze_features.annotations.merge import MERGED, merge_labels
from obygaze_features.annotations.project import project
from obygaze_features.common.arrays import Array
from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.package import obygaze_version, reference_json
from obygaze_features.errors import ExperimentError, ObygazeError
from obygaze_features.items.films import distinct_titles
from obygaze_features.manifests import LabelSet
from obygaze_features.manifests.labels import SEPARATOR, obygaze_scheme
from obygaze_models.results.annotators import annotators_of
from obygaze_models.results.run import (
    CONCEPTS_OF,
    LABEL_OF,
    AnyRun,
    Run,
    annotated_clips,
    is_remote,
    load_run,
)
from obygaze_models.results.scores import split_by

Origin = AnyRun | Manifest | Timelines
"""Anything that a page can be made from."""
GRID_S = 60.0
"""The length of a clip on a page of timelines, in seconds. A manifest can have other lengths."""
NUMBER = r"(?<!\d)(\d{1,9})$"
"""A pattern for the scene number at the end of an id."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The labelled clips of a page, film by film in scene order, and each annotator's labels.

    Parameters
    ----------
    name, labels
        The names of the manifest and of its label set.
    levels
        The name of each level by its code, lowest first.
    positives
        The levels that the page counts.
    clips
        The clips, in order: ``id``, ``film`` (or else the file), ``title``, ``media``, ``start``,
        ``end``, ``level``, ``concepts`` and ``number``, the scene number at the end of the id.
    has_films
        True if any clip has a film.
    annotators
        The labels of each annotator; {} if there are none.
    citation, senses
        As in the manifest.
    about
        How the label set was made; {} if unknown.
    """

    name: str
    labels: str
    levels: Mapping[str, str]
    positives: Sequence[str]
    clips: pd.DataFrame
    has_films: bool
    annotators: Mapping[str, LabelSet]
    citation: str
    senses: Mapping[str, str]
    about: Mapping[str, object] = field(default_factory=dict)
    timelines: Timelines | None = None

    @cached_property
    def films(self) -> dict[str, pd.DataFrame]:
        """Each film's clips. Clips without a film are grouped by file."""
        return split_by(self.clips, "film")

    @property
    def titles(self) -> dict[str, str]:
        """The title of each film."""
        return {film: clips["title"].iloc[0] for film, clips in self.films.items()}

    @property
    def concepts(self) -> list[str]:
        """The concepts that the labels or any annotator gave to a clip, sorted."""
        marked = {*self.clips["concepts"].explode().dropna()}
        for labels in self.annotators.values():
            marked.update(*labels.concepts_of.values())
        return sorted(marked)

    @property
    def unit(self) -> str:
        """The noun for a clip: "minute" if the clips are a grid of minutes."""
        starts = self.clips["start"]
        is_minute = (starts % 60 == 0) & (self.clips["end"] - starts <= 60)
        return "minute" if is_minute.all() else "clip"

    @property
    def colours(self) -> dict[str, str]:
        """The CSS class of each level's colour, by the level's code."""
        return dict(zip(self.levels, level_colour_names([*self.levels]), strict=True))

    @property
    def top(self) -> str:
        """The name of the levels that the page counts."""
        return " or ".join(self.levels[code] for code in self.positives)

    @property
    def is_obygaze(self) -> bool:
        """True if the levels are ObyGaze's."""
        return dict(self.levels) == obygaze_scheme().name_of

    @property
    def by_a_rule(self) -> bool:
        """True if a rule made the labels."""
        return self.about.get("origin") == "rule"


def open_sources(sources: Origin | Sequence[Origin]) -> tuple[Labels, list[Run]]:
    """Open a manifest or timelines, or else one or more runs on the same labels."""
    if isinstance(sources, Run | Manifest | Timelines | str | Path):
        sources = [sources]
    opened = []
    for source in sources:
        if isinstance(source, str | Path):
            folder = Path(source)
            if (folder / "timelines.json").is_file():
                source = Timelines.load(folder)
            elif (folder / "manifest.json").is_file():
                source = Manifest.load(folder)
            else:
                source = load_run(folder)
        opened.append(source)
    runs = [source for source in opened if isinstance(source, Run)]
    if len(opened) == 1 and not isinstance(opened[0], Run):
        return _labels_of(opened[0]), []
    if not runs or len(runs) < len(opened):
        raise ExperimentError("pass one manifest, one folder of timelines, or one or more runs")
    sets = {run.header.manifest.label_key for run in runs}
    if len(sets) > 1:
        names = " and ".join(sorted(f"{digest[:8]}: {labels}" for digest, labels in sets))
        raise ExperimentError(
            f"the runs are on different labels ({names}); make a page for each set of labels"
        )
    return _labels_of_run(runs[0]), runs


def _labels_of(manifest: Manifest | Timelines) -> Labels:
    """Return the labels of a manifest, merging annotators' labels, or of timelines by minute."""
    timelines = None
    if isinstance(manifest, Timelines):
        timelines = manifest
        manifest = project(timelines, GRID_S).manifest
    labels = manifest.labels(manifest.default_labels or [*manifest.annotators, None][0])
    name = labels.name
    annotators = _annotators(manifest, labels)
    if name in annotators and len(annotators) > 1:
        labels = merge_labels([*annotators.values()], manifest, MERGED)
    scheme = manifest.label_scheme(name)
    return Labels(
        name=manifest.name,
        labels=labels.name,
        levels=scheme.name_of,
        positives=scheme.codes[-1:],
        **_clips_of(annotated_clips(manifest, _with_undecided(labels, annotators))),
        annotators=annotators,
        citation=manifest.citation,
        senses=scheme.senses,
        about=labels.about,
        timelines=timelines,
    )


def _with_undecided(labels: LabelSet, annotators: Mapping[str, LabelSet]) -> LabelSet:
    """Return a merge with the clips that it left undecided, at level ""."""
    if not labels.about.get("undecided"):
        return labels
    ids = [*{clip for label_set in annotators.values() for clip in label_set.ids}]
    levels = [labels.level_of.get(clip, "") for clip in ids]
    concepts = [labels.concepts_of.get(clip, ()) for clip in ids]
    return replace(labels, ids=ids, levels=levels, concepts=concepts)


def _labels_of_run(run: Run) -> Labels:
    """Return the labels that a run recorded, those of its annotators, and how they were made.

    The page counts the levels of the positive class or, without one, the highest level.
    """
    about = run.header.manifest
    clips = run.clips
    annotators = {}
    for name in annotators_of(clips):
        rows = clips[clips[f"{LABEL_OF}{name}"] != ""]
        concepts = [*map(_split, rows[f"{CONCEPTS_OF}{name}"])]
        levels = rows[f"{LABEL_OF}{name}"].tolist()
        made = {"annotator": about.people.get(name, name)}
        annotators[name] = LabelSet(name, rows["id"].tolist(), levels, concepts, about=made)
    positives = [*about.levels][-1:]
    for task in reversed(run.header.tasks):
        if task.is_binary and task.classes[1].levels:
            positives = [*task.classes[1].levels]
    return Labels(
        name=about.name,
        labels=about.labels,
        levels=about.levels,
        positives=positives,
        **_clips_of(clips),
        annotators=annotators,
        citation=about.citation,
        senses=about.senses,
        about=_how_made(run, about.labels),
    )


def _clips_of(table: pd.DataFrame) -> dict[str, Any]:
    """Return `clips` and `has_films` of `Labels`, from a table such as `Run.clips`.

    Films get unique titles.
    """
    clips = table[["id", "film", "title", "media", "start", "end", "level"]].copy()
    clips["concepts"] = table["concepts"].map(_split)
    clips["number"] = clips["id"].str.extract(NUMBER)[0].astype("Int64")
    films = clips["film"]
    titles = dict(zip(films, clips["title"], strict=True))
    titles.pop("", None)
    clips["film"] = films.where(films != "", clips["media"])
    clips["title"] = clips["film"].replace(distinct_titles(titles))
    keys = clips[["start", "number"]].fillna(0)
    keys.insert(0, "film", clips["film"].factorize()[0])
    order = keys.sort_values([*keys], kind="stable").index
    return {
        "clips": clips.loc[order].reset_index(drop=True),
        "has_films": bool((films != "").any()),
    }


def _split(cell: str) -> tuple[str, ...]:
    """Return the concepts in a cell."""
    return tuple(cell.split(SEPARATOR)) if cell else ()


def _how_made(run: Run, name: str) -> Mapping[str, object]:
    """Return how a label set of a run's manifest was made.

    Return {} if the manifest is missing, changed or remote. Remote manifests are not loaded,
    because a run's file must not decide what is downloaded.
    """
    path = run.header.settings.get("manifest", "")
    try:
        manifest = None if is_remote(path) else Manifest.load(path)
    except (ObygazeError, OSError):
        return {}
    if manifest is None or manifest.digest != run.header.manifest.digest:
        return {}
    return manifest.labels(name).about if name in manifest.label_names else {}


def _annotators(manifest: Manifest, labels: LabelSet) -> dict[str, LabelSet]:
    """Return the labels that a label set was merged from, or else all annotators' labels."""
    merged = [name for name in labels.merged_annotators if name in manifest.annotators]
    scheme = manifest.label_scheme(labels.name)
    sets = {}
    for name in merged or manifest.annotators:
        if manifest.label_scheme(name) == scheme:
            sets[name] = manifest.labels(name)
    return sets


def is_timed(clips: pd.DataFrame) -> bool:
    """Return True if every clip has a start and an end."""
    return bool(clips[["start", "end"]].notna().all(axis=None))


def lane_spans(clips: pd.DataFrame) -> Array:
    """Return the start and end of each of a film's clips [N, 2]: in seconds, or one by one."""
    if is_timed(clips):
        return np.asarray(clips[["start", "end"]], dtype=float)
    starts = np.arange(len(clips))
    return np.stack([starts, starts + 1.0], axis=1)


def citation(labels: Labels) -> list[str]:
    """Return what to cite. ObyGaze's paper is added if the levels are ObyGaze's."""
    cited = [labels.citation] if labels.citation else []
    if labels.is_obygaze:
        cited.append(reference_json("sources.json")["obygaze12"]["citation"])
    return [*cited, f"obygaze {obygaze_version()}"]


def meanings(labels: Labels, names: Sequence[str]) -> dict[str, str]:
    """Return the meanings of ObyGaze's levels and of named concepts; {} for other schemes."""
    found = {}
    if labels.is_obygaze:
        shipped = reference_json("scheme-obygaze.json")
        for level in shipped["levels"]:
            found[labels.levels[level["code"]]] = level["about"]
        for entry in shipped["concepts"]:
            if entry["name"] in names:
                texts = [entry["about"], *entry["instances"]]
                found[entry["name"]] = "; ".join(texts)
    return found
