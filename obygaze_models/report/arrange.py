"""Runs brought together in tables: those of one protocol and one kind of question share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from obygaze_models.experiments.summary import main_metric, metrics_of
from obygaze_models.metrics import METRICS, f1_titles
from obygaze_models.published import Published, published_chance, published_scores
from obygaze_models.report.shown import Shown

__all__ = ["BY_PROTOCOL", "PROTOCOLS", "Cell", "Column", "Group", "Row", "group_runs"]

#: In the order in which they are shown: what leaks nothing comes first.
PROTOCOLS = {
    "leak-free": "Leak-free: one fold column for all clips; the last fold tests",
    "leave-film-out": "Leave film out: each film in turn is tested by models that never saw it",
    "split": "Split: each fold tests in turn, so that every clip is tested once",
    "official": "Official sets: trained, stopped and tested on a benchmark’s own",
    "paper": "As the paper’s text has it: eight training folds, negatives drawn by folds",
    "released": "As the authors’ code has it: their split files, which leak into one another",
}
#: The same, at the beginning of a sentence.
BY_PROTOCOL = {
    "leak-free": "Leak-free",
    "leave-film-out": "With films left out",
    "split": "With each fold tested in turn",
    "official": "On the official sets",
    "paper": "As the paper’s text has it",
    "released": "As the released code has it",
}


@dataclass(frozen=True)
class Column:
    """What was told apart in training and in testing, and the test sets that were scored.

    `sizes` has each size of test set: clips, positives, and the first run that has it.
    """

    train: str
    test: str
    sizes: tuple[tuple[int, int | None, int], ...]


@dataclass(frozen=True)
class Cell:
    """A model's scores in a column: an entry of ``run.json``, whose run, and the paper's."""

    run: int
    of: Mapping[str, Any]
    published: Mapping[str, Published]

    @property
    def several_fits(self) -> bool:
        """Whether there is a deviation."""
        return len(self.of.get("fits", ())) > 1


@dataclass(frozen=True)
class Row:
    """A model on some features; or a way of guessing, where `feature` says for which runs."""

    model: str
    feature: str
    cells: Mapping[Column, Cell]


@dataclass(frozen=True, eq=False)
class Group:
    """A table: its runs, columns, models and guesses.

    `kind` is ``levels`` (two classes), ``classes`` (more) or ``concepts``. `data` says by what it
    differs from another table of the same protocol and kind, if there is one.
    """

    title: str
    protocol: str
    kind: str
    data: str
    runs: tuple[Shown, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    guesses: tuple[Row, ...]

    @property
    def metrics(self) -> dict[str, str]:
        """The scores that are shown at length."""
        return metrics_of(self.runs[0].record)

    @property
    def main(self) -> str:
        """The score that is spoken of."""
        return main_metric(self.runs[0].record)

    @property
    def averages(self) -> dict[str, str]:
        """The scores that stand side by side: an official one first."""
        if self.kind == "concepts":
            return self.metrics
        official = {key: title for key, title in self.metrics.items() if METRICS[key].official}
        return official | f1_titles(multiclass=self.kind == "classes")

    @property
    def spoken(self) -> tuple[str, ...]:
        """The scores that are told in words: the official one, and that which has guesses."""
        names = list(self.metrics)
        return tuple(names[: 2 if METRICS[names[0]].official else 1])

    @property
    def named(self) -> str:
        """The protocol as a sentence begins, and the label set where there are several."""
        labels = self.runs[0].record.manifest.labels
        return BY_PROTOCOL[self.protocol] + (f", labels {labels}" if self.data else "")

    @property
    def intervals(self) -> bool:
        """Whether any score has an interval."""
        cells = [cell for row in self.rows for cell in row.cells.values()]
        return any(ends for cell in cells for ends in cell.of["interval"].values())

    @property
    def several_fits(self) -> bool:
        """Whether any cell has a deviation."""
        return any(cell.several_fits for row in self.rows for cell in row.cells.values())

    @property
    def published(self) -> bool:
        """Whether the paper has figures for any cell."""
        return any(cell.published for row in self.rows for cell in row.cells.values())


def group_runs(runs: Sequence[Shown]) -> list[Group]:
    """The tables of a page, leak-free ones first."""
    found: dict[tuple[str, ...], list[Shown]] = {}
    for run in runs:
        found.setdefault(_key(run), []).append(run)
    rank = {name: place for place, name in enumerate(PROTOCOLS)}
    kinds = ["levels", "classes", "concepts"]
    ordered = sorted(found.items(), key=lambda one: (kinds.index(one[0][1]), rank[one[0][0]]))
    titles = [key[:2] for key, _ in ordered]
    schemes = {tuple(run.record.manifest.levels) for run in runs}
    return [_group(key, of, len(schemes) > 1 or titles.count(key[:2]) > 1) for key, of in ordered]


def _key(run: Shown) -> tuple[str, ...]:
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


def _group(key: tuple[str, ...], runs: list[Shown], one_of_several: bool) -> Group:
    protocol, kind, name, labels, digest, wanted, _ = key
    sizes: dict[tuple[str, str], dict[tuple[int, int | None], int]] = {}
    for run in runs:
        for test, of in run.record.tests.items():
            size = of.clips, of.positives
            of_column = sizes.setdefault((run.train_of(test), test), {})
            of_column.setdefault(size, run.number)
    columns = {
        (train, test): Column(train, test, tuple((*size, run) for size, run in of.items()))
        for (train, test), of in sorted(sizes.items(), key=lambda one: one[0][::-1])
    }
    # Levels as in Table 2: all that is tested on one set stands together, easier ones first.
    if kind == "levels":
        columns = dict(sorted(columns.items(), key=lambda one: len(one[0][1])))
    models = _models(runs, columns)
    about = PROTOCOLS[protocol]
    told = " told apart" if kind == "classes" else " positive"
    if kind == "concepts":
        about = f"Concepts, each detected on its own. {about}"
    return Group(
        title=about,
        protocol=protocol,
        kind=kind,
        data=f"{name}, labels {labels}, {wanted}{told}, items {digest[:8]}"
        if one_of_several
        else "",
        runs=tuple(runs),
        columns=tuple(columns.values()),
        rows=tuple(models),
        guesses=tuple(_guesses(runs, columns)),
    )


def _models(runs: Sequence[Shown], columns: Mapping[tuple[str, str], Column]) -> list[Row]:
    """A row a model and feature; runs that would fill the same cell get rows of their own."""
    rows: dict[tuple[str, str, str], dict[Column, Cell]] = {}
    for run in runs:
        own = ""
        for of in run.record.scores:
            column = columns[run.train_of(of.test), of.test]
            if column in rows.get((run.feature, of.model, own), {}):
                own = f": {run.name}"
            cell = Cell(
                run.number,
                asdict(of),
                published_scores(run.record, of.model, column.train, column.test),
            )
            rows.setdefault((run.feature, of.model, own), {})[column] = cell
    return [Row(model, f"{feature}{own}", cells) for (feature, model, own), cells in rows.items()]


def _guesses(runs: Sequence[Shown], columns: Mapping[tuple[str, str], Column]) -> list[Row]:
    """A row a way of guessing; where runs scored other test sets, a row for each that differs."""
    rows: dict[tuple[str, int], dict[Column, Cell]] = {}
    features: dict[tuple[str, int], dict[str, None]] = {}
    for run in runs:
        for test, said in run.record.tests.items():
            column = columns[run.train_of(test), test]
            guesses = dict(said.baselines)
            for guess, scores in guesses.items():
                of = {"model": guess, "test": test, "mean": scores, "std": {}}
                place = 0
                while column in (row := rows.setdefault((guess, place), {})):
                    if row[column].of["mean"] == scores:
                        break
                    place += 1
                else:
                    paper = published_chance(run.record, guess, column.train, column.test)
                    row[column] = Cell(run.number, of, paper)
                features.setdefault((guess, place), {})[run.feature] = None
            if said.simulated:
                of = {"model": "random, simulated", "test": test, **asdict(said.simulated)}
                rows.setdefault(("random, simulated", 0), {}).setdefault(
                    column, Cell(run.number, of, {})
                )
    several = {guess for guess, place in rows if place}
    return [
        Row(guess, ", ".join(features.get((guess, place), {})) if guess in several else "", cells)
        for (guess, place), cells in rows.items()
    ]
