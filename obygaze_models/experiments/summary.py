"""A run as text for the terminal: a line with the result, tables, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, join_some
from obygaze_features.items.items import group_noun
from obygaze_models.experiments.record import ModelScores, RunRecord
from obygaze_models.scoring.intervals import MIN_GROUPS, estimate_mean, holm, too_few
from obygaze_models.scoring.metrics import METRICS, column_titles
from obygaze_models.scoring.values import NUMBER

if TYPE_CHECKING:
    import pandas as pd

    from obygaze_models.experiments.run_folder import Run

WIDTH = 100
MAX_FILM_ROWS = 12
BALANCED = {
    "undersample": "each class is reduced to the size of the smallest",
    "weights": "all are used, with each class weighted by the inverse of its size",
    "none": "all are used, and classes are not balanced",
}
_OTHER_BALANCE = {"undersample": "none", "none": "undersample", "weights": "undersample"}


def metrics_of(record: RunRecord) -> dict[str, str]:
    """Return the metrics in a run's tables and their titles, starting with the main metric."""
    main = record.main_metric
    return {main: METRICS[main].title} | column_titles(record.scores[0].mean)


def ranked(record: RunRecord, test: str) -> list[ModelScores]:
    """Return the models' scores on a test set, sorted by the main metric, best first."""
    main = record.main_metric
    scored = [scores for scores in record.scores if scores.test == test]
    return sorted(scored, key=lambda scores: -(scores.mean[main] or 0.0))


def headline(record: RunRecord) -> list[str]:
    """Return lines with the result, starting with the tested films if not all films are tested."""
    note = record.films.note
    first = [note[0].upper() + note[1:]] if note else []
    if len(record.learned) > 1 or _has_concepts(record):
        return [*first, _range_over_tests(record)]
    test = max(record.tests, key=lambda name: record.tests[name].clips)
    model = record.headline_model
    comparison = record.annotators.get(test)
    second = comparison.sentence(model, name=record.title_of(model)) if comparison else ""
    return [*first, _describe_score(record, test, model), *([second] if second else [])]


def _describe_score(record: RunRecord, test: str, model: str) -> str:
    """Describe the headline model's score on a test set, next to the score of the best guess."""
    main, test_set, scored = record.main_metric, record.tests[test], ranked(record, test)
    scores = next(scores for scores in scored if scores.model == model)
    mean, title, told_apart = scores.mean[main], METRICS[main].title, record.task(test).title
    if mean is None:
        return f"{record.title_of(model)}: {title} is undefined on {told_apart}"
    interval = scores.interval[main]
    noun = group_noun(record.films.by)
    certainty = too_few(test_set.classes.values(), scores.films, main, noun=noun)
    if interval is not None:
        certainty = "95% interval {:.2f} to {:.2f}".format(*interval)
    brackets = f" ({certainty})" if certainty else ""
    guesses = {name: value for name, own in test_set.baselines.items() if (value := own.get(main))}
    chosen = _how_chosen(record, model)
    if main == "auroc" and record.task(test).is_binary:
        area = "; ".join(filter(None, [f"{title} {mean:.2f}", certainty, "chance is 0.50"]))
        return f"{_given_a_pair(record, scores, chosen, mean)} ({area})"
    beside = ""
    if guesses and main != "auroc":
        name = max(guesses, key=guesses.__getitem__)
        beside = f"; guessing ({name}) scores {guesses[name]:.2f}"
    return f"{chosen}: {title} {mean:.2f}{brackets} on {told_apart}{beside}"


def _given_a_pair(record: RunRecord, scores: ModelScores, chosen: str, area: float) -> str:
    """Return a sentence that explains an AUROC."""
    negative, positive = (kind.words for kind in record.task(scores.test).classes)
    same = "" if scores.pooled else f" of the same {group_noun(record.films.by)}"
    comma = "," if "," in chosen else ""
    return (
        f"Given one {positive} and one {negative} clip{same}, {chosen}{comma} rates the {positive} "
        f"one higher {area:.0%} of the time"
    )


