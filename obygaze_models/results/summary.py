"""A run as text for the terminal: a sentence with the result, and tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from obygaze_features.common.formatting import counted, join_some
from obygaze_features.common.printer import describe, fill
from obygaze_features.items.items import group_noun
from obygaze_models.results.annotators import compare_with_each
from obygaze_models.results.run import Run, describe_unused
from obygaze_models.results.scores import ModelScores, records
from obygaze_models.scoring.intervals import (
    ACROSS,
    CROSSED,
    MIN_CLIPS,
    MIN_GROUPS,
    WITHIN,
    holm,
    lead_first,
)
from obygaze_models.scoring.metrics import METRICS, column_titles

Row = dict[str, Any]


def headline(run: Run) -> str:
    """Return the result of the run's first model: for each test set, a sentence per question."""
    lines = [run.limit]
    for scores in run.model_scores:
        if scores.model == run.main_model:
            lines += [_sentence(run, scores, over) for over in lead_first(scores.lead)]
    return "\n".join(filter(None, lines))


def _sentence(run: Run, scores: ModelScores, over: str) -> str:
    """Return a model's main score on a test set as a sentence."""
    main = run.main_metric
    title = METRICS[main].title
    task = run.task(scores.test)
    noun = run.noun
    estimate = scores.estimate(main, over)
    if estimate.value is None:
        if over == WITHIN:
            return f"Within {noun}s: no tested {noun} has 2 clips of each class or unequal numbers."
        if scores.lead == WITHIN:
            folds = min(10, max(2, run.clips["group"].nunique() // 2))
            return (
                f"Across {noun}s: each model rated one {noun}, so ratings of two {noun}s cannot be "
                f"compared. For a score across {noun}s, split by obygaze manifests split MANIFEST "
                f"--by {run.by} --folds {folds} --labels {run.header.manifest.labels}, and name "
                "that split in the experiment."
            )
        return f"Across {noun}s: {title} is undefined on {task.title}."
    certainty = f"too few {noun}s for an interval"
    if run.is_mixed:
        certainty = "no interval"
    if estimate.interval:
        certainty = "95% interval {:.2f} to {:.2f}".format(*estimate.interval)
    size = f"{counted(estimate.clips, 'clip')} of {counted(estimate.groups, noun)}"
    if over == ACROSS and estimate.groups:
        size += f", which weigh like {estimate.effective:.0f}"
    if main == "auroc" and task.is_binary:
        negative, positive = (label_class.words for label_class in task.classes)
        which = f"of the same {noun}"
        if over == ACROSS:
            which = f"of any two held-out {noun}s, rated by one model"
            if run.is_mixed:
                which = f"of these {noun}s, rated by one model"
        details = f"{title} {estimate.value:.2f}; {certainty}; {size}; chance is 0.50"
        return (
            f"Given one {positive} and one {negative} clip {which}, {scores.model} rates the "
            f"{positive} one higher {round(estimate.value, 2):.0%} of the time ({details})."
        )
    place = f"{over.capitalize()} {noun}s"
    return f"{place}: {scores.model} has {title} {estimate.value:.2f} ({certainty}; {size})."


def describe_run(run: Run) -> str:
    """Return the text that `obygaze models run` prints below the result, except for warnings."""
    tables = {"scores": _scores(run)}
    if len(run.tests) > 1 and all(run.task(test).concept for test in run.tests):
        tables["concepts"] = _concepts(run)
    raters = []
    for test, comparison in compare_with_each(run).items():
        for rated in comparison.models:
            low, high = rated.interval or (None, None)
            row = {
                "test": test,
                "clips": comparison.clips,
                "model": rated.name,
                "kappa with annotators": rated.mean,
                "annotators' kappa": comparison.mean,
                "difference": rated.difference,
                "low": low,
                "high": high,
            }
            raters.append(row)
    tables["annotators"] = raters

    texts = [describe(tables), fill(_describe_means(run)), describe(_clips(run))]
    return "\n\n".join(filter(None, texts))


def _scores(run: Run) -> list[Row]:
    """Return a row for each model on each test set and question, and for each kind of guess."""
    titles = column_titles(run.header.tasks[-1].use)
    main = METRICS[run.main_metric].title
    rows = []
    for test, test_set in run.tests.items():
        for scores in run.model_scores:
            if scores.test != test:
                continue
            for over in lead_first(scores.lead):
                estimate = scores.estimate(run.main_metric, over)
                low, high = estimate.interval or (None, None)
                row = {main: estimate.value, "low": low, "high": high}
                for key, title in titles.items():
                    row[title] = scores.estimate(key, over).value
                row |= {"clips": estimate.clips, "films": estimate.groups}
                if over == ACROSS:
                    row["effective"] = round(estimate.effective)
                rows.append({"test": test, "model": scores.model, "over": over, **row})
        for over, guesses in test_set.guesses.items():
            for name, guess in guesses.items():
                row = {title: guess.get(key) for key, title in titles.items()}
                rows.append({"test": test, "model": f"guess: {name}", "over": over, **row})
    return rows


def _concepts(run: Run) -> list[Row]:
    """Return a row for each concept: p of the first model's AUROC against 0.5, by Holm's method."""
    p_of = {}
    for scores in run.model_scores:
        if scores.model == run.main_model:
            p_of[scores.test] = scores.estimate("auroc").p_against(0.5)
    return records(pd.DataFrame({"test": [*p_of], "p of AUROC = 0.5": holm(p_of.values())}))


def _describe_means(run: Run) -> str:
    """Describe what the scores are of, the intervals, and what is left out."""
    noun = group_noun(run.by)
    text = (
        f"Within: the mean over {noun}s with two or more clips of each class, or with numbers that "
        "differ. Across: all clips together; ratings are only compared if the same fit made them."
    )
    if not run.is_mixed:
        folds = max(scores.folds for scores in run.model_scores)
        crossed = f", for these trained models on other {noun}s"
        if folds > 1:
            crossed = f", with {CROSSED}"
        text += (
            f" Low and high are the ends of 95% intervals: within, a t interval over {noun}s; "
            f"across, a jackknife that leaves out one {noun} at a time{crossed}. They need "
            f"{MIN_GROUPS} {noun}s (across: that weigh like as many equal ones, see effective) and "
            f"{MIN_CLIPS} clips of each class (for numbers, in all)."
        )
    left_out = [*dict.fromkeys(name for scores in run.model_scores for name in scores.left_out)]
    if left_out:
        titles = run.clips.drop_duplicates("group").set_index("group")["title"]
        if run.by == "film":
            left_out = titles[left_out].tolist()
        text += f" Not scored within: {join_some(left_out)}."
    return text


def _clips(run: Run) -> dict[str, Any]:
    """Return how many clips of each class were tested, and how models were trained."""
    header = run.header
    fits = run.fits
    facts: dict[str, Any] = {"protocol": header.protocol, "folds": header.split}
    for test, test_set in run.tests.items():
        facts[test] = dict(zip(run.task(test).class_titles, test_set.classes.values(), strict=True))
    facts["balance"] = header.balance
    facts["clips used"] = int((run.clips["used"] == "").sum())
    facts |= describe_unused(run.clips)
    if len(fits):
        facts["training clips"] = f"{int(fits['trained'].median()):,} in the median fit"
    return facts
