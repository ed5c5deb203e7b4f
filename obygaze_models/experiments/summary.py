"""A run as text for the terminal: the result in a line, tables, and what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from obygaze_features.common.tables import align, fill
from obygaze_features.common.text import counted
from obygaze_features.manifests.items import group_noun
from obygaze_models.experiments.experiment import store_variants
from obygaze_models.experiments.record import GroupScores, ModelScores, RunRecord
from obygaze_models.scoring.annotators import ESTIMATE
from obygaze_models.scoring.intervals import MIN_FILMS, too_few
from obygaze_models.scoring.metrics import METRICS, column_titles

WIDTH = 100
MAX_FILM_ROWS = 12
BALANCED = {
    "undersample": "each class is drawn down to the smallest",
    "weights": "all are used, with each class weighted by the inverse of its size",
    "none": "all are used, and classes are not balanced",
}
UNCALIBRATED = "; balancing classes moves probabilities away from the labels' shares"
_OTHER_BALANCE = {"undersample": "none", "none": "undersample", "weights": "undersample"}


def metrics_of(record: RunRecord) -> dict[str, str]:
    """The metrics that a run's tables show, and their titles; the official measure comes first."""
    measure = None if record.official is None else record.official.measure
    return column_titles(record.scores[0].mean, measure)


def main_metric(record: RunRecord) -> str:
    """Return the first metric of which more is better: sentences and rankings go by it."""
    return next(metric for metric in metrics_of(record) if not METRICS[metric].lower_is_better)


def headline(record: RunRecord) -> list[str]:
    """The result in a line; above it, where not all films are tested, which are."""
    note = record.films.note
    first = [note[0].upper() + note[1:]] if note else []
    tasks = {fit.task for fit in record.fits}
    if len(tasks) > 1:
        return [*first, _range_over_tests(record)]
    main = main_metric(record)
    test = max(record.tests, key=lambda name: record.tests[name].clips)
    scored = [scores for scores in record.scores if scores.test == test]
    best = max(scored, key=lambda scores: -1 if (mean := scores.mean[main]) is None else mean)
    comparison = record.annotators.get(test)
    second = comparison.sentence(best.model) if comparison else ""
    return [*first, _best_score(record, scored, best), *([second] if second else [])]


def _best_score(record: RunRecord, scored: list[ModelScores], best: ModelScores) -> str:
    """The best model on a test set, beside the best guess."""
    main, test = main_metric(record), best.test
    test_set = record.tests[test]
    among = f", the best of {len(scored)} models" if len(scored) > 1 else ""
    mean = best.mean[main]
    if mean is None:
        return f"{best.model}: {METRICS[main].title} is not defined on {test}"
    interval = best.interval.get(main)
    reason = too_few(test_set.classes.values(), best.films)
    certainty = reason or (
        "" if interval is None else "95% interval {:.2f} to {:.2f}".format(*interval)
    )
    guesses = {name: value for name, of in test_set.baselines.items() if (value := of.get(main))}
    beside = ""
    if guesses:
        name = max(guesses, key=guesses.__getitem__)
        beside = f"; the best guess ({name}) has {guesses[name]:.2f}"
    return (
        f"{best.model}{among}: {METRICS[main].title} {mean:.2f}"
        f"{f' ({certainty})' if certainty else ''} on {test}{beside}"
    )


def _range_over_tests(record: RunRecord) -> str:
    """Of several tasks, such as concepts, the lowest and the highest score."""
    main = main_metric(record)
    best: dict[str, float] = {}
    for scores in record.scores:
        if (mean := scores.mean[main]) is not None:
            best[scores.test] = max(mean, best.get(scores.test, 0.0))
    if not best:
        return f"{METRICS[main].title} is not defined on any of {len(record.tests)} test sets"
    low, high = min(best, key=best.__getitem__), max(best, key=best.__getitem__)
    return (
        f"{counted(len(best), 'task')}: {METRICS[main].title} of the best model from "
        f"{best[low]:.2f} ({low}) to {best[high]:.2f} ({high}), median {median(best.values()):.2f}"
    )


