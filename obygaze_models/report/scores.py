"""The scores on a page: a row for each test of each run's first model, by question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from obygaze_features.common.grouping import group_by
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import Task
from obygaze_models.report.sources import Labels
from obygaze_models.results.compare import SIGNIFICANT, Entrant, paired_scores, shared_clips
from obygaze_models.results.run import Run
from obygaze_models.results.scores import ModelScores, average_over_fits
from obygaze_models.scoring.intervals import (
    ACROSS,
    Estimate,
    estimate_mean,
    holm,
    lead_first,
    shortage,
)
from obygaze_models.scoring.metrics import METRICS, Array, baselines

SUBSET = "subset"
DIFFERENCE = "difference"
UNTESTED = "untested"
SECOND = "second"
"""The kinds of other rows: a score on fewer clips, a difference of runs, untested levels, and the
answer to the question that the protocol does not ask."""


NONE = Estimate(None)
CHANCE = 0.5
"""The AUROC of guesses."""


@dataclass(frozen=True)
class Axis:
    """A horizontal axis. `at` places a value as a percentage of the width."""

    low: float
    high: float
    ticks: Sequence[float]
    guess: float = 0.0

    def at(self, value: float) -> str:
        """Return the place of a value. Values beyond an end are placed at the end."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.1f}%"


@dataclass(eq=False)
class Row:
    """A score on a test set, with what a guess scores there.

    Parameters
    ----------
    name, note
        The input, or the concept; and what else identifies the row.
    score
        The score within or across films, whichever leads, with its interval.
    p_value, excess
        The p-value of a test against the best guess, and how far the score is above it.
    films, of
        The number of films with a score above the guess, and of all films with a score. For
        untested levels, `of` is the number of clips.
    f1, always
        The F1 of the model's verdicts, and of the verdict that is always positive.
    few
        What there is too little of for an interval, or "".
    kind
        "" for a score, or `SUBSET`, `DIFFERENCE`, `UNTESTED` or `SECOND`.
    is_clear
        True if the score is significantly above the guess, corrected for all rows of the page.
    """

    name: str
    score: Estimate
    note: str = ""
    p_value: float | None = None
    excess: float = 0.0
    films: int = 0
    of: int = 0
    f1: float | None = None
    always: float | None = None
    few: str = ""
    kind: str = ""
    is_clear: bool = False


@dataclass(frozen=True, eq=False)
class Question:
    """A question that models answer about each clip, and their scores.

    `kind` is "levels", "classes", "concepts" or "numbers". `classes` are the names of the answers,
    or of the column of numbers.
    """

    kind: str
    classes: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True, eq=False)
class Results:
    """The questions that are scored by one metric, and the axis of their scores."""

    metric: str
    axis: Axis
    questions: Sequence[Question]

    @property
    def title(self) -> str:
        """The metric's name."""
        return METRICS[self.metric].title

    @property
    def form(self) -> str:
        """The format of scores, for `number`: AUROC in percent."""
        return "%" if self.metric == "auroc" else ""


@dataclass(frozen=True, eq=False)
class Tested:
    """A model's predictions on a test set of a run, and their scores.

    `reads` is the model's input in plain words.
    """

    run: Run
    reads: str
    model: str
    task: Task
    table: pd.DataFrame
    scores: ModelScores

    @property
    def metric(self) -> str:
        """The metric that the page shows."""
        return self.run.main_metric

    @property
    def entrant(self) -> Entrant:
        """The model, to be compared with others."""
        tables = {self.task.key: self.table}
        return Entrant(self.run, self.run.place, self.model, self.reads, tables)

    @property
    def kind(self) -> str:
        """The kind of question."""
        if self.task.target.is_numeric:
            return "numbers"
        if self.task.concept:
            return "concepts"
        return "levels" if self.task.is_binary else "classes"

    @property
    def means(self) -> pd.DataFrame:
        """Each clip's prediction, averaged over the fits that tested it."""
        return average_over_fits(self.table)


def tested(runs: Sequence[Run]) -> list[Tested]:
    """Return every model on every test set, starting with each run's first model."""
    entries = []
    for run, reads in zip(runs, inputs(runs), strict=True):
        table = run.predictions
        for scores in run.model_scores:
            own = table[(table["model"] == scores.model) & (table["test"] == scores.test)]
            task = run.task(scores.test)
            entries.append(Tested(run, reads, scores.model, task, own, scores))
    return sorted(entries, key=lambda each: not is_first(each))


def is_first(entry: Tested) -> bool:
    """Return True if a model is its run's first."""
    return entry.model == entry.run.main_model


