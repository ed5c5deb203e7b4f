"""A run as text for the terminal: which clips came together, and the table of scores."""

from __future__ import annotations

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted
from obygaze_models.experiments.record import GroupScores, ModelScores, RunRecord
from obygaze_models.metrics import METRICS, column_titles

__all__ = ["describe_official", "describe_run", "main_metric", "metrics_of"]


def metrics_of(record: RunRecord) -> dict[str, str]:
    """The metrics that a run's tables show, and their titles; the official measure comes first."""
    measure = None if record.official is None else record.official.measure
    return column_titles(record.scores[0].mean, measure)


def main_metric(record: RunRecord) -> str:
    """The first metric of a run's tables, which sentences are about."""
    return next(iter(metrics_of(record)))


def describe_run(record: RunRecord) -> str:
    """What `obygaze models run` prints of a run, but for its warnings."""
    parts = [_describe_join(record)]
    parts += [_score_table(record, test) for test in record.tests]
    if any(scores.groups for scores in record.scores):
        parts += [_film_table(record, test) for test in record.tests]
    notes = []
    for name, accuracy in record.ablated.items():
        values = (f"{key.replace('_', ' ')} {value:.2f}" for key, value in accuracy.items())
        notes.append(f"{name}, accuracy on validation: {', '.join(values)}")
    if record.official:
        notes.append(describe_official(record))
    fits = record.fit_count
    mean = f"Mean (standard deviation) over {fits} fits" if fits > 1 else "One fit"
    notes.append(f"{mean}; the interval is over draws of films.")
    if any(scores.films < 2 for scores in record.scores):
        notes.append("Where it is -, the test clips are of one film, or no films are named.")
    return "\n\n".join([*parts, "\n".join(notes)])


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


def _describe_join(record: RunRecord) -> str:
    join = record.join
    lines = [f"{join.used} of {join.labelled} labelled clips have a fold and features"]
    if record.split:
        lines.append(f"  folds: {record.split}")
    return "\n".join([*lines, *(f"  {line}" for line in join.lines())])


def _score_table(record: RunRecord, test: str) -> str:
    """The models' scores on a test set, then those of guessing."""
    titles, main = metrics_of(record), main_metric(record)
    test_set = record.tests[test]
    rows = []
    for scores in record.scores:
        if scores.test == test:
            interval = scores.interval.get(main)
            ends = "-" if interval is None else "{:.2f}-{:.2f}".format(*interval)
            rows.append([scores.model, *(_mean(scores, key) for key in titles), ends])
    for name, guess in test_set.baselines.items():
        rows.append([f"guess: {name}", *(_format(guess.get(key)) for key in titles), "-"])
    if (coin := test_set.simulated) is not None:
        cells = [_format(coin.mean.get(key), coin.std.get(key)) for key in titles]
        rows.append(["guess: random, simulated", *cells, "-"])
    if test_set.positives is None:
        clips = ", ".join(f"{count} {name}" for name, count in test_set.classes.items())
    else:
        clips = f"{test_set.positives} of {test_set.clips} positive"
    return align([f"{test}: {clips}", *titles.values(), f"{titles[main]}, 95%"], rows)


def _film_table(record: RunRecord, test: str) -> str:
    """The main metric of each model on each film that was left out."""
    main = main_metric(record)
    models = [scores for scores in record.scores if scores.test == test]
    films = dict.fromkeys(film for scores in models for film in scores.groups)
    rows = [[film, *(_film_mean(scores, film, main) for scores in models)] for film in films]
    head = f"{test}: {METRICS[main].title}, film left out ({counted(len(films), 'film')})"
    return align([head, *(scores.model for scores in models)], rows)


def _film_mean(scores: ModelScores, film: str, key: str) -> str:
    return _mean(scores.groups[film], key) if film in scores.groups else "-"


def _mean(scores: ModelScores | GroupScores, key: str) -> str:
    """A mean and its deviation; a single fit has none."""
    fits = scores.fits if isinstance(scores, GroupScores) else len(scores.fits)
    return _format(scores.mean[key], scores.std[key] if fits > 1 else None)


def _format(mean: float | None, std: float | None = None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f}" + ("" if std is None else f" ({std:.2f})")
