"""Compare models of one run, or of several, on the clips that both were tested on.

Where an experiment has several fits, a clip's mean probability over them counts. So the scores here
are not the means over fits that a run's table shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from obygaze_features.common.text import counted, for_shell, group_by, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests.items import group_noun
from obygaze_models.data.protocols import find_protocol
from obygaze_models.data.warnings import RunWarning, leak_warning
from obygaze_models.experiments.comparisons import Comparison, Comparisons, ModelRef
from obygaze_models.experiments.experiment import store_variants
from obygaze_models.experiments.predictions import FitPredictions, average_over_fits
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import REPLICATES, paired_differences

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, its run, and its mean predictions and number of fits by test set."""

    ref: ModelRef
    run: Run
    tests: Mapping[str, FitPredictions]
    fits: Mapping[str, int]

    def on(self, test: str, ids: Array) -> tuple[Array, Array, Array]:
        """Labels, probabilities, and which predictions are wrong, of clips of a test set."""
        mean = self.tests[test]
        rows = np.searchsorted(mean.ids, ids)
        return mean.labels[rows], mean.probabilities[rows], mean.wrong[rows]


def compare(
    *runs: AnyRun,
    models: Sequence[str] = (),
    stores: bool = False,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> Comparisons:
    """Compare models on the clips that both were tested on.

    Parameters
    ----------
    runs
        Runs or their folders. Of several, each model is compared with that of the same name in
        the others; of one, its models with one another.
    models
        Only these, of all runs, each with each.
    stores
        Only what each store adds to a model of several, in runs with ``each_store``: all stores,
        with each alone and with all without it.
    seed, replicates
        Of the draws of films.
    """
    opened = [as_run(run) for run in runs]
    manifest = opened[0].record.manifest
    for run in opened[1:]:
        other = run.record.manifest
        if manifest.digest != other.digest:
            raise ExperimentError(
                f"{opened[0].folder} and {run.folder} are over different items: those of "
                f"{manifest.name} ({manifest.digest[:12]}) and of {other.name} "
                f"({other.digest[:12]}); run both on one manifest"
            )
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

    def are_comparable(first: _Candidate, second: _Candidate) -> bool:
        if stores:
            own = store_variants(first.ref.model, first.run.record.store_names)
            return first.run is second.run and second.ref.model in own
        if models:
            return first.ref.model in models and second.ref.model in models
        other_run = first.ref.model == second.ref.model and first.run is not second.run
        return len(runs) == 1 or other_run

    pairs = [pair for pair in combinations(candidates, 2) if are_comparable(*pair)]
    paired = {candidate.ref.name for pair in pairs for candidate in pair}
    left_out = []
    if alone := [c.ref for c in candidates if not (models or stores) and c.ref.name not in paired]:
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
        name = (models or names)[0]
        nothing = f"there is nothing to compare {name} with; give another run, or another --model"
        raise ExperimentError(left_out[0] if left_out else nothing)
    names_of = {c.ref.run: c.run.record.store_names for c in candidates if stores}
    return Comparisons(comparisons, tuple(dict.fromkeys(left_out)), names_of)


def _candidates(runs: Sequence[Run]) -> list[_Candidate]:
    """Every model of every run, under a unique name."""
    folders = [run.folder for run in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    candidates = []
    for run, name in zip(runs, names, strict=True):
        for model, fits in group_by(run.predictions(), lambda fit: fit.model).items():
            by_test = group_by(fits, lambda fit: fit.test)
            ref = ModelRef(name, model, f"{name}: {model}" if len(runs) > 1 else model)
            means = {test: average_over_fits(predictions) for test, predictions in by_test.items()}
            counts = {test: len(predictions) for test, predictions in by_test.items()}
            candidates.append(_Candidate(ref, run, means, counts))
    return candidates


def _compare(
    first: _Candidate, second: _Candidate, test: str, seed: int, replicates: int
) -> Comparison | str:
    """Two models on a test set; or why they cannot be compared."""
    sides = first, second
    if test not in first.tests or test not in second.tests:
        tested, untested = sides if test in first.tests else (second, first)
        return f"{test} is a test set of {tested.ref.name}, not of {untested.ref.name}"
    common = np.intersect1d(first.tests[test].ids, second.tests[test].ids)
    ids = common[first.on(test, common)[0] == second.on(test, common)[0]]
    if not len(ids):
        names = f"{first.ref.name} and {second.ref.name}"
        difference = "clips annotated otherwise" if len(common) else "other clips"
        return f"{names} cannot be compared: they have {difference} in {test}"
    labels, first_probabilities, first_wrong = first.on(test, ids)
    _, second_probabilities, second_wrong = second.on(test, ids)
    only_first = int((second_wrong & ~first_wrong).sum())
    only_second = int((first_wrong & ~second_wrong).sum())
    clips, classes = first.run.clips(), first.run.record.tests[test].classes
    films = [clips[clip].group for clip in ids.tolist()]
    disagreements = only_first + only_second
    means = []  # as the runs print them
    for side in sides:
        own = [s for s in side.run.record.scores if (s.model, s.test) == (side.ref.model, test)]
        means.append(own[0].mean if own else {})
    return Comparison(
        test=test,
        first=first.ref,
        second=second.ref,
        clips=len(ids),
        films=len(set(films) - {""}),
        noun=group_noun(first.run.record.films.by),
        smallest=int(np.bincount(labels, minlength=len(classes)).min()),
        scores=paired_differences(
            labels,
            first_probabilities,
            second_probabilities,
            films,
            seed=seed,
            replicates=replicates,
        ),
        only_first=only_first,
        only_second=only_second,
        p_value=float(binomtest(only_first, disagreements).pvalue) if disagreements else 1.0,
        notes=tuple(dict.fromkeys(_notes(first, second, test, len(common), set(ids.tolist())))),
        leaks=tuple(dict.fromkeys(_leaks(first, second, test, set(ids.tolist())))),
        fits=(first.fits[test], second.fits[test]),
        means={key: (means[0].get(key), means[1].get(key)) for key in means[0] | means[1]},
        beside=tuple(
            sentence
            for side in sides
            if (compared := side.run.record.annotators.get(test))
            and (sentence := compared.f1_sentence(side.ref.model, side.ref.name))
        ),
    )


def _notes(
    first: _Candidate, second: _Candidate, test: str, common: int, scored: set[str]
) -> Iterator[str]:
    """How two models' data and protocols differ, and which clips had to be left out."""
    a, b = records = first.run.record, second.run.record
    balances = [
        record.balance
        or record.experiment.get("balance")
        or find_protocol(record.protocol).default_balance
        for record in records
    ]
    if not all(balances):  # where a protocol fixes it, the protocols have a note already
        balances = ["", ""]
    splits = [  # films left out need no fold column
        record.split or ("each film" if record.protocol == "leave-film-out" else "")
        for record in records
    ]
    for name, first_value, second_value in (
        ("label sets", a.manifest.labels, b.manifest.labels),
        ("protocols", a.protocol, b.protocol),
        ("splits", *splits),
        ("balance", *balances),
        ("training tasks", a.trained_on(test), b.trained_on(test)),
        ("targets", *(record.experiment.get("targets", "merged") for record in records)),
    ):
        if first_value != second_value:
            yield (
                f"different {name}: {first_value or 'none'} in {first.ref.run}, "
                f"{second_value or 'none'} in {second.ref.run}"
            )
    for side in (first, second):
        if extra := len(side.tests[test].ids) - common:
            yield f"left out: {counted(extra, 'clip')} of {test} that only {side.ref.run} has"
    clips = first.run.clips()
    if unnamed := sum(not clips[clip].group for clip in scored):
        noun = group_noun(a.films.by)
        yield f"left out of the intervals: {counted(unnamed, 'clip')} of {test} without a {noun}"
    if relabelled := common - len(scored):
        yield f"left out: {counted(relabelled, 'clip')} of {test} annotated otherwise in the two"
    if first.fits[test] != second.fits[test]:
        same_run = first.run is second.run
        names = [side.ref.name if same_run else side.ref.run for side in (first, second)]
        yield (
            f"{names[0]} is the mean of {counted(first.fits[test], 'fit')}, {names[1]} of "
            f"{second.fits[test]}; a mean of more fits scores better"
        )


def _leaks(
    first: _Candidate, second: _Candidate, test: str, scored: set[str]
) -> Iterator[RunWarning]:
    """Which of the models were trained on clips that are scored here."""
    for side in (first, second):
        if leaked := len(scored & set(side.run.record.leaked)):
            clips = f"{leaked} of these {counted(len(scored), 'clip')}"
            yield leak_warning(test, clips, side.ref.run)
