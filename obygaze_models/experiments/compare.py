"""Compare models of one run, or of several, on the clips that both were tested on.

Where an experiment has several fits, a clip's mean probability over them counts. So the scores here
are not the means over fits that a run's table shows. The comparisons are data; printed, they are
tables, and a figure can be drawn of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from obygaze_features.common.tables import align, fill
from obygaze_features.common.text import (
    as_list,
    counted,
    for_shell,
    format_signed,
    group_by,
    unknown_name,
)
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_models.data.protocols import find_protocol
from obygaze_models.data.stores import name_stores
from obygaze_models.data.warnings import RunWarning, leak_warning
from obygaze_models.experiments.experiment import store_variants
from obygaze_models.experiments.predictions import FitPredictions, average_over_fits
from obygaze_models.experiments.run_folder import AnyRun, Run, as_run
from obygaze_models.scoring.intervals import REPLICATES, Difference, paired_differences, too_few
from obygaze_models.scoring.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
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

    @property
    def too_few(self) -> str:
        """Why no interval is shown; empty if it is."""
        return too_few([self.smallest], self.films)


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
        selected = self.select(metric)
        if self.stores:
            tables = [
                f"{test}\n{model} on all stores: {score}\n{align(STORE_COLUMNS, rows, width=WIDTH)}"
                for (test, model, score), rows in self.stores_by_model(metric).items()
            ]
            return "\n\n".join([*tables, ADDS])
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
            "ahead, are over draws of films.",
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
                alone = by_stores.get((name,))
                without = by_stores.get(tuple(other for other in names if other != name))
                cells = [
                    _format(pair.scores[key].second) if pair else "-" for pair in (alone, without)
                ]
                rows.append([name, *cells, *(_table_cells(without, key)[2:4] if without else "--")])
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
            interval="95% interval over films",
            value="difference",
            signed=True,
        )


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A model, its run, and its mean predictions and number of fits by test set."""

    ref: ModelRef
    run: Run
    tests: Mapping[str, FitPredictions]
    fits: Mapping[str, int]

    def on(self, test: str, ids: Array) -> tuple[Array, Array, Array]:
        """Labels, probabilities, and which predictions are wrong, of clips of a test set."""
        mean = self.tests[test]
        rows = np.searchsorted(mean.ids, ids)
        return mean.labels[rows], mean.probabilities[rows], mean.wrong[rows]