def headline(entries: Sequence[Tested]) -> Tested:
    """Return the main result: the one on the most clips, if possible not of a concept."""
    first = [entry for entry in entries if is_first(entry)]
    return max(first, key=lambda entry: (entry.kind != "concepts", entry.table["id"].nunique()))


def inputs(runs: Sequence[Run]) -> list[str]:
    """Return each run's input in plain words, and its features if others share the words."""
    pairs = [(_senses(run), feature(run)) for run in runs]
    counts = Counter(senses for senses, _ in {*pairs})
    texts = []
    for senses, own in pairs:
        text = senses
        if counts[senses] > 1:
            text = f"{senses} ({own})"
        texts.append(text)
    return texts


def _senses(run: Run) -> str:
    """Return what a run's features describe, such as "words"."""
    features = run.header.features
    senses = []
    for part in features.preprocessing.get("parts", [features.preprocessing]):
        if "texts" in part:
            senses.append("words")
        elif "extractor" in part:
            senses.append("sound")
        else:
            senses.append("frames")
    if senses == ["words"] and features.array == "count":
        return "number of words"
    return " and ".join(dict.fromkeys(senses))


def feature(run: Run) -> str:
    """Return the backbone and array of a run's features."""
    return f"{run.header.features.backbone['name']}/{run.header.features.array}"


def results(entries: Sequence[Tested], labels: Labels) -> list[Results]:
    """Return the scores of each run's first model, by metric and question."""
    first = [entry for entry in entries if is_first(entry)]
    main = headline(entries)
    order = ("levels", "classes", "numbers", "concepts")
    first.sort(key=lambda entry: (order.index(entry.kind), entry.run is not main.run))
    asked = group_by(first, lambda entry: (entry.metric, entry.kind, tuple(_answers(entry))))
    by_metric: dict[str, list[Question]] = {}
    rows: list[Row] = []
    for (metric, kind, answers), same in asked.items():
        own = [*_rows(same, labels)]
        rows += own
        by_metric.setdefault(metric, []).append(Question(kind, answers, own))
    for row, p_value in zip(rows, holm([row.p_value for row in rows]), strict=True):
        row.is_clear = p_value is not None and p_value < SIGNIFICANT and row.excess > 0
    found = []
    for metric, questions in by_metric.items():
        guess = 0.5 if metric == "auroc" else 0.0
        scored = []
        for question in questions:
            scored += [row.score for row in question.rows if row.kind in ("", SUBSET, SECOND)]
        axis = axis_of(scored, [guess], guess=guess, ticks=8)
        found.append(Results(metric, axis, questions))
    return found


def _answers(entry: Tested) -> list[str]:
    if entry.kind == "concepts":
        return []
    if entry.kind == "numbers":
        return [entry.task.title]
    return [kind.words for kind in entry.task.classes]


def _rows(entries: Sequence[Tested], labels: Labels) -> Iterator[Row]:
    """Yield the rows of a question: scores, subsets, differences and untested levels.

    A subset is without the clips whose features are all zero, if there are any.
    """
    if entries[0].kind == "concepts":
        inputs = {entry.reads for entry in entries}
        ranked = sorted(entries, key=_score_of, reverse=True)
        for entry in ranked:
            note = entry.reads if len(inputs) > 1 else ""
            yield score_row(entry, entry.scores, entry.table, entry.task.concept, note)
        return
    for entry in entries:
        same = [other for other in entries if other.reads == entry.reads]
        yield score_row(entry, entry.scores, entry.table, entry.reads, _note(entry, same))
        _, over = lead_first(entry.scores.lead)
        yield Row("", entry.scores.estimate(entry.metric, over), note=over, kind=SECOND)
        clips = entry.run.clips
        empty = clips.loc[clips["blank"], "id"]
        full = entry.table[~entry.table["id"].isin(empty)]
        if len(full) not in (0, len(entry.table)):
            (scores,) = entry.run.score(full)
            row = score_row(entry, scores, full, "", "")
            yield replace(row, kind=SUBSET, f1=None, always=None)
    yield from _differences(entries)
    codes = [code for code in labels.levels if code not in entries[0].task.levels]
    untested = sum(clip.level in codes for clip in labels.clips)
    if untested and entries[0].kind == "levels":
        names = ", ".join(labels.levels[code] for code in codes)
        yield Row(names, NONE, of=untested, kind=UNTESTED)


