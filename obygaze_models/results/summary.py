"""A run as text for the terminal: a sentence with the result, and tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.printer import describe, fill
from obygaze_features.common.text import join_some
from obygaze_features.items.items import group_noun
from obygaze_models.results.annotators import compare_with_each
from obygaze_models.results.run import Run, describe_unused
from obygaze_models.results.scores import ModelScores, records
from obygaze_models.scoring.intervals import CROSSED, MIN_CLIPS, MIN_GROUPS, estimate_mean, holm
from obygaze_models.scoring.metrics import METRICS, column_titles

Rows = list[dict[str, Any]]


def headline(run: Run) -> str:
    """Return the result of the run's first model as a sentence for each test set."""
    lines = [run.limit]
    for scores in run.model_scores:
        if scores.model == run.main_model:
            lines.append(_sentence(run, scores))
    return "\n".join(filter(None, lines))


def _sentence(run: Run, scores: ModelScores) -> str:
    """Return a model's main score on a test set as a sentence."""
    main = run.main_metric
    title = METRICS[main].title
    task = run.task(scores.test)
    mean = scores.mean[main]
    if mean is None:
        return f"{scores.model}: {title} is undefined on {task.title}"
    certainty = "no interval"
    interval = scores.interval[main]
    if interval:
        certainty = "95% interval {:.2f} to {:.2f}".format(*interval)
    if main == "auroc" and task.is_binary:
        negative, positive = (kind.words for kind in task.classes)
        same = "" if scores.pooled else f" of the same {run.noun}"
        return (
            f"Given one {positive} and one {negative} clip{same}, {scores.model} rates the "
            f"{positive} one higher {mean:.0%} of the time ({title} {mean:.2f}; {certainty}; "
            "chance is 0.50)"
        )
    return f"{scores.model}: {title} {mean:.2f} ({certainty}) on {task.title}"


def describe_run(run: Run) -> str:
    """Return the text that `obygaze models run` prints below the result, except for warnings."""
    tables = {"scores": _scores(run)}
    if len(run.tests) > 1 and all(run.task(test).concept for test in run.tests):
        tables["concepts"] = _concepts(run)
    raters: Rows = []
    for test, comparison in compare_with_each(run).items():
        for rater in comparison.raters:
            low, high = rater.interval or (None, None)
            row = {"test": test, "clips": comparison.clips, "kappa of": rater.name, **rater.kappa}
            raters.append(row | {"difference": rater.difference, "low": low, "high": high})
    tables["annotators"] = raters

    parts = [describe(tables), fill(_describe_means(run)), describe(_clips(run))]
    return "\n\n".join(filter(None, parts))


def _scores(run: Run) -> Rows:
    """Return a row for each model on each test set, and for each kind of guess."""
    titles = column_titles(run.model_scores[0].mean)
    main = METRICS[run.main_metric].title
    rows: Rows = []
    for test, own in run.tests.items():
        for scores in run.model_scores:
            if scores.test == test:
                low, high = scores.interval[run.main_metric] or (None, None)
                row: dict[str, Any] = {main: scores.mean[run.main_metric], "low": low, "high": high}
                row |= {title: scores.mean[key] for key, title in titles.items()}
                films = sorted({scores.films[key] for key in titles})
                row["films"] = films[0]
                if len(films) > 1:
                    row["films"] = f"{films[0]} to {films[-1]}"
                rows.append({"test": test, "model": scores.model, **row})
        for name, guess in own.guesses.items():
            row = {title: guess.get(key) for key, title in titles.items()}
            rows.append({"test": test, "model": f"guess: {name}", **row})
    return rows


def _concepts(run: Run) -> Rows:
    """Return a row for each concept: p of the first model's AUROC against 0.5, by Holm's method."""
    p_of = {}
    for scores in run.model_scores:
        if scores.model != run.main_model:
            continue
        films = np.array([film["auroc"] for film in scores.groups.values()], float)
        above = estimate_mean(films - 0.5, cross_validated=scores.cross_validated)
        p_of[scores.test] = above.p_value if scores.interval["auroc"] else None
    return records(pd.DataFrame({"test": [*p_of], "p of AUROC = 0.5": holm(p_of.values())}))


def _describe_means(run: Run) -> str:
    """Describe what the scores are averaged over, the interval, and what is left out."""
    noun = group_noun(run.by)
    means = [scores for scores in run.model_scores if not scores.pooled]
    if not means:
        return f"Scores are for all test clips together: fewer than two {noun}s can be scored."
    text = f"Scores are means over {noun}s."
    if not run.is_mixed:
        text += " Low and high are the ends of a 95% t interval"
        if any(scores.cross_validated for scores in means):
            text += f", with {CROSSED}."
        else:
            text += f", for these trained models on other {noun}s."
        text += f" It needs {MIN_GROUPS} {noun}s, and {MIN_CLIPS} clips of each class."
    left_out = [*dict.fromkeys(name for scores in means for name in scores.left_out)]
    if left_out:
        titles = run.clips.drop_duplicates("group").set_index("group")["title"]
        if run.by == "film":
            left_out = titles[left_out].tolist()
        text += f" Left out, because their labels vary too little: {join_some(left_out)}."
    return text


def _clips(run: Run) -> dict[str, Any]:
    """Return how many clips of each class were tested, and how models were trained."""
    header = run.header
    fits = run.fits
    facts: dict[str, Any] = {"protocol": header.protocol, "folds": header.split}
    for test, own in run.tests.items():
        facts[test] = dict(zip(run.task(test).class_titles, own.classes.values(), strict=True))
    facts["balance"] = header.balance
    facts["clips used"] = int((run.clips["used"] == "").sum())
    facts |= describe_unused(run.clips)
    if len(fits):
        facts["training clips"] = f"{int(fits['trained'].median()):,} in the median fit"
    return facts
