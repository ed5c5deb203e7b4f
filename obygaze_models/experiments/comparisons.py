"""Comparisons of two models as data, and as text and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING

from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, format_signed, unknown_name
from obygaze_features.errors import UsageError
from obygaze_models.intervals import Difference, too_few
from obygaze_models.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Comparisons", "ModelRef"]

WIDTH = 100


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
    notes
        What a reader must know of these two.
    fits, means
        How many fits each model has, and by metric the mean of their scores, as its run prints it.
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
    fits: tuple[int, int] = (1, 1)
    means: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def too_few(self) -> str:
        """Why no interval is shown; empty if it is."""
        return too_few([self.smallest], self.films)


@dataclass(frozen=True)
class Comparisons:
    """All comparisons, and what could not be compared. Printed, it is a table a test set."""

    comparisons: list[Comparison]
    left_out: tuple[str, ...]

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
        selected = self.select(metric)
        by_test: dict[str, list[tuple[Comparison, str]]] = {}
        for comparison, key in selected:
            clips, films = counted(comparison.clips, "clip"), counted(comparison.films, "film")
            head = f"{comparison.test}: {clips}, {films}; {METRICS[key].title}"
            by_test.setdefault(head, []).append((comparison, key))
        runs = {(comparison.first.run, comparison.second.run) for comparison, _ in selected}
        by_model = len(runs) == 1 and all(
            comparison.first.model == comparison.second.model for comparison, _ in selected
        )
        names = ["model", *next(iter(runs))] if by_model else ["first", "second", "1st", "2nd"]
        columns = [*names, "difference", "95%", "ahead", "only right", "p"]
        left = 1 if by_model else 2
        parts = []
        for head, pairs in by_test.items():
            rows = [_table_row(comparison, key, left) for comparison, key in pairs]
            parts.append(f"{head}\n{align(columns, rows, left=left, width=WIDTH)}")
            parts += [fill(note, WIDTH) for note in _means_of_runs(pairs)]
        first, second = ("first", "second") if not by_model else next(iter(runs))
        notes = (
            f"difference: {first} minus {second}; its interval, and in how many draws the first is "
            "ahead, are over draws of films.",
            "only right: clips that only the first gets right : only the second. p: McNemar's "
            "exact test of these, as if clips of a film were independent.",
        )
        return "\n\n".join([*parts, "\n".join(fill(note, WIDTH) for note in notes)])

    def figure(self, metric: str | None = None) -> Figure:
        """The differences and their intervals as a figure."""
        from obygaze_models.figures.dots import Line, Point, dot_plot

        selected = self.select(metric)
        tests = list(dict.fromkeys(comparison.test for comparison, _ in selected))
        selected.sort(key=lambda pair: tests.index(pair[0].test))
        titles = list(dict.fromkeys(METRICS[key].title for _, key in selected))
        runs = {(comparison.first.run, comparison.second.run) for comparison, _ in selected}
        same_models = len(runs) == 1 and all(
            comparison.first.model == comparison.second.model for comparison, _ in selected
        )
        points = []
        for comparison, key in selected:
            score = comparison.scores[key]
            low, high = (None, None) if comparison.too_few else score.interval or (None, None)
            label = (
                comparison.first.model
                if same_models
                else f"{comparison.first.name} − {comparison.second.name}"
            )
            group = f"{comparison.test}: {counted(comparison.clips, 'clip')}"
            if len(titles) > 1:
                group += f", {METRICS[key].title}"
            points.append(Point(label, score.difference, low, high, group=group))
        names = {(comparison.first.name, comparison.second.name) for comparison, _ in selected}
        pair = runs if same_models else names
        first, second = pair.pop() if len(pair) == 1 else ("first", "second")
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
            interval="95% interval over films",
            value="difference",
            signed=True,
        )


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
    for comparison, key in pairs:
        sides = (comparison.first, comparison.second)
        for side, fits, mean in zip(
            sides, comparison.fits, comparison.means.get(key, (None, None)), strict=True
        ):
            if fits > 1 and mean is not None:
                means[side.name] = mean
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


def _table_row(comparison: Comparison, key: str, names: int) -> list[str]:
    """`names` is how many of the models' names the row begins with."""
    score, p_value = comparison.scores[key], comparison.p_value
    sides = comparison.first, comparison.second
    return [
        *([side.name for side in sides] if names == 2 else [comparison.first.model]),
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
