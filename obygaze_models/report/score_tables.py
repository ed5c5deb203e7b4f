"""Tables of scores: runs of one protocol and one kind of task share a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from obygaze_models.experiments.summary import main_metric, metrics_of
from obygaze_models.metrics import METRICS, f1_titles
from obygaze_models.published import Published, published_chance, published_scores
from obygaze_models.report.runs import ReportRun

__all__ = ["PROTOCOLS", "PROTOCOL_HEADINGS", "Cell", "Column", "Row", "ScoreTable", "score_tables"]

PROTOCOLS = {
    "leak-free": "Leak-free: one fold column for all clips; the last fold tests",
    "leave-film-out": "Leave film out: each film in turn is tested by models that never saw it",
    "split": "Split: each fold tests in turn, so that every clip is tested once",
    "official": "Official sets: trained, stopped and tested on a benchmark’s own",
    "paper": "As the paper’s text has it: eight training folds, negatives drawn by folds",
    "released": "As the authors’ code has it: their split files, which leak into one another",
}
"""In the order of the page: protocols without leaks first."""
PROTOCOL_HEADINGS = {
    "leak-free": "Leak-free",
    "leave-film-out": "With films left out",
    "split": "With each fold tested in turn",
    "official": "On the official sets",
    "paper": "As the paper’s text has it",
    "released": "As the released code has it",
}
"""The same, at the beginning of a sentence."""


@dataclass(frozen=True)
class Column:
    """A training task and a test task, and the test sets that were scored.

    `sizes` has each size of test set: clips, positives, and the first run that has it.
    """

    train: str
    test: str
    sizes: tuple[tuple[int, int | None, int], ...]


@dataclass(frozen=True)
class Cell:
    """A model's scores in a column: the run's number, its entry in run.json, the paper's."""

    run: int
    scores: Mapping[str, Any]
    published: Mapping[str, Published]

    @property
    def several_fits(self) -> bool:
        """Whether there is a deviation."""
        return len(self.scores.get("fits", ())) > 1


