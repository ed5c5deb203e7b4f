"""Tables 2 and 5: each backbone's network and the bottlenecks, four ways to train and test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_models.data.tasks import two_classes
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
from obygaze_models.reproduce.context import (
    SAME_LABELS,
    Feature,
    Pending,
    ReproductionContext,
    Setting,
    Unavailable,
    target,
)
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value, published_lines
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
TESTS = {levels: two_classes({}, ("S",), levels).key for levels in (EASY, (*EASY, *HARD))}
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
_BESIDE = "The same labels, other folds"
_HOW_TO_READ = (
    "Columns are train/test: EN-S is Easy Negative against Sure, HN-S Hard Negative against Sure, "
    "ENHN-S both against Sure. In brackets the standard deviation over the fits; where there is "
    "none the model was trained once. native: the model's own clip vector; max: over its tokens. "
    "PCBM-DT, PCBM-LR: concept bottlenecks with a decision tree, with logistic regression. Scores "
    "are means over fits, each on all its test clips, as in the paper; `models run` and the report "
    "print means over films.",
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

    def lines(self, metric: str) -> list[Line]:
        """Our numbers, None where there are none; then the paper's, if it has this average."""
        ours: dict[str, Value | None] = dict.fromkeys(COLUMNS)
        for column, (train, test) in COLUMNS.items():
            for scores in self.runs[train]().record.scores:
                mean = scores.over_fits.mean[metric]
                if (scores.model, scores.test) == (self.model, TESTS[test]) and mean is not None:
                    several = len(scores.fits) > 1
                    ours[column] = Value(mean, scores.over_fits.std[metric] if several else None)
        return [Line(self.title, "ours", ours), *_published(self.published, metric, ours)]


@target("table2")
def table2(context: ReproductionContext) -> Artifacts:
    """Networks on ViViT and X-CLIP, bottlenecks in both readings, and chance."""
    return _make(context, "table2", "Table 2: from a backbone's features to objectification")


@target("table5")
def table5(context: ReproductionContext) -> Artifacts:
    """The network on X-CLIP as it was retrained on LSMDC."""
    return _make(context, "table5", "Table 5: X-CLIP retrained on LSMDC")


def bottlenecks(context: ReproductionContext, setting: Setting) -> dict[Levels, Pending]:
    """By training negatives the run of the bottlenecks, with all heads and readings."""
    feature = context.feature("xclip", "native")
    readings = reference_json("readings.json")  # see manifests/readings.json
    to_ours = context.manifest.scheme.concept
    try:
        C_of = {
            reading: {"bank__C": {to_ours(name): C for name, C in options["concept_C"].items()}}
            for reading, options in readings.items()
            if "concept_C" in options
        }
    except ManifestError as problem:
        raise Unavailable(
            f"the bottlenecks need the paper's eight concepts, and there is an {problem}"
        ) from None

    def estimator(reading: str, head: str, negatives: str) -> dict[str, Any]:
        name, row = HEADS[head]
        options = {**readings[reading]["concepts"], **readings[reading][head][negatives]}
        return {"name": name, **options, **C_of.get(reading, {}), "as": f"{row}, {reading}"}

    estimators = {
        levels: tuple(estimator(reading, head, levels[0]) for reading in READINGS for head in HEADS)
        for levels in (EASY, HARD)
    }
    split = RELEASED_CONCEPTS if setting.protocol == "released" else ""
    title = "Bottlenecks on X-CLIP"
    return _runs(context, setting, feature, "pcbm-", title, estimators, split=split)


def _runs(
    context: ReproductionContext,
    setting: Setting,
    feature: Feature,
    prefix: str,
    title: str,
    estimators: Mapping[Levels, tuple[Any, ...]],
    **options: Any,
) -> dict[Levels, Pending]:
    """By training negatives a run of their estimators, on both test sets."""
    return {
        negatives: context.run(
            setting,
            feature,
            f"{prefix}{negatives[0]}",
            name=f"{title}: {negatives[0]} against S, {setting.key}",
            positives=("S",),
            train_negatives=negatives,
            test_negatives=tuple(TESTS),
            estimators=of_training,
            **options,
        )
        for negatives, of_training in estimators.items()
    }


