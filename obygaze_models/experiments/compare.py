"""Compare models of one or several runs, on clips that both models were tested on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, format_signed, group_by, unknown_name
from obygaze_features.errors import ExperimentError
from obygaze_models.data.warnings import RunWarning, leak_warning, unique_warnings
from obygaze_models.experiments.scores import is_cross_validated, scored_clips, split_by
from obygaze_models.experiments.tables import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import (
    CROSSED,
    Difference,
    Estimate,
    estimate_differences,
    holm,
    score_groups,
    too_few,
)
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNIFICANT = 0.05
WIDTH = 100


@dataclass(frozen=True)
class ModelRef:
    """A model in a run. With several runs, `name` includes the run."""

    run: str
    model: str
    name: str


@dataclass(frozen=True)
class Comparison:
    """A model compared with the reference, on the clips of a test set that both were tested on.

    Parameters
    ----------
    test, model, reference
        The test set, and the models.
    clips, class_counts
        The number of clips that both were scored on, and of clips of each class.
    scores
        A `Difference` for each metric: the model's score minus the reference's.
    warnings
        Notes on settings that differ and on clips that are left out, and warnings about leaks.
    noun
        The unit that clips are grouped by, such as "film".
    cross_validated
        True if fits of a model are trained on clips that its other fits test.
    """

    test: str
    model: ModelRef
    reference: ModelRef
    clips: int
    class_counts: tuple[int, ...]
    scores: dict[str, Difference]
    warnings: tuple[RunWarning, ...]
    noun: str
    cross_validated: bool

    def certainty(self, key: str) -> str:
        """Return the interval of a difference as text, or the reason why it has none."""
        difference = self.scores[key].difference
        if difference.interval is not None:
            return " to ".join(format_signed(end, 3) for end in difference.interval)
        return too_few(self.class_counts, difference.groups, key, noun=self.noun) or "-"

    def differs(self, key: str) -> bool:
        """Return True if the models differ significantly, after adjusting for all comparisons."""
        p_value = self.scores[key].p_value
        return p_value is not None and p_value < SIGNIFICANT


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of models with a reference. `str` is a ranked table for each test set.

    `metric` is the score that ranks models. If `pooled` is True, all clips are scored together.
    """

    comparisons: list[Comparison]
    metric: str
    warnings: list[RunWarning]
    pooled: bool = False

    def frame(self) -> pd.DataFrame:
        """Return a row for each comparison and metric."""
        rows = []
        for own in self.comparisons:
            for key, score in own.scores.items():
                low, high = score.difference.interval or (None, None)
                rows.append(
                    {
                        "test": own.test,
                        "model": own.model.name,
                        "reference": own.reference.name,
                        "metric": key,
                        "score": score.model.value,
                        "score_reference": score.reference.value,
                        "difference": score.difference.value,
                        "low": low,
                        "high": high,
                        "p_value": score.p_value,
                        "films": score.difference.groups,
                    }
                )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        by_test: dict[str, list[Comparison]] = {}
        for own in self.comparisons:
            by_test.setdefault(own.test, []).append(own)
        tables = [_ranked_table(pairs, self.metric) for pairs in by_test.values()]
        return "\n\n".join([*tables, fill(self._legend(), WIDTH)])

    def _legend(self) -> str:
        """Return an explanation of the columns, which names the test that p is from."""
        noun = self.comparisons[0].noun
        test = f"a paired t-test over {noun}s"
        text = f"Scores are means over {noun}s, and differences are paired by {noun}."
        if self.pooled:
            test = f"a t-test over a jackknife of {noun}s"
            text = f"All clips are scored together, also clips of different {noun}s and fits."
        if any(own.cross_validated for own in self.comparisons):
            test += f" with {CROSSED}"
        return (
            f"{text} p is from {test}, adjusted by Holm's method for all comparisons. Intervals "
            "are from the same test, and not adjusted."
        )

    def figure(self) -> Figure:
        """Draw the differences and their intervals."""
        from obygaze_models.figures.dots import Dot, Series, dot_plot

        title = METRICS[self.metric].title
        rows: list[tuple[str, list[Dot]]] = []
        for test, same in group_by(self.comparisons, lambda own: own.test).items():
            rows.append((f"{test}: {counted(same[0].clips, 'clip')}", []))
            for own in same:
                if self.metric in own.scores:
                    score = own.scores[self.metric].difference
                    dot = Dot(score.value, *(score.interval or ()))
                    rows.append((own.model.name, [dot]))
        first = self.comparisons[0]
        return dot_plot(
            rows,
            [Series("difference")],
            title=f"Differences in {title}",
            axis=f"difference in {title}, model minus {first.reference.name}, with its 95% "
            f"interval over {first.noun}s",
            description=str(self),
            lines={"no difference": 0.0},
            signed=True,
        )