def describe_run(record: RunRecord, *, verbose: bool = False) -> str:
    """What `obygaze models run` prints below the result, but for its warnings.

    `verbose` prints the table of films however many there are.
    """
    parts = [_score_table(record, test) for test in record.tests]
    parts += [describe_annotators(record, test) for test in record.annotators]
    if any(scores.groups for scores in record.scores):
        parts += [_films(record, test, verbose=verbose) for test in record.tests]
    notes = []
    for name, accuracy in record.ablated.items():
        values = (f"{key.replace('_', ' ')} {value:.2f}" for key, value in accuracy.items())
        notes.append(f"{name}, accuracy on validation: {', '.join(values)}")
    notes += describe_cuts(record)
    if record.official:
        notes.append(describe_official(record))
    fits = record.fit_count
    mean = f"Mean (standard deviation) of the scores of {fits} fits" if fits > 1 else "One fit"
    if why := record.lacks_interval:
        notes.append(f"{mean}; no interval: {why}.")
    else:
        noun, unnamed = group_noun(record.films.by), record.films.unnamed
        apart = f", without {counted(unnamed, 'clip')} that have none" if unnamed else ""
        notes.append(f"{mean}; the interval is over draws of {noun}s{apart}.")
    notes += _legend(record)
    return "\n\n".join([*parts, "\n".join(notes), _describe_clips(record)])


def describe_official(record: RunRecord) -> str:
    """The official measure of a run that has one, and how a benchmark wants the run marked."""
    assert record.official is not None
    measure, name = METRICS[record.official.measure].title, record.store.backbone["name"]
    mark = (
        f"using external data, which {name} was trained on"
        if record.official.external_data
        else f"using no external data, for {name} has random weights"
    )
    return f"Official measure: {measure}; such a run is marked as {mark}."


def describe_cuts(record: RunRecord) -> list[str]:
    """Where models say "positive", of those whose cut the validation clips chose."""
    return [
        f"{name}: cut at {span(cuts, '.2f')}, chosen on validation clips; its "
        "probabilities are moved so that one half is the cut."
        for name, cuts in record.cuts.items()
        if cuts
    ]


def describe_balance(record: RunRecord) -> str:
    """How many clips train, of how many, and how they are balanced."""
    sizes = [fit.train.clips for fit in record.fits]
    clips = f"{span(sizes)} training clips a fit"
    if not record.balance:
        return f"{clips}; the {record.protocol} protocol fixes them."
    pools = [fit.drawn_from for fit in record.fits]
    if record.balance == "undersample" and any(pools):
        clips = f"{span(sizes)} of {span(pools)} training clips a fit"
    other = _OTHER_BALANCE[record.balance]
    return f'{clips}: {BALANCED[record.balance]} (balance = "{other}" changes this).'


