"""Comparisons of models as data, and as they are shown: tables, sentences and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obygaze_features.common.tables import align, fill
from obygaze_features.common.text import counted, format_signed, group_by, unknown_name
from obygaze_features.errors import UsageError
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.experiment import store_variants
from obygaze_models.scoring.intervals import Difference, too_few
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
STORE_COLUMNS = ("", "alone", "all without it", "adds", "95%")
ADDS = fill(
    "adds: all stores minus all without it; the interval is over draws of films. Each clip counts "
    "once here, with its mean probability over the fits; other tables have the means of the fits' "
    "scores. A clip that a store lacks counts as its mean, where the experiment says so.",
    WIDTH,
)


@dataclass(frozen=True)
class ModelRef:
    """A model of a run; `name` includes the run where there are several."""

    run: str
    model: str
    name: str


@dataclass(frozen=True)
class Comparison:
    """Two models on a test set.

    Parameters
    ----------
    test, first, second
        The test set, and the models.
    clips, films
        How many both were scored on.
    smallest
        How many clips the smallest class has.
    scores
        A `Difference` for each metric.
    only_first, only_second
        How many clips only the first model gets right, and only the second.
    p_value
        Of McNemar's exact test on these. It takes clips for independent, and those of a film are
        not, so that it is too small.
    notes, leaks
        What a reader must know of these two, and which was trained on clips that are scored.
    fits, means
        How many fits each model has, and by metric the mean of their scores, as its run prints it.
    beside
        Each model's F1 against each annotator, where the labels were merged of several.
    noun
        What the clips are grouped by.
    """

    test: str
    first: ModelRef
    second: ModelRef
    clips: int
    films: int
    smallest: int
    scores: dict[str, Difference]
    only_first: int
    only_second: int
    p_value: float
    notes: tuple[str, ...]
    leaks: tuple[RunWarning, ...] = ()
    fits: tuple[int, int] = (1, 1)
    means: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    noun: str = "film"

    @property
    def too_few(self) -> str:
        """Why no interval is shown; empty if it is."""
        return too_few([self.smallest], self.films).replace("film", self.noun)


@dataclass(frozen=True)
class Comparisons:
    """All comparisons, and what could not be compared. Printed, it is a table a test set."""

    comparisons: list[Comparison]
    left_out: tuple[str, ...]
    stores: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By run the names of its stores, if the comparisons tell what each of them adds."""

    def __str__(self) -> str:
        return self.table()

    def select(self, metric: str | None = None) -> list[tuple[Comparison, str]]:
        """The comparisons that have a metric, with its key; by default each one's first metric."""
        metrics = dict.fromkeys(key for comparison in self.comparisons for key in comparison.scores)
        if metric is not None and metric not in metrics:
            raise UsageError(unknown_name("metric", metric, metrics))
        return [
            (comparison, metric or next(iter(comparison.scores)))
            for comparison in self.comparisons
            if metric is None or metric in comparison.scores
        ]

    def headline(self, metric: str | None = None) -> str:
        """The result in a sentence; of several comparisons how many differ, and the widest."""
        selected = self.select(metric)
        clear = [(comparison, key) for comparison, key in selected if _is_clear(comparison, key)]
        if len(selected) == 1 or len(clear) == 1:
            comparison, key = (clear or selected)[0]
            sentence = _describe_difference(comparison, key)
            return sentence if len(selected) == 1 else f"1 of {len(selected)} differs: {sentence}"
        if not clear:
            return f"No clear difference in {counted(len(selected), 'comparison')}"
        widest = max(clear, key=lambda pair: abs(pair[0].scores[pair[1]].difference or 0))
        sentence = _describe_difference(*widest)
        return f"{len(clear)} of {len(selected)} comparisons differ clearly; the most: {sentence}"

    def table(self, metric: str | None = None) -> str:
        """The comparisons as text: a table a test set."""
        selected, groups = self.select(metric), f"draws of {self.comparisons[0].noun}s"
        if self.stores:
            tables = [
                f"{test}\n{model} on all stores: {score}\n{align(STORE_COLUMNS, rows, width=WIDTH)}"
                for (test, model, score), rows in self.stores_by_model(metric).items()
            ]
            return "\n\n".join([*tables, ADDS.replace("draws of films", groups)])
        runs = _runs_of_one_model(selected)
        by_test = group_by(selected, lambda pair: _describe_test(*pair))
        names = ["model", *runs] if runs else ["first", "second", "1st", "2nd"]
        columns = [*names, "difference", "95%", "ahead", "only right", "p"]
        left = 1 if runs else 2
        parts = []
        for head, pairs in by_test.items():
            rows = [
                [ref.name if left == 2 else ref.model for ref in (pair.first, pair.second)[:left]]
                + _table_cells(pair, key)
                for pair, key in pairs
            ]
            parts.append(f"{head}\n{align(columns, rows, left=left, width=WIDTH)}")
            parts += [fill(note, WIDTH) for note in _means_of_runs(pairs)]
            beside = dict.fromkeys(line for comparison, _ in pairs for line in comparison.beside)
            parts += ["\n".join(fill(line, WIDTH) for line in beside)] * bool(beside)
        first, second = runs or ("first", "second")
        notes = (
            f"difference: {first} minus {second}; its interval, and in how many draws the first is "
            f"ahead, are over {groups}.",
            "only right: clips that only the first gets right : only the second. p: McNemar's "
            "exact test of these, as if clips of a film were independent.",
        )
        return "\n\n".join([*parts, "\n".join(fill(note, WIDTH) for note in notes)])

    def stores_by_model(
        self, metric: str | None = None
    ) -> dict[tuple[str, str, str], list[list[str]]]:
        """What each store adds, by test set, model and its score on all stores.

        A row for each store: the scores on it alone and on all without it, what it adds to these,
        and the interval of that.
        """
        tables = {}
        selected = self.select(metric)
        by_model = group_by(selected, lambda pair: (_describe_test(*pair), pair[0].first.name))
        for (test, model), pairs in by_model.items():
            (all_stores, key), names = pairs[0], self.stores[pairs[0][0].first.run]
            variants = store_variants(all_stores.first.model, names)
            by_stores = {variants[pair.second.model]: pair for pair, _ in pairs}
            rows = []
            for name in names:
                rest = tuple(other for other in names if other != name)
                pairs_of_store = [by_stores.get(use) for use in ((name,), rest)]
                alone, without = (
                    _table_cells(pair, key)[1:4] if pair else ["-"] * 3 for pair in pairs_of_store
                )
                rows.append([name, alone[0], *without])
            tables[test, model, _format(all_stores.scores[key].first)] = rows
        return tables

    def rows(self) -> list[dict[str, Any]]:
        """A row for each comparison and metric, for `pandas.DataFrame`."""
        return [
            {"test": pair.test, "first": pair.first.name, "second": pair.second.name,
             "metric": key, "score_first": score.first, "score_second": score.second,
             "difference": score.difference, "low": low, "high": high}
            for pair in self.comparisons
            for key, score in pair.scores.items()
            for low, high in [(None if pair.too_few else score.interval) or (None, None)]
        ]  # fmt: skip

    def figure(self, metric: str | None = None) -> Figure:
        """The differences and their intervals as a figure."""
        from obygaze_models.figures.dots import Line, Point, dot_plot

        selected = self.select(metric)
        runs = _runs_of_one_model(selected)
        tests = list(dict.fromkeys(comparison.test for comparison, _ in selected))
        selected.sort(key=lambda pair: tests.index(pair[0].test))
        titles = list(dict.fromkeys(METRICS[key].title for _, key in selected))
        points = []
        for comparison, key in selected:
            score, models = comparison.scores[key], (comparison.first, comparison.second)
            low, high = (None, None) if comparison.too_few else score.interval or (None, None)
            label = models[0].model if runs else f"{models[0].name} − {models[1].name}"
            group = f"{comparison.test}: {counted(comparison.clips, 'clip')}"
            if len(titles) > 1:
                group += f", {METRICS[key].title}"
            points.append(Point(label, score.difference, low, high, group=group))
        names = {(comparison.first.name, comparison.second.name) for comparison, _ in selected}
        first, second = runs or (names.pop() if len(names) == 1 else ("first", "second"))
        ends = f"{second} better", f"{first} better"
        if all(METRICS[key].lower_is_better for _, key in selected):
            ends = ends[1], ends[0]
        title = " and ".join(titles)
        return dot_plot(
            points,
            title=f"Differences in {title}",
            axis=f"difference in {title}, {first} minus {second}",
            ends=ends,
            description="; ".join(
                f"{point.group}: {point.label} {_format(point.value, signed=True)}"
                for point in points
            ),
            lines=[Line(0.0, "no difference")],
            interval=f"95% interval over {self.comparisons[0].noun}s",
            value="difference",
            signed=True,
        )