def _how_chosen(record: RunRecord, model: str) -> str:
    """Return the title of the headline model, and how it was chosen if there are several models."""
    models = len({scores.model for scores in record.scores})
    title = record.title_of(model)
    if models == 1:
        return title
    named = record.experiment.headline == model
    choice = "the experiment's choice" if named else "the first listed"
    return f"{title}, {choice} of {models} models"


def _range_over_tests(record: RunRecord) -> str:
    """Describe the range of the headline model's scores over several tasks, such as concepts."""
    main, model = record.main_metric, record.headline_model
    values = {
        record.task(scores.test).title: mean
        for scores in record.scores
        if scores.model == model and (mean := scores.mean[main]) is not None
    }
    title = METRICS[main].title
    if not values:
        tests = counted(len(record.tests), "test set")
        return f"{title} of {record.title_of(model)} is undefined on all {tests}"
    tasks = counted(len(values), "task")
    return f"{_how_chosen(record, model)}: {title} {_describe_range(values)}, on {tasks}"


def _describe_range(values: Mapping[str, float]) -> str:
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    ends = f"from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high})"
    return f"{ends}, median {median(values.values()):.2f}"


def describe_run(run: Run, *, verbose: bool = False) -> str:
    """Return the text that `obygaze models run` prints below the result, except for warnings.

    If `verbose` is True, the table of films is included even if it is long.
    """
    record = run.record
    parts = [_concept_table(record)] if _has_concepts(record) else []
    parts += [_score_table(record, test) for test in record.tests]
    parts += [describe_annotators(record, test) for test in record.annotators]
    if any(len(scores.groups) > 1 for scores in record.scores):
        parts += [_films(record, test, verbose=verbose) for test in record.tests]
    notes = []
    notes += describe_cuts(record)
    if record.official:
        notes.append(describe_official(record))
    notes.append(describe_scores(record))
    notes += _legend(record)
    return "\n\n".join([*parts, "\n".join(notes), _describe_clips(record, run.fits())])


def describe_scores(record: RunRecord) -> str:
    """Describe what the scores are averaged over, and what is left out."""
    noun = group_noun(record.films.by)
    if all(scores.pooled for scores in record.scores):
        text = f"Scores are for all test clips together; no interval: {record.lacks_interval}."
        return fill(text if record.lacks_interval else text.partition(";")[0] + ".", WIDTH)
    means = [scores for scores in record.scores if not scores.pooled]
    counts = [scores.films for scores in means]
    text = f"Scores are means over {span(counts)} {noun}s"
    if max(counts) < MIN_GROUPS:
        text += f"; no interval: {record.lacks_interval}."
    else:
        text += f"; the interval is a t interval over the {noun}s' scores"
        if any(scores.cross_validated for scores in means):
            text += ", wider because of cross-validation"
        else:
            text += ", and is about these trained models on others"
        text += "."
        too_few = dict.fromkeys(scores.test for scores in means if scores.films < MIN_GROUPS)
        if too_few:
            text += f" No interval below {MIN_GROUPS} {noun}s: {join_some([*too_few])}."
    if pooled := dict.fromkeys(scores.test for scores in record.scores if scores.pooled):
        text += (
            f" Scored on all test clips together, without an interval, because fewer than two "
            f"{noun}s have clips of every class: {join_some([*pooled])}."
        )
    text += describe_left_out(means, record.films.titles)
    unnamed = max(scores.unnamed for scores in record.scores)
    if unnamed:
        text += f" Left out: {counted(unnamed, 'clip')} without a {noun}."
    return fill(text, WIDTH)


def describe_left_out(means: Sequence[ModelScores], titles: Mapping[str, str]) -> str:
    """Describe the groups that are left out of means; return "" if all are included."""
    left_out = dict.fromkeys(name for scores in means for name in scores.left_out)
    names = join_some([titles.get(name, name) for name in left_out])
    return f" Left out, because classes are missing: {names}." if names else ""


