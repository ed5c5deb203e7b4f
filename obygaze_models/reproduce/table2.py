"""Tables 2 and 5: each backbone's network and the bottlenecks, four ways to train and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_models.data.tasks import LevelTask
from obygaze_models.data.warnings import RunWarning, unique_warnings
from obygaze_models.estimators.baselines import baselines
from obygaze_models.experiments.division import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.messages import notes, released_leaks, table_warnings
from obygaze_models.experiments.published import (
    AVERAGES,
    CHANCE,
    CHANCE_VERSIONS,
    chance_row,
    published_row,
)
from obygaze_models.experiments.record import ModelScores
from obygaze_models.reproduce.context import (
    LEVELS,
    Feature,
    Pending,
    ReproductionContext,
    Setting,
    Unavailable,
    target,
)
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.scoring.metrics import METRICS, f1_titles

Levels = tuple[str, ...]
EASY: Levels = ("EN",)
HARD: Levels = ("HN",)
#: Column -> the negatives of training, and of the test; Sure clips are positive in both.
COLUMNS: dict[str, tuple[Levels, Levels]] = {
    "EN-S/EN-S": (EASY, EASY),
    "HN-S/EN-S": (HARD, EASY),
    "EN-S/ENHN-S": (EASY, (*EASY, *HARD)),
    "HN-S/ENHN-S": (HARD, (*EASY, *HARD)),
}
#: The test sets: their negatives -> what a run calls them.
TESTS = {levels: LevelTask(("S",), levels).name for levels in (EASY, (*EASY, *HARD))}
F1_TITLES = f1_titles(multiclass=False)
READINGS = ("text", "code")
HEADS = {"tree": ("pcbm-tree", "PCBM-DT"), "logistic": ("pcbm-logistic", "PCBM-LR")}

_NETWORKS = {
    "table2": (
        ("ViViT-B/16", "vivit", "max", "ViViT-B/16"),
        ("X-CLIP, native", "xclip", "native", "X-CLIP"),
        ("X-CLIP, max", "xclip", "max", "X-CLIP"),
    ),
    "table5": (("X-CLIP LSMDC", "lsmdc", "native", "X-CLIP LSMDC"),),
}
"""The networks of a table: title, slot of the store, feature, row of the paper."""
_HOW_TO_READ = (
    "Columns are train/test: EN-S is Easy Negative against Sure, HN-S Hard Negative against Sure, "
    "ENHN-S both against Sure. In brackets the standard deviation over the fits; where there is "
    "none the model was trained once. native: the model's own clip vector; max: over its tokens. "
    "PCBM-DT, PCBM-LR: concept bottlenecks with a decision tree, with logistic regression.",
    "For a number of your own cite a leak-free block; the released ones are there to be compared "
    "with the paper's.",
)


@dataclass(frozen=True)
class _Row:
    """A row of the table: its runs by the negatives that they were trained with.

    Parameters
    ----------
    title
        The text in front of it.
    kind
        Networks and bottlenecks can have different test folds.
    published
        The paper's row, if it has one for these clips and this checkpoint.
    model
        The model's name in the runs.
    runs
        Results by training negatives.
    """

    title: str
    kind: Literal["networks", "bottlenecks"]
    published: str | None
    model: str
    runs: Mapping[Levels, Pending]

    def scores(self, column: str) -> ModelScores | None:
        """The scores of a column; None where the model could not be trained."""
        train, test = COLUMNS[column]
        for scores in self.runs[train]().record.scores:
            if (scores.model, scores.test) == (self.model, TESTS[test]):
                return scores
        return None

    def line(self, metric: str) -> Line:
        """Our numbers."""
        values: dict[str, Value | None] = {}
        for column in COLUMNS:
            scores = self.scores(column)
            if scores is None or (mean := scores.mean[metric]) is None:
                values[column] = None
            else:
                values[column] = Value(mean, scores.std[metric] if len(scores.fits) > 1 else None)
        return Line(self.title, "ours", values)

    def published_line(self, metric: str) -> list[Line]:
        """The paper's numbers, if it printed this row by this average."""
        values: dict[str, Value | None] = {}
        for column in COLUMNS if self.published else ():
            published = published_row(str(self.published), column).get(metric)
            scores = self.scores(column)
            if published and scores:
                mean = scores.mean[metric]
                difference = None if mean is None else mean - published.mean
                values[column] = Value(published.mean, published.std, difference)
        return [Line("published, and ours minus it", "published", values)] if values else []


