"""Comparisons of models, as data, ranked tables, a sentence or a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, format_signed, group_by, unknown_name
from obygaze_features.errors import UsageError
from obygaze_models.data.warnings import RunWarning
from obygaze_models.scoring.intervals import Difference, too_few
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 100
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class ModelRef:
    """A model in a run. With several runs, `name` includes the run."""

    run: str
    model: str
    name: str


@dataclass(frozen=True)
class Comparison:
    """A model compared with a reference, on the clips of a test set that both were tested on.

    Parameters
    ----------
    test, model, reference
        The test set, and the models.
    clips
        The number of clips that both were scored on.
    class_counts
        The number of clips of each class.
    scores
        A `Difference` for each metric: the model's score minus the reference's.
    differences, notes, leaks
        Warnings about settings that differ, about clips that are left out, and about scored clips
        that either model was trained on.
    noun
        The unit that clips are grouped by, such as "film".
    """

    test: str
    model: ModelRef
    reference: ModelRef
    clips: int
    class_counts: tuple[int, ...]
    scores: dict[str, Difference]
    differences: tuple[RunWarning, ...] = ()
    notes: tuple[RunWarning, ...] = ()
    leaks: tuple[RunWarning, ...] = ()
    noun: str = "film"

    def certainty(self, key: str) -> str:
        """Return the interval of a difference as text, or the reason why it has none."""
        difference = self.scores[key].difference
        if difference.interval is not None:
            return _interval(difference.interval, signed=True)
        return too_few(self.class_counts, difference.groups, key, noun=self.noun) or "-"

    def differs(self, key: str) -> bool:
        """Return True if the models differ significantly, after adjusting for all comparisons."""
        p_value = self.scores[key].p_value
        return p_value is not None and p_value < SIGNIFICANT


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of models. `str` returns a ranked table for each test set.

    Parameters
    ----------
    comparisons
        One comparison per model, reference and test set.
    metric
        The score that models are ranked by.
    warnings
        Warnings about the runs, about each comparison, and about models or test sets that could not
        be compared.
    pooled
        True if all clips are scored together, False if scores are means over films.
    """

    comparisons: list[Comparison]
    metric: str
    warnings: tuple[RunWarning, ...] = ()
    pooled: bool = False

    def __str__(self) -> str:
        return self.table()

    def select(self, metric: str | None = None) -> list[tuple[Comparison, str]]:
        """Return the comparisons that have a metric, each with the key of the metric.

        By default, return all comparisons, each with the key of the ranking metric, or of its first
        metric if it lacks that one.
        """
        metrics = dict.fromkeys(key for comparison in self.comparisons for key in comparison.scores)
        if metric is not None and metric not in metrics:
            raise UsageError(unknown_name("metric", metric, metrics))
        selected = []
        for comparison in self.comparisons:
            own = comparison.scores
            if metric is None:
                selected.append(
                    (comparison, self.metric if self.metric in own else next(iter(own)))
                )
            elif metric in own:
                selected.append((comparison, metric))
        return selected

    def headline(self, metric: str | None = None) -> str:
        """Return the result as a sentence: the number of clear differences, and the largest one."""
        selected = self.select(metric)
        tested = [pair for pair in selected if pair[0].scores[pair[1]].p_value is not None]
        clear = [pair for pair in tested if pair[0].differs(pair[1])]
        if len(selected) == 1:
            return _describe_difference(*selected[0])
        if not tested:
            comparison, key = selected[0]
            return f"{counted(len(selected), 'comparison')}: {comparison.certainty(key)}"
        if not clear:
            return f"No clear difference in {counted(len(tested), 'comparison')}"
        widest = max(clear, key=lambda pair: abs(pair[0].scores[pair[1]].difference.value or 0))
        if len(clear) == 1:
            return f"1 of {len(tested)} differs. {_describe_difference(*widest)}"
        return f"{len(clear)} of {len(tested)} differ. {_describe_difference(*widest)}"

    def table(self, metric: str | None = None) -> str:
        """Return the comparisons as text, with a ranked table for each test set."""
        selected = self.select(metric)
        parts = []
        by_test = group_by(selected, lambda pair: _describe_test(*pair))
        for head, pairs in by_test.items():
            parts.append(f"{head}\n{_ranked_table(pairs)}")
        return "\n\n".join([*parts, fill(self._legend(selected), WIDTH)])

    def _legend(self, selected: Sequence[tuple[Comparison, str]]) -> str:
        """Return an explanation of the columns."""
        noun = self.comparisons[0].noun
        adjusted = [own.scores[key].p_value for own, key in selected]
        number = sum(value is not None for value in adjusted)
        text = (
            f"Scores are means over {noun}s, and differences are paired by {noun}; p is from a "
            f"paired t-test over {noun}s, its variance widened where fits share training clips"
        )
        if self.pooled:
            text = (
                "Scores are pooled: all clips are scored together, so AUROC and AP also compare "
                f"clips of different {noun}s and fits. Intervals and p use a jackknife over {noun}s"
            )
        if number > 1:
            text += (
                f", adjusted by Holm's method for {number} comparisons. Intervals are not "
                "adjusted, so they can exclude zero although p is above .05."
            )
        else:
            text += "."
        return text

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per comparison and metric, for `pandas.DataFrame`."""
        rows = []
        for own in self.comparisons:
            for key, score in own.scores.items():
                low, high = score.difference.interval or (None, None)
                rows.append(
                    {
                        "test": own.test, "model": own.model.name, "reference": own.reference.name,
                        "metric": key, "score": score.model.value,
                        "score_reference": score.reference.value,
                        "difference": score.difference.value, "low": low, "high": high,
                        "p_value": score.p_value, "films": score.difference.groups,
                    }
                )  # fmt: skip
        return rows

    def figure(self, metric: str | None = None) -> Figure:
        """Draw the differences and their intervals."""
        from obygaze_models.figures.dots import Line, Point, dot_plot

        selected = self.select(metric)
        titles = list(dict.fromkeys(METRICS[key].title for _, key in selected))
        references = {own.reference.name for own, _ in selected}
        points = []
        for own, key in selected:
            score = own.scores[key].difference
            low, high = score.interval or (None, None)
            name = own.model.name
            label = name if len(references) == 1 else f"{name} − {own.reference.name}"
            group = f"{own.test}: {counted(own.clips, 'clip')}"
            if len(titles) > 1:
                group += f", {METRICS[key].title}"
            points.append(Point(label, score.value, low, high, group=group))
        second = references.pop() if len(references) == 1 else "second"
        first = points[0].label if len(points) == 1 else "first" if references else "model"
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


def _ranked_table(pairs: Sequence[tuple[Comparison, str]]) -> str:
    """Return the table of a test set's models and the reference, best first."""
    first, key = pairs[0]
    metric = METRICS[key]
    rows = []
    for own, _ in pairs:
        score = own.scores[key].model
        cells = [own.model.name, _format(score.value), _interval(score.interval)]
        rows.append((score.value, [*cells, *_difference_cells(own, key)]))
    reference = first.scores[key].reference
    name = first.reference.name
    cells = [name, _format(reference.value), _interval(reference.interval), "-", "-", "-"]
    rows.append((reference.value, cells))
    sign = 1 if metric.lower_is_better else -1
    rows.sort(key=lambda row: (row[0] is None, sign * (row[0] or 0.0)))
    columns = ["", metric.title, "95%", f"minus {name}", "95%", "p"]
    return align(columns, [row for _, row in rows])