def compare(
    *runs: AnyRun,
    models: Sequence[str] = (),
    stores: bool = False,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> Comparisons:
    """Compare models on the clips that both were tested on.

    Parameters
    ----------
    runs
        Runs or their folders. Of several, each model is compared with that of the same name in
        the others; of one, its models with one another.
    models
        Only these, of all runs, each with each.
    stores
        Only what each store adds to a model of several, in runs with ``each_store``: all stores,
        with each alone and with all without it.
    seed, replicates
        Of the draws of films.
    """
    opened = [as_run(run) for run in runs]
    manifest = opened[0].record.manifest
    for run in opened[1:]:
        other = run.record.manifest
        if manifest.digest != other.digest:
            raise ExperimentError(
                f"{opened[0].folder} and {run.folder} are over different items: those of "
                f"{manifest.name} ({manifest.digest[:12]}) and of {other.name} "
                f"({other.digest[:12]}); run both on one manifest"
            )
    candidates = _candidates(opened)
    names = list(dict.fromkeys(candidate.ref.model for candidate in candidates))
    for name in models:
        if name not in names and any(name in run.record.unscored for run in opened):
            raise ExperimentError(
                f"{name} has no predictions: all its fits were skipped; run.json says why"
            )
        if name not in names:
            raise ExperimentError(unknown_name("model", name, names))
    if len(candidates) == 1:
        raise ExperimentError(
            f"{opened[0].folder} has one model, {names[0]}; give a second run to compare it with"
        )

    def are_comparable(first: _Candidate, second: _Candidate) -> bool:
        if stores:
            own = store_variants(first.ref.model, _store_names(first.run))
            return first.run is second.run and second.ref.model in own
        if models:
            return first.ref.model in models and second.ref.model in models
        other_run = first.ref.model == second.ref.model and first.run is not second.run
        return len(runs) == 1 or other_run

    pairs = [pair for pair in combinations(candidates, 2) if are_comparable(*pair)]
    paired = {candidate.ref.name for pair in pairs for candidate in pair}
    left_out = []
    if alone := [c.ref for c in candidates if not (models or stores) and c.ref.name not in paired]:
        options = " ".join(dict.fromkeys(f"--model {for_shell(ref.model)}" for ref in alone))
        left_out.append(
            f"no counterpart of that name in another run: {', '.join(ref.name for ref in alone)}; "
            f"to compare these with each other: {options}"
        )
    comparisons = []
    for first, second in pairs:
        for test in dict.fromkeys([*first.tests, *second.tests]):
            comparison = _compare(first, second, test, seed, replicates)
            if isinstance(comparison, Comparison):
                comparisons.append(comparison)
            else:
                left_out.append(comparison)
    if not comparisons:
        name = (models or names)[0]
        nothing = f"there is nothing to compare {name} with; give another run, or another --model"
        raise ExperimentError(left_out[0] if left_out else nothing)
    names_of = {c.ref.run: _store_names(c.run) for c in candidates if stores}
    return Comparisons(comparisons, tuple(dict.fromkeys(left_out)), names_of)


def _store_names(run: Run) -> list[str]:
    return name_stores(as_list(run.record.experiment["store"]))


def _candidates(runs: Sequence[Run]) -> list[_Candidate]:
    """Every model of every run, under a unique name."""
    folders = [run.folder for run in runs]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    candidates = []
    for run, name in zip(runs, names, strict=True):
        for model, fits in group_by(run.predictions(), lambda fit: fit.model).items():
            by_test = group_by(fits, lambda fit: fit.test)
            ref = ModelRef(name, model, f"{name}: {model}" if len(runs) > 1 else model)
            means = {test: average_over_fits(predictions) for test, predictions in by_test.items()}
            counts = {test: len(predictions) for test, predictions in by_test.items()}
            candidates.append(_Candidate(ref, run, means, counts))
    return candidates


def _compare(
    first: _Candidate, second: _Candidate, test: str, seed: int, replicates: int
) -> Comparison | str:
    """Two models on a test set; or why they cannot be compared."""
    sides = first, second
    if test not in first.tests or test not in second.tests:
        tested, untested = sides if test in first.tests else (second, first)
        return f"{test} is a test set of {tested.ref.name}, not of {untested.ref.name}"
    common = np.intersect1d(first.tests[test].ids, second.tests[test].ids)
    ids = common[first.on(test, common)[0] == second.on(test, common)[0]]
    if not len(ids):
        names = f"{first.ref.name} and {second.ref.name}"
        difference = "clips annotated otherwise" if len(common) else "other clips"
        return f"{names} cannot be compared: they have {difference} in {test}"
    labels, first_probabilities, first_wrong = first.on(test, ids)
    _, second_probabilities, second_wrong = second.on(test, ids)
    only_first = int((second_wrong & ~first_wrong).sum())
    only_second = int((first_wrong & ~second_wrong).sum())
    clips, classes = first.run.clips(), first.run.record.tests[test].classes
    films = [clips[clip].group for clip in ids.tolist()]
    disagreements = only_first + only_second
    means = [  # as the runs print them
        {
            key: mean
            for scores in side.run.record.scores
            if (scores.model, scores.test) == (side.ref.model, test)
            for key, mean in scores.mean.items()
        }
        for side in sides
    ]
    return Comparison(
        test=test,
        first=first.ref,
        second=second.ref,
        clips=len(ids),
        films=len(set(films)),
        smallest=int(np.bincount(labels, minlength=len(classes)).min()),
        scores=paired_differences(
            labels,
            first_probabilities,
            second_probabilities,
            films,
            seed=seed,
            replicates=replicates,
        ),
        only_first=only_first,
        only_second=only_second,
        p_value=float(binomtest(only_first, disagreements).pvalue) if disagreements else 1.0,
        notes=tuple(dict.fromkeys(_notes(first, second, test, len(common), set(ids.tolist())))),
        leaks=tuple(dict.fromkeys(_leaks(first, second, test, set(ids.tolist())))),
        fits=(first.fits[test], second.fits[test]),
        means={key: (means[0].get(key), means[1].get(key)) for key in means[0] | means[1]},
        beside=tuple(
            sentence
            for side in sides
            if (compared := side.run.record.annotators.get(test))
            and (sentence := compared.f1_sentence(side.ref.model, side.ref.name))
        ),
    )


def _notes(
    first: _Candidate, second: _Candidate, test: str, common: int, scored: set[str]
) -> Iterator[str]:
    """How two models' data and protocols differ, and which clips had to be left out."""
    a, b = records = first.run.record, second.run.record
    balances = [
        record.balance
        or record.experiment.get("balance")
        or find_protocol(record.protocol).default_balance
        for record in records
    ]
    if not all(balances):  # where a protocol fixes it, the protocols have a note already
        balances = ["", ""]
    splits = [  # films left out need no fold column
        record.split or ("each film" if record.protocol == "leave-film-out" else "")
        for record in records
    ]
    for name, first_value, second_value in (
        ("label sets", a.manifest.labels, b.manifest.labels),
        ("protocols", a.protocol, b.protocol),
        ("splits", *splits),
        ("balance", *balances),
        ("training tasks", a.trained_on(test), b.trained_on(test)),
        ("targets", *(record.experiment.get("targets", "merged") for record in records)),
    ):
        if first_value != second_value:
            yield (
                f"different {name}: {first_value or 'none'} in {first.ref.run}, "
                f"{second_value or 'none'} in {second.ref.run}"
            )
    for side in (first, second):
        if extra := len(side.tests[test].ids) - common:
            yield f"left out: {counted(extra, 'clip')} of {test} that only {side.ref.run} has"
    if relabelled := common - len(scored):
        yield f"left out: {counted(relabelled, 'clip')} of {test} annotated otherwise in the two"
    if first.fits[test] != second.fits[test]:
        same_run = first.run is second.run
        names = [side.ref.name if same_run else side.ref.run for side in (first, second)]
        yield (
            f"{names[0]} is the mean of {counted(first.fits[test], 'fit')}, {names[1]} of "
            f"{second.fits[test]}; a mean of more fits scores better"
        )


def _leaks(
    first: _Candidate, second: _Candidate, test: str, scored: set[str]
) -> Iterator[RunWarning]:
    """Which of the models were trained on clips that are scored here."""
    for side in (first, second):
        if leaked := len(scored & set(side.run.record.leaked)):
            clips = f"{leaked} of these {counted(len(scored), 'clip')}"
            yield leak_warning(test, clips, side.ref.run)


def _describe_test(comparison: Comparison, key: str) -> str:
    clips, films = counted(comparison.clips, "clip"), counted(comparison.films, "film")
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