def compare(
    *runs: AnyRun,
    models: Sequence[str] = (),
    metric: str | None = None,
    pooled: bool = False,
) -> Comparisons:
    """Compare models with a reference, on the clips that both were tested on.

    The reference is the first model of the first run, or the first of `models`.

    Parameters
    ----------
    runs
        Runs or run folders. All must have the same items.
    models
        Compare only models with these names, in all runs.
    metric
        The score that ranks models; by default the main metric of the first run.
    pooled
        Score all clips together instead of film by film. Probabilities from different fits are
        then ranked together, although their scales may differ.
    """
    named = _by_name([as_run(run) for run in runs])
    first = next(iter(named.values()))
    if len({run.header.manifest.digest for run in named.values()}) > 1:
        raise ExperimentError("the runs have different items. Run all on the same manifest")
    tables = _tables(named, models)
    refs = list(dict.fromkeys(ref for ref, _ in tables))
    known = [ref.model for ref in refs]
    chosen = [*models] or [first.main_model]
    for name in chosen:
        if name not in known:
            raise ExperimentError(unknown_name("model", name, first.models))
    reference = refs[known.index(chosen[0])]
    rows = [
        _compare((ref, reference), test, named, tables, pooled=pooled)
        for ref in refs if ref != reference
        for test in dict.fromkeys(test for own, test in tables if own in (ref, reference))
    ]  # fmt: skip
    compared = [row for row in rows if isinstance(row, Comparison)]
    left_out = [row for row in rows if isinstance(row, RunWarning)]
    if not compared:
        nothing = f"no model to compare with {reference.name}. Add a run or a model"
        raise ExperimentError(left_out[0].text if left_out else nothing)
    metric = metric or first.main_metric
    if metric not in compared[0].scores:
        raise ExperimentError(unknown_name("metric", metric, compared[0].scores))
    voiding = [note for run in named.values() for note in run.warnings if note.voids_scores]
    warnings = [*voiding, *(note for own in compared for note in own.warnings), *left_out]
    return Comparisons(_adjust(compared), metric, unique_warnings(warnings), pooled)


def _tables(
    runs: Mapping[str, Run], models: Sequence[str]
) -> dict[tuple[ModelRef, str], pd.DataFrame]:
    """Return the predictions of each model and test set, of all models if none are named."""
    tables = {}
    for name, run in runs.items():
        for (model, test), table in split_by(run.predictions, "model", "test").items():
            title = f"{name}: {model}" if len(runs) > 1 else model
            if not models or model in models:
                tables[ModelRef(name, model, title), test] = table
    return tables


def _by_name(runs: Sequence[Run]) -> dict[str, Run]:
    """Return the runs by folder name, or by path if folder names are not unique."""
    names = [run.folder.name for run in runs]
    if len(set(names)) < len(names):
        names = [run.folder.as_posix() for run in runs]
    return dict(zip(names, runs, strict=True))


