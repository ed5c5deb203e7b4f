"""Compare models of one run, or of several, on the clips that both were tested on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_models.data.warnings import RunWarning, leak_warning
from obygaze_models.experiments.comparisons import Comparison, Comparisons, ModelRef
from obygaze_models.experiments.experiment import as_toml, store_variants
from obygaze_models.experiments.predictions import join_fits, split_by
from obygaze_models.experiments.record import RunRecord
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import (
    ScoreParts,
    estimate_differences,
    holm,
    score_parts,
)

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, its run, and the predictions of its fits by test set."""

    ref: ModelRef
    run: Run
    tests: Mapping[str, pd.DataFrame]

    def labels(self, test: str) -> dict[str, int]:
        """Return the class of each clip of a test set."""
        table = self.tests[test].drop_duplicates("id")
        return dict(zip(table["id"], table["label"].tolist(), strict=True))

    def score(self, test: str, ids: set[str], *, pooled: bool) -> ScoreParts:
        """Score the clips of a test set that are among `ids`."""
        record, clips = self.run.record, self.run.clips()
        groups = {clip: clips[clip].group for clip in ids}
        kept = self.tests[test][self.tests[test]["id"].isin(ids)]
        classes = len(record.task(test).classes)
        return score_parts(join_fits(kept, groups, classes, record.measure), pooled=pooled)


def compare(
    *runs: AnyRun, models: Sequence[str] = (), stores: bool = False, pooled: bool = False
) -> Comparisons:
    """Compare models with a reference, on the clips that both were tested on.

    The reference is the model that the first run's result is about; or the first of `models`.

    Parameters
    ----------
    runs
        Runs or their folders, over the same items.
    models
        Only these, of all runs.
    stores
        Only what each store adds to a model of several, in runs with ``each_store``: all stores,
        beside each alone and all without it.
    pooled
        Score all clips together, in place of the mean over films. Probabilities of different fits
        are then ranked together, although they may be on different scales.
    """
    opened = [as_run(run) for run in runs]
    _check_items(opened)
    candidates = _candidates(opened)
    names = list(dict.fromkeys(candidate.ref.model for candidate in candidates))
    for name in models:
        if name not in names and any(name in run.record.unscored for run in opened):
            raise ExperimentError(
                f"{name} has no predictions: all its fits were skipped; run.json says why"
            )
        if name not in names:
            raise ExperimentError(unknown_name("model", name, names))
    if len(candidates) == 1:
        raise ExperimentError(
            f"{opened[0].folder} has one model, {names[0]}; give a second run to compare it with"
        )
    pairs = _store_pairs(candidates) if stores else _pairs(candidates, models)
    comparisons, left_out = [], []
    for model, reference in pairs:
        for test in dict.fromkeys([*reference.tests, *model.tests]):
            made = _compare(model, reference, test, pooled=pooled)
            if isinstance(made, Comparison):
                comparisons.append(made)
            else:
                left_out.append(made)
    if not comparisons:
        name = (models or names)[0]
        nothing = f"there is nothing to compare {name} with; give another run, or another --model"
        raise ExperimentError(left_out[0] if left_out else nothing)
    store_names = {c.ref.run: c.run.record.experiment.store_names for c in candidates if stores}
    return Comparisons(
        _adjust(comparisons, store_names),
        opened[0].record.main_metric,
        tuple(dict.fromkeys(left_out)),
        pooled,
        store_names,
    )


def _check_items(runs: Sequence[Run]) -> None:
    """Raise where runs are over different items."""
    manifest = runs[0].record.manifest
    for run in runs[1:]:
        other = run.record.manifest
        if manifest.digest != other.digest:
            raise ExperimentError(
                f"{runs[0].folder} and {run.folder} are over different items: those of "
                f"{manifest.name} ({manifest.digest[:12]}) and of {other.name} "
                f"({other.digest[:12]}); run both on one manifest"
            )


def _pairs(
    candidates: Sequence[_Candidate], models: Sequence[str]
) -> list[tuple[_Candidate, _Candidate]]:
    """Return each model beside the reference."""
    name = models[0] if models else candidates[0].run.record.headline_model
    reference = next(candidate for candidate in candidates if candidate.ref.model == name)
    return [
        (candidate, reference)
        for candidate in candidates
        if candidate is not reference and (not models or candidate.ref.model in models)
    ]


def _store_pairs(candidates: Sequence[_Candidate]) -> list[tuple[_Candidate, _Candidate]]:
    """Return each model of several stores beside the same on a part of them."""
    return [
        (first, second)
        for first in candidates
        for second in candidates
        if first.run is second.run
        and second.ref.model
        in store_variants(first.ref.model, first.run.record.experiment.store_names)
    ]


