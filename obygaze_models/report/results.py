"""The table on a page's first screen, with the question, score and verdict of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from obygaze_features.common.text import format_signed, group_by
from obygaze_features.errors import ExperimentError
from obygaze_features.page.html import Html, html, number
from obygaze_models.experiments.compare import SIGNIFICANT, Comparison, compare
from obygaze_models.experiments.scores import score_models
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ReportRun, ScoreRow, ScoreTable
from obygaze_models.scoring.intervals import Estimate, holm
from obygaze_models.scoring.metrics import METRICS

MAX_ROWS = 8
"""The maximum number of rows on the first screen. Further rows are collapsed."""
MAX_DIFFERENCES = 3
"""The maximum number of runs that the first screen's run is compared with."""
MAX_CONCEPTS = 3
"""The maximum number of concepts per run. If there are more, only two are shown."""


@dataclass(frozen=True)
class Result:
    """A row of the table: a question, the model's input, a verdict, and scores."""

    question: str
    model: str
    reads: str
    verdict: str
    metric: str
    score: Estimate
    guess: float | None


def results(head: Headline, tables: Sequence[ScoreTable]) -> list[Result]:
    """Return a row for each test of each run's headline model, or [] if there are fewer than two.

    The first screen's run comes first. If a run has many concepts, only those with the highest and
    the lowest score have a row.
    """
    if not head.rows:
        return []
    rows = [row for table in tables for row in table.rows if _is_named(row)]
    by_run = group_by(rows, lambda row: row.run.number)
    ordered = sorted(by_run.values(), key=lambda own: own[0].run is not head.run)
    lines = [line for own in ordered for line in _of_run(own)]
    asked = Counter((line.question, line.reads) for line in lines)
    lines = [
        replace(line, reads=f"{line.reads}, by {line.model}")
        if asked[line.question, line.reads] > 1
        else line
        for line in lines
    ]
    return lines if len(lines) > 1 else []


def _is_named(row: ScoreRow) -> bool:
    """Return True if the row's model is the headline model of its run."""
    return row.model == row.run.record.main_model


def _of_run(rows: Sequence[ScoreRow]) -> Iterator[Result]:
    """Yield the rows for a run's headline model."""
    metric = rows[0].run.record.ranking_metric
    verdicts = dict(zip(rows, verdicts_of(rows, metric), strict=True))
    ranked = sorted(rows, key=lambda row: -(row.entry.mean[metric] or 0.0))
    questions = {row: _question(row) for row in ranked}
    if rows[0].run.kind == "concepts" and len(rows) > MAX_CONCEPTS:
        ends = {ranked[0]: "best", ranked[-1]: "lowest"}
        questions = {row: f"{_question(row)} ({end} of {len(rows)})" for row, end in ends.items()}
    for row, question in questions.items():
        score = Estimate(row.entry.mean[metric], row.interval(metric))
        yield _result(row, metric, question, score, verdicts[row])
        yield from _without_blank(row, metric)


def _result(row: ScoreRow, metric: str, question: str, score: Estimate, verdict: str) -> Result:
    words = verdict
    if metric == "auroc" and score.value is not None and row.task.is_binary:
        positive = row.concept or row.task.classes[1].words
        words = f"rates {positive} higher {score.value:.0%} of the time; {verdict}"
    guess = row.best_guess(metric)
    reads, title = row.run.reads, METRICS[metric].title
    return Result(
        question, row.title, reads, words.rstrip("; "), title, score, guess[1] if guess else None
    )


def _without_blank(row: ScoreRow, metric: str) -> Iterator[Result]:
    """Yield a row without the clips whose features are all zero, if there are such clips."""
    run = row.run
    blank = run.run.clips.loc[run.run.clips["blank"], "id"]
    if run.kind == "concepts" or blank.empty:
        return
    table = run.run.predictions
    own = table[(table["model"] == row.model) & (table["test"] == row.entry.test)]
    spoken = own[~own["id"].isin(blank)]
    if len(spoken) in (0, len(own)):
        return
    clips = run.run.clips
    group_of = dict(zip(clips["id"], clips["group"], strict=True))
    (scores,) = score_models(spoken, group_of)
    score = Estimate(scores.mean[metric], scores.interval[metric])
    left_out = own["id"].nunique() - spoken["id"].nunique()
    question = f"… without the {run.describe_blank(left_out)}"
    yield _result(row, metric, question, score, _beside_chance(score, metric))


