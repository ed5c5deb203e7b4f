"""A run as text for the terminal: a sentence with the result, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, join_some
from obygaze_features.items.items import group_noun
from obygaze_models.experiments.annotators import compare_with_each, describe_annotators
from obygaze_models.experiments.compare import format_p
from obygaze_models.experiments.scores import ModelScores
from obygaze_models.experiments.tables import Run
from obygaze_models.scoring.intervals import (
    CROSSED,
    MIN_GROUPS,
    estimate_mean,
    holm,
    too_few,
)
from obygaze_models.scoring.metrics import METRICS, column_titles

WIDTH = 100
BALANCED = {
    "": "the protocol fixes them",
    "undersample": "each class is reduced to the size of the smallest",
    "weights": "all are used, with each class weighted by the inverse of its size",
    "none": "all are used, and classes are not balanced",
}


def metrics_of(run: Run) -> dict[str, str]:
    """Return the metrics in a run's tables and their titles, starting with the main metric."""
    main = run.main_metric
    return {main: METRICS[main].title} | column_titles(run.model_scores[0].mean)


def headline(run: Run) -> str:
    """Return the result of the run's first model as a sentence."""
    model, main = run.main_model, run.main_metric
    own = [scores for scores in run.model_scores if scores.model == model]
    title = METRICS[main].title
    if len(own) > 1:
        return f"{model}: {title} {_range({each.test: each.mean[main] for each in own})}"
    [scores] = own
    task, mean = run.task(scores.test), scores.mean[main]
    if mean is None:
        return f"{model}: {title} is undefined on {task.title}"
    interval = scores.interval[main]
    if interval:
        certainty = "95% interval {:.2f} to {:.2f}".format(*interval)
    else:
        classes = run.tests[scores.test].classes.values()
        certainty = too_few(classes, scores.films, main, noun=run.noun) or "no interval"
    if main == "auroc" and task.is_binary:
        negative, positive = (kind.words for kind in task.classes)
        same = "" if scores.pooled else f" of the same {run.noun}"
        return (
            f"Given one {positive} and one {negative} clip{same}, {model} rates the {positive} "
            f"one higher {mean:.0%} of the time ({title} {mean:.2f}; {certainty}; chance is 0.50)"
        )
    return f"{model}: {title} {mean:.2f} ({certainty}) on {task.title}"


def describe_run(run: Run, *, verbose: bool = False) -> str:
    """Return the text that `obygaze models run` prints below the result, except for warnings."""
    parts = [_score_table(run, test) for test in run.tests]
    if len(run.tests) > 1 and all(run.task(test).concept for test in run.tests):
        parts.insert(0, _concept_table(run))
    for test, comparison in compare_with_each(run).items():
        parts.append(describe_annotators(comparison, run.task(test).title))
        parts.append(fill(comparison.sentence(run.main_model), WIDTH))
    parts += [_films(run, test, verbose=verbose) for test in run.tests]
    parts += [fill(describe_scores(run), WIDTH), _clips(run)]
    return "\n\n".join(filter(None, parts))


def _score_table(run: Run, test: str) -> str:
    """Return a table of the models' scores on a test set, best first, followed by guesses."""
    titles, main = metrics_of(run), run.main_metric
    own = [scores for scores in run.model_scores if scores.test == test]
    own.sort(key=lambda scores: -(scores.mean[main] or 0.0))
    rows = []
    for scores in own:
        cells = [_format(scores.mean[key]) for key in titles]
        rows.append([scores.model, *cells, _ends(scores.interval[main])])
    for name, guess in run.tests[test].guesses.items():
        rows.append([f"guess: {name}", *(_format(guess.get(key)) for key in titles), "-"])
    names = run.task(test).titles()
    classes = run.tests[test].classes.items()
    clips = ", ".join(f"{count:,} {names[key]}" for key, count in classes)
    table = align(["", *titles.values(), f"{titles[main]}, 95%"], rows)
    return f"{run.task(test).title}: {clips}\n{table}"


