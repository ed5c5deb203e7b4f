"""A run's models next to the annotators whose labels were merged."""

from __future__ import annotations

import numpy as np
import pandas as pd

from obygaze_features.common.printer import align
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.targets import concept_targets
from obygaze_models.data.tasks import Task
from obygaze_models.experiments.scores import average_over_fits, is_cross_validated, split_by
from obygaze_models.experiments.tables import CONCEPTS_OF, LABEL_OF, Run
from obygaze_models.scoring.annotators import AnnotatorComparison, compare_with_annotators
from obygaze_models.scoring.metrics import Array


def annotators_of(clips: pd.DataFrame) -> list[str]:
    """Return the annotators whose labels are in a table of clips."""
    names: list[str] = clips.columns.tolist()
    return [name.removeprefix(LABEL_OF) for name in names if name.startswith(LABEL_OF)]


def votes_of(run: Run, task: Task) -> dict[str, Array]:
    """Return the class that each annotator gave each clip of `Run.clips`; -1 for no class."""
    clips = run.clips
    code_of = {level: code for code, kind in enumerate(task.classes) for level in kind.levels}
    votes = {}
    for name in annotators_of(clips):
        levels = clips[f"{LABEL_OF}{name}"]
        if task.concept:
            marked = clips[f"{CONCEPTS_OF}{name}"].str.split(SEPARATOR)
            shows = np.array([[task.concept in own] for own in marked], dtype=bool)
            is_obygaze = run.header.manifest.is_obygaze
            codes = concept_targets(levels.tolist(), shows, task.negatives, is_obygaze=is_obygaze)[
                :, 0
            ]
            votes[name] = np.where(levels == "", -1, codes).astype(int)
        else:
            votes[name] = levels.map(code_of).fillna(-1).to_numpy(int)
    return votes


def differing_clips(run: Run, test: str) -> set[str]:
    """Return the clips of a test set to which annotators assigned different classes."""
    votes = votes_of(run, run.task(test)).values()
    if not votes:
        return set()
    table = np.array([*votes])
    highest = table.max(axis=0)
    lowest = np.where(table < 0, highest, table).min(axis=0)
    return {*run.clips.loc[lowest < highest, "id"]}


def compare_with_each(run: Run) -> dict[str, AnnotatorComparison]:
    """Compare the models with each annotator on each test set; {} if there are no annotators."""
    clips = run.clips
    row_of = dict(zip(clips["id"], range(len(clips)), strict=True))
    compared = {}
    for test, own in split_by(run.predictions, "test").items():
        task = run.task(test)
        if task.target.is_numeric:
            continue
        called, crossed = {}, False
        for model, fits in split_by(own, "model").items():
            crossed |= is_cross_validated(fits)
            mean = average_over_fits(fits)
            called[model] = np.full(len(clips), np.nan)
            called[model][[row_of[clip] for clip in mean["id"]]] = mean["called"]
        films = clips["group"].tolist()
        comparison = compare_with_annotators(
            votes_of(run, task), called, films, task.class_titles, cross_validated=crossed
        )
        if comparison is not None:
            compared[test] = comparison
    return compared


def describe_annotators(comparison: AnnotatorComparison, title: str) -> str:
    """Return a table of each rater's kappa with each annotator of a test set."""
    rows = []
    for rater in comparison.raters:
        kappas = [rater.kappa.get(who) for who in comparison.annotators]
        rows.append([rater.name, *("-" if kappa is None else f"{kappa:.2f}" for kappa in kappas)])
    columns = [f"kappa with {name}" for name in comparison.annotators]
    head = f"{title}: compared with annotators, on {comparison.which_clips}"
    return f"{head}\n{align(['', *columns], rows)}"