def _note(entry: Tested, same: Sequence[Tested]) -> str:
    """Return what distinguishes a row from others with the same input."""
    trained = entry.run.trained_on(entry.task.key)
    parts = []
    if trained != entry.task.key:
        parts.append(f"trained on {entry.run.task(trained).title}")
    if len(same) > 1:
        parts.append(entry.model)
        if len({other.model for other in same}) < len(same):
            parts.append(entry.run.name)
    return ", ".join(parts)


def _score_of(entry: Tested) -> float:
    return entry.scores.estimate(entry.metric).value or 0.0


def score_row(entry: Tested, scores: ModelScores, table: pd.DataFrame, name: str, note: str) -> Row:
    """Return the row of a model's scores on the clips of a table of predictions."""
    metric = entry.metric
    test = entry.run.tests[entry.task.key]
    estimate = scores.estimate(metric)
    few = ""
    if not entry.run.is_mixed:
        few = shortage(test.classes.values(), estimate.effective, metric, noun=entry.run.noun)
    always = test.guesses.get("all positive", {})
    f1 = scores.estimate("f1").value
    row = Row(name, estimate, note=note, f1=f1, always=always.get("f1"), few=few)
    if scores.lead == ACROSS:
        if metric == "auroc":
            row.p_value = estimate.p_against(CHANCE)
            row.excess = (estimate.value or 0.0) - CHANCE
        return row
    above = _above_guess(entry, scores, table, metric)
    row.films = int((above > 0).sum())
    row.of = int(np.isfinite(above).sum())
    if estimate.interval:
        mean = estimate_mean(above, cross_validated=scores.folds > 1)
        row.p_value = mean.p_against(0.0)
        row.excess = mean.value or 0.0
    return row


def _above_guess(entry: Tested, scores: ModelScores, table: pd.DataFrame, metric: str) -> Array:
    """Return each film's score minus that of a guess (NaN if undefined); [] without two classes.

    The guess is the one with the best mean score. It knows the film's share of positives.
    """
    guesses = entry.run.tests[entry.task.key].guesses
    values = {name: own[metric] or 0.0 for name, own in guesses.items() if metric in own}
    if not values or not entry.task.is_binary:
        return np.array([])
    best = max(values, key=values.__getitem__)
    once = table.drop_duplicates("id")
    groups = once["id"].map(entry.run.group_of)
    shares = once["label"].groupby(groups).mean()
    own = [group.get(metric) for group in scores.groups.values()]
    guess = [baselines(float(shares[group]))[best][metric] for group in scores.groups]
    above: Array = np.array(own, dtype=float) - np.array(guess, dtype=float)
    return above


def _differences(entries: Sequence[Tested]) -> Iterator[Row]:
    """Yield the paired differences between the first entry and entries with other inputs.

    Comparisons that have warnings are left out.
    """
    main, *others = entries
    for other in others:
        if other.reads == main.reads:
            continue
        pair = main.entrant, other.entrant, main.task.key
        try:
            ids, warnings = shared_clips(*pair)
        except ExperimentError:  # they cannot be compared
            continue
        scores = paired_scores(*pair, ids)[main.scores.lead]
        if main.metric in scores and not warnings:
            difference = scores[main.metric].difference
            yield Row(f"{main.reads} − {other.reads}", difference, kind=DIFFERENCE)


def axis_of(
    estimates: Sequence[Estimate],
    others: Sequence[float],
    *,
    guess: float,
    ticks: int,
) -> Axis:
    """Return an axis for some estimates and other values, from at least -1 to at most 1.

    Ticks are 0.1 or 0.2 apart if there are then at most `ticks` intervals, or else 0.5 apart.
    """
    values = [*others]
    for estimate in estimates:
        if estimate.value is not None:
            values += [estimate.value, *(estimate.interval or ())]
    low = max(math.floor(10 * min(values) - 0.5), -10)
    high = min(math.ceil(10 * max(values) + 0.5), 10)
    for step in (1, 2, 5):
        if high - low <= ticks * step:
            break
    marks = [tick / 10 for tick in range(-10, 11, step) if low <= tick <= high]
    return Axis(low / 10, high / 10, marks, guess)


def verdicts(entry: Tested) -> list[tuple[str, list[int]]] | None:
    """Count a model's verdicts on the clips of each class; None unless there are two classes."""
    if not entry.task.is_binary:
        return None
    counts = pd.crosstab(entry.means["label"], entry.means["called"])
    counts = counts.reindex(index=[1, 0], columns=[1, 0], fill_value=0)
    names = [kind.words for kind in reversed(entry.task.classes)]
    return [*zip(names, counts.to_numpy().tolist(), strict=True)]