@target("table2")
def table2(context: ReproductionContext) -> Artifacts:
    """Networks on ViViT and X-CLIP, bottlenecks in both readings, and chance."""
    return _make(context, "table2", "Table 2: from a backbone's features to objectification")


@target("table5")
def table5(context: ReproductionContext) -> Artifacts:
    """The network on X-CLIP as it was retrained on LSMDC."""
    return _make(context, "table5", "Table 5: X-CLIP retrained on LSMDC")


def bottlenecks(
    context: ReproductionContext, setting: Setting, feature: Feature
) -> dict[Levels, Pending]:
    """By training negatives the run of the bottlenecks, with all heads and readings."""
    try:
        estimators = {
            negatives: tuple(
                {**_estimator(context, reading, head, negatives[0]), "as": f"{row}, {reading}"}
                for reading in READINGS
                for head, (_, row) in HEADS.items()
            )
            for negatives in (EASY, HARD)
        }
    except ManifestError as problem:
        raise Unavailable(
            f"the bottlenecks need the paper's eight concepts, and there is an {problem}"
        ) from None
    return {
        negatives: context.run(
            setting,
            feature,
            f"pcbm-{negatives[0]}",
            name=f"Bottlenecks on X-CLIP: {negatives[0]} against S, {setting.key}",
            positives=("S",),
            train_negatives=negatives,
            test_negatives=tuple(TESTS),
            split=RELEASED_CONCEPTS if setting.protocol == "released" else "",
            estimators=of_training,
        )
        for negatives, of_training in estimators.items()
    }


def _make(context: ReproductionContext, name: str, title: str) -> Artifacts:
    blocks: list[Block] = []
    warnings: list[RunWarning] = []
    missing = context.missing_requirements()
    comparable: dict[str, dict[str, list[Line]]] = {metric: {} for metric in F1_TITLES}
    settings = context.settings()
    # All runs are asked for before the first is awaited.
    for setting, rows in [(each, _rows(context, name, each, missing)) for each in settings]:
        if not rows:
            continue
        for row in rows:
            subject = "PCBM" if row.kind == "bottlenecks" else row.title
            for negatives, pending in row.runs.items():
                where = f"{subject}, {negatives[0]}-S, {setting.key}"
                warnings += table_warnings(pending().record, where)
        for metric, words in F1_TITLES.items():
            lines = [
                line for row in rows for line in (row.line(metric), *row.published_line(metric))
            ]
            lines += _chance_lines(rows, metric)
            blocks.append(Block(f"{setting.title}: {words}", setting.protocol, metric, lines))
            # The network of the text, which every protocol trains.
            comparable[metric][setting.key] = [
                replace(row, model="mlp" if row.kind == "networks" else row.model).line(metric)
                for row in rows
            ]
    blocks += _chance_blocks(context)
    if any(setting.protocol == "released" for setting in settings):
        warnings += released_leaks(context.manifest)
    all_notes = [*notes(*_HOW_TO_READ, _averages_note(context, name)), *unique_warnings(warnings)]
    tables = [Table(name, title, list(COLUMNS), blocks, all_notes, list(dict.fromkeys(missing)))]
    if leakage := _leakage_table(name, comparable, list(COLUMNS)):
        tables.append(leakage)
    return Artifacts(tables)