def _concept_table(run: Run) -> str:
    """Return a table of the first model's AUROC on each concept, with p against 0.5."""
    own = [scores for scores in run.model_scores if scores.model == run.main_model]
    p_values = []
    for scores in own:
        films = [film["auroc"] for film in scores.groups.values()]
        above = estimate_mean(np.array(films, float) - 0.5, cross_validated=scores.cross_validated)
        p_values.append(above.p_value if scores.interval["auroc"] else None)
    rows = []
    for scores, p_value in zip(own, holm(p_values), strict=True):
        test = run.tests[scores.test]
        area, ends = _format(scores.mean["auroc"]), _ends(scores.interval["auroc"])
        clips = f"{test.positives} of {test.clips}"
        rows.append([run.task(scores.test).concept, clips, area, ends, format_p(p_value)])
    head = f"{run.main_model}: {counted(len(own), 'concept')}; p is for AUROC = 0.5, adjusted by "
    return f"{head}Holm's method\n{align(['', 'clips', 'AUROC', '95%', 'p'], rows)}"


def _films(run: Run, test: str, *, verbose: bool) -> str:
    """Return each model's AUROC on each film, or the range over films; "" if there are none.

    F1 is not used, because even guesses can have a high F1 on films with many positive clips.
    """
    main = run.ranking_metric if run.task(test).target.is_numeric else "auroc"
    own = [scores for scores in run.model_scores if scores.test == test and scores.groups]
    values = {}
    for scores in own:
        values[scores.model] = {
            run.titles[film]: group[main] for film, group in scores.groups.items()
        }
    films = dict.fromkeys(film for scores in values.values() for film in scores)
    if not films:
        return ""
    head = f"{run.task(test).title}: {METRICS[main].title} by {run.noun}"
    if verbose:
        rows = []
        for film in films:
            rows.append([film, *(_format(scores.get(film)) for scores in values.values())])
        return f"{head}\n{align(['', *values], rows)}"
    lines = [f"  {model}: {_range(scores)}" for model, scores in values.items()]
    return "\n".join([f"{head}; -v prints each", *lines])


def describe_scores(run: Run) -> str:
    """Describe what the scores are averaged over, the interval, and what is left out."""
    noun = group_noun(run.by)
    means = [scores for scores in run.model_scores if not scores.pooled]
    if not means:
        return f"Scores are for all test clips together: fewer than two {noun}s can be scored."
    counts = [scores.films for scores in means]
    text = f"Scores are means over {span(counts)} {noun}s"
    if max(counts) < MIN_GROUPS:
        text += f"; there is no interval, because {MIN_GROUPS} {noun}s are needed."
    elif any(scores.cross_validated for scores in means):
        text += f"; the interval is a t interval over {noun}s, with {CROSSED}."
    else:
        text += (
            f"; the interval is a t interval over {noun}s, and is of these trained models on "
            f"other {noun}s."
        )
    return text + describe_left_out(means, run.titles)


def describe_left_out(means: Sequence[ModelScores], titles: Mapping[str, str]) -> str:
    """Describe the groups that are left out of means; return "" if all are included."""
    left_out = dict.fromkeys(name for scores in means for name in scores.left_out)
    names = join_some([titles.get(name, name) for name in left_out])
    return f" Left out, because classes are missing: {names}." if names else ""


def _clips(run: Run) -> str:
    """Describe how many clips were used and trained on, and what the others lack."""
    header, fits = run.header, run.fits
    lines = [*header.join.lines(), f"folds: {header.split or '-'}; protocol: {header.protocol}"]
    if header.also_trained:
        tested = len(run.tested_groups)
        lines.append(f"{header.also_trained} of {tested} tested {run.noun}s have clips in training")
    if len(fits):
        trained = f"{span(fits['trained'].tolist())} training clips per fit"
        lines.append(f"{trained}: {BALANCED[header.balance]}.")
    for model, cuts in fits[fits["cut"].notna()].groupby("model")["cut"]:
        lines.append(f"{model}: threshold {span(cuts.tolist(), '.2f')}, chosen on validation clips")
    return "\n".join(fill(line, WIDTH, subsequent_indent="  ") for line in lines)


def span(numbers: Sequence[float], form: str = ",") -> str:
    """Return the range of some numbers as text, or the number if they are all equal."""
    low, high = f"{min(numbers):{form}}", f"{max(numbers):{form}}"
    return low if low == high else f"{low} to {high}"


def _range(values: Mapping[str, float | None]) -> str:
    """Describe the range of some scores."""
    defined = {name: value for name, value in values.items() if value is not None}
    if not defined:
        return "is undefined"
    low, high = min(defined, key=defined.__getitem__), max(defined, key=defined.__getitem__)
    ends = f"from {defined[low]:.2f} ({low}) to {defined[high]:.2f} ({high})"
    return f"{ends}, median {median(defined.values()):.2f}"


def _ends(interval: tuple[float, float] | None) -> str:
    return "-" if interval is None else "{:.2f}-{:.2f}".format(*interval)


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
