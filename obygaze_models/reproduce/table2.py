"""Tables 2 and 5: backbones' networks and the bottlenecks, on four pairs of train and test sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from obygaze_features.common.package import reference_json
from obygaze_features.common.text import group_by
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments import published
from obygaze_models.experiments.division import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.warnings import notes, released_leaks, table_warnings
from obygaze_models.reproduce import context as shared
from obygaze_models.reproduce.context import Needs, Planned, ReproductionContext, Runs, Setting
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value, Values
from obygaze_models.scoring.metrics import METRICS, baselines

Levels = tuple[str, ...]
EASY: Levels = ("EN",)
HARD: Levels = ("HN",)
TESTS: tuple[Levels, ...] = (EASY, (*EASY, *HARD))
"""The negatives of the test sets. Sure clips are the positives of all sets."""
# The negatives of the training set and of the test set in each column.
COLUMNS: dict[str, tuple[Levels, Levels]] = {
    "EN-S/EN-S": (EASY, TESTS[0]),
    "HN-S/EN-S": (HARD, TESTS[0]),
    "EN-S/ENHN-S": (EASY, TESTS[1]),
    "HN-S/ENHN-S": (HARD, TESTS[1]),
}
F1_TITLES = {key: METRICS[key].title for key in ("f1_weighted", "f1")}
READINGS = ("text", "code")
HEADS = {"tree": ("pcbm-tree", "PCBM-DT"), "logistic": ("pcbm-logistic", "PCBM-LR")}


@dataclass(frozen=True)
class _Row:
    """A row of the table.

    Parameters
    ----------
    title
        The name of the row.
    slot, array
        The slot of the store, and the feature, of the row's runs.
    paper
        The name of the row in the paper.
    model
        The model's name in the runs. For networks, it is the network in the paper's text.
    released_model
        The model's name in the released protocol, which uses the model of the released code.
    """

    title: str
    slot: str
    array: str
    paper: str
    model: str = "mlp"
    released_model: str = "mlp-author"

    @property
    def kind(self) -> str:
        """The kind of model, "networks" or "bottlenecks". These can have different test folds."""
        return "networks" if self.model == "mlp" else "bottlenecks"

    @property
    def source(self) -> str:
        """The name of the row's runs, which all bottlenecks share."""
        return self.title if self.kind == "networks" else "PCBM"


_NETWORKS = {
    "table2": (
        _Row("ViViT-B/16", "vivit", "max", "ViViT-B/16"),
        _Row("X-CLIP, native", "xclip", "native", "X-CLIP"),
        _Row("X-CLIP, max", "xclip", "max", "X-CLIP"),
    ),
    "table5": (_Row("X-CLIP LSMDC", "lsmdc", "native", "X-CLIP LSMDC"),),
}
_HOW_TO_READ = (
    "Columns are train/test: EN-S is Easy Negative against Sure, HN-S is Hard Negative against "
    "Sure, and ENHN-S is both against Sure. Brackets have the standard deviation over fits; models "
    "without brackets were trained once. native: the backbone's own clip vector; max: the maximum "
    "over its tokens. PCBM-DT, PCBM-LR: concept bottlenecks with a decision tree and with logistic "
    "regression. Scores are means over fits, each scored on all test clips, as in the paper; "
    "`models run` and the report print means over films.",
    "If you cite a number from this table, use a leak-free block. The released blocks are only for "
    "comparison with the paper's numbers.",
)
_LEAKAGE = (
    "Both protocols use the network from the paper's text. They have different training and test "
    "clips, and so different numbers of test clips that were also trained on. They balance "
    "classes differently (by folds, or by sampling). For PCBM, the released number is from one "
    "fit, and the leak-free number is a mean of nine fits. A test fold has about a hundred clips, "
    "so see the report's intervals over films for the influence of chance. Leaks show as "
    "differences above zero, but only if the origin of the features is known."
)


def model_name(row: str, reading: str) -> str:
    """Return the name of a bottleneck in the runs."""
    return f"{row}, {reading}"


def _rows(name: str) -> list[_Row]:
    """Return the rows of a table, in order."""
    rows = list(_NETWORKS[name])
    if name == "table2":
        readings = reference_json("readings.json")
        for _, row in HEADS.values():
            for reading in READINGS:
                title = f"{row}, {readings[reading]['title']}"
                model = model_name(row, reading)
                rows.append(_Row(title, "xclip", "native", row, model, model))
    return rows


def _needs(context: ReproductionContext, *, name: str) -> Needs:
    """Plan an experiment for each setting, source and set of training negatives."""
    needs = context.needs()
    for setting in context.settings():
        for row in _NETWORKS[name]:
            with needs.lacking(row.title):
                models = tuple(dict.fromkeys([_model(row, setting), row.model]))
                for negatives in (EASY, HARD):
                    needs.experiments[setting.key, row.source, negatives] = context.plan(
                        setting, row.slot, row.array, negatives[0], estimators=models,
                        **_problem(row.title, negatives, setting),
                    )  # fmt: skip
        if name == "table2":
            with needs.lacking("PCBM-DT and PCBM-LR"):
                for negatives, planned in bottlenecks(context, setting).items():
                    needs.experiments[setting.key, "PCBM", negatives] = planned
    return needs


