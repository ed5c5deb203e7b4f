"""What each annotator said of a run's test clips, and who of annotators and model stands alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.predictions import FitPredictions, average_over_fits
from obygaze_models.experiments.record import MAKE
from obygaze_models.scoring.annotators import BesideAnnotators, compare_with_annotators

if TYPE_CHECKING:
    from obygaze_models.experiments.exports import Row
    from obygaze_models.experiments.plan import Plan
    from obygaze_models.experiments.run_folder import Run

ANNOTATORS = "annotators.csv"
"""A row for each test and clip that an annotator labelled for it, a column for each annotator."""
DIVIDED = "divided"
"""The cell that says who of annotators and model stands alone."""
Votes = dict[str, dict[str, dict[str, str]]]
"""By test and clip the class that each annotator gives, of those who give one."""


def read_votes(run: Run) -> Votes:
    """What `format_votes` wrote; empty where the labels were not merged of several annotators'."""
    path, votes = run.folder / ANNOTATORS, Votes()
    if ANNOTATORS not in run.record.files:
        return votes
    for row in read_table(path, required=("test", "id")).rows():
        test, clip = row.pop("test"), row.pop("id")
        classes = run.record.tests[test].classes if test in run.record.tests else {}
        given = {name: label for name, label in row.items() if label}
        if not {*given.values()} <= {*classes}:
            raise ExperimentError(f"{path} does not fit run.json; run it again with: {MAKE}")
        votes.setdefault(test, {})[clip] = given
    return votes


def format_votes(plan: Plan) -> str:
    """``annotators.csv``; empty where there are no annotators."""
    data, rows = plan.data, []
    for task in dict.fromkeys(test for problem in plan.problems for test in problem.tests):
        for clip, codes in zip(data.ids, data.votes(task).T.tolist(), strict=True):
            if max(codes, default=-1) >= 0:
                rows.append([task.name, clip, *(task.classes[c] if c >= 0 else "" for c in codes)])
    names = ("test", "id", *data.annotators)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    return format_table({name: [*column] for name, column in columns.items()}) if rows else ""


def compare_models(
    plan: Plan, predictions: Sequence[FitPredictions], *, seed: int
) -> dict[str, BesideAnnotators]:
    """By test the models beside each annotator; empty where there are no annotators."""
    data, fits_of = plan.data, dict[str, dict[str, list[FitPredictions]]]()
    row_of = {clip: row for row, clip in enumerate(data.ids)}
    for fit in predictions:
        fits_of.setdefault(fit.test, {}).setdefault(fit.model, []).append(fit)
    beside = {}
    for task in dict.fromkeys(test for problem in plan.problems for test in problem.tests):
        tables = {}
        for model, fits in fits_of.get(task.name, {}).items():
            mean = average_over_fits(fits)
            table = np.full((len(data), *mean.probabilities.shape[1:]), np.nan)
            table[[row_of[clip] for clip in mean.ids]] = mean.probabilities
            tables[model] = table
        votes = dict(zip(data.annotators, data.votes(task), strict=True))
        compared = compare_with_annotators(votes, tables, data.groups.tolist(), seed=seed)
        if compared is not None:
            beside[task.name] = compared
    return beside


def divided(run: Run, rows: Sequence[Row]) -> list[Row]:
    """Of held-out predictions those that differ from an annotator, or on which these differ.

    The model that is surest of its verdict comes first.
    """
    votes = run.annotations()
    if not votes:
        raise ExperimentError(
            f"{run.folder}: its labels were not merged of several annotators', so that nobody is "
            "divided; take such labels: obygaze annotations merge MANIFEST"
        )
    chosen = []
    for row in rows:
        given = votes.get(row.cells["test"], {}).get(row.cells["clip"], {})
        verdicts = given | {row.cells["model"]: row.cells["prediction"]}
        alone = stands_alone(verdicts)
        if alone is None or len(given) < 2:
            continue
        cells = {**row.cells, **{f"label of {name}": label for name, label in given.items()}}
        note = row.note and replace(row.note, value=alone)
        tier = f"{row.tier}, divided"
        chosen.append(replace(row, cells=cells | {DIVIDED: alone}, tier=tier, note=note))
    return sorted(chosen, key=_surest_first)


def _surest_first(row: Row) -> float:
    share, two = float(row.cells["probability"]), row.cells["probability of"]
    return -(share if row.cells["prediction"] == two else 1 - share)


def stands_alone(verdicts: Mapping[str, str]) -> str | None:
    """Who of some raters differs from the others, who agree; None where all agree.

    >>> stands_alone({"annotator1": "S", "annotator2": "EN", "mlp": "EN"})
    'annotator1 alone: S'
    >>> stands_alone({"annotator1": "S", "annotator2": "EN", "mlp": "HN"})
    'all differ'
    """
    counts = Counter(verdicts.values())
    if len(counts) == 1:
        return None
    lonely = [name for name, verdict in verdicts.items() if counts[verdict] == 1]
    if len(counts) == 2 and len(lonely) == 1:
        return f"{lonely[0]} alone: {verdicts[lonely[0]]}"
    return "all differ" if len(counts) == len(verdicts) else "divided"
