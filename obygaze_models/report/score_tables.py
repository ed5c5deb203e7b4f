"""The scores of all runs as one table: a row a model, protocol and test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.published import Published, published_scores
from obygaze_models.experiments.record import ModelScores, TestSet
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.report.runs import ReportRun
from obygaze_models.scoring.metrics import METRICS

KINDS = ("levels", "classes", "concepts")


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """A model's scores on a test set of a run, and the paper's by metric."""

    run: ReportRun
    entry: ModelScores
    published: Mapping[str, Published]

    @property
    def model(self) -> str:
        """The model's name in its run."""
        return self.entry.model

    @property
    def test(self) -> TestSet:
        """The test set."""
        return self.run.record.tests[self.entry.test]

    @property
    def told_apart(self) -> str:
        """What was told apart in training, and in testing where that differs."""
        train, test = self.run.train_of(self.entry.test), self.entry.test
        return test if train == test else f"{train} → {test}"

    def best_guess(self, metric: str) -> tuple[str, float] | None:
        """The way to guess that scores best on the same clips, and its score."""
        scores = {name: of[metric] or 0.0 for name, of in self.test.baselines.items()}
        if not scores:
            return None
        best = max(scores, key=scores.__getitem__)
        return best, scores[best]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The rows of a kind of task: two levels, several classes, or concepts."""

    kind: str
    rows: tuple[ScoreRow, ...]

    @property
    def metrics(self) -> dict[str, str]:
        """The columns."""
        return metrics_of(self.rows[0].run.record)

    @property
    def guessed(self) -> str:
        """The metric of the guesses."""
        return headline_metric(self.rows[0].run)

    @property
    def caption(self) -> str:
        """What stands in a cell."""
        several = any(len(row.entry.fits) > 1 for row in self.rows)
        intervals = any(any(row.entry.interval.values()) for row in self.rows)
        return (
            ("Mean and ± standard deviation over fits" if several else "Of one fit each")
            + ("; in brackets 95% intervals over draws of films" if intervals else "")
            + ". Levels compared: in training → in testing."
        )

    def varies(self, attribute: str) -> bool:
        """Whether the rows' runs differ in this, so that it needs a column."""
        return len({str(getattr(row.run, attribute)) for row in self.rows}) > 1


def headline_metric(run: ReportRun) -> str:
    """The main metric; where it is an official one, the next, which guesses have as well."""
    metrics = list(metrics_of(run.record))
    return metrics[1 if METRICS[metrics[0]].official else 0]


def kind_of(run: ReportRun) -> str:
    """What the run's models tell apart."""
    experiment = run.record.experiment
    return "concepts" if experiment["concepts"] else "classes" if experiment["levels"] else "levels"


def score_tables(runs: Sequence[ReportRun]) -> list[ScoreTable]:
    """A table a kind; protocols without leaks first, then by test set."""
    protocols = list(PROTOCOLS)
    rows = [
        ScoreRow(
            run,
            entry,
            published_scores(run.record, entry.model, run.train_of(entry.test), entry.test),
        )
        for run in sorted(runs, key=lambda run: protocols.index(run.protocol))
        for entry in run.record.scores
    ]
    by_kind = {kind: tuple(row for row in rows if kind_of(row.run) == kind) for kind in KINDS}
    return [ScoreTable(kind, rows) for kind, rows in by_kind.items() if rows]