def _make(context: ReproductionContext, name: str, title: str) -> Artifacts:
    blocks: list[Block] = []
    warnings: list[RunWarning] = []
    missing = context.missing_requirements()
    comparable: dict[str, dict[str, list[list[Line]]]] = {metric: {} for metric in F1_TITLES}
    # All runs are asked for before the first is awaited.
    rows_of = {setting: _rows(context, name, setting, missing) for setting in context.settings()}
    for setting, rows in rows_of.items():
        for row in rows:
            subject = "PCBM" if row.kind == "bottlenecks" else row.title
            for negatives, pending in row.runs.items():
                where = f"{subject}, {negatives[0]}-S, {setting.key}"
                found = table_warnings(pending().record, where)
                # Of the leaks in the authors' own splits `released_leaks` says more, below.
                is_released = setting.protocol == "released"
                warnings += [w for w in found if not (is_released and w.code == "leak")]
        for metric, words in F1_TITLES.items() if rows else ():
            lines = [line for row in rows for line in row.lines(metric)]
            lines += _chance_where_scored(rows, metric)
            blocks.append(Block(f"{setting.title}: {words}", setting.protocol, metric, lines))
            # The network of the text, which every protocol trains.
            comparable[metric][setting.key] = [
                replace(row, model="mlp" if row.kind == "networks" else row.model).lines(metric)
                for row in rows
            ]
    blocks += _chance_of_the_paper(context)
    if any(setting.protocol == "released" for setting in rows_of):
        warnings += released_leaks(context.manifest)
    all_notes = [*notes(*_HOW_TO_READ, _averages_note(context, name)), *unique_warnings(warnings)]
    table = Table(name, title, list(COLUMNS), blocks, all_notes, list(dict.fromkeys(missing)))
    return Artifacts([table, *_leakage_table(table, comparable)])


def _leakage_table(
    table: Table, rows_by_score: Mapping[str, Mapping[str, Sequence[Sequence[Line]]]]
) -> list[Table]:
    """The released numbers beside the leak-free ones of the same label set, if there are both.

    Parameters
    ----------
    table
        The one that has all settings.
    rows_by_score
        By metric and by key of the setting the rows, all of the same network: our line, and the
        paper's.
    """
    blocks = []
    for score, by_setting in rows_by_score.items():
        leak_free = {line.name: line for line, *_ in by_setting.get(SAME_LABELS, ())}
        lines = []
        for released, *published in by_setting.get("released", ()):
            if counterpart := leak_free.get(released.name):
                pairs = (
                    (column, released.values[column], counterpart.values[column])
                    for column in COLUMNS
                )
                differences = {
                    column: here.mean - there.mean if here and there else None
                    for column, here, there in pairs
                }
                lines += [
                    Line(f"{released.name}, released", "ours", released.values),
                    Line("leak-free, same labels", "beside", counterpart.values),
                    Line.of("released minus leak-free", "difference", differences),
                    *published,
                ]
        if lines:
            block_title = f"{_BESIDE}: {METRICS[score].title}"
            blocks.append(Block(block_title, "released and leak-free", score, lines))
    title = f"{table.title.partition(':')[0]}, released beside leak-free"
    text = (
        "Both use the network of the text. They differ in which clips train and which test, "
        "and so in how many test clips were trained on; in how classes are balanced (by folds, "
        "or by a draw); and for PCBM the released number is one fit, the leak-free one a mean "
        "of nine. A test fold has about a hundred clips: the report's intervals over films "
        "show how much is chance. What leaks add is in differences above zero, and only where it "
        "is known what made the features."
    )
    table_notes = [*notes(text), *table.alarms]
    name = f"{table.name}-leakage"
    return [Table(name, title, list(COLUMNS), blocks, table_notes)] if blocks else []


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
            # The released code's network under its protocol. The text's is always trained, so that
            # protocols can be compared.
            models = ("mlp-author", "mlp") if setting.protocol == "released" else ("mlp",)
            estimators = dict.fromkeys((EASY, HARD), models)
            runs = _runs(context, setting, feature, "", title, estimators)
            published = paper_row if context.is_published(slot) else None
            rows.append(_Row(title, "networks", published, models[0], runs))
    if name == "table2":
        readings = reference_json("readings.json")
        try:
            runs = bottlenecks(context, setting)
        except Unavailable as problem:
            missing.append(f"PCBM-DT and PCBM-LR: {problem}")
        else:
            rows += [
                _Row(
                    f"{row}, {readings[reading]['title']}",
                    "bottlenecks",
                    row if context.is_published("xclip") else None,
                    f"{row}, {reading}",
                    runs,
                )
                for _, row in HEADS.values()
                for reading in READINGS
            ]
    return rows


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