def _compare(
    pair: tuple[ModelRef, ModelRef],
    test: str,
    runs: Mapping[str, Run],
    tables: Mapping[tuple[ModelRef, str], pd.DataFrame],
    *,
    pooled: bool,
) -> Comparison | RunWarning:
    """Compare two models on a test set, or return a warning if they cannot be compared."""
    names = f"{pair[0].name} and {pair[1].name}"
    sides = [runs[ref.run] for ref in pair]
    if any((ref, test) not in tables for ref in pair):
        return RunWarning("left-out", test, f"{test} is not a test set of both {names}")
    classes = [run.task(test).classes for run in sides]
    if classes[0] != classes[1] or sides[0].by != sides[1].by:
        text = f"{names} cannot be compared on {test}: other classes or groups"
        return RunWarning("left-out", test, text)
    own = [tables[ref, test] for ref in pair]
    labels = [table.drop_duplicates("id").set_index("id")["label"] for table in own]
    common = labels[0].index.intersection(labels[1].index)
    ids = common[labels[0][common] == labels[1][common]]
    if not len(ids):
        text = f"{names} have no clips of {test} with the same label in common"
        return RunWarning("left-out", test, text)
    scored = []
    for run, table in zip(sides, own, strict=True):
        clips = scored_clips(table[table["id"].isin(ids)], run.group_of, run.header.measure)
        scored.append(score_groups(clips, pooled=pooled))
    warnings = [*_differences(pair, sides), *_leaks(pair, sides, test, ids)]
    rest = labels[0].index.union(labels[1].index).size - len(ids)
    if rest:
        text = f"left out: {counted(rest, 'clip')} of {test} that are not in both, or differ"
        warnings.append(RunWarning("left-out", test, text))
    return Comparison(
        test=test,
        model=pair[0],
        reference=pair[1],
        clips=len(ids),
        class_counts=tuple(scored[0].class_counts),
        scores=estimate_differences(*scored),
        warnings=tuple(warnings),
        noun=sides[0].noun,
        cross_validated=any(map(is_cross_validated, own)),
    )


def _differences(pair: Sequence[ModelRef], sides: Sequence[Run]) -> Iterator[RunWarning]:
    """Yield a note for each setting of the data or protocol that differs between two runs."""
    settings = []
    for run in sides:
        header = run.header
        settings.append(
            {
                "labels": header.manifest.labels,
                "protocol": header.protocol,
                "options": header.experiment.protocol_options,
                "split": header.split,
                "balance": header.balance,
                "learned": header.learned,
            }
        )
    for key, value in settings[0].items():
        other = settings[1][key]
        if value != other:
            text = f"{key}: {value or 'none'} in {pair[0].run}, {other or 'none'} in {pair[1].run}"
            yield RunWarning("different", "", f"different {text}")


def _leaks(
    pair: Sequence[ModelRef], sides: Sequence[Run], test: str, ids: pd.Index[Any]
) -> Iterator[RunWarning]:
    """Yield a warning for each run that was trained on some of the scored clips."""
    for ref, run in zip(pair, sides, strict=True):
        leaked = int(run.clips.loc[run.clips["leaked"], "id"].isin(ids).sum())
        if leaked:
            yield leak_warning(test, f"{leaked} of these {len(ids)} clips", ref.run)


def _adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Adjust the p-values of each metric for the number of comparisons, by Holm's method."""
    for key in dict.fromkeys(key for own in comparisons for key in own.scores):
        scored = [own for own in comparisons if key in own.scores]
        p_values = holm([own.scores[key].p_value for own in scored])
        for own, p_value in zip(scored, p_values, strict=True):
            own.scores[key] = replace(own.scores[key], p_value=p_value)
    return list(comparisons)


def _ranked_table(pairs: Sequence[Comparison], metric: str) -> str:
    """Return the table of a test set's models and the reference, best first."""
    first, title = pairs[0], METRICS[metric].title
    if metric not in first.scores:
        return f"{first.test}: {title} is undefined for its classes"
    name = first.reference.name
    rows = []
    for own in pairs:
        score = own.scores[metric]
        cells = [own.model.name, *_cells(score.model), _signed(score.difference.value)]
        rows.append((score.model.value, [*cells, own.certainty(metric), format_p(score.p_value)]))
    reference = first.scores[metric].reference
    rows.append((reference.value, [name, *_cells(reference), "-", "-", "-"]))
    sign = 1 if METRICS[metric].lower_is_better else -1
    rows.sort(key=lambda row: (row[0] is None, sign * (row[0] or 0.0)))
    head = ["", title, "95%", f"minus {name}", "95%", "p"]
    table = align(head, [cells for _, cells in rows])
    return f"{first.test}: {counted(first.clips, 'clip')}\n{table}"


def _cells(estimate: Estimate) -> list[str]:
    """Return an estimate's value and interval as text."""
    value = "-" if estimate.value is None else f"{estimate.value:.3f}"
    interval = "{:.3f} to {:.3f}".format(*estimate.interval) if estimate.interval else "-"
    return [value, interval]


def _signed(value: float | None) -> str:
    return "-" if value is None else format_signed(value, 3)


def format_p(value: float | None) -> str:
    """Return a p-value as text."""
    if value is None:
        return "-"
    return "< .001" if value < 0.0005 else f"{value:.3f}"