def _problem(title: str, negatives: Levels, setting: Setting) -> dict[str, Any]:
    """Return an experiment's name, and the levels of its training and test sets."""
    name = f"{title}: {negatives[0]} against S, {setting.key}"
    levels = {"positives": ("S",), "train_negatives": negatives, "test_negatives": TESTS}
    return {"name": name, **levels}


def _model(row: _Row, setting: Setting) -> str:
    return row.released_model if setting.protocol == "released" else row.model


def bottlenecks(context: ReproductionContext, setting: Setting) -> dict[Levels, Planned]:
    """Plan the bottlenecks for each set of training negatives.

    With each head, they are made as in the paper's text and as in its code.
    """
    split = RELEASED_CONCEPTS if setting.protocol == "released" else ""
    planned = {}
    for negatives in (EASY, HARD):
        planned[negatives] = context.plan(
            setting, "xclip", "native", f"pcbm-{negatives[0]}", split=split,
            estimators=tuple(_bottlenecks(context, negatives)),
            **_problem("Bottlenecks on X-CLIP", negatives, setting),
        )  # fmt: skip
    return planned


def _bottlenecks(context: ReproductionContext, negatives: Levels) -> Iterator[dict[str, Any]]:
    """Yield the options of each reading and head; see manifests/readings.json."""
    for reading in READINGS:
        options, costs = reference_json("readings.json")[reading], context.concept_costs(reading)
        bank_options = {"bank__C": costs} if costs else {}
        for head, (name, row) in HEADS.items():
            own = {**options["concepts"], **options[head][negatives[0]], **bank_options}
            yield {"name": name, **own, "as": model_name(row, reading)}


def _make(context: ReproductionContext, runs: Runs, *, name: str) -> Artifacts:
    """Make the table and, if both protocols were run, compare released and leak-free numbers."""
    settings = context.settings()
    blocks: list[Block] = []
    for setting in settings:
        rows = [row for row in _rows(name) if (setting.key, row.source, EASY) in runs]
        for metric, words in F1_TITLES.items() if rows else ():
            lines: list[Line] = []
            for row in rows:
                ours = _ours(runs, setting.key, row, _model(row, setting), metric)
                lines += Line(row.title, "ours", ours).beside(_paper(context, row, metric))
            lines += _chance_where_scored(runs, setting, rows, metric)
            title = f"{setting.title}: {words}"
            blocks.append(Block(title, setting.protocol, metric, lines))
    blocks += _chance_of_the_paper(context)
    warnings = list(_warnings(runs, settings))
    if any(setting.protocol == "released" for setting in settings):
        warnings += released_leaks(context.manifest)
    all_notes = [*notes(*_HOW_TO_READ, _averages_note(context, name)), *warnings]
    table = Table(list(COLUMNS), blocks, all_notes)
    leakage = _leakage_blocks(context, runs, name)
    if not leakage:
        return Artifacts([table])
    leakage_notes, title = [*notes(_LEAKAGE), *table.alarms], "released beside leak-free"
    beside = Table(list(COLUMNS), leakage, leakage_notes, name="leakage", title=title)
    return Artifacts([table, beside])


def _ours(runs: Runs, setting: str, row: _Row, model: str, metric: str) -> Values:
    """Return our numbers for a row; None for columns without a score."""
    ours: dict[str, Value | None] = dict.fromkeys(COLUMNS)
    for column, (train, test) in COLUMNS.items():
        run = runs[setting, row.source, train]
        for scores in run.model_scores:
            if scores.model == model and run.task(scores.test).classes[0].levels == test:
                std = scores.std_of_fits[metric] if len(scores.by_fit) > 1 else None
                ours[column] = Value.of(scores.mean_of_fits[metric], std)
    return ours


def _paper(context: ReproductionContext, row: _Row, metric: str) -> Values:
    """Return the paper's numbers for a row; {} if our clips or checkpoint are not the paper's."""
    return _published(row.paper, metric) if context.is_published(row.slot) else {}


def _published(row: str, metric: str) -> Values:
    paper = {column: published.published_row(row, column).get(metric) for column in COLUMNS}
    return {column: Value(number.mean, number.std) for column, number in paper.items() if number}


def _warnings(runs: Runs, settings: Sequence[Setting]) -> Iterator[RunWarning]:
    """Yield warnings about the runs, with the names of their rows."""
    released = {setting.key for setting in settings if setting.protocol == "released"}
    for (setting, source, negatives), run in runs.items():
        for warning in table_warnings(run, f"{source}, {negatives[0]}-S, {setting}"):
            # `released_leaks` says more about the leaks in the authors' splits.
            if not (setting in released and warning.code == "leak"):
                yield warning


