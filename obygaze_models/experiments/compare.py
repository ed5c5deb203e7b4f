"""Comparisons of models from one or several runs, on clips that both models were tested on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_features.items.items import group_noun
from obygaze_models.data.warnings import RunWarning, leak_warning, unique_warnings
from obygaze_models.experiments.comparisons import Comparison, Comparisons, ModelRef
from obygaze_models.experiments.experiment import as_toml
from obygaze_models.experiments.predictions import join_fits, split_by
from obygaze_models.experiments.record import RunRecord
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import (
    GroupScores,
    estimate_differences,
    holm,
    score_groups,
)

Pair = tuple[ModelRef, ModelRef]
"""A model and the reference it is compared with."""
Tables = Mapping[tuple[ModelRef, str], pd.DataFrame]
"""The predictions of all fits of each model on each test set."""


def compare(
    *runs: AnyRun,
    models: Sequence[str] = (),
    metric: str | None = None,
    pooled: bool = False,
) -> Comparisons:
    """Compare models with a reference, on the clips that both were tested on.

    The reference is the headline model of the first run, or the first of `models`.

    Parameters
    ----------
    runs
        Runs or run folders. All must have the same items.
    models
        Compare only models with these names, in all runs.
    metric
        The score that ranks models; by default the main metric of the first run.
    pooled
        Score all clips together instead of film by film. Probabilities from different fits are
        then ranked together, although their scales may differ.
    """
    named = _by_name([as_run(run) for run in runs])
    first = next(iter(named.values()))
    _check_items([*named.values()])
    tables = {
        (_refer(name, run, model, several=len(named) > 1), test): table
        for name, run in named.items()
        for (model, test), table in split_by(run.predictions(), "model", "test").items()
    }
    refs = list(dict.fromkeys(ref for ref, _ in tables))
    _check_models(models, refs, named)
    comparisons: list[Comparison] = []
    left_out: list[RunWarning] = []
    for pair in _pairs(refs, models, first):
        tests = {ref: [test for own, test in tables if own == ref] for ref in pair}
        for test in dict.fromkeys([*tests[pair[1]], *tests[pair[0]]]):
            compared = _compare(pair, test, named, tables, pooled=pooled)
            if isinstance(compared, Comparison):
                comparisons.append(compared)
            else:
                left_out.append(compared)
    if not comparisons:
        name = models[0] if models else refs[0].model
        nothing = f"no model to compare with {name}. Add a run or a model"
        raise ExperimentError(left_out[0].text if left_out else nothing)
    warnings = [note for run in named.values() for note in run.warnings if note.voids_scores]
    for own in comparisons:
        warnings += [*own.leaks, *own.differences, *own.notes]
        if metric not in (None, *own.scores):
            text = f"{own.test} is left out: {metric} is undefined for its classes"
            warnings.append(RunWarning("no-metric", own.test, text))
    ranked = Comparisons(
        _adjust(comparisons),
        metric or first.record.main_metric,
        tuple(unique_warnings([*warnings, *left_out])),
        pooled,
    )
    ranked.select(metric)  # raises for an unknown metric
    return ranked


def _by_name(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the runs by folder name, or by path if folder names are not unique."""
    names = [run.folder.name for run in runs]
    if len(set(names)) < len(names):
        names = [run.folder.as_posix() for run in runs]
    return dict(zip(names, runs, strict=True))


def _refer(name: str, run: Run, model: str, *, several: bool) -> ModelRef:
    """Return a `ModelRef` for a run's model. Its title names the run if there are several."""
    about = run.record.models[model]
    title = f"{name}: {about.title}" if several else about.title
    return ModelRef(name, model, title)


def _check_items(runs: Sequence[Run]) -> None:
    """Raise `ExperimentError` if runs have different items."""
    manifest = runs[0].record.manifest
    for run in runs[1:]:
        own = run.record.manifest
        if manifest.digest != own.digest:
            raise ExperimentError(
                f"{runs[0].folder} and {run.folder} have different items: one uses "
                f"{manifest.name} ({manifest.digest[:12]}), the other {own.name} "
                f"({own.digest[:12]}). Run both on the same manifest"
            )


def _check_models(models: Sequence[str], refs: Sequence[ModelRef], runs: Mapping[str, Run]) -> None:
    """Raise `ExperimentError` if a model does not exist, or if there is only one model."""
    names = list(dict.fromkeys(ref.model for ref in refs))
    for name in models:
        if name not in names and any(name in run.record.unscored for run in runs.values()):
            raise ExperimentError(
                f"{name} has no predictions: all its fits were skipped (run.json has the reasons)"
            )
        if name not in names:
            raise ExperimentError(unknown_name("model", name, names))
    if len(refs) == 1:
        folder = runs[refs[0].run].folder
        raise ExperimentError(f"{folder} has only the model {names[0]}. Add a second run")


def _pairs(refs: Sequence[ModelRef], models: Sequence[str], run: Run) -> list[Pair]:
    """Pair each model with the reference."""
    name = models[0] if models else run.record.headline_model
    reference = next(ref for ref in refs if ref.model == name)
    return [
        (ref, reference) for ref in refs if ref != reference and (not models or ref.model in models)
    ]


def _adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Adjust the p-values of each metric for the number of comparisons, by Holm's method."""
    adjusted = [replace(own, scores=dict(own.scores)) for own in comparisons]
    for key in dict.fromkeys(key for own in adjusted for key in own.scores):
        scored = [own for own in adjusted if key in own.scores]
        p_values = holm([own.scores[key].p_value for own in scored])
        for own, p_value in zip(scored, p_values, strict=True):
            own.scores[key] = replace(own.scores[key], p_value=p_value)
    return adjusted


