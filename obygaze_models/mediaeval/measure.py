"""Scores of runs on a benchmark's test set, by the official measure of its labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.tables import read_table
from obygaze_features.common.text import find_closest, join_some
from obygaze_features.errors import ExperimentError, errors_as
from obygaze_features.manifests import LabelScheme, Manifest
from obygaze_features.manifests.importers.reading import at_row
from obygaze_models.data.dataset import missing_from
from obygaze_models.data.tasks import measure_of
from obygaze_models.mediaeval.runs import SPLIT, read_run_file
from obygaze_models.scoring.metrics import METRICS, TREC, average_precision, trec_ranks


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """A run's score on the labelled clips of a test set.

    Parameters
    ----------
    labels, measure, value
        The label set, its official measure, and the score.
    clips, positives
        The number of labelled test clips, and of positive clips if the measure is a ranking.
    missing
        The clips that the run does not return, which count against it.
    outside
        Other clips that it returns. In a ranking they count as negative, as in trec_eval.
    tag, external_data
        The tag, and its statement on external data, if any.
    """

    labels: str
    measure: str
    value: float | None
    clips: int
    positives: int | None = None
    missing: list[str]
    outside: list[str]
    tag: str | None = None
    external_data: bool | None = None

    @property
    def title(self) -> str:
        """The title of the measure."""
        return METRICS[self.measure].title


def trec_average_precision(
    ids: Sequence[str], scores: NDArray[Any], positives: Collection[str]
) -> float | None:
    """Return the average precision exactly as trec_eval computes it, or None without positives.

    Positive clips that are not among the ids count against it. In contrast, `average_precision`
    lets clips with the same score share a rank, so the two can differ widely if scores are tied.

    Parameters
    ----------
    ids, scores
        The ranked clips, in any order; no id twice.
    positives
        The ids of the positive clips; the other ids are negative.

    Examples
    --------
    >>> scores = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    >>> round(trec_average_precision(["v1", "v2", "v3", "v4", "v5"], scores, ["v1", "v3"]), 4)
    0.8333
    """
    positive_ids = set(positives)
    if not positive_ids:
        return None
    labels = np.array([clip in positive_ids for clip in ids], dtype=np.int64)
    precision = average_precision(labels, trec_ranks(ids, scores))
    return 0.0 if precision is None else precision * int(labels.sum()) / len(positive_ids)


def score_run(
    path: str | Path,
    manifest: Manifest | str | Path,
    *,
    labels: str | None = None,
    split: str = SPLIT,
) -> RunScore:
    """Score a run by the official measure of a label set.

    Parameters
    ----------
    path
        A run file; where the measure is accuracy, a CSV table with the columns ``id`` and
        ``prediction``, as `predict` writes. Clips are named by their ids or files.
    manifest
        The manifest or its folder; its labels are the truth.
    labels
        Which of its label sets; by default its default one.
    split
        The fold column whose last fold is the test set.
    """
    path = Path(path)
    manifest = manifest if isinstance(manifest, Manifest) else Manifest.load(Path(manifest))
    truth = manifest.labels(labels)
    measure = measure_of(truth)
    if measure is None:
        raise ExperimentError(
            f"the labels {truth.name!r} of {manifest.name} have no official measure. Add it to "
            f'labels/{truth.name}.json, such as "measure": "{TREC}"'
        )
    folds = manifest.split(split)
    tested = set(folds.fold(folds.test_fold))
    level_of = {clip: level for clip, level in truth.level_of.items() if clip in tested}
    if not level_of:
        raise ExperimentError(
            f"no clip of the test set (fold {folds.last_fold} of {split}) has a label in "
            f"{truth.name}, so there is nothing to score"
        )
    about: dict[str, Any] = {}
    if measure == TREC:
        run = read_run_file(path)
        name_of = _names_by_clip(path, run.names, manifest)
        highest = manifest.label_scheme(truth.name).codes[-1]
        positives = [clip for clip, level in level_of.items() if level == highest]
        # Ties are ordered by the names in the file, which lacks names of missing clips.
        names = [name_of.get(clip, clip) for clip in positives]
        value = trec_average_precision(run.names, run.scores, names)
        about = {"positives": len(positives), "tag": run.tag, "external_data": run.external_data}
    else:
        levels = _read_levels(path, manifest.label_scheme(truth.name))
        name_of = _names_by_clip(path, [*levels], manifest)
        predicted = {clip: levels[name] for clip, name in name_of.items()}
        correct = sum(predicted.get(clip) == level for clip, level in level_of.items())
        value = correct / len(level_of)
    return RunScore(
        labels=truth.name,
        measure=measure,
        value=value,
        clips=len(level_of),
        missing=missing_from(name_of, level_of),
        outside=missing_from(level_of, name_of),
        **about,
    )


def _read_levels(path: Path, scheme: LabelScheme) -> dict[str, str]:
    """Return the predicted level of each clip, by the clip's name in the table."""
    levels: dict[str, str] = {}
    with errors_as(ExperimentError):
        table = read_table(path, required=["id"])
        column = "prediction" if "prediction" in table.columns else "said"  # as in version 0.2
        if column not in table.columns:
            raise ExperimentError(f"{path}: no column 'prediction'. Pass a table id, prediction")
        for row, (name, text) in enumerate(zip(table["id"], table[column], strict=True)):
            if name in levels:
                raise table.problem(row, f"duplicate id {name!r}")
            with at_row(table, row):
                levels[name] = scheme.level(text)
    return levels


def _names_by_clip(path: Path, names: Sequence[str], manifest: Manifest) -> dict[str, str]:
    """Map each clip's id to its name in a run (its id or file), without duplicates."""
    id_of = {item.media: item.id for item in manifest if item.media}
    id_of.update(zip(manifest.ids, manifest.ids, strict=True))
    name_of: dict[str, str] = {}
    for name in names:
        if name not in id_of:
            near = find_closest(name, id_of)
            hint = f"did you mean {near}?" if near else f"it has {join_some(manifest.ids, 2)}"
            raise ExperimentError(f"{path}: {manifest.name} has no clip {name}; {hint}")
        if (earlier := name_of.setdefault(id_of[name], name)) != name:
            raise ExperimentError(f"{path}: duplicate id: {earlier} and {name} are the same clip")
    return name_of
