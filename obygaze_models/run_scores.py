"""Runs on a benchmark's test set: written as a file, and scored by the official measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.common.tables import read_table
from obygaze_features.common.text import find_closest_id, join_some
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_features.store import Store
from obygaze_models.experiments.official import (
    measure_of,
    official_measure,
    uses_external_data,
)
from obygaze_models.metrics import ACCURACY, METRICS, TREC, trec_average_precision
from obygaze_models.persistence import read_about
from obygaze_models.run_files import format_run, read_run_file, run_tag
from obygaze_models.scoring import predict
from obygaze_models.tasks import task_from
from obygaze_models.warnings import RunWarning

__all__ = ["SPLIT", "RunScore", "WrittenRun", "score_run", "write_run"]

SPLIT = "official"
"""The fold column whose last fold is the test set."""


@dataclass(frozen=True)
class WrittenRun:
    """A run as a file.

    Parameters
    ----------
    text
        Of the file.
    tag
        The run's name, and whether it used external data.
    clips
        How many it ranks.
    missing
        Test clips without features: those that are positive count against the run.
    seen
        Test clips that the model was trained on.
    warnings
        What must be said beside it.
    """

    text: str
    tag: str
    clips: int
    missing: list[str]
    seen: list[str]
    warnings: list[RunWarning]


@dataclass(frozen=True)
class RunScore:
    """What a run reaches on the labelled clips of a test set.

    Parameters
    ----------
    labels, measure, value
        What it is scored on, by what, and how well.
    clips, positives
        Labelled test clips, and those of the highest level where the measure ranks.
    missing
        Of the clips those that the run does not return; they count against it.
    outside
        What it returns besides. In a ranking this stands in the way, as trec_eval has it.
    tag, external_data
        As the run file has them; None where it does not say.
    """

    labels: str
    measure: str
    value: float | None
    clips: int
    positives: int | None
    missing: list[str]
    outside: list[str]
    tag: str | None
    external_data: bool | None

    @property
    def title(self) -> str:
        """The measure as people write it."""
        return METRICS[self.measure].title


def write_run(
    model: Path,
    store: Store,
    manifest: Manifest,
    *,
    labels: str | None = None,
    split: str = SPLIT,
    name: str | None = None,
) -> WrittenRun:
    """Let a saved model rank the test clips.

    Parameters
    ----------
    model, store
        As in `obygaze_models.scoring.predict`.
    manifest
        Whose clips they are; their labels are not looked at.
    labels
        The label set that the model is for; it names the topic.
    split
        The fold column whose last fold is the test set.
    name
        What the run is called; by default as the model is.
    """
    truth = manifest.labels(labels)
    scheme = manifest.label_scheme(labels)
    about = read_about(model)
    if official_measure(truth, scheme, [task_from(about["learns"])]) != TREC:
        raise ExperimentError(
            f"the model tells {about['task']}, and a run file ranks clips by the highest level of "
            f"a label set that is scored so, against all others; {truth.name} has "
            f"{', '.join(scheme.codes)} (for classes: obygaze models predict MODEL STORE -o FILE)"
        )
    folds = manifest.split(split)
    tested = folds.fold(folds.last_fold)
    said = predict(model, store, ids=[one for one in tested if one in store])
    if not said.ids:
        raise ExperimentError(
            f"none of the {len(tested)} test clips, such as {join_some(tested, 2)}, has features "
            f"in {store.where}"
        )
    external = uses_external_data(about["features"]["backbone"])
    tag = run_tag(name or about["model"], external_data=external)
    there = set(said.ids)
    return WrittenRun(
        format_run(truth.name, said.ids, said.probabilities[:, 1], tag),
        tag,
        len(said.ids),
        [one for one in tested if one not in there],
        [one for one, seen in zip(said.ids, said.seen, strict=True) if seen != "no"],
        said.warnings,
    )


def score_run(
    path: Path, manifest: Manifest, *, labels: str | None = None, split: str = SPLIT
) -> RunScore:
    """Score a run by the measure that the label set names.

    Parameters
    ----------
    path
        A run file of trec_eval's; where the measure is accuracy, a CSV table with ``id`` and
        ``said``, as predictions are written. Clips are named by their ids or files.
    manifest
        Whose labels are the truth.
    labels
        Which of its label sets; by default its default one.
    split
        The fold column whose last fold is the test set.
    """
    truth = manifest.labels(labels)
    measure = measure_of(truth)
    if measure is None:
        raise ExperimentError(
            f"the labels {truth.name!r} of {manifest.name} name no official measure: give them "
            f'one in labels/{truth.name}.json, such as "measure": "{TREC}"'
        )
    _refuse_other_kind(path, manifest, truth, measure)
    folds = manifest.split(split)
    tested = set(folds.fold(folds.last_fold))
    level_of = {one: level for one, level in truth.level_of.items() if one in tested}
    if not level_of:
        raise ExperimentError(
            f"no clip of the test set (fold {folds.last_fold} of {split}) has a label in "
            f"{truth.name}: there is nothing to score a run by"
        )
    if measure == TREC:
        return _ranking(path, manifest, truth, level_of)
    return _classes(path, manifest, truth, level_of)


def _refuse_other_kind(path: Path, manifest: Manifest, truth: LabelSet, measure: str) -> None:
    """Raise `ExperimentError` where a file is of the kind that other labels are scored by."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except OSError:
        return  # whoever reads the file says why it cannot be
    if measure == TREC and {"id", "said"} <= set(first.strip().split(",")):
        this, meant, other = "a table of predictions", "a run file of trec_eval's", ACCURACY
    elif measure == ACCURACY and len(first.split()) == 6 and "," not in first:
        this, meant, other = "a run file", "a table of predictions (id, said)", TREC
    else:
        return
    every = (manifest.labels(name) for name in manifest.label_names)
    fit = [f"--labels {one.name}" for one in every if measure_of(one) == other]
    raise ExperimentError(
        f"{path} is {this}, and {truth.name} is scored by {METRICS[measure].title}, of {meant}"
        + (f"; it goes with {' or '.join(fit)}" if fit else "")
    )