def _compare(
    pair: Pair, test: str, runs: Mapping[str, Run], tables: Tables, *, pooled: bool
) -> Comparison | RunWarning:
    """Compare two models on a test set, or return a warning if they cannot be compared."""
    names = " and ".join(ref.name for ref in pair)
    untested = [ref for ref in pair if (ref, test) not in tables]
    if untested:
        [tested] = {*pair} - {*untested}
        text = f"{test} is a test set of {tested.name}, not of {untested[0].name}"
        return RunWarning("not-tested", test, text)
    sides = [(runs[ref.run], tables[ref, test]) for ref in pair]
    if sides[0][0].record.task(test).classes != sides[1][0].record.task(test).classes:
        text = f"{names} cannot be compared: {test} has different classes in each run"
        return RunWarning("other-classes", test, text)
    labels = [table.drop_duplicates("id").set_index("id")["label"] for _, table in sides]
    common = labels[0].index.intersection(labels[1].index)
    ids = common[labels[0][common] == labels[1][common]]
    if not len(ids):
        difference = "with the same labels" if len(common) else "in common"
        text = f"{names} cannot be compared: they have no test clips of {test} {difference}"
        return RunWarning("other-clips", test, text)
    by, second_by = (run.record.films.by for run, _ in sides)
    if by != second_by:
        text = (
            f"{names} cannot be compared on {test}: one is averaged over {by}, the other over "
            f"{second_by}. Run both with the same groups"
        )
        return RunWarning("other-groups", test, text)
    first, second = (_score(run, table, ids, test, pooled=pooled) for run, table in sides)
    reference_first = [(ref, run) for ref, (run, _) in zip(pair, sides, strict=True)][::-1]
    return Comparison(
        test=test,
        model=pair[0],
        reference=pair[1],
        clips=len(ids),
        class_counts=tuple(first.class_counts),
        scores=estimate_differences(first, second),
        differences=tuple(_differences(reference_first, test)),
        notes=tuple(_notes(reference_first, test, labels[::-1], ids)),
        leaks=tuple(dict.fromkeys(_leaks(reference_first, test, ids))),
        noun=group_noun(by),
    )


def _score(
    run: Run, table: pd.DataFrame, ids: pd.Index[Any], test: str, *, pooled: bool
) -> GroupScores:
    """Score the clips of a test set that are among `ids`."""
    record, clips = run.record, run.clips()
    group_of = dict(zip(clips["id"], clips["group"], strict=True))
    classes = len(record.task(test).classes)
    common = table[table["id"].isin(ids)]
    return score_groups(join_fits(common, group_of, classes, record.measure), pooled=pooled)


def _differences(sides: Sequence[tuple[ModelRef, Run]], test: str) -> Iterator[RunWarning]:
    """Yield a note for each setting of the data or protocol that differs between two models."""
    records = [run.record for _, run in sides]
    balances = [record.balance for record in records]
    if not all(balances):  # if one protocol fixes the balance, the protocols already differ
        balances = ["", ""]
    splits = [  # leave-film-out needs no fold column
        record.split or ("each film" if record.protocol == "leave-film-out" else "")
        for record in records
    ]
    for code, name, values in (
        ("labels", "label sets", [record.manifest.labels for record in records]),
        ("protocol", "protocols", [record.protocol for record in records]),
        ("options", "protocol options", [*map(_protocol_options, records)]),
        ("split", "splits", splits),
        ("balance", "balance", balances),
        ("training", "training tasks", [record.trained_on(test) for record in records]),
    ):
        if values[0] != values[1]:
            stated = [
                f"{value or 'none'} in {ref.run}"
                for value, (ref, _) in zip(values, sides, strict=True)
            ]
            yield RunWarning(code, "", f"different {name}: {', '.join(stated)}")


def _notes(
    sides: Sequence[tuple[ModelRef, Run]],
    test: str,
    labels: Sequence[pd.Series[Any]],
    scored: pd.Index[Any],
) -> Iterator[RunWarning]:
    """Yield notes on clips that are left out of the comparison of two models."""
    common = len(labels[0].index.intersection(labels[1].index))
    for (ref, _), own in zip(sides, labels, strict=True):
        if extra := len(own) - common:
            text = f"left out: {counted(extra, 'clip')} of {test} that only {ref.run} has"
            yield RunWarning("left-out", test, text)
    run = sides[0][1]
    clips = run.clips()
    without_group = clips.loc[clips["group"] == "", "id"]
    if unnamed := int(without_group.isin(scored).sum()):
        noun = group_noun(run.record.films.by)
        text = f"left out of the intervals: {counted(unnamed, 'clip')} of {test} without a {noun}"
        yield RunWarning("no-group", test, text)
    if relabelled := common - len(scored):
        clips_of = counted(relabelled, "clip")
        text = f"left out: {clips_of} of {test} with different labels"
        yield RunWarning("left-out", test, text)


def _protocol_options(record: RunRecord) -> str:
    options = record.experiment.protocol_options
    return as_toml(options) if options else ""


def _leaks(
    sides: Sequence[tuple[ModelRef, Run]], test: str, scored: pd.Index[Any]
) -> Iterator[RunWarning]:
    """Yield a warning for each run that was trained on some of the scored clips."""
    for ref, run in sides:
        clips = run.clips()
        if leaked := int(clips.loc[clips["leaked"], "id"].isin(scored).sum()):
            share = f"{leaked} of these {counted(len(scored), 'clip')}"
            yield leak_warning(test, share, ref.run)