def _leakage_blocks(context: ReproductionContext, runs: Runs, name: str) -> list[Block]:
    """Return blocks that compare released with leak-free numbers on the same labels and models."""
    blocks = []
    for metric, words in F1_TITLES.items():
        lines: list[Line] = []
        for row in _rows(name):
            if not all((key, row.source, EASY) in runs for key in ("released", shared.SAME_LABELS)):
                continue
            released, leak_free = (
                _ours(runs, key, row, row.model, metric) for key in ("released", shared.SAME_LABELS)
            )
            differences: dict[str, float | None] = {}
            for column in COLUMNS:
                here, there = released[column], leak_free[column]
                differences[column] = here.mean - there.mean if here and there else None
            ours, *paper = Line(f"{row.title}, released", "ours", released).beside(
                _paper(context, row, metric)
            )
            beside = Line("leak-free, same labels", "beside", leak_free)
            difference = Line.of("released minus leak-free", "difference", differences)
            lines += [ours, beside, difference, *paper]
        if lines:
            title = f"The same labels, other folds: {words}"
            blocks.append(Block(title, "released and leak-free", metric, lines))
    return blocks


def _averages_note(context: ReproductionContext, name: str) -> str:
    """Describe which average of F1 each published row has."""
    if not context.has_papers_clips:
        return (
            f"The clips are from {context.manifest.name}, not from the paper, so there are no "
            "published numbers."
        )
    rows = reference_json("published.json")[name]["rows"]
    by_average = group_by(rows, lambda row: rows[row]["average"])
    listed = "; ".join(f"{average}: {', '.join(names)}" for average, names in by_average.items())
    return (
        f"The published rows have different averages of F1 ({listed}). Compare each row with our "
        "row for the same average."
    )


def _chance_where_scored(
    runs: Runs, setting: Setting, rows: Sequence[_Row], metric: str
) -> Iterator[Line]:
    """Yield the scores of guessing at the scored clips' share of positives.

    The released bottlenecks and networks have different test folds, so guessing scores differently.
    """
    folds: dict[tuple[tuple[int, int], ...], str] = {}
    for row in rows:
        run = runs[setting.key, row.source, EASY]
        tests = {run.task(key).classes[0].levels: test for key, test in run.tests.items()}
        if tests.keys() >= set(TESTS):
            scored = [tests[test] for test in TESTS]
            folds.setdefault(tuple((test.clips, test.positives or 0) for test in scored), row.kind)
    for counts, kind in folds.items():
        where = f", {kind}' fold" if len(folds) > 1 else ""
        by_test = dict(zip(TESTS, counts, strict=True))
        clips = {column: by_test[test][0] for column, (_, test) in COLUMNS.items()}
        yield Line.of(f"Clips scored{where}", "count", clips)
        shares = {test: sure / clips for test, (clips, sure) in by_test.items()}
        share, *guesses = _chance(shares, metric)
        yield replace(share, name=f"{share.name}{where}")
        yield from (replace(line, name=f"{line.name}, at that share{where}") for line in guesses)


def _chance_of_the_paper(context: ReproductionContext) -> Iterator[Block]:
    """Yield the paper's baselines at the positives' share in the dataset and in released folds."""
    levels = context.manifest.labels().levels
    all_levels = {test: [level for level in levels if level in (*test, "S")] for test in TESTS}
    levels_by_title = {"Guesses at the whole dataset's share of positives": all_levels}
    if context.has_released_splits:
        splits = {test: context.manifest.split(RELEASED[frozenset({*test, "S"})]) for test in TESTS}
        levels_by_title["Guesses at the released test folds, all of their clips"] = {
            test: [split.class_of[clip] for clip in split.fold(split.last_fold)]
            for test, split in splits.items()
        }
    for title, by_test in levels_by_title.items():
        shares = {test: levels.count("S") / len(levels) for test, levels in by_test.items()}
        for metric, words in F1_TITLES.items():
            lines = list(_chance(shares, metric, with_paper=context.has_papers_clips))
            yield Block(f"{title}: {words}", "", metric, lines)


def _chance(
    shares: Mapping[Levels, float], metric: str, *, with_paper: bool = False
) -> Iterator[Line]:
    """Yield a line of the shares of positives, and a line for each baseline at these shares."""
    by_column = {column: shares[test] for column, (_, test) in COLUMNS.items()}
    yield Line.of("Share of positives", "count", by_column)
    for key, title in published.CHANCE.items():
        scores = {column: baselines(share)[key][metric] for column, share in by_column.items()}
        paper = _published(published.chance_row(key, metric), metric) if with_paper else {}
        where = f"published in {published.CHANCE_VERSIONS[metric]}"
        yield from Line.of(title, "guess", scores).beside(paper, where)


for _name, _title, _about in (
    ("table2", "Table 2", "from a backbone's features to objectification"),
    ("table5", "Table 5", "X-CLIP retrained on LSMDC"),
):
    shared.Target(_name, _title, _about, needs=partial(_needs, name=_name))(
        partial(_make, name=_name)
    )