def _ranking(
    path: Path, manifest: Manifest, truth: LabelSet, level_of: Mapping[str, str]
) -> RunScore:
    run = read_run_file(path)
    ids = _ids(path, run.names, manifest)
    highest = manifest.label_scheme(truth.name).codes[-1]
    positives = {one for one, level in level_of.items() if level == highest}
    # Ties go by the names in the file; a positive clip that is not in it has no name there.
    named = dict(zip(ids, run.names, strict=True))
    wanted = [named.get(one, one) for one in positives]
    value = trec_average_precision(run.names, run.scores, wanted)
    return _score(truth, TREC, value, ids, level_of, len(positives), run.tag, run.external_data)


def _classes(
    path: Path, manifest: Manifest, truth: LabelSet, level_of: Mapping[str, str]
) -> RunScore:
    scheme = manifest.label_scheme(truth.name)
    try:
        table = read_table(path, required=["id", "said"])
        said = {}
        for row, (one, text) in enumerate(zip(table["id"], table["said"], strict=True)):
            if one in said:
                raise table.problem(row, f"duplicate id {one!r}")
            try:
                said[one] = scheme.level(text)
            except ManifestError as problem:
                raise table.problem(row, str(problem)) from None
    except ManifestError as problem:
        raise ExperimentError(str(problem)) from None
    ids = _ids(path, list(said), manifest)
    of = dict(zip(ids, said.values(), strict=True))
    right = sum(of.get(one) == level for one, level in level_of.items())
    return _score(truth, ACCURACY, right / len(level_of), ids, level_of, None, None, None)


def _ids(path: Path, names: Sequence[str], manifest: Manifest) -> list[str]:
    """The id of each clip that a run names by its id or file; no two of them are the same."""
    known = {item.media: item.id for item in manifest if item.media}
    known.update(zip(manifest.ids, manifest.ids, strict=True))
    name_of: dict[str, str] = {}
    for name in names:
        if name not in known:
            near = find_closest_id(name, known)
            hint = f"did you mean {near}?" if near else f"it has {join_some(manifest.ids, 2)}"
            raise ExperimentError(f"{path}: {manifest.name} has no clip {name}; {hint}")
        if (other := name_of.setdefault(known[name], name)) != name:
            raise ExperimentError(f"{path}: duplicate id: {other} and {name} are one clip")
    return list(name_of)


def _score(
    truth: LabelSet,
    measure: str,
    value: float | None,
    ids: Sequence[str],
    level_of: Mapping[str, str],
    positives: int | None,
    tag: str | None,
    external_data: bool | None,
) -> RunScore:
    returned = set(ids)
    return RunScore(
        labels=truth.name,
        measure=measure,
        value=value,
        clips=len(level_of),
        positives=positives,
        missing=[one for one in level_of if one not in returned],
        outside=[one for one in ids if one not in level_of],
        tag=tag,
        external_data=external_data,
    )
