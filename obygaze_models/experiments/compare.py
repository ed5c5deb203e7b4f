"""Compare models of one run, or of several, on the clips that both were tested on.

Where an experiment has several fits, a clip's mean probability over them counts. So the scores here
are not the means over fits that a run's table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from obygaze_features.common.text import counted, for_shell, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.comparisons import Comparison, Comparisons, ModelRef
from obygaze_models.experiments.predictions import FitPredictions, average_over_fits
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import REPLICATES, paired_differences

if TYPE_CHECKING:
    from obygaze_models.experiments.record import RunRecord

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, the index and results of its run, its predictions and fits by test set."""

    ref: ModelRef
    run_index: int
    run: Run
    tests: Mapping[str, FitPredictions]
    fits: Mapping[str, int]


def compare(
    *runs: AnyRun, models: Sequence[str] = (), seed: int = 0, replicates: int = REPLICATES
) -> Comparisons:
    """Compare models on the clips that both were tested on.

    Parameters
    ----------
    runs
        Runs or their folders. Of several, each model is compared with that of the same name in
        the others; of one, its models with one another.
    models
        Only these, of all runs, each with each.
    seed, replicates
        Of the draws of films.
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
    pairs = [
        (first, second)
        for first, second in combinations(candidates, 2)
        if _comparable(first, second, models, several=len(runs) > 1)
    ]
    paired = {candidate.ref.name for pair in pairs for candidate in pair}
    alone = [] if models else [c.ref for c in candidates if c.ref.name not in paired]
    left_out = []
    if alone:
        options = " ".join(dict.fromkeys(f"--model {for_shell(ref.model)}" for ref in alone))
        left_out.append(
            f"no counterpart of that name in another run: {', '.join(ref.name for ref in alone)}; "
            f"to compare these with each other: {options}"
        )
    comparisons = []
    for first, second in pairs:
        for test in dict.fromkeys([*first.tests, *second.tests]):
            comparison = _compare(first, second, test, seed, replicates)
            if isinstance(comparison, Comparison):
                comparisons.append(comparison)
            else:
                left_out.append(comparison)
    if not comparisons:
        raise ExperimentError(
            left_out[0]
            if left_out
            else f"there is nothing to compare {(models or names)[0]} with; give another run, or "
            "another --model"
        )
    return Comparisons(comparisons, tuple(dict.fromkeys(left_out)))


def _check_items(runs: Sequence[Run]) -> None:
    first = runs[0]
    manifest = first.record.manifest
    for run in runs[1:]:
        second = run.record.manifest
        if manifest.digest != second.digest:
            raise ExperimentError(
                f"{first.folder} and {run.folder} are over different items: those of "
                f"{manifest.name} ({manifest.digest[:12]}) and of {second.name} "
                f"({second.digest[:12]}); run both on one manifest"
            )


def _candidates(runs: Sequence[Run]) -> list[_Candidate]:
    """Every model of every run, under a unique name."""
    folders = [run.folder for run in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    candidates = []
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        fits: dict[str, dict[str, list[FitPredictions]]] = {}
        for fit in run.predictions():
            fits.setdefault(fit.model, {}).setdefault(fit.test, []).append(fit)
        for model, by_test in fits.items():
            ref = ModelRef(name, model, f"{name}: {model}" if len(runs) > 1 else model)
            means = {test: average_over_fits(predictions) for test, predictions in by_test.items()}
            counts = {test: len(predictions) for test, predictions in by_test.items()}
            candidates.append(_Candidate(ref, index, run, means, counts))
    return candidates


def _comparable(
    first: _Candidate, second: _Candidate, models: Sequence[str], *, several: bool
) -> bool:
    if models:
        return first.ref.model in models and second.ref.model in models
    same_model = first.ref.model == second.ref.model
    return not several or (same_model and first.run_index != second.run_index)


def _compare(
    first: _Candidate, second: _Candidate, test: str, seed: int, replicates: int
) -> Comparison | str:
    """Two models on a test set; or why they cannot be compared."""
    names = f"{first.ref.name} and {second.ref.name}"
    if test not in first.tests or test not in second.tests:
        tested, untested = (first, second) if test in first.tests else (second, first)
        return f"{test} is a test set of {tested.ref.name}, not of {untested.ref.name}"
    common = np.intersect1d(first.tests[test].ids, second.tests[test].ids)
    same_labels = _labels(first, test, common) == _labels(second, test, common)
    ids = common[same_labels]
    if not len(ids):
        difference = "clips annotated otherwise" if len(common) else "other clips"
        return f"{names} cannot be compared: they have {difference} in {test}"
    labels = _labels(first, test, ids)
    first_mean, second_mean = first.tests[test], second.tests[test]
    first_wrong = first_mean.wrong[np.searchsorted(first_mean.ids, ids)]
    second_wrong = second_mean.wrong[np.searchsorted(second_mean.ids, ids)]
    only_first = int((second_wrong & ~first_wrong).sum())
    only_second = int((first_wrong & ~second_wrong).sum())
    clips, classes = first.run.clips(), first.run.record.tests[test].classes
    films = [clips[clip].film for clip in ids.tolist()]
    disagreements = only_first + only_second
    first_means, second_means = _run_means(first, test), _run_means(second, test)
    return Comparison(
        test=test,
        first=first.ref,
        second=second.ref,
        clips=len(ids),
        films=len(set(films)),
        smallest=int(np.bincount(labels, minlength=len(classes)).min()),
        scores=paired_differences(
            labels,
            first_mean.probabilities[np.searchsorted(first_mean.ids, ids)],
            second_mean.probabilities[np.searchsorted(second_mean.ids, ids)],
            films,
            seed=seed,
            replicates=replicates,
        ),
        only_first=only_first,
        only_second=only_second,
        p_value=float(binomtest(only_first, disagreements).pvalue) if disagreements else 1.0,
        notes=tuple(dict.fromkeys(_notes(first, second, test, len(common), set(ids.tolist())))),
        fits=(first.fits[test], second.fits[test]),
        means={
            key: (first_means.get(key), second_means.get(key))
            for key in dict.fromkeys([*first_means, *second_means])
        },
    )


def _run_means(candidate: _Candidate, test: str) -> dict[str, float | None]:
    """The mean scores of a model that its run prints."""
    return next(
        (
            scores.mean
            for scores in candidate.run.record.scores
            if (scores.model, scores.test) == (candidate.ref.model, test)
        ),
        {},
    )


def _notes(
    first: _Candidate, second: _Candidate, test: str, common: int, scored: set[str]
) -> Iterator[str]:
    """How two models' data and protocols differ, and which clips had to be left out."""
    a, b = first.run.record, second.run.record
    for name, first_value, second_value in (
        ("label sets", a.manifest.labels, b.manifest.labels),
        ("protocols", a.protocol, b.protocol),
        ("splits", _split(a), _split(b)),
        ("balance", *_balances(a, b)),
        ("training tasks", a.trained_on(test), b.trained_on(test)),
    ):
        if first_value != second_value:
            yield (
                f"different {name}: {first_value or 'none'} in {first.ref.run}, "
                f"{second_value or 'none'} in {second.ref.run}"
            )
    for side in (first, second):
        if extra := len(side.tests[test].ids) - common:
            yield f"left out: {counted(extra, 'clip')} of {test} that only {side.ref.run} has"
    if relabelled := common - len(scored):
        yield f"left out: {counted(relabelled, 'clip')} of {test} annotated otherwise in the two"
    if first.fits[test] != second.fits[test]:
        same_run = first.run_index == second.run_index
        names = [side.ref.name if same_run else side.ref.run for side in (first, second)]
        yield (
            f"{names[0]} is the mean of {counted(first.fits[test], 'fit')}, {names[1]} of "
            f"{second.fits[test]}; a mean of more fits scores better"
        )
    for side in (first, second):
        if leaked := len(scored & set(side.run.record.leaked)):
            yield (
                f"LEAKAGE: {leaked} of these {counted(len(scored), 'clip')} of {test} are in a "
                f"training or validation set of {side.ref.run}"
            )


def _split(record: RunRecord) -> str:
    """The fold column; films left out need none."""
    return record.split or ("each film" if record.protocol == "leave-film-out" else "")


def _balances(*records: RunRecord) -> list[str]:
    """How training clips are balanced; all "" if a protocol fixes it, which has a note already."""
    balances = [
        record.balance
        or record.experiment.get("balance")
        or PROTOCOLS[record.protocol].default_balance
        for record in records
    ]
    return balances if all(balances) else [""] * len(balances)


def _labels(candidate: _Candidate, test: str, ids: Array) -> Array:
    predictions = candidate.tests[test]
    return predictions.labels[np.searchsorted(predictions.ids, ids)]
