"""The content of a page without a model: a manifest's labels, or timelines minute by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from obygaze_features import Manifest, Timelines
from obygaze_features.annotations.merge import MERGED, merge_labels
from obygaze_features.common.files import describe_absent
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.tables import ManifestRecord, annotated_clips
from obygaze_models.explain.clips import Clip, clips_by_id
from obygaze_models.report.film_timelines import clip_noun, with_distinct_titles
from obygaze_models.report.runs import ModelResults, ReportRun, annotators_of

HEADERS = ("timelines.json", "manifest.json", "run.json")
MAKE = "obygaze annotations import KIND SOURCE -o FOLDER"
GRID_S = 60.0
"""The length of a clip on a page of timelines, in seconds. A manifest can have other lengths."""


@dataclass(frozen=True, eq=False)
class Annotation:
    """Annotated clips, with the interface of a `ReportRun`. Annotators' labels are merged."""

    manifest: Manifest
    labels: str
    annotators: list[str]
    timelines: Timelines | None = None
    number: ClassVar[int] = 0
    kind: ClassVar[str] = "levels"
    counts_all: ClassVar[bool] = True
    models: ClassVar[tuple[ModelResults, ...]] = ()

    @property
    def name(self) -> str:
        """The name of the manifest."""
        return self.manifest.name

    @cached_property
    def about(self) -> ManifestRecord:
        """The labelled items, in the form of a run's record."""
        scheme = self.manifest.shared_scheme([self.manifest.labels(self.labels)])
        return ManifestRecord.of(self.manifest, self.labels, scheme)

    @property
    def rule(self) -> str:
        """The rule that produced the labels, or "" if there is none."""
        return str(self.manifest.labels(self.labels).about.get("rule", ""))

    @property
    def positives(self) -> list[str]:
        """The highest level, which the page counts."""
        return [list(self.about.levels)[-1]]

    @cached_property
    def noun(self) -> str:
        """The noun for the clips: "minutes" or "clips"."""
        return clip_noun(self.clips.values())

    @property
    def group_noun(self) -> str:
        """The noun for a group of clips: "film", or "clip" if no clip has a film."""
        return "film" if any(clip.film for clip in self.clips.values()) else "clip"

    @cached_property
    def clips(self) -> Mapping[str, Clip]:
        """All clips of the label set, by id."""
        labels = self.manifest.labels(self.labels)
        return with_distinct_titles(clips_by_id(annotated_clips(self.manifest, labels)))


Source = ReportRun | Annotation
"""A run, or annotations without a run."""


def labelled_by(source: Source) -> str:
    """Return "annotators" if they made a page's labels, the name of a rule's, or "labels"."""
    manifest, name = source.manifest, source.about.labels
    if manifest is None or name not in manifest.label_names:
        return "labels"

    labels = manifest.labels(name)
    if labels.origin == "annotator" or labels.merged_annotators:
        return "annotators"
    return f"labels: {name} (a rule)" if labels.origin == "rule" else "labels"


def open_annotation(source: object) -> Annotation | None:
    """Open a manifest, timelines, or a folder of either; return None if the source is a run."""
    if isinstance(source, str | Path):
        folder = Path(source)
        if (folder / "timelines.json").is_file():
            source = Timelines.load(folder)
        elif (folder / "manifest.json").is_file():
            source = Manifest.load(folder)
        elif not any(
            (folder / name).exists() for name in ("run.json", "predictions.csv", "zarr.json")
        ):
            if not folder.exists():
                wish = "a run (obygaze models run), a manifest or timelines"
                raise ExperimentError(describe_absent(folder, wish))
            inside = [path.parent for path in folder.glob("*/*.json") if path.name in HEADERS]
            hint = f"Did you mean {min(inside)}?" if inside else "Make timelines with: " + MAKE
            raise ExperimentError(f"{folder}: not a manifest, timelines or a run. {hint}")
    if not isinstance(source, Manifest | Timelines):
        return None
    timelines = source if isinstance(source, Timelines) else None
    manifest = source.project(GRID_S).manifest if isinstance(source, Timelines) else source
    labels = manifest.default_labels or [*manifest.annotators, *manifest.label_names, ""][0]
    names = annotators_of(manifest, labels)
    schemes = {name: manifest.shared_scheme([manifest.labels(name)]) for name in [*names, labels]}
    annotators = [name for name in names if schemes[name] == schemes[labels]]
    if labels in annotators and len(annotators) > 1:
        name = MERGED if MERGED not in annotators else f"{MERGED}-here"
        merged = merge_labels([*map(manifest.labels, annotators)], manifest, name).labels
        manifest, labels = manifest.with_parts(labels=[merged]), name
    return Annotation(manifest, labels, annotators, timelines)