def _leakage_table(
    name: str, lines_by_score: Mapping[str, Mapping[str, Sequence[Line]]], columns: Sequence[str]
) -> Table | None:
    """The released numbers beside the leak-free ones of the same label set.

    Parameters
    ----------
    lines_by_score
        By metric and by key of the setting the rows, all of the same network.
    """
    blocks = []
    for score, by_setting in lines_by_score.items():
        leak_free = {line.name: line for line in by_setting.get("leak-free-released-labels", ())}
        lines = []
        for released in by_setting.get("released", ()):
            counterpart = leak_free.get(released.name)
            if counterpart is None:
                continue
            differences: dict[str, Value | None] = {}
            for column in columns:
                here, there = released.values.get(column), counterpart.values.get(column)
                differences[column] = Value(here.mean - there.mean) if here and there else None
            lines += [
                Line(f"{released.name}, released", "ours", released.values),
                Line(f"{released.name}, leak-free", "ours", counterpart.values),
                Line("released minus leak-free", "difference", differences),
            ]
        if lines:
            blocks.append(Block(METRICS[score].title, "released and leak-free", score, lines))
    if not blocks:
        return None
    return Table(
        f"{name}-leakage",
        "Released beside leak-free: the same labels, other folds",
        columns,
        blocks,
        notes(
            "Both use the network of the text. They differ in which clips train and which test, "
            "and so in how many test clips were trained on; in how classes are balanced (by folds, "
            "or by a draw); and for PCBM the released number is one fit, the leak-free one a mean "
            "of nine. A test fold has about a hundred clips: the report's intervals over films "
            "show how much is chance."
        ),
    )


def _rows(
    context: ReproductionContext, name: str, setting: Setting, missing: list[str]
) -> list[_Row]:
    """The rows that can be made; `missing` is extended by the others."""
    rows = []
    for title, slot, array, paper_row in _NETWORKS[name]:
        try:
            feature = context.feature(slot, array)
        except Unavailable as problem:
            missing.append(f"{title}: {problem}")
        else:
            published = paper_row if context.is_published(slot) else None
            rows.append(_network(context, setting, feature, title, published))
    if name == "table2":
        try:
            rows += _bottleneck_rows(context, setting)
        except Unavailable as problem:
            missing.append(f"PCBM-DT and PCBM-LR: {problem}")
    return rows


def _network(
    context: ReproductionContext,
    setting: Setting,
    feature: Feature,
    title: str,
    published: str | None,
) -> _Row:
    """The network on one feature: the released code's under its protocol, else the text's.

    The text's is always trained, so that protocols can be compared.
    """
    models = ("mlp-author", "mlp") if setting.protocol == "released" else ("mlp",)
    runs = {
        negatives: context.run(
            setting,
            feature,
            negatives[0],
            name=f"{title}: {negatives[0]} against S, {setting.key}",
            positives=("S",),
            train_negatives=negatives,
            test_negatives=tuple(TESTS),
            estimators=models,
        )
        for negatives in (EASY, HARD)
    }
    return _Row(title, "networks", published, models[0], runs)


def _bottleneck_rows(context: ReproductionContext, setting: Setting) -> list[_Row]:
    """Both heads in both readings."""
    feature = context.feature("xclip", "native")
    runs = bottlenecks(context, setting, feature)
    readings = reference_json("readings.json")
    return [
        _Row(
            f"{row}, {readings[reading]['title']}",
            "bottlenecks",
            row if context.is_published(feature.slot) else None,
            f"{row}, {reading}",
            runs,
        )
        for _, row in HEADS.values()
        for reading in READINGS
    ]


def _estimator(
    context: ReproductionContext, reading: str, head: str, negatives: str
) -> dict[str, Any]:
    """An estimator's options in one reading of the paper; see manifests/readings.json."""
    options = reference_json("readings.json")[reading]
    estimator = {"name": HEADS[head][0], **options["concepts"], **options[head][negatives]}
    if "concept_C" in options:
        estimator["bank__C"] = {
            context.manifest.scheme.concept(name): C for name, C in options["concept_C"].items()
        }
    return estimator


