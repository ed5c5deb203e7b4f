"""The scores on a page: a row for each test of each model, by question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from obygaze_features.common.arrays import Array
from obygaze_features.common.formatting import counted
from obygaze_features.common.grouping import group_by
from obygaze_features.errors import ExperimentError
from obygaze_models.data.tasks import Task
from obygaze_models.report.sources import Labels
from obygaze_models.results.compare import SIGNIFICANT, Entrant, paired_scores, shared_clips
from obygaze_models.results.run import Run
from obygaze_models.results.scores import ModelScores, average_over_fits
from obygaze_models.scoring.intervals import OVER, WITHIN, Estimate, holm, shortage
from obygaze_models.scoring.metrics import METRICS, Scores
from obygaze_models.scoring.number_scores import none_if_nan

CHANCE = {"auroc": 0.5, "spearman": 0.0, "pearson": 0.0}
"""The scores of guesses that are known for any labels."""


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
    """A model's scores on a test set, with what a guess scores there.

    Parameters
    ----------
    entry, scores
        The model, and its scores; those of a subset are on fewer clips.
    note
        What distinguishes the row from others with the same input and model.
    is_subset
        True if clips whose features are all zero are left out.
    above
        Each film's score minus that of a guess; [] if the question across films leads.
    few
        What there is too little of for an interval, or "".
    p_value
        The p-value of a test against a guess, corrected for all rows of the page; None for metrics
        that are not in `CHANCE`.
    excess
        How far the score is above the guess.
    """

    entry: Tested
    scores: ModelScores
    note: str
    is_subset: bool = False
    above: Array = field(default_factory=lambda: np.array([]))
    few: str = ""
    p_value: float | None = None
    excess: float = 0.0

    @property
    def estimate(self) -> Estimate:
        """The score within or across films, whichever leads."""
        return self.scores.estimate(self.entry.metric)

    @property
    def guesses(self) -> dict[str, Scores]:
        """The scores of each kind of guess for the question that leads."""
        if self.is_subset:  # the guesses are of all clips
            return {}
        return self.entry.run.tests[self.entry.task.key].guesses[self.scores.lead]

    @property
    def verdict(self) -> str:
        """The score is ``above`` or ``below`` a guess, or ``unclear``.

        It is ``scored`` if its metric is not compared with a guess, or of too ``few`` films.
        """
        if not self.estimate.interval:
            return "few"
        if self.p_value is None:
            return "scored"
        if self.p_value >= SIGNIFICANT:
            return "unclear"
        return "above" if self.excess > 0 else "below"


@dataclass(frozen=True, eq=False)
class Question:
    """A question that models answer about each clip, and their scores.

    Parameters
    ----------
    topic
        ``levels``, ``classes``, ``concepts`` or ``numbers``.
    classes
        The names of the answers, or of the column of numbers.
    rows
        The scores.
    differences
        The paired difference of the first input and each other one, by both inputs.
    untested
        The names of the levels that are not tested.
    """

    topic: str
    classes: Sequence[str]
    rows: Sequence[Row]
    differences: Mapping[tuple[str, str], Estimate]
    untested: Sequence[str]


@dataclass(frozen=True, eq=False)
class ResultTable:
    """The questions that are scored by one metric."""

    metric: str
    questions: Sequence[Question]

    @property
    def axis(self) -> Axis:
        """The axis of the scores."""
        scored = [row.estimate for row in self.rows]
        return axis_of(scored, CHANCE.get(self.metric, 0.0), ticks=8)

    @property
    def title(self) -> str:
        """The metric's name."""
        return METRICS[self.metric].title

    @property
    def rows(self) -> list[Row]:
        """The rows of all questions."""
        return [row for question in self.questions for row in question.rows]

    @property
    def overs(self) -> list[str]:
        """The two questions, within and across groups, that any row has a score for."""
        shown = []
        for over in OVER:
            estimates = [row.scores.estimate(row.entry.metric, over) for row in self.rows]
            if any(estimate.value is not None for estimate in estimates):
                shown.append(over)
        return shown

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
    def score(self) -> float:
        """The score; 0 if it is undefined."""
        return self.scores.estimate(self.metric).value or 0.0

    @property
    def entrant(self) -> Entrant:
        """The model, to be compared with others."""
        tables = {self.task.key: self.table}
        return Entrant(self.run, self.run.place, self.model, self.reads, tables)

    @property
    def topic(self) -> str:
        """The topic of the question."""
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
    """Return every model on every test set; the first models of runs come first."""
    entries = []
    for run, reads in zip(runs, inputs(runs), strict=True):
        table = run.predictions
        for scores in run.model_scores:
            predictions = table[(table["model"] == scores.model) & (table["test"] == scores.test)]
            task = run.task(scores.test)
            entries.append(Tested(run, reads, scores.model, task, predictions, scores))
    return sorted(entries, key=lambda each: not is_first(each))


def is_first(entry: Tested) -> bool:
    """Return True if a model is its run's first."""
    return entry.model == entry.run.main_model


def leading(entries: Sequence[Tested]) -> Tested:
    """Return the main result: the one on the most clips, if possible not of a concept."""
    first = [entry for entry in entries if is_first(entry)]
    return max(first, key=lambda entry: (entry.topic != "concepts", entry.table["id"].nunique()))


def inputs(runs: Sequence[Run]) -> list[str]:
    """Return each run's input in plain words, and its features if others share the words."""
    pairs = [(_senses(run), feature(run)) for run in runs]
    counts = Counter(senses for senses, _ in {*pairs})
    return [f"{senses} ({array})" if counts[senses] > 1 else senses for senses, array in pairs]