def _adjust(
    comparisons: Sequence[Comparison], stores: Mapping[str, Sequence[str]]
) -> list[Comparison]:
    """Adjust the p-values of each metric for the number of comparisons, by Holm's method.

    Of stores only what each adds is tested: all of them beside all without it.
    """
    adjusted = [replace(own, scores=dict(own.scores)) for own in comparisons]

    def is_tested(own: Comparison) -> bool:
        if not stores:
            return True
        names = stores[own.model.run]
        return len(store_variants(own.model.model, names)[own.reference.model]) == len(names) - 1

    for own in adjusted:
        if not is_tested(own):
            untested = {key: replace(score, p_value=None) for key, score in own.scores.items()}
            own.scores.update(untested)
    for key in dict.fromkeys(key for own in adjusted for key in own.scores):
        tested = [own for own in adjusted if key in own.scores and is_tested(own)]
        p_values = holm([own.scores[key].p_value for own in tested])
        for own, p_value in zip(tested, p_values, strict=True):
            own.scores[key] = replace(own.scores[key], p_value=p_value)
    return adjusted


def _candidates(runs: Sequence[Run]) -> list[_Candidate]:
    """Return every model of every run, under a unique name."""
    folders = [run.folder for run in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    candidates = []
    for run, name in zip(runs, names, strict=True):
        for model, table in split_by(run.predictions(), "model").items():
            ref = ModelRef(name, model, f"{name}: {model}" if len(runs) > 1 else model)
            candidates.append(_Candidate(ref, run, split_by(table, "test")))
    return candidates


def _compare(
    model: _Candidate, reference: _Candidate, test: str, *, pooled: bool
) -> Comparison | str:
    """Compare two models on a test set; or return why they cannot be compared."""
    sides = model, reference
    if test not in model.tests or test not in reference.tests:
        tested, untested = sides if test in model.tests else sides[::-1]
        return f"{test} is a test set of {tested.ref.name}, not of {untested.ref.name}"
    tasks = [side.run.record.task(test) for side in sides]
    if tasks[0].classes != tasks[1].classes:
        names = f"{model.ref.name} and {reference.ref.name}"
        return f"{names} cannot be compared: {test} is of other levels in the two"
    labels, others = model.labels(test), reference.labels(test)
    common = labels.keys() & others.keys()
    ids = {clip for clip in common if labels[clip] == others[clip]}
    if not ids:
        names = f"{model.ref.name} and {reference.ref.name}"
        difference = "clips annotated otherwise" if common else "other clips"
        return f"{names} cannot be compared: they have {difference} in {test}"
    by, other_by = (side.run.record.films.by for side in sides)
    if by != other_by:
        return (
            f"{model.ref.name} and {reference.ref.name} cannot be compared on {test}: one is "
            f"scored by {by}, the other by {other_by}; run both with the same groups"
        )
    first, second = (side.score(test, ids, pooled=pooled) for side in sides)
    return Comparison(
        test=test,
        model=model.ref,
        reference=reference.ref,
        clips=len(ids),
        class_counts=tuple(first.clips.class_counts),
        scores=estimate_differences(first, second),
        notes=tuple(dict.fromkeys(_notes(reference, model, test, len(common), ids))),
        leaks=tuple(dict.fromkeys(_leaks(reference, model, test, ids))),
        beside=tuple(
            sentence
            for side in sides
            if (compared := side.run.record.annotators.get(test))
            and (sentence := compared.f1_sentence(side.ref.model, side.ref.name))
        ),
        noun=group_noun(model.run.record.films.by),
    )


def _notes(
    first: _Candidate, second: _Candidate, test: str, common: int, scored: set[str]
) -> Iterator[str]:
    """How two models' data and protocols differ, and which clips had to be left out."""
    a, b = records = first.run.record, second.run.record
    balances = [record.balance for record in records]
    if not all(balances):  # where a protocol fixes it, the protocols have a note already
        balances = ["", ""]
    splits = [  # films left out need no fold column
        record.split or ("each film" if record.protocol == "leave-film-out" else "")
        for record in records
    ]
    for name, first_value, second_value in (
        ("label sets", a.manifest.labels, b.manifest.labels),
        ("protocols", a.protocol, b.protocol),
        ("protocol options", *map(_protocol_options, records)),
        ("splits", *splits),
        ("balance", *balances),
        ("training tasks", a.trained_on(test), b.trained_on(test)),
        ("targets", *(record.experiment.targets for record in records)),
    ):
        if first_value != second_value:
            yield (
                f"different {name}: {first_value or 'none'} in {first.ref.run}, "
                f"{second_value or 'none'} in {second.ref.run}"
            )
    for side in (first, second):
        if extra := len(side.labels(test)) - common:
            yield f"left out: {counted(extra, 'clip')} of {test} that only {side.ref.run} has"
    clips = first.run.clips()
    if unnamed := sum(not clips[clip].group for clip in scored):
        noun = group_noun(a.films.by)
        yield f"left out of the intervals: {counted(unnamed, 'clip')} of {test} without a {noun}"
    if relabelled := common - len(scored):
        yield f"left out: {counted(relabelled, 'clip')} of {test} annotated otherwise in the two"


def _protocol_options(record: RunRecord) -> str:
    options = record.experiment.protocol_options
    return as_toml(options) if options else ""


def _leaks(
    first: _Candidate, second: _Candidate, test: str, scored: set[str]
) -> Iterator[RunWarning]:
    """Which of the models were trained on clips that are scored here."""
    for side in (first, second):
        clips = side.run.clips()
        if leaked := sum(clips[clip].leaked for clip in scored):
            which = f"{leaked} of these {counted(len(scored), 'clip')}"
            yield leak_warning(test, which, side.ref.run)
