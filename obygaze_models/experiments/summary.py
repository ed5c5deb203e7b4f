"""A run's scores as the table that the terminal and the page show."""

from __future__ import annotations

from dataclasses import dataclass

from obygaze_models.experiments.record import GroupScores, ModelScores, RunRecord
from obygaze_models.metrics import column_titles

__all__ = [
    "Cell",
    "Row",
    "film_rows",
    "main_metric",
    "metrics_of",
    "several_fits",
    "summary_rows",
]


@dataclass(frozen=True)
class Cell:
    """A mean over runs, its deviation and its interval; a guess is a closed form without them."""

    mean: float | None
    std: float | None = None
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ({self.std:.2f})")

    @property
    def span(self) -> str:
        """The interval, or a dash."""
        return "-" if self.interval is None else "{:.2f}-{:.2f}".format(*self.interval)


@dataclass(frozen=True)
class Row:
    """One estimator, or one way of guessing: its cells by test set and metric."""

    name: str
    is_guess: bool
    cells: dict[str, dict[str, Cell]]


def metrics_of(record: RunRecord) -> dict[str, str]:
    """The scores that are shown, and their titles: two classes have others than three."""
    measure = None if record.official is None else record.official.measure
    return column_titles(record.scores[0].mean, measure)


def main_metric(record: RunRecord) -> str:
    """The score that is spoken of."""
    return next(iter(metrics_of(record)))


def summary_rows(record: RunRecord) -> list[Row]:
    """The estimators in the experiment's order, then the guesses."""
    metrics = metrics_of(record)
    cells: dict[str, dict[str, dict[str, Cell]]] = {}
    for of in record.scores:
        cells.setdefault(of.model, {})[of.test] = {metric: _cell(of, metric) for metric in metrics}
    guesses: dict[str, dict[str, dict[str, Cell]]] = {}
    for test, content in record.tests.items():
        for name, scores in content.baselines.items():
            guesses.setdefault(name, {})[test] = {m: Cell(scores.get(m)) for m in metrics}
        if content.simulated:
            mean, std = content.simulated.mean, content.simulated.std
            guesses.setdefault("random, simulated", {})[test] = {
                m: Cell(mean.get(m), std.get(m)) for m in metrics
            }
    return [
        *(Row(name, False, of) for name, of in cells.items()),
        *(Row(name, True, of) for name, of in guesses.items()),
    ]


def several_fits(scores: ModelScores | GroupScores) -> bool:
    """Whether a model's scores are of several fits: one alone has no deviation."""
    return (scores.fits if isinstance(scores, GroupScores) else len(scores.fits)) > 1


def film_rows(record: RunRecord) -> list[list[str]]:
    """Where films were left out in turn: model, test set, film, then each score."""
    return [
        [of.model, of.test, film, *(str(_cell(scores, m)) for m in metrics_of(record))]
        for of in record.scores
        for film, scores in of.groups.items()
    ]


def _cell(scores: ModelScores | GroupScores, metric: str) -> Cell:
    interval = scores.interval.get(metric) if isinstance(scores, ModelScores) else None
    std = scores.std[metric] if several_fits(scores) else None
    return Cell(scores.mean[metric], std, interval)