SENSES = {"texts": "words", "extractor": "sound", "arrays": "features"}
"""What a recipe of preprocessing with this key describes; other recipes describe frames."""


def _senses(run: Run) -> str:
    """Return what a run's features describe, such as "words"."""
    features = run.header.features
    senses = []
    for part in features.preprocessing.get("parts", [features.preprocessing]):
        senses.append(next((sense for key, sense in SENSES.items() if key in part), "frames"))
    if senses == ["words"] and features.array == "count":
        return "number of words"
    return " and ".join(dict.fromkeys(senses))


def feature(run: Run) -> str:
    """Return the backbone and array of a run's features."""
    return f"{run.header.features.backbone['name']}/{run.header.features.array}"


def results(entries: Sequence[Tested], labels: Labels) -> list[ResultTable]:
    """Return the scores of all models, by metric and question; those of the leading one first."""
    main = leading(entries)
    order = ("levels", "classes", "numbers", "concepts")
    ranked = sorted(entries, key=lambda each: (order.index(each.topic), each.run is not main.run))
    asked = group_by(ranked, lambda each: (each.metric, each.topic, tuple(_answers(each))))
    by_metric: dict[str, list[Question]] = {}
    for (metric, topic, answers), same in asked.items():
        differences = {}
        if topic != "concepts":
            differences = dict(_differences(same))
        untested = []
        if topic == "levels":
            known = same[0].task.levels
            untested = [name for code, name in labels.levels.items() if code not in known]
        question = Question(topic, answers, [*_rows(same)], differences, untested)
        by_metric.setdefault(metric, []).append(question)
    tables = [ResultTable(metric, questions) for metric, questions in by_metric.items()]
    rows = [row for table in tables for row in table.rows]
    corrected = holm([row.p_value for row in rows])
    for row, p_value in zip(rows, corrected.tolist(), strict=True):
        row.p_value = none_if_nan(p_value)
    return tables


def _answers(entry: Tested) -> list[str]:
    if entry.topic == "concepts":
        return []
    if entry.topic == "numbers":
        return [entry.task.title]
    return [label_class.words for label_class in entry.task.classes]


def _rows(entries: Sequence[Tested]) -> Iterator[Row]:
    """Yield a question's rows, concepts with the best score first.

    A subset is without the clips whose features are all zero, if there are any.
    """
    if entries[0].topic == "concepts":
        entries = sorted(entries, key=lambda each: each.score, reverse=True)
    for entry in entries:
        same = [each for each in entries if (each.reads, each.task) == (entry.reads, entry.task)]
        yield score_row(entry, entry.scores, _note(entry, same))
        clips = entry.run.clips
        empty = clips.loc[clips["blank"], "id"]
        full = entry.table[~entry.table["id"].isin(empty)]
        is_shown = entry.topic != "concepts" and is_first(entry)
        if is_shown and len(full) not in (0, len(entry.table)):
            (scores,) = entry.run.score(full)
            yield replace(score_row(entry, scores), is_subset=True)


def _note(entry: Tested, same: Sequence[Tested]) -> str:
    """Return what distinguishes a row from others with the same input."""
    trained = entry.run.trained_on(entry.task.key)
    texts = []
    if trained != entry.task.key:
        texts.append(f"trained on {entry.run.task(trained).title}")
    if [other.model for other in same].count(entry.model) > 1:
        texts += [entry.run.name, "trained " + counted(len(entry.scores.by_fit), "time")]
    return ", ".join(texts)


def score_row(entry: Tested, scores: ModelScores, note: str = "") -> Row:
    """Return the row of a model's scores."""
    metric = entry.metric
    test = entry.run.tests[entry.task.key]
    row = Row(entry, scores, note)
    estimate = row.estimate
    if not entry.run.is_mixed:
        row.few = shortage(test.classes.values(), estimate.effective, metric, noun=entry.run.by)
    if metric in CHANCE and estimate.value is not None:
        row.p_value = estimate.p_against(CHANCE[metric])
        row.excess = estimate.value - CHANCE[metric]
        if scores.lead == WITHIN:
            films = pd.Series([group[metric] for group in scores.groups.values()], dtype=float)
            row.above = films.dropna().to_numpy() - CHANCE[metric]
    return row


def _differences(entries: Sequence[Tested]) -> Iterator[tuple[tuple[str, str], Estimate]]:
    """Yield the paired differences between the first of the runs' main models and others.

    Models that read the same input are left out, and so are comparisons that have warnings.
    """
    firsts = [entry for entry in entries if is_first(entry)]
    main, *others = firsts or entries
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
            yield (main.reads, other.reads), scores[main.metric].difference


def axis_of(estimates: Sequence[Estimate], guess: float, *, ticks: int) -> Axis:
    """Return an axis for some estimates and a guess, from at least -1 to at most 1.

    Ticks are 0.1 or 0.2 apart if there are then at most `ticks` intervals, or else 0.5 apart.
    """
    values = [guess]
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


def verdicts(entry: Tested) -> list[list[int]] | None:
    """Count the clips of each class by the model's verdict; None unless there are two classes."""
    if not entry.task.is_binary:
        return None
    counts = pd.crosstab(entry.means["label"], entry.means["called"])
    rows: list[list[int]] = (
        counts.reindex(index=[1, 0], columns=[1, 0], fill_value=0).to_numpy().tolist()
    )
    return rows
