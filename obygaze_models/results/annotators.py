"""A comparison of a run's models with the annotators whose labels were merged."""

from __future__ import annotations

import numpy as np
import pandas as pd

from obygaze_features.manifests.labels import SEPARATOR, obygaze_scheme
from obygaze_models.data.targets import UNUSED
from obygaze_models.results.run import CONCEPTS_OF, LABEL_OF, Run
from obygaze_models.results.scores import average_over_fits, split_by
from obygaze_models.scoring.annotators import AnnotatorComparison, compare_with_annotators


def annotators_of(clips: pd.DataFrame) -> list[str]:
    """Return the annotators whose labels are in a table of clips."""
    return [name.removeprefix(LABEL_OF) for name in clips.columns if name.startswith(LABEL_OF)]


def compare_with_each(run: Run) -> dict[str, AnnotatorComparison]:
    """Compare the models with each annotator, by test set.

    Test sets of numbers are left out, as are test sets without clips that two annotators labelled
    and all models predicted.
    """
    clips = run.clips
    annotators = annotators_of(clips)
    is_obygaze = run.header.manifest.levels == obygaze_scheme().name_of
    compared = {}
    for test, predictions in split_by(run.predictions, "test").items():
        task = run.task(test)
        if task.target.is_numeric or not annotators:
            continue
        votes = {}
        for name in annotators:
            levels = clips[f"{LABEL_OF}{name}"]
            marked = clips[f"{CONCEPTS_OF}{name}"].str.split(SEPARATOR)
            shows = np.array([task.concept in concepts for concepts in marked])
            codes = task.codes(levels.tolist(), shows, is_obygaze=is_obygaze)
            votes[name] = np.where(levels == "", UNUSED, codes)

        called = {}
        for model, fits in split_by(predictions, "model").items():
            mean = average_over_fits(fits).set_index("id")["called"]
            called[model] = clips["id"].map(mean).to_numpy(float)
        crossed = False
        for scores in run.model_scores:
            crossed |= scores.test == test and scores.folds > 1
        comparison = compare_with_annotators(
            votes,
            called,
            [""] * len(clips) if run.is_mixed else clips["group"].tolist(),
            len(task.classes),
            cross_validated=crossed,
        )
        if comparison is not None:
            compared[test] = comparison
    return compared