@dataclass(frozen=True)
class Row:
    """A model on a feature; or a chance baseline, where `feature` says for which runs."""

    model: str
    feature: str
    cells: Mapping[Column, Cell]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """A table: its runs, columns, models and chance baselines.

    `kind` is ``levels`` (two classes), ``classes`` (more) or ``concepts``. `data` describes the
    clips, where another table has the same protocol and kind.
    """

    title: str
    protocol: str
    kind: str
    data: str
    runs: tuple[ReportRun, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    guesses: tuple[Row, ...]

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics of the long table."""
        return metrics_of(self.runs[0].record)

    @property
    def main_metric(self) -> str:
        """The score of the summary."""
        return main_metric(self.runs[0].record)

    @property
    def averages(self) -> dict[str, str]:
        """The metrics side by side: an official one first."""
        if self.kind == "concepts":
            return self.metrics
        official = {key: title for key, title in self.metrics.items() if METRICS[key].official}
        return official | f1_titles(multiclass=self.kind == "classes")

    @property
    def headline_metrics(self) -> tuple[str, ...]:
        """The scores of the summary: an official one, and the one with chance baselines."""
        names = list(self.metrics)
        return tuple(names[: 2 if METRICS[names[0]].official else 1])

    @property
    def heading(self) -> str:
        """The protocol at the beginning of a sentence, and the label set if there are several."""
        labels = self.runs[0].record.manifest.labels
        return PROTOCOL_HEADINGS[self.protocol] + (f", labels {labels}" if self.data else "")

    @property
    def intervals(self) -> bool:
        """Whether any score has an interval."""
        cells = [cell for row in self.rows for cell in row.cells.values()]
        return any(ends for cell in cells for ends in cell.scores["interval"].values())

    @property
    def several_fits(self) -> bool:
        """Whether any cell has a deviation."""
        return any(cell.several_fits for row in self.rows for cell in row.cells.values())

    @property
    def published(self) -> bool:
        """Whether the paper has a number for any cell."""
        return any(cell.published for row in self.rows for cell in row.cells.values())


def score_tables(runs: Sequence[ReportRun]) -> list[ScoreTable]:
    """The tables of a page, protocols without leaks first."""
    grouped: dict[tuple[str, ...], list[ReportRun]] = {}
    for run in runs:
        grouped.setdefault(_key(run), []).append(run)
    protocols, kinds = list(PROTOCOLS), ["levels", "classes", "concepts"]
    keys = sorted(grouped, key=lambda key: (kinds.index(key[1]), protocols.index(key[0])))
    titles = [key[:2] for key in keys]
    schemes = {tuple(run.record.manifest.levels) for run in runs}
    return [
        _table(key, grouped[key], len(schemes) > 1 or titles.count(key[:2]) > 1) for key in keys
    ]


def _key(run: ReportRun) -> tuple[str, ...]:
    experiment, manifest = run.record.experiment, run.record.manifest
    kind = "concepts" if experiment["concepts"] else "classes" if experiment["levels"] else "levels"
    return (
        run.protocol,
        kind,
        manifest.name,
        manifest.labels,
        manifest.digest,
        "+".join(experiment["positives"]) or " / ".join(experiment["levels"]),
        run.record.official.measure if run.record.official else "",
    )


def _table(key: tuple[str, ...], runs: list[ReportRun], describe_data: bool) -> ScoreTable:
    protocol, kind, name, labels, digest, levels, _ = key
    sizes: dict[tuple[str, str], dict[tuple[int, int | None], int]] = {}
    for run in runs:
        for test, test_set in run.record.tests.items():
            by_size = sizes.setdefault((run.train_of(test), test), {})
            by_size.setdefault((test_set.clips, test_set.positives), run.number)
    columns = {
        (train, test): Column(
            train, test, tuple((*size, run) for size, run in sizes[train, test].items())
        )
        for train, test in sorted(sizes, key=lambda pair: pair[::-1])
    }
    # Levels as in Table 2: columns of one test set are neighbours, the simplest set first.
    if kind == "levels":
        columns = dict(sorted(columns.items(), key=lambda item: len(item[0][1])))
    title = PROTOCOLS[protocol]
    if kind == "concepts":
        title = f"Concepts, each detected on its own. {title}"
    role = "told apart" if kind == "classes" else "positive"
    data = f"{name}, labels {labels}, {levels} {role}, items {digest[:8]}"
    return ScoreTable(
        title=title,
        protocol=protocol,
        kind=kind,
        data=data if describe_data else "",
        runs=tuple(runs),
        columns=tuple(columns.values()),
        rows=tuple(_models(runs, columns)),
        guesses=tuple(_baselines(runs, columns)),
    )


def _models(runs: Sequence[ReportRun], columns: Mapping[tuple[str, str], Column]) -> list[Row]:
    """A row a model and feature; runs that would fill the same cell get rows of their own."""
    rows: dict[tuple[str, str, str], dict[Column, Cell]] = {}
    for run in runs:
        suffix = ""
        for entry in run.record.scores:
            column = columns[run.train_of(entry.test), entry.test]
            if column in rows.get((run.feature, entry.model, suffix), {}):
                suffix = f": {run.name}"
            published = published_scores(run.record, entry.model, column.train, column.test)
            cell = Cell(run.number, asdict(entry), published)
            rows.setdefault((run.feature, entry.model, suffix), {})[column] = cell
    return [
        Row(model, f"{feature}{suffix}", cells) for (feature, model, suffix), cells in rows.items()
    ]


def _baselines(runs: Sequence[ReportRun], columns: Mapping[tuple[str, str], Column]) -> list[Row]:
    """A row a chance baseline; where runs scored other test sets, a row for each that differs."""
    rows: dict[tuple[str, int], dict[Column, Cell]] = {}
    features: dict[tuple[str, int], dict[str, None]] = {}
    for run in runs:
        for test, test_set in run.record.tests.items():
            column = columns[run.train_of(test), test]
            for name, scores in test_set.baselines.items():
                entry: dict[str, Any] = {"model": name, "test": test, "mean": scores, "std": {}}
                number = 0
                while column in (row := rows.setdefault((name, number), {})):
                    if row[column].scores["mean"] == scores:
                        break
                    number += 1
                else:
                    published = published_chance(run.record, name, column.train, column.test)
                    row[column] = Cell(run.number, entry, published)
                features.setdefault((name, number), {})[run.feature] = None
            if test_set.simulated:
                name = "random, simulated"
                entry = {"model": name, "test": test, **asdict(test_set.simulated)}
                cell = Cell(run.number, entry, {})
                rows.setdefault((name, 0), {}).setdefault(column, cell)
    repeated = {name for name, number in rows if number}
    return [
        Row(name, ", ".join(features.get((name, number), {})) if name in repeated else "", cells)
        for (name, number), cells in rows.items()
    ]