def _describe_test(comparison: Comparison, key: str) -> str:
    clips, films = counted(comparison.clips, "clip"), counted(comparison.films, comparison.noun)
    return f"{comparison.test}: {clips}, {films}; {METRICS[key].title}"


def _is_clear(comparison: Comparison, key: str) -> bool:
    """Whether the interval of the difference is known, and does not hold 0."""
    interval = comparison.scores[key].interval
    return not comparison.too_few and interval is not None and interval[0] * interval[1] > 0


def _describe_difference(comparison: Comparison, key: str) -> str:
    score, metric = comparison.scores[key], METRICS[key]
    names = comparison.first.name, comparison.second.name
    certainty = comparison.too_few or f"95% interval {_interval(score)}"
    value = f"{metric.title} {_format(score.difference, signed=True)} ({certainty})"
    if not _is_clear(comparison, key) or score.difference is None:
        return f"{names[0]} and {names[1]} do not differ clearly on {comparison.test}: {value}"
    better = (score.difference > 0) is not metric.lower_is_better
    verb = "better" if better else "worse"
    return f"{names[0]} is {verb} than {names[1]} on {comparison.test}: {value}"


def _means_of_runs(pairs: Sequence[tuple[Comparison, str]]) -> list[str]:
    """Why these scores are not those of `models run`, and those; nothing for single fits."""
    means: dict[str, float] = {}
    for pair, key in pairs:
        sides = pair.first.name, pair.second.name
        columns = zip(sides, pair.fits, pair.means.get(key, (None, None)), strict=True)
        means |= {side: mean for side, fits, mean in columns if fits > 1 and mean is not None}
    if not means:
        return []
    listed = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    return [
        "Each clip counts once here, with its mean probability over the fits. `models run` and the "
        f"report print the mean of the fits' scores instead: {listed}."
    ]


def _interval(score: Difference) -> str:
    if score.interval is None:
        return "-"
    return " to ".join(format_signed(end, 3) for end in score.interval)


def _runs_of_one_model(selected: Sequence[tuple[Comparison, str]]) -> tuple[str, str] | None:
    """The two runs, where each comparison is of one model in both."""
    runs = {(comparison.first.run, comparison.second.run) for comparison, _ in selected}
    same = all(comparison.first.model == comparison.second.model for comparison, _ in selected)
    return runs.pop() if len(runs) == 1 and same else None


def _table_cells(comparison: Comparison, key: str) -> list[str]:
    score, p_value = comparison.scores[key], comparison.p_value
    return [
        _format(score.first),
        _format(score.second),
        _format(score.difference, signed=True),
        comparison.too_few or _interval(score),
        "-" if comparison.too_few or score.ahead is None else f"{score.ahead:.0%}",
        f"{comparison.only_first} : {comparison.only_second}",
        f"{p_value:.3f}" if p_value >= 0.0005 else "<.001",
    ]


def _format(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    return format_signed(value, 3) if signed else f"{value:.3f}"