def describe_official(record: RunRecord) -> str:
    """Describe a run's official measure, and how the benchmark requires the run to be marked."""
    assert record.official is not None
    measure, name = METRICS[record.official.measure].title, record.store.backbone["name"]
    mark = (
        f"using external data, which {name} was trained on"
        if record.official.external_data
        else f"using no external data, because {name} has random weights"
    )
    return (
        f"Official measure: {measure} over all test clips together, as the benchmark requires. "
        f"If you submit this run, mark it as {mark}."
    )


def describe_cuts(record: RunRecord) -> list[str]:
    """Describe the thresholds that were chosen on validation clips, one line per model."""
    return [
        f"{record.title_of(name)}: threshold {span(cuts, '.2f')}, chosen on validation clips; "
        "probabilities are shifted so that the threshold becomes 0.5."
        for name, cuts in record.cuts.items()
        if cuts
    ]


def describe_balance(record: RunRecord, fits: pd.DataFrame) -> str:
    """Describe the number of training clips, and how they are balanced."""
    if fits.empty:  # all models are external
        return ""
    sizes = fits["trained"].tolist()
    clips = f"{span(sizes)} training clips per fit"
    if all(record.task(test).target.key == NUMBER for test in record.tests):
        return f"{clips}: all are used."
    if not record.balance:
        return f"{clips}; the {record.protocol} protocol fixes them."
    pools = fits["drawn_from"].tolist()
    if record.balance == "undersample" and any(pools):
        clips = f"{span(sizes)} of {span(pools)} training clips per fit"
    alternative = _OTHER_BALANCE[record.balance]
    return f'{clips}: {BALANCED[record.balance]} (balance = "{alternative}" changes this).'