def span(numbers: Sequence[float], form: str = ",") -> str:
    """The lowest and the highest, or both in one."""
    low, high = (f"{end:{form}}" for end in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _describe_clips(record: RunRecord) -> str:
    first, *missing = record.join.lines()
    lines = [first]
    if record.split:
        lines.append(f"  folds: {record.split}; protocol: {record.protocol}")
    lines += [fill(line, WIDTH, initial_indent="  ", subsequent_indent="  ") for line in missing]
    return "\n".join([*lines, fill(describe_balance(record), WIDTH)])


def _score_table(record: RunRecord, test: str) -> str:
    """The models' scores on a test set, then those of guessing."""
    titles, main = metrics_of(record), main_metric(record)
    test_set = record.tests[test]
    rows = []
    for scores in record.scores:
        if scores.test == test:
            interval = scores.interval.get(main) if scores.films >= MIN_FILMS else None
            ends = "-" if interval is None else "{:.2f}-{:.2f}".format(*interval)
            rows.append([scores.model, *(_mean(scores, key) for key in titles), ends])
    for name, guess in test_set.baselines.items():
        rows.append([f"guess: {name}", *(_format(guess.get(key)) for key in titles), "-"])
    if test_set.positives is None:
        clips = ", ".join(f"{count} {name}" for name, count in test_set.classes.items())
    else:
        clips = f"{test_set.positives} of {test_set.clips} positive"
    table = align(["", *titles.values(), f"{titles[main]}, 95%"], rows, width=WIDTH)
    return f"{test}: {clips}\n{table}"


def describe_annotators(record: RunRecord, test: str) -> str:
    """Who agrees with whom on a test, and how well probabilities fit the annotators' labels."""
    comparison = record.annotators[test]
    names = {name: str(number) for number, name in enumerate(comparison.annotators, start=1)}
    columns = [("kappa", name, f"kappa {short}") for name, short in names.items()]
    columns.append(("kappa", ESTIMATE, "kappa truth"))
    if any(rater.auroc for rater in comparison.raters):
        columns += [("auroc", name, f"AUROC {short}") for name, short in names.items()]
    rows = []
    for rater in comparison.raters:
        cells = [getattr(rater, kind).get(name) for kind, name, _ in columns]
        cells += [rater.brier, rater.cross_entropy]
        rows.append([rater.name, *map(_format, cells)])
    titles = ["", *(title for _, _, title in columns), "Brier", "log loss"]
    head = f"{test}: beside each annotator, on {comparison.which_clips}"
    models = [rater.name for rater in comparison.raters if rater.kind == "model"]
    sentences = filter(None, map(comparison.f1_sentence, models))
    return "\n".join([head, align(titles, rows, width=WIDTH), *(fill(s, WIDTH) for s in sentences)])


def _legend(record: RunRecord) -> list[str]:
    """What the tables beside annotators show."""
    if not record.annotators:
        return []
    names = next(iter(record.annotators.values())).annotators
    named = ", ".join(f"{number} is {name}" for number, name in enumerate(names, start=1))
    text = (
        f"Beside annotators {named}, and truth Dawid and Skene's estimate, which is made of these "
        "labels. Brier and log loss are against all annotators' labels"
        f"{UNCALIBRATED if record.balance != 'none' else ''}."
    )
    return [fill(text, WIDTH)]


def _films(record: RunRecord, test: str, *, verbose: bool) -> str:
    """The AUROC of each model on each film that was left out; of many films the range.

    The F1 of films with many positive clips is high whatever is guessed.
    """
    main = "auroc"
    variants = {v for s in record.scores for v in store_variants(s.model, record.store_names)}
    models = [s for s in record.scores if s.test == test and s.model not in variants]
    films = dict.fromkeys(film for scores in models for film in scores.groups)
    titles = record.films.titles
    noun = group_noun(record.films.by)
    left_out = f"{noun} left out ({counted(len(films), noun)})"
    head = f"{test}: {METRICS[main].title} (0.5 is chance), {left_out}"
    if verbose or len(films) <= MAX_FILM_ROWS:
        rows = [
            [titles.get(film, film)]
            + [_mean(s.groups[film], main) if film in s.groups else "-" for s in models]
            for film in films
        ]
        return f"{head}\n{align(['', *(scores.model for scores in models)], rows, width=WIDTH)}"
    lines = [f"{head}; -v prints each"]
    for scores in models:
        means = {
            titles.get(film, film): mean
            for film, group in scores.groups.items()
            if (mean := group.mean[main]) is not None
        }
        if means:
            low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
            lines.append(
                f"  {scores.model}: from {means[low]:.2f} ({low}) to {means[high]:.2f} ({high}), "
                f"median {median(means.values()):.2f}"
            )
    return "\n".join(lines)


def _mean(scores: ModelScores | GroupScores, key: str) -> str:
    """A mean and its deviation; a single fit has none."""
    fits = scores.fits if isinstance(scores, GroupScores) else len(scores.fits)
    return _format(scores.mean[key], scores.std[key] if fits > 1 else None)


def _format(mean: float | None, std: float | None = None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f}" + ("" if std is None else f" ({std:.2f})")