def _difference_cells(comparison: Comparison, key: str) -> list[str]:
    """Return the cells for a difference, its interval, and its adjusted p-value."""
    score = comparison.scores[key]
    return [
        _format(score.difference.value, signed=True),
        comparison.certainty(key),
        _format_p(score.p_value),
    ]


def _describe_test(comparison: Comparison, key: str) -> str:
    """Return the heading of a table: the test set, its clips and films, and the score."""
    score = comparison.scores[key]
    films = ""
    if score.difference.groups > 1:
        films = f", {counted(score.difference.groups, comparison.noun)}"
    return f"{comparison.test}: {counted(comparison.clips, 'clip')}{films}; {METRICS[key].title}"


def _describe_difference(comparison: Comparison, key: str) -> str:
    score, metric = comparison.scores[key], METRICS[key]
    names = comparison.model.name, comparison.reference.name
    certainty = comparison.certainty(key)
    if score.difference.interval is not None:
        certainty = f"95% interval {certainty}"
    if score.p_value is not None:
        certainty += f", p {_format_p(score.p_value, sign=True)}"
    value = f"{metric.title} {_format(score.difference.value, signed=True)} ({certainty})"
    if not comparison.differs(key) or score.difference.value is None:
        return f"On {comparison.test}, {names[0]} and {names[1]} do not differ clearly: {value}"
    better = (score.difference.value > 0) is not metric.lower_is_better
    verb = "better" if better else "worse"
    return f"On {comparison.test}, {names[0]} is {verb} than {names[1]}: {value}"


def _interval(interval: tuple[float, float] | None, *, signed: bool = False) -> str:
    if interval is None:
        return "-"
    return " to ".join(_format(end, signed=signed) for end in interval)


def _format_p(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    if value < 0.0005:
        return "< .001"
    return f"= {value:.3f}" if sign else f"{value:.3f}"


def _format(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    return format_signed(value, 3) if signed else f"{value:.3f}"