def span(numbers: Sequence[float], form: str = ",") -> str:
    """Return the range of some numbers as text, or the number if they are all equal."""
    low, high = (f"{end:{form}}" for end in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _describe_clips(record: RunRecord, fits: pd.DataFrame) -> str:
    first, *missing = record.join.lines()
    lines = [first]
    if record.split:
        lines.append(f"  folds: {record.split}; protocol: {record.protocol}")
    lines += [fill(line, WIDTH, initial_indent="  ", subsequent_indent="  ") for line in missing]
    balance = describe_balance(record, fits)
    return "\n".join([*lines, *([fill(balance, WIDTH)] if balance else [])])


def _has_concepts(record: RunRecord) -> bool:
    """Return True if a run tested several concepts and nothing else."""
    return len(record.tests) > 1 and all(record.task(test).concept for test in record.tests)


def _concept_table(record: RunRecord) -> str:
    """Return a table of the headline model's scores on each concept.

    p is from a t-test over films against an AUROC of 0.5, adjusted by Holm's method.
    """
    titles = metrics_of(record)
    own = [scores for scores in record.scores if scores.model == record.headline_model]
    above = [
        estimate_mean(
            np.array([film["auroc"] for film in scores.groups.values()], float) - 0.5,
            cross_validated=scores.cross_validated,
        )
        for scores in own
    ]
    p_values = [
        None if scores.interval["auroc"] is None else estimate.p_value
        for scores, estimate in zip(own, above, strict=True)
    ]
    rows = []
    for scores, p_value in zip(own, holm(p_values), strict=True):
        ends = scores.interval["auroc"]
        test = record.tests[scores.test]
        row = [record.task(scores.test).concept, f"{test.positives} of {test.clips}"]
        row += [_format(scores.mean[key]) for key in titles]
        row.append("-" if ends is None else "{:.2f}-{:.2f}".format(*ends))
        small = "< .001" if p_value is not None and p_value < 0.0005 else f"{p_value or 0:.3f}"
        rows.append([*row, "-" if p_value is None else small])
    head = f"{record.title_of(record.headline_model)}: {counted(len(own), 'concept')}; p is for "
    head += "AUROC = 0.5, adjusted by Holm's method"
    columns = ["", "clips", *titles.values(), "AUROC, 95%", "p"]
    return f"{head}\n{align(columns, rows)}"


def _score_table(record: RunRecord, test: str) -> str:
    """Return a table of the models' scores on a test set, best first, followed by guesses."""
    titles, main = metrics_of(record), record.main_metric
    test_set = record.tests[test]
    rows = []
    for scores in ranked(record, test):
        interval = scores.interval.get(main)
        ends = "-" if interval is None else "{:.2f}-{:.2f}".format(*interval)
        rows.append(
            [
                record.title_of(scores.model),
                *(_format(scores.mean[key]) for key in titles),
                ends,
            ]
        )
    for name, guess in test_set.baselines.items():
        rows.append([f"guess: {name}", *(_format(guess.get(key)) for key in titles), "-"])
    if len(test_set.classes) == 1:
        clips = counted(test_set.clips, "clip")
    elif test_set.positives is None:
        called = record.task(test).titles()
        clips = ", ".join(f"{count} {called[key]}" for key, count in test_set.classes.items())
    else:
        clips = f"{test_set.positives} of {test_set.clips} positive"
    table = align(["", *titles.values(), f"{titles[main]}, 95%"], rows)
    return f"{record.task(test).title}: {clips}\n{table}"


def describe_annotators(record: RunRecord, test: str) -> str:
    """Return a table of each rater's kappa with each annotator of a test set."""
    comparison = record.annotators[test]
    rows = []
    for rater in comparison.raters:
        title = record.title_of(rater.name) if rater.kind == "model" else rater.name
        kappas = [_format(rater.kappa.get(who)) for who in comparison.annotators]
        rows.append([title, *kappas])
    columns = [f"kappa {number}" for number, _ in enumerate(comparison.annotators, start=1)]
    head = f"{record.task(test).title}: compared with annotators, on {comparison.which_clips}"
    return f"{head}\n{align(['', *columns], rows)}"


def _legend(record: RunRecord) -> list[str]:
    """Return a legend for the tables that compare models with annotators."""
    if not record.annotators:
        return []
    names = next(iter(record.annotators.values())).annotators
    named = ", ".join(f"{number} is {name}" for number, name in enumerate(names, start=1))
    return [fill(f"Annotators: {named}. Kappa is over all these clips together.", WIDTH)]


def _films(record: RunRecord, test: str, *, verbose: bool) -> str:
    """Return a table of each model's AUROC on each film, or the range over films if there are many.

    F1 is not used, because even guesses can have a high F1 on films with many positive clips. For
    numbers, the table shows the metric by which models are ranked, instead of AUROC.
    """
    main = "auroc"
    if record.task(test).target.is_numeric:
        main = record.ranking_metric
    models = [scores for scores in record.scores if scores.test == test]
    films = dict.fromkeys(film for scores in models for film in scores.groups)
    titles, noun = record.films.titles, group_noun(record.films.by)
    area, counts = METRICS[main].title, counted(len(films), noun)
    chance = " (0.5 is chance)" if main == "auroc" else ""
    head = f"{record.task(test).title}: {area}{chance} by {noun}, {counts}"
    if verbose or len(films) <= MAX_FILM_ROWS:
        rows = [
            [titles.get(film, film)]
            + [_format(s.groups[film][main]) if film in s.groups else "-" for s in models]
            for film in films
        ]
        return f"{head}\n{align(['', *(record.title_of(s.model) for s in models)], rows)}"
    lines = [f"{head}; -v prints each"]
    for scores in models:
        values = {
            titles.get(film, film): value
            for film, group in scores.groups.items()
            if (value := group[main]) is not None
        }
        if values:
            lines.append(f"  {record.title_of(scores.model)}: {_describe_range(values)}")
    return "\n".join(lines)


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