def _chance_where_scored(rows: Sequence[_Row], metric: str) -> Iterator[Line]:
    """Chance at the share of positives of the clips that were scored.

    The released bottlenecks have another test fold than the networks, and so another chance.
    """
    folds: dict[tuple[tuple[int, int], ...], str] = {}
    for row in rows:
        tests = next(iter(row.runs.values()))().record.tests
        if tests.keys() >= set(TESTS.values()):
            scored = [tests[name] for name in TESTS.values()]
            folds.setdefault(tuple((test.clips, test.positives or 0) for test in scored), row.kind)
    for counts, kind in folds.items():
        where = "" if len(folds) == 1 else f", {kind}' fold"
        by_test = dict(zip(TESTS, counts, strict=True))
        clips = {column: by_test[test][0] for column, (_, test) in COLUMNS.items()}
        yield Line.of(f"Clips scored{where}", "count", clips)
        shares = {test: sure / clips for test, (clips, sure) in by_test.items()}
        share, *guesses = _guesses(shares, metric)
        yield replace(share, name=f"{share.name}{where}")
        yield from (replace(line, name=f"{line.name}, at that share{where}") for line in guesses)


def _chance_of_the_paper(context: ReproductionContext) -> Iterator[Block]:
    """The paper's own baselines, at the whole dataset's share and at the released folds'."""
    count = Counter(context.manifest.labels().levels)
    shares = {
        test: count["S"] / (count["S"] + sum(count[level] for level in test)) for test in TESTS
    }
    shares_by_title = {"Guesses at the whole dataset's share of positives": shares}
    if context.has_released_splits:
        splits = {test: context.manifest.split(RELEASED[frozenset({*test, "S"})]) for test in TESTS}
        classes = {
            test: [split.class_of[clip] for clip in split.fold(split.test_fold)]
            for test, split in splits.items()
        }
        shares_by_title["Guesses at the released test folds, all of their clips"] = {
            test: levels.count("S") / len(levels) for test, levels in classes.items()
        }
    for title, shares in shares_by_title.items():
        for metric, words in F1_TITLES.items():
            share, *guesses = _guesses(shares, metric)
            lines = [share]
            for line, baseline in zip(guesses, CHANCE, strict=True):
                row = chance_row(baseline, metric) if context.has_papers_clips else None
                where = f"published in {CHANCE_VERSIONS[metric]}"
                lines += [line, *_published(row, metric, line.values, where)]
            yield Block(f"{title}: {words}", "", metric, lines)


def _guesses(shares: Mapping[Levels, float], metric: str) -> list[Line]:
    """The shares of positives, and what each baseline scores there."""
    by_column = {column: shares[test] for column, (_, test) in COLUMNS.items()}
    scores = {column: baselines(share) for column, share in by_column.items()}
    return [
        Line.of("Share of positives", "count", by_column),
        *(
            Line.of(title, "guess", {column: at[key][metric] for column, at in scores.items()})
            for key, title in CHANCE.items()
        ),
    ]


def _published(
    row: str | None, metric: str, ours: Mapping[str, Value | None], where: str = "published"
) -> list[Line]:
    """The paper's numbers of a row, if it has one by this average, and ours minus them."""
    values: dict[str, Value | None] = {}
    for column, value in ours.items() if row else ():
        if paper := published_row(str(row), column).get(metric):
            difference = value.mean - paper.mean if value else None
            values[column] = Value(paper.mean, paper.std, difference)
    return published_lines(values, where)