def _question(row: ScoreRow) -> str:
    """Return the question that the model answers for each clip."""
    task, clip = row.task, row.run.clip_noun
    if row.concept:
        return f"Does a {clip} have {row.concept}?"
    names = [kind.words for kind in task.classes]
    question = f"Is a {clip} {', '.join(names[:-1])} or {names[-1]}?"
    if task.is_binary:
        question = f"Is a {clip} {names[1]} rather than {names[0]}?"
    trained = row.run.record.trained_on(row.entry.test)
    return question if trained == row.entry.test else f"{question} (trained on {row.trained})"


def verdicts_of(rows: Sequence[ScoreRow], metric: str) -> list[str]:
    """Return a verdict on each of a run's scores against guessing, adjusted by Holm's method."""
    estimates = [row.above_guess(metric) for row in rows]
    p_values = holm([estimate.p_value for estimate in estimates])
    verdicts = []
    for row, estimate, p_value in zip(rows, estimates, p_values, strict=True):
        if p_value is None:
            verdicts.append(row.too_few(metric) or "not tested against guessing")
            continue
        verdicts.append(_in_words(metric, p_value < SIGNIFICANT, estimate.value or 0.0))
    return verdicts


def _in_words(metric: str, is_clear: bool, difference: float) -> str:
    against = "chance" if metric == "auroc" else "guessing"
    if not is_clear:
        return f"not clearly better than {against}"
    return f"better than {against}" if difference > 0 else f"worse than {against}"


def _beside_chance(estimate: Estimate, metric: str) -> str:
    """Return a verdict on an AUROC compared with chance, by its interval; "" for other metrics."""
    if metric != "auroc" or estimate.value is None or estimate.interval is None:
        return ""
    low, high = estimate.interval
    return _in_words(metric, not low <= 0.5 <= high, estimate.value - 0.5)


def differences(head: Headline, runs: Sequence[ReportRun]) -> list[Html]:
    """Compare the first screen's model with models on other features; [] if there are too many."""
    if not head.rows or head.run.kind != "levels":
        return []
    comparable = [run for run in runs if _is_comparable(run, head)]
    if len(comparable) > MAX_DIFFERENCES:
        return []
    sentences = []
    for run in comparable:
        pair = _compare_with(run, head)
        if pair is not None:
            sentences.append(_difference(pair, head.metric, head.run, run))
    return sentences


def _compare_with(run: ReportRun, head: Headline) -> Comparison | None:
    """Compare a run's model with the first screen's; None if they cannot be compared.

    They can be compared if they share clips, differ only in features, and have no leaks.
    """
    model, rival = head.row.model, run.record.main_model
    try:
        compared = compare(head.run.run, run.run, models=[model, rival])
    except ExperimentError:  # they share no clips
        return None
    for pair in compared.comparisons:
        is_named = (pair.reference.model, pair.model.model) == (model, rival)
        is_across = pair.test == head.row.entry.test and pair.model.run != pair.reference.run
        if is_named and is_across and head.metric in pair.scores:
            codes = {note.code for note in pair.warnings}
            return None if codes & {"different", "leak"} else pair
    return None


def _is_comparable(run: ReportRun, head: Headline) -> bool:
    """Return True if a run answers the first screen's question from other features."""
    same_labels = run.about.label_key == head.run.about.label_key
    same_test = run.kind == "levels" and head.row.entry.test in run.record.tests
    return same_labels and same_test and run.reads != head.run.reads


def _difference(pair: Comparison, metric: str, main: ReportRun, run: ReportRun) -> Html:
    """Describe the difference between two runs' scores on the same clips."""
    difference = pair.scores[metric].difference
    verb = "higher" if (difference.value or 0.0) <= 0 else "lower"
    text = "On the same {} {}, {} from the {} is {} {} than from the {} ({})."
    value = number(abs(difference.value or 0.0))
    certainty = pair.certainty(metric)
    if difference.interval is not None:
        low, high = difference.interval  # the other run minus the first screen's
        ends = format_signed(-high), format_signed(-low)
        clear = "" if pair.differs(metric) else "; not a clear difference"
        certainty = "95% interval {} to {}, paired by {}{}".format(*ends, pair.noun, clear)
    title = METRICS[metric].title
    clips = number(pair.clips, form=",")
    return html(text, clips, main.noun, title, main.reads, value, verb, run.reads, certainty)


def score_cell(result: Result) -> Html:
    """Format a score with its interval."""
    if result.score.interval is None:
        return number(result.score.value)
    text = "{} <small>({}–{})</small>"
    return html(text, number(result.score.value), *map(number, result.score.interval))