def _averages_note(context: ReproductionContext, name: str) -> str:
    """Which average of F1 each published row has."""
    if not context.has_papers_clips:
        return (
            f"The clips are those of {context.manifest.name}, not the paper's: nothing is "
            "published."
        )
    rows: dict[str, list[str]] = {average: [] for average in AVERAGES}
    for row, entry in reference_json("published.json")[name]["rows"].items():
        rows[entry["average"]].append(row)
    listed = "; ".join(f"{average}: {', '.join(of)}" for average, of in rows.items() if of)
    return (
        f"The published rows have different averages of F1 ({listed}): compare each with ours of "
        "the same average."
    )


def _chance_lines(rows: Sequence[_Row], metric: str) -> list[Line]:
    """Chance at the share of positives of the clips that were scored.

    The released bottlenecks have another test fold than the networks, and so another chance.
    """
    folds: dict[tuple[tuple[int, int], ...], str] = {}
    for row in rows:
        tests = next(iter(row.runs.values()))().record.tests
        if tests.keys() >= set(TESTS.values()):
            test_sets = [tests[name] for name in TESTS.values()]
            counts = tuple((test.clips, test.positives or 0) for test in test_sets)
            folds.setdefault(counts, row.kind)
    lines = []
    for counts, kind in folds.items():
        where = "" if len(folds) == 1 else f", {kind}' fold"
        by_test = dict(zip(TESTS, counts, strict=True))
        by_column = {column: by_test[test] for column, (_, test) in COLUMNS.items()}
        clips = {column: Value(clips) for column, (clips, _) in by_column.items()}
        share = {column: sure / clips for column, (clips, sure) in by_column.items()}
        lines += [
            Line(f"Clips scored{where}", "count", clips),
            Line(f"Share of positives{where}", "count", _values(share)),
            *(
                Line(f"{title}, at that share{where}", "guess", _chance(share, baseline, metric))
                for baseline, title in CHANCE.items()
            ),
        ]
    return lines


def _chance_blocks(context: ReproductionContext) -> list[Block]:
    """The paper's own baselines, at the whole dataset's share and at the released folds'."""
    levels = context.manifest.labels().levels
    count = {level: levels.count(level) for level in LEVELS}
    shares = {
        test: count["S"] / (count["S"] + sum(count[level] for level in test)) for test in TESTS
    }
    blocks = _chance_block(context, "Guesses at the whole dataset's share of positives", shares)
    if context.has_released_splits:
        for test in TESTS:
            split = context.manifest.split(RELEASED[frozenset({*test, "S"})])
            classes = [split.class_of[clip] for clip in split.fold(split.last_fold)]
            shares[test] = classes.count("S") / len(classes)
        title = "Guesses at the released test folds, all of their clips"
        blocks += _chance_block(context, title, shares)
    return blocks


def _chance_block(
    context: ReproductionContext, title: str, shares: Mapping[Levels, float]
) -> list[Block]:
    share = {column: shares[test] for column, (_, test) in COLUMNS.items()}
    blocks = []
    for metric, words in F1_TITLES.items():
        lines = [Line("Share of positives", "count", _values(share))]
        for baseline, name in CHANCE.items():
            ours = _chance(share, baseline, metric)
            lines.append(Line(name, "guess", ours))
            row, version = chance_row(baseline, metric), CHANCE_VERSIONS[metric]
            beside: dict[str, Value | None] = {}
            for column, value in ours.items():
                published = published_row(row, column).get(metric)
                if published and value:
                    difference = value.mean - published.mean
                    beside[column] = Value(published.mean, published.std, difference)
            if beside and context.has_papers_clips:
                row_name = f"published in {version}, and ours minus it"
                lines.append(Line(row_name, "published", beside))
        blocks.append(Block(f"{title}: {words}", "", metric, lines))
    return blocks


def _chance(share: Mapping[str, float], baseline: str, metric: str) -> dict[str, Value | None]:
    return _values({column: baselines(of)[baseline][metric] for column, of in share.items()})


def _values(numbers: Mapping[str, float | None]) -> dict[str, Value | None]:
    return {column: None if number is None else Value(number) for column, number in numbers.items()}
